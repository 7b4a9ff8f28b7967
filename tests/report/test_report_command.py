"""The command `report`: what it writes and prints, and how it refuses bad input."""

import pytest

from support.rows import put, varied

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


@pytest.fixture
def command():
    from click.testing import CliRunner

    from kernelmark.bench.cli.report import report as found

    return lambda *words: CliRunner().invoke(found, [str(word) for word in words])


def test_the_command_reports_the_latest_run_and_names_the_page(store, tmp_path, command):
    varied(store)
    done = command("--db", store.path, "--out", tmp_path / "out")
    assert done.output.splitlines() == ["run r1", str(tmp_path / "out" / "index.html")]
    assert done.exit_code == 0


def test_the_command_judges_the_claims_on_the_page_and_in_tables(begun, tmp_path, command):
    for layout, median in (("NT", 2e-3), ("NN", 1e-3)):
        put(begun, f"gemm/m1024n2048k26752/f32/{layout}", "gemm/scipy.sgemm", median)
    command("--db", begun.path, "--out", tmp_path)
    page = (tmp_path / "index.html").read_text().replace("<wbr>", "")
    assert "1 confirmed, 1 refuted" in page
    assert "<strong>confirmed</strong>: op_T is slower than op_N" in page
    assert {path.name for path in (tmp_path / "tables").glob("claims.*")} == {"claims.csv", "claims.md"}


def test_a_number_that_no_machine_can_have_is_one_line_that_names_the_row(kernelmark, begun):
    for kernel, speedup in (("some.base", None), ("some.fast", 1.7e308)):
        put(begun, "gemm/m8n8k8/f32/NN", f"gemm/{kernel}", baseline="gemm/some.base", speedup=speedup)
    begun.close()
    done = kernelmark("report", "--db", str(begun.path), "--out", "out")
    found = "gemm/some.fast gemm/m8n8k8/f32/NN cold t2: speedup is 1.7e+308, expected from 1e-30 to 1e+30"
    assert (done.returncode, done.stderr) == (2, f"kernelmark: run r1: {found}; `kernelmark show` leaves figures out\n")


def test_bad_input_is_one_line(begun, tmp_path, command):
    from kernelmark.bench.plan.errors import UsageError

    (tmp_path / "file").write_text("")
    for words in (
        ("nothing", "--db", begun.path, "--out", tmp_path / "out"),
        ("--db", tmp_path / "none.db", "--out", tmp_path / "out"),
        ("--db", begun.path, "--out", tmp_path / "file" / "below"),
    ):
        failed = command(*words).exception
        assert isinstance(failed, UsageError)
        assert len(str(failed).splitlines()) == 1
