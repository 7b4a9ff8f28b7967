"""The report of a run: the contents of the page and the folder, and the rows embedded in the page."""

import base64
import hashlib
import json
import re

import numpy as np
import pytest

from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.store import Store
from kernelmark.bench.report import findings, founding
from kernelmark.bench.report.anonymity import hashed
from kernelmark.bench.report.method import paragraph
from kernelmark.bench.report.page import write_report
from kernelmark.bench.report.page_data import LEVELS, column, page_columns, page_data
from kernelmark.bench.report.run_data import RunData
from support.rows import DISTURBED, ENVIRONMENT, begin, fail, many, put, varied


def shown(folder):
    """Return the page in a folder, without the places where lines may break."""
    return (folder / "index.html").read_text(encoding="utf-8").replace("<wbr>", "")


def report(store, folder, pdf=False, **options):
    write_report(store, "r1", folder, pdf=pdf, **options)
    return shown(folder)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """Report a run of one row twice, check that both reports have the same bytes, and return the first one's folder."""
    folder = tmp_path_factory.mktemp("single")
    with Store(folder / "results.db") as store:
        begin(store)
        put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base")
        for name in ("out", "other"):
            report(store, folder / name, pdf=True)
    assert files(folder / "out") == files(folder / "other")
    return folder / "out"


@pytest.fixture
def page(single):
    return shown(single)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everything")
    with Store(folder / "results.db") as store:
        varied(store)
        yield store, report(store, folder / "out")


def test_a_report_has_page_figures_tables_method_and_environment_and_the_same_bytes_for_the_same_data(single):
    assert set(files(single)) == {
        "index.html",
        "method.txt",
        "environment.json",
        "figures/captions.json",
        "figures/samples-gemm-cpu-t2-cold-fp32.svg",
        "figures/samples-gemm-cpu-t2-cold-fp32.pdf",
        "tables/results.csv",
        "tables/results.md",
        "tables/results.tex",
        "tables/results-gemm.tex",
    }
    environment = json.loads((single / "environment.json").read_text())
    assert environment["machine"]["cpu"] == "Some CPU"
    assert environment["run_id"] == "r1"


def test_ratios_of_variants_stand_below_the_verdict_and_their_figure_in_the_open(everything):
    shown = everything[1].partition('<details id="findings">')[0]
    words = "NT vs NN, 3 problems: no measurable difference on 3; 0.9x on average, 0.9x to 0.9x"
    assert f"</p>\n<p>{words}" in shown
    assert 'href="figures/ratio-gemm-nt-over-nn-f32-nt-cpu-t2-cold-fp32.svg"' in shown


def test_the_page_loads_nothing_from_elsewhere_and_runs_its_own_script_alone(page):
    assert not re.search(r'(?:src|srcset|action)="(?!data:)', page)
    assert not re.search(r"<link(?![^>]*href=\"data:)", page)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", page)
    assert "default-src 'none'" in page
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert not re.search(r"<[^>]* on\w+=|javascript:", page)


@pytest.mark.parametrize("text", ['{"../victim": ""}', "[" * 10**5, '{"a": 1}', ""])
def test_a_list_of_figures_that_is_none_of_ours_removes_nothing_elsewhere(begun, tmp_path, text):
    (tmp_path / "report" / "figures").mkdir(parents=True)
    (tmp_path / "report" / "victim.pdf").write_text("kept")
    (tmp_path / "report" / "figures" / "captions.json").write_text(text)
    write_report(begun, "r1", tmp_path / "report")
    assert (tmp_path / "report" / "victim.pdf").read_text() == "kept"


def test_hosts_and_uuids_are_hashes_in_the_page_and_beside_it(store, tmp_path):
    uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    variables = {"CUDA_VISIBLE_DEVICES": uuid, "NUMBA_CACHE_DIR": "/home/jane/cache"}
    begin(store, plan={"gpus": ["GPU-c0ffee"]}, environment={**ENVIRONMENT, "variables": variables})
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base", host="bignode7", device_uuid="GPU-c0ffee")
    report(store, tmp_path / "out")
    text = b"".join(files(tmp_path / "out").values())
    names = b"bignode7", b"GPU-c0ffee", uuid.encode(), b"/home/jane"
    assert [name for name in names if name in text] == []
    assert f"/home/{hashed('user', 'jane')}/cache".encode() in text


