"""The console script, as a user runs it."""

import csv
import io
import json
import re

import pytest

from kernelmark.bench.cli.commands import cli
from support.pages import strict
from support.processes import complaints, refusal

NT = "gemm/m8n8k8/f32/NT"
QUICK = ("--mode", "hot", "--max-time", "0.02")
WRONG = """\
from kernelmark import kernel

@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",))
def zeros(problem, x):
    '''Zeros.'''
    def launch():
        x.c[...] = 0
    return launch

@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",))
def raises(problem, x):
    '''Raises.'''
    raise ValueError("no luck")

@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",))
def infinite(problem, x):
    '''Infinite.'''
    def launch():
        x.c[...] = float("inf")
    return launch
"""
INTERRUPTED = """\
import itertools
import os
import signal
from pathlib import Path
import numpy as np
from kernelmark import kernel

set_ups_of_the_second = itertools.count()

@kernel("copy", provider="mine", device="cpu", numerics="exact")
def interrupted(problem, x):
    '''Copies, and is interrupted at the second problem.'''
    if problem.m == 4 and next(set_ups_of_the_second) == 0:
        keeper = Path(f"/proc/{os.getppid()}/stat").read_text()  # it stands between the worker and the command
        os.kill(int(keeper.rpartition(")")[2].split()[1]), signal.SIGINT)
    return lambda: np.copyto(x.b, x.a)
"""
SWEEP = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 5\nm = [3, 4, 6]\n"


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def ran(tmp_path_factory, kernelmark_in):
    """One run with right, wrong and raising kernels, and the folder it was run in."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "wrong.py").write_text(WRONG)
    words = (NT, *QUICK, "--kernels", "!gemm/torch.*", "--plugin", "wrong.py", "--csv", "out/rows.csv")
    return folder, kernelmark_in(folder, "run", *words)


@pytest.fixture
def again(ran, kernelmark_in):
    """The console script in the folder of that run."""
    return lambda *words: kernelmark_in(ran[0], *words)


def test_a_wrong_kernel_makes_the_exit_status_1_and_leaves_the_rest_unharmed(ran):
    folder, done = ran
    found = {r["kernel"]: r for r in rows((folder / "out" / "rows.csv").read_text())}
    assert (done.returncode, complaints(done.stderr)) == (1, [])
    assert {name: found.pop(f"gemm/mine.{name}")["status"] for name in ("zeros", "raises", "infinite")} == {
        "zeros": "wrong",
        "raises": "failed",
        "infinite": "wrong",
    }
    assert "gemm/numpy.matmul" in found
    assert all(r["status"] == "ok" and float(r["gflop_per_s"]) > 0 for r in found.values())


def test_the_runs_id_is_printed_first_and_the_tally_last(ran):
    lines = ran[1].stdout.splitlines()
    assert lines[0].startswith("run 2")
    assert lines[-1] == "9 rows: 6 ok, 2 wrong, 1 failed"


def test_failures_are_named_below_the_table(ran):
    assert "  failed: gemm/mine.raises: ValueError: no luck\n" in ran[1].stdout
    assert "  wrong: gemm/mine.zeros: c[0, 0] is 0, expected " in ran[1].stdout


def test_a_pipe_gets_a_line_of_progress_a_job(ran):
    assert ran[1].stderr == f"[0 of 9 cases, about 5 s left] {NT}\n"
    assert "\r" not in ran[1].stdout


def test_show_repeats_the_table_of_the_run(ran, again):
    run_id = ran[1].stdout.split()[1]
    for words in ((), (run_id,), (run_id[:17],)):
        shown = again("show", *words)
        assert (shown.returncode, shown.stdout) == (0, ran[1].stdout)


def test_csv_holds_what_export_writes(ran, again):
    written = (ran[0] / "out" / "rows.csv").read_text()
    assert again("export").stdout == written
    assert again("export", "-o", "deep/again.csv").stdout == ""
    assert (ran[0] / "deep" / "again.csv").read_text() == written


@pytest.mark.parametrize(("style", "found"), [("markdown", "\n\n| kernel "), ("latex", "\\begin{tabular}")])
def test_papers_get_their_tables(again, style, found):
    done = again("export", "--format", style)
    assert done.returncode == 0
    assert found in done.stdout
    assert "numpy.matmul" in done.stdout


def test_json_is_strict_even_where_a_kernel_wrote_infinity(again):
    found = strict(again("export", "--format", "json").stdout)
    assert [len(r["samples_s"]) for r in found["results"]] == [r["samples"] for r in found["results"]]
    assert next(r for r in found["results"] if r["kernel"] == "gemm/mine.infinite")["reason"].startswith(
        "c[0, 0] is inf"
    )


def test_globs_select_the_rows_and_with_them_the_baseline(kernelmark):
    done = kernelmark("run", NT, *QUICK, "--kernels", "gemm/scipy.*", "--csv", "rows.csv", "--threads", "1")
    assert done.returncode == 0
    assert "speedup" not in done.stdout
    assert "scipy.sgemm" in done.stdout
    assert "gemm/numpy" not in done.stdout


def test_what_a_kernel_cannot_take_is_an_answer_and_no_failure(kernelmark):
    done = kernelmark("run", NT, "--kernels", "gemm/scipy.dgemm")
    assert done.returncode == 0
    assert "unsupported: gemm/scipy.dgemm: gemm/scipy.dgemm has no f32 path; it has f64" in done.stdout


def test_verify_times_nothing(kernelmark):
    done = kernelmark("verify", NT, "transpose/m3n5/f64/in")
    assert done.returncode == 0
    assert "correct: gemm/numpy.matmul (largest error " in done.stdout
    assert "correct: transpose/openblas.imatcopy (largest error 0, bound 0)" in done.stdout
    assert "GFLOP/s" not in done.stdout


def test_verify_exits_with_1_for_a_wrong_kernel(kernelmark, tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    done = kernelmark("verify", NT, "--plugin", "wrong.py", "--kernels", "gemm/mine.zeros")
    assert (done.returncode, complaints(done.stderr)) == (1, [])


def test_a_suite_file_runs_all_of_its_problems(kernelmark, tmp_path):
    (tmp_path / "mine.toml").write_text(SWEEP)
    done = kernelmark(
        "run", "mine.toml", *QUICK, "--kernels", "copy/numpy.copyto", "--csv", "rows.csv", "--db", "my.db"
    )
    assert done.returncode == 0
    found = rows((tmp_path / "rows.csv").read_text())
    assert [(r["suite"], r["problem"]) for r in found] == [("mine", f"copy/m{m}n5/f32") for m in (3, 4, 6)]
    assert (tmp_path / "my.db").is_file()
    assert not (tmp_path / "data").exists()


def test_sigint_keeps_the_row_in_hand_and_exits_with_130(kernelmark, tmp_path):
    (tmp_path / "mine.toml").write_text(SWEEP)
    (tmp_path / "mine.py").write_text(INTERRUPTED)
    words = ("--plugin", "mine.py", "--kernels", "copy/mine.*", "--csv", "rows.csv")
    done = kernelmark("run", "mine.toml", *QUICK, *words)
    assert (done.returncode, complaints(done.stderr)) == (130, [])
    found = rows((tmp_path / "rows.csv").read_text())
    assert [(r["problem"], r["status"]) for r in found] == [("copy/m3n5/f32", "ok"), ("copy/m4n5/f32", "ok")]
    assert json.loads(kernelmark("show", "--json").stdout)["run"]["finished_at"] is None
    *same, line = kernelmark("show").stdout.splitlines()
    run_id = same[0].split()[1]
    assert line == f"partial: 2 of 3 cases; `kernelmark run --resume {run_id}` goes on"
    assert done.stdout.splitlines() == [*same, f"2 of 3 cases done; `kernelmark run --resume {run_id}`"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("run", "smokey"), "suite 'smokey': is not a suite"),
        (("run", "absent.toml"), "absent.toml: cannot be read: No such file"),
        (("run", "gemm/m0n8k8/f32/NT"), "m is 0"),
        (("run",), "no SUITE was named"),
        (("run", NT, "--kernels", "no/such"), "no kernel matches --kernels 'no/such' on cpu; `kernelmark list --all` "),
        (
            ("run", "transfer/n8/f32/p2p"),
            "no kernel matches on cpu; on cuda, transfer/cuda.peer would; ",
        ),
        (("run", NT, "--dry-run", "--json"), "--json: prints the rows of a run, and --list and --dry-run measure none"),
        (("run", NT, "--max-time", "0"), "'--max-time'"),
        (("run", NT, "--threads", "0"), "expected integers above 0"),
        (("run", NT, "--threads", "1,x"), "expected integers above 0"),
        (("run", NT, "--mode", "warm"), "'warm'"),
        (("run", NT, "--device", "cuda"), "cuda"),
        (("run", NT, "--plugin", "absent.py"), "there is no such file"),
        (("run", NT, "--plugin", "broken.py"), "broken.py, line 1: "),
        (("run", NT, "--db", "file/results.db"), "file/results.db: cannot be used as a store"),
        (("run", NT, "--db", "file"), "file: cannot be used as a store"),
        (("run", NT, "--csv", "file/rows.csv"), "file/rows.csv: cannot be written"),
        (("run", "bad.toml"), "bad.toml: [[sweep]] 1, key 'm': m is 0"),
        (("run", "late.toml"), "late.toml: [[sweep]] 1: lda_pad is -1"),
        (("show",), "there is no store; `kernelmark run SUITE` makes one"),
        (("export", "--format", "xml"), "'xml'"),
        (("list", "--op", "gem"), "--op: 'gem' is not an operation; expected one of "),
        (("lst",), "No such command 'lst'"),
        (("tune",), "Missing argument 'KERNEL'; `kernelmark tune --help` lists what it takes"),
        (("list", "--xyz"), "No such option '--xyz'; `kernelmark list --help` lists what it takes"),
    ],
)
def test_bad_usage_is_one_line_on_standard_error(refused, tmp_path, words, found):
    (tmp_path / "file").write_text("no database, but many bytes of something else\n" * 40)
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "bad.toml").write_text(SWEEP.replace("[3, 4, 6]", "[3, 0]"))
    late = "[[sweep]]\nop = 'gemm'\ndtype = 'f32'\npoints = [[1, 1, 1]]\nlda_pad = -1\n"
    (tmp_path / "late.toml").write_text(late)
    line = refused(*words)
    assert line.startswith("kernelmark: ")
    assert found in line


@pytest.mark.parametrize("words", [("show", "r9"), ("export", "r9"), ("export", "r9", "-o", "rows.csv")])
def test_an_unknown_run_is_one_line_with_the_latest_ids(ran, again, words):
    done = again(*words)
    assert done.stdout == ""
    line = refusal(done)
    assert line.startswith("kernelmark: run 'r9': is not a run of ")
    assert line.endswith(ran[1].stdout.split()[1])


def test_the_list_of_commands_has_the_first_sentence_of_each(called):
    _, _, listed = called("--help").out.partition("Commands:\n")
    sentences = dict(line.split(maxsplit=1) for line in listed.splitlines())
    assert sentences == {name: str(command.help).split("\n")[0] for name, command in cli.commands.items()}
    assert [sentence for sentence in sentences.values() if not re.fullmatch(r"[A-Z].+[^.]\.", sentence)] == []