def test_a_run_of_failures_alone_says_so_and_why(begun, tmp_path):
    failures = sorted(set(Status) - {Status.OK})
    for status in failures:
        fail(begun, "gemm/m8n8k8/f32/NN", f"gemm/some.{status}", status)
    page = report(begun, tmp_path)
    assert f"{len(failures)} rows: 1 " in page
    assert ". None has a time" in page
    assert [status for status in failures if f"1 {status}: gemm/some.{status}: c[0] is NaN" not in page] == []
    assert "There is no figure" in page


def test_a_section_without_data_is_left_out_and_a_figure_that_was_not_drawn_is_named_with_its_reason(page):
    assert "<li>Roofline: no row with operations has a ceiling" in page
    assert founding.QUESTION not in page
    assert "founding claims" not in page


def test_text_from_rows_cannot_become_markup_or_a_formula(begun, tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    fail(begun, "gemm/m8n8k8/f32/NN", f"gemm/some.{evil}", reason=evil)
    for kernel in ("<b>&amp;", "$\\frac{$", "\x1b[31m"):
        put(begun, "gemm/m8n8k8/f32/NN", f"gemm/some.{kernel}")
    page = report(begun, tmp_path)
    assert evil not in page
    assert "<b>" not in page
    assert page.count("</script>") == 2


def test_rows_from_elsewhere_with_little_known_of_them_are_reported(store, tmp_path):
    begin(store, machine={}, environment={}, plan={}, git_commit="", suites=("elsewhere.json",))
    nothing = dict.fromkeys(("gflop_per_s", "gbyte_per_s", "time_s_ci95_low", "time_s_ci95_high", "time_s_min"))
    nothing |= {"dtype": "", "numerics": "", "provider": "", "device_name": "", "versions": "", "started_at": ""}
    for name in ("test_a[1-2]", "test_b"):
        put(store, f"elsewhere/{name}/", "elsewhere/some", **nothing)
    put(store, "gemm//", "gemm/some", **{**nothing, "speedup": 0.0, "time_s_median": 0.0})
    assert "3 rows: 3 ok." in report(store, tmp_path)


def test_a_missing_package_is_named_with_its_remedy(begun, tmp_path, monkeypatch, complaint):
    monkeypatch.setattr("kernelmark.bench.report.page.find_spec", lambda name: None)
    assert complaint(lambda: write_report(begun, "r1", tmp_path)).endswith("pip install 'kernelmark[report]'")


def test_nothing_heavy_is_loaded_before_a_figure_is_drawn(python_in, tmp_path):
    modules = "sys, kernelmark.bench.cli.report, kernelmark.bench.report.page"
    code = f"import {modules}; print({{'matplotlib', 'jinja2'}} & set(sys.modules))"
    assert python_in(tmp_path, "-c", code).stdout.strip() == "set()"


def test_the_head_names_suite_machine_date_and_noise_above_the_verdict_of_the_run(store, tmp_path, registry):
    begin(store, suites=("smoke",))
    put(store, "copy/m8n8/f32", "copy/some.base")
    page = report(store, tmp_path, registry=registry)
    assert '<span class="badge clean">clean</span>' in page
    assert "NOISY" not in page
    put(store, "copy/m8n8/f32", "copy/some.fast", 4e-4, disturbed=DISTURBED)
    head, _, rest = report(store, tmp_path, registry=registry).partition('class="verdict"')
    assert "<h1>Smoke: every CPU kernel on small shapes</h1>" in head
    assert "<span>Some CPU</span> &middot; <span>1 January 2026, 10:00 UTC</span>" in head
    assert '<span class="badge noisy">noisy</span>' in head
    assert "NOISY: 1 of 2 cases was disturbed (other processes used 0.98 CPUs). Rows marked ~ may be slower" in head
    assert findings.verdict(RunData(store, "r1")) in rest


def test_what_has_no_result_is_grouped_by_its_reason_and_only_failed_checks_stand_out(begun, tmp_path):
    for n in (1, 2):
        fail(begun, f"copy/m{n}n8/f32", f"copy/some.k{n}", "unsupported", reason="no f16 path")
    fail(begun, "copy/m3n8/f32", "copy/some.bad")
    page = report(begun, tmp_path)
    assert '<p class="refusal">2 unsupported: copy/some.k1, copy/some.k2: ' in page
    assert '<p class="bad">1 wrong: copy/some.bad: c[0] is NaN</p>' in page
    assert "A check failed." in page


def test_a_report_of_more_rows_than_anybody_reads_has_its_table_as_csv_alone(begun, tmp_path, monkeypatch):
    for n in (8, 16):
        put(begun, f"gemm/m{n}n8k8/f32/NN", "gemm/some.base")
    assert "tables/results.tex" in report(begun, tmp_path)
    monkeypatch.setattr("kernelmark.bench.report.page.MOST_TABLED", 1)
    page = report(begun, tmp_path)
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {"results.csv"}
    assert "tables/results.tex" not in page
    assert "kernelmark export r1 --format latex" in page


def test_the_data_of_a_page_are_written_a_column_at_a_time_and_read_back_whole(everything):
    store, page = everything
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data = RunData(store, "r1")
    assert json.loads(text) == json.loads(json.dumps(page_data(data) | {"columns": dict(page_columns(data))}))


def test_pdfs_and_figures_of_an_earlier_report_go_and_foreign_files_stay(begun, tmp_path):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.other", speedup=2.0)
    begin(begun, "r2")
    figures = tmp_path / "figures"
    page = write_report(begun, "r1", tmp_path)
    assert list(figures.glob("*.pdf"))
    assert ">PDF</a>" in page.read_text()
    (figures / "mine.pdf").write_text("mine")
    page = write_report(begun, "r1", tmp_path, pdf=False)
    assert list(figures.glob("*.svg"))
    assert [path.name for path in figures.glob("*.pdf")] == ["mine.pdf"]
    assert ">PDF</a>" not in page.read_text()
    assert ">SVG</a>" in page.read_text()
    write_report(begun, "r2", tmp_path)
    assert {path.name for path in figures.iterdir()} == {"mine.pdf", "captions.json"}


def decoded(encoded, kind):
    return list(memoryview(base64.b64decode(encoded)).cast(kind))


def test_a_column_is_a_constant_a_dictionary_with_codes_or_floats_with_nan_for_unknowns():
    assert column(["cold"] * 3) == {"constant": "cold"}
    assert column([]) == {"constant": None}
    texts = column(["a", "b", "a"])
    assert (texts["values"], texts["bytes"]) == (["a", "b"], 1)
    assert decoded(texts["codes"], "B") == [0, 1, 0]
    wide = column([str(i) for i in range(300)])
    assert (wide["bytes"], decoded(wide["codes"], "H")[299]) == (2, 299)
    floats = decoded(column([*(i / 7 for i in range(300)), None])["floats"], "f")
    assert floats[5] == pytest.approx(5 / 7)
    assert floats[300] != floats[300]


def test_samples_are_floats_and_options_of_the_plan_part_of_the_command_of_which_imported_rows_have_none(store):
    begin(store, plan={"max_time_s": 0.5, "rel_ci": 0.01, "processes": 5, "plugins": ["a b.py"]})
    row = put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    content, samples = page_data(RunData(store, "r1")), store.samples("r1", row.case)
    assert decoded(content["samples"], "f") == pytest.approx(samples, rel=1e-6)
    assert content["levels"] is None
    assert content["options"] == "--max-time 0.5 --processes 5 --plugin 'a b.py'"
    begin(store, "r2", plan={})
    assert page_data(RunData(store, "r2"))["options"] is None


def test_above_the_limit_each_row_carries_its_own_quantiles_though_many_are_formed_at_once(begun, monkeypatch):
    for i, count in enumerate((40, 7, 40, 1)):
        taken = [1e-3 * (1 + (j * 7 % 11) / 50) for j in range(count)]
        put(begun, f"gemm/m{i}n8k8/f32/NN", "gemm/some.base", taken=taken)
    fail(begun, "gemm/m9n9k9/f32/NN", "gemm/some.bad")
    put(begun, "gemm/m10n8k8/f32/NN", "gemm/some.base")
    monkeypatch.setattr("kernelmark.bench.report.page_data.MOST_ROWS", 5)
    monkeypatch.setattr("kernelmark.bench.report.page_data._AT_ONCE", 4)
    data = RunData(begun, "r1")
    content = page_data(data)
    lengths = content["lengths"]
    assert content["levels"] == LEVELS
    assert [lengths["values"][code] for code in decoded(lengths["codes"], "B")] == [7, 7, 7, 7, 0, 7]
    expected = [np.quantile(begun.samples("r1", row.case), LEVELS) for i, row in enumerate(data.rows) if i != 4]
    assert decoded(content["samples"], "f") == pytest.approx(np.concatenate(expected), rel=1e-6)


def test_columns_of_the_table_are_what_their_values_give_and_take_as_many_statements_for_few_rows_as_for_many(
    store, monkeypatch
):
    monkeypatch.setattr("kernelmark.bench.report.page_data.MOST_ROWS", 10)
    many(store, 400)
    data, made = RunData(store, "r1"), []
    store._db.set_trace_callback(made.append)
    page_data(data)
    columns = dict(page_columns(data))
    store._db.set_trace_callback(None)
    assert len(made) == 2
    assert columns.pop("started_at") == column([r.started_at[: len("2026-01-01T00:00")] for r in data.rows])
    assert columns == {name: column([getattr(r, name) for r in data.rows]) for name in columns}


def said(store):
    return paragraph(RunData(store, "r1"))


def test_machine_versions_seed_mode_and_limits_are_named(store):
    varied(store)
    text = said(store)
    for words in (
        "kernelmark 0.1.0 (commit c0ffee123456)",
        "Some CPU (2 of 4 logical CPUs, 32.0 MB of last-level cache, 8.00 GB of memory)",
        "numpy 2.4.6; BLAS: openblas 0.3",
        "from seed 3 and random bits of each process",
        "In cold mode calls rotate over sets of operands",
        "narrower than 1 % of it or 0.5 s per case",
        "25 cases",
        "24 were ok, 1 was wrong",
        "measured in one process",
        "on 10 problems, 1 and 2 threads.",
    ):
        assert words in text


def test_only_modes_that_occurred_the_limit_of_the_suite_and_changes_that_were_not_committed_are_told(store):
    begin(store, plan={"max_time_s": None, "rel_ci": 0.02}, git_commit="c0ffee1234567-dirty")
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base", mode="hot")
    assert "In hot mode" in said(store)
    assert "In cold mode" not in said(store)
    assert "narrower than 2 % of it or the suite's time limit per case (2 s if it sets none)" in said(store)
    assert "(commit c0ffee123456, with changes that are not committed)" in said(store)


def test_processes_are_told_with_what_their_intervals_hold_for_and_disturbed_samples_are_counted(begun):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base", processes=5, disturbed=DISTURBED, repeated=4)
    for words in (
        "in 5 fresh processes",
        "hold for the next process too",
        "NOISY: 1 of 1 case was disturbed (other processes used 0.98 CPUs).",
        "4 samples taken under such load were taken again",
    ):
        assert words in said(begun)


def test_an_empty_run_and_one_of_failures_alone_are_said_to_be_that(begun):
    assert said(begun).endswith("The run recorded no case.")
    fail(begun, "gemm/m8n8k8/f32/NN", "gemm/some.bad")
    assert said(begun).endswith("Of the cases 1 was wrong.")


def test_a_run_that_recorded_nothing_of_itself_claims_nothing(store):
    begin(store, machine={}, environment={}, plan={}, git_commit="", suites=())
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    text = said(store)
    assert "a processor that is not recorded" in text
    for words in ("seed", "float64", "ABBA", "Libraries"):
        assert words not in text


def test_the_command_names_the_latest_run_and_the_page_with_its_claims_which_are_in_tables_too(begun, tmp_path, called):
    for layout, median in (("NT", 2e-3), ("NN", 1e-3)):
        put(begun, f"gemm/m1024n2048k26752/f32/{layout}", "gemm/scipy.sgemm", median)
    printed = called("report", "--db", str(begun.path), "--out", str(tmp_path)).printed
    assert printed.splitlines() == ["run r1", str(tmp_path / "index.html")]
    page = (tmp_path / "index.html").read_text().replace("<wbr>", "")
    assert "1 confirmed, 1 refuted" in page
    assert "<strong>confirmed</strong>: op_T is slower than op_N" in page
    assert {path.name for path in (tmp_path / "tables").glob("claims.*")} == {"claims.csv", "claims.md"}


def test_a_number_that_no_machine_can_have_is_one_line_that_names_the_row(called, begun):
    for kernel, speedup in (("some.base", None), ("some.fast", 1.7e308)):
        put(begun, "gemm/m8n8k8/f32/NN", f"gemm/{kernel}", baseline="gemm/some.base", speedup=speedup)
    begun.close()
    done = called("report", "--db", str(begun.path), "--out", "out")
    refusal = "gemm/some.fast gemm/m8n8k8/f32/NN cold t2: speedup is 1.7e+308, expected from 1e-30 to 1e+30"
    assert (done.status, done.err) == (2, f"kernelmark: run r1: {refusal}; `kernelmark show` prints tables\n")
