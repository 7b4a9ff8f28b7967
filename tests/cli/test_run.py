"""The commands that measure: their output, files, exit status and progress, and shards."""

import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from kernelmark.bench.cli.commands import cli
from kernelmark.bench.cli.progress import Detail, Display
from kernelmark.bench.measure.measurement import Ceiling
from kernelmark.bench.plan.case import Budget, Entrant, Job, PlannedJob, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.record.store import Store
from kernelmark.bench.run.progress import Glimpse
from support.pages import strict
from support.plugins import ADVERSARIES, FAULTS
from support.processes import complaints
from support.rows import result
from support.shards import measure, suite_file
from support.texts import csv_rows

NT = "gemm/m8n8k8/f32/NT"
HOT = ("--mode", "hot", "--max-time", "0.02", "--no-ceilings")
SWEEP = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 5\nm = [3, 4, 6]\n"


@pytest.fixture(scope="module")
def ran(tmp_path_factory, kernelmark_in):
    """One run with right, wrong and raising kernels, and the folder it was run in."""
    folder = tmp_path_factory.mktemp("ran")
    left = [word for name in ("torch.*", "test.picky", "test.overstated") for word in ("--kernels", f"!gemm/{name}")]
    words = (NT, *HOT, *left, "--plugin", ADVERSARIES, "--csv", "out/rows.csv", "--verbose")
    return folder, kernelmark_in(folder, "run", *words)


@pytest.fixture
def again(ran, called, monkeypatch):
    monkeypatch.chdir(ran[0])
    monkeypatch.setenv("XDG_DATA_HOME", str(ran[0] / "data"))
    return called


def test_a_wrong_kernel_makes_the_exit_status_1_and_leaves_the_rest_unharmed(ran):
    folder, done = ran
    by_kernel = {r["kernel"]: r for r in csv_rows(folder / "out" / "rows.csv")}
    assert (done.returncode, complaints(done.stderr)) == (1, [])
    statuses = [by_kernel.pop(f"gemm/test.{name}")["status"] for name in ("zeros", "raises", "infinite")]
    assert statuses == ["wrong", "failed", "wrong"]
    assert "gemm/numpy.matmul" in by_kernel
    assert all(r["status"] == "ok" and float(r["gflop_per_s"]) > 0 for r in by_kernel.values())


def test_the_runs_id_is_printed_first_failures_below_the_table_and_the_tally_last(ran):
    lines = ran[1].stdout.splitlines()
    assert lines[0].startswith("run 2")
    assert re.search(r"  failed: gemm/test\.raises \(t1\): ValueError: no luck \(\w+\.py, line \d+\)\n", ran[1].stdout)
    assert "  wrong: gemm/test.zeros (t1): c[0, 0] is 0, expected " in ran[1].stdout
    assert lines[-1] == "9 rows: 6 ok, 2 wrong, 1 failed"
    assert ran[1].stderr == f"[0/9, about 5 s left] {NT}\n"  # a line for a job, since it is a pipe
    assert "\r" not in ran[1].stdout


def test_show_repeats_the_table_of_the_run(ran, again):
    run_id = ran[1].stdout.split()[1]
    for words in ((), (run_id,), (run_id[:17],)):
        assert again("show", *words).printed == ran[1].stdout


def test_csv_holds_what_export_writes_and_papers_get_their_tables(ran, again):
    written = (ran[0] / "out" / "rows.csv").read_text()
    assert again("export").out == written
    assert again("export", "-o", "deep/again.csv").out == ""
    assert (ran[0] / "deep" / "again.csv").read_text() == written
    for style, beginning in (("markdown", "\n\n| kernel "), ("latex", "\\begin{tabular}")):
        printed = again("export", "--format", style).printed
        assert beginning in printed
        assert "numpy.matmul" in printed


def test_json_is_strict_even_where_a_kernel_wrote_infinity(again):
    document = strict(again("export", "--format", "json").out)
    assert [len(r["samples_s"]) for r in document["results"]] == [r["samples"] for r in document["results"]]
    (reason,) = [r["reason"] for r in document["results"] if r["kernel"] == "gemm/test.infinite"]
    assert reason.startswith("c[0, 0] is inf")


def test_what_a_kernel_cannot_take_is_an_answer_and_no_failure(called):
    done = called("run", NT, "--kernels", "gemm/scipy.dgemm")
    assert done.status == 0
    assert "unsupported: gemm/scipy.dgemm: gemm/scipy.dgemm has no f32 path; it has f64" in done.out


def test_verify_times_nothing_and_exits_with_1_for_a_wrong_kernel(called):
    done = called("verify", NT, "transpose/m3n5/f64/in", "--kernels", "gemm/numpy.*", "--kernels", "*/openblas.*")
    assert done.status == 0
    listed = [line.split() for line in done.out.splitlines()]
    assert [line[0] for line in listed if line and line[0] in ("gemm", "transpose")] == ["gemm", "transpose"]
    assert re.fullmatch(r"\d+ rows: [^;]+", done.out.splitlines()[-1])
    assert done.out.count(" rows: ") == 1
    assert "roof %" not in done.out
    alone = called("verify", "transpose/m3n5/f64/in", "--kernels", "*imatcopy")
    assert "correct: transpose/openblas.imatcopy (largest error 0, bound 0)" in alone.out
    assert "speedup" not in alone.out
    assert called("verify", NT, "--plugin", ADVERSARIES, "--kernels", "gemm/test.zeros").status == 1


def test_a_run_is_reproduced_with_its_seed_on_the_values_that_each_of_its_processes_drew(called, tmp_path):
    passes = (*HOT, "--processes", "2", "--spread", "0")
    both, more = ("--kernels", "gemm/numpy.*"), ("--kernels", "gemm/scipy.sgemm")
    assert called("run", NT, *passes, *both, "--seed", "5", "--name", "first", "--db", "r.db").status == 0
    checks = ("verify", "--kernels", "*numpy.mat*"), ("verify", NT, *more)
    for words in (("run",), ("run", NT, *passes, *both, *more), *checks):
        done = called(*words, "--reproduce", "first", "--db", "r.db")
        assert (done.status, "anew" in done.err) == (0, words == checks[-1]), done.err
    with closing(sqlite3.connect(tmp_path / "r.db")) as db:
        drawn = db.execute("SELECT seed, entropy FROM result ORDER BY result_id").fetchall()
    assert {seed for seed, _ in drawn} == {5}
    *timed, verified, drawn_anew = (entropy for _, entropy in drawn)
    assert timed == timed[:1] * (2 + 2 + 3)
    assert verified == timed[0].split()[0]
    assert drawn_anew not in timed[0].split()


def test_sigint_keeps_the_row_in_hand_and_exits_with_130(kernelmark, called, tmp_path):
    (tmp_path / "mine.toml").write_text(SWEEP)
    words = ("--plugin", FAULTS, "--kernels", "copy/bad.interrupts_at_m4", "--csv", "rows.csv", "--verbose")
    done = kernelmark("run", "mine.toml", *HOT, *words)
    assert (done.returncode, complaints(done.stderr)) == (130, [])
    written = csv_rows(tmp_path / "rows.csv")
    assert [(r["problem"], r["status"]) for r in written] == [("copy/m3n5/f32", "ok"), ("copy/m4n5/f32", "ok")]
    assert json.loads(called("show", "--json").out)["run"]["finished_at"] is None
    *same, line = called("show").out.splitlines()
    run_id = same[0].split()[1]
    assert line == f"partial: 2 of 3 cases; `kernelmark run --resume {run_id}` continues it"
    assert done.stdout.splitlines() == [*same, f"2 of 3 cases done; `kernelmark run --resume {run_id}`"]


def test_the_list_of_commands_has_the_first_sentence_of_each(called):
    _, _, listed = called("--help").out.partition("Commands:\n")
    sentences = dict(line.split(maxsplit=1) for line in listed.splitlines())
    assert sentences == {name: str(command.help).split("\n")[0] for name, command in cli.commands.items()}
    assert [sentence for sentence in sentences.values() if not re.fullmatch(r"[A-Z].+[^.]\.", sentence)] == []


NN = "gemm/m8n8k8/f32/NN"


def planned(*problems, threads=1):
    job = Job(problems, ("gemm/a.b", "gemm/a.c"), Mode.COLD, (), 0, Budget(2.0), threads)
    return PlannedJob(job, WorkerKey("cpu", threads), "s", 1)


@pytest.fixture
def measured(registry, capsys):
    """Return a function that displays jobs; it returns stdout after each job, and all of stderr at the end."""

    def of(*jobs, processes=1, during=lambda display: None, detail=Detail.TABLES):
        outs, errs = [], ""
        with Display(jobs, processes, registry, detail) as display:
            for process in range(1, processes + 1):
                for planned_job in jobs:
                    display.begins(planned_job, process)
                    during(display)
                    for problem in planned_job.job.problems if process == processes else ():
                        display.row(result(problem=problem, threads=planned_job.job.threads, time_s_median=1e-3))
                    display.ends(planned_job, process)
                    printed = capsys.readouterr()
                    outs.append(printed.out)
                    errs += printed.err
        assert capsys.readouterr().out == ""
        return outs, errs

    return of


def tables(out):
    return [line.split()[0] for line in out.splitlines() if line.startswith("gemm/")]


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ((planned(NT), planned(NN)), [[NT], [NN]]),
        ((planned(NT, NN),), [[NT, NN]]),
        ((planned(NT, threads=1), planned(NT, threads=2), planned(NN)), [[], [NT], [NN]]),
    ],
)
def test_each_table_is_printed_as_soon_as_its_problem_is_done_at_all_thread_counts(measured, jobs, expected):
    outs, _ = measured(*jobs)
    assert list(map(tables, outs)) == expected


def test_tables_of_several_processes_come_with_the_last(measured):
    outs, errs = measured(planned(NT), planned(NN), processes=2)
    assert list(map(tables, outs)) == [[], [], [NT], [NN]]
    places = [line[: line.index(", about")] for line in errs.splitlines()]
    assert places == [f"[process {process} of 2, {done}/4" for process in (1, 2) for done in (0, 2)]


def test_a_pipe_gets_a_line_for_each_job_with_its_place_the_time_left_and_its_problems(measured):
    _, errs = measured(planned(NT, NN))
    assert errs == f"[0/4, about 10 s left] {NT} and {NN}\n"


@pytest.mark.parametrize(("detail", "lines"), [(Detail.LINES, 1), (Detail.QUIET, 0)])
def test_without_tables_a_pipe_gets_a_line_of_progress_now_and_then_or_none(measured, detail, lines):
    outs, errs = measured(planned(NT), planned(NN), detail=detail)
    assert (outs, errs.count("\n")) == (["", ""], lines)


def test_the_first_times_of_a_long_job_are_called_provisional(measured):
    def during(display):
        display.glimpses([Glimpse(Entrant(NT, "gemm/a.b"), 2, 2e-3), Glimpse(Entrant(NT, "gemm/a.c"), 2, 1e-3)])

    outs, errs = measured(planned(NT), during=during)
    lines = errs.splitlines()
    assert lines[2] == "Provisional times, neither complete nor verified after timing; the table follows."
    cells = [" ".join(line.split()) for line in lines[6:]]
    assert cells == [f"{NT} a.c 1.00 ms 0.00102 2", f"{NT} a.b 2.00 ms 0.000512 2"]
    assert "rovisional" not in outs[0]


def test_no_more_than_a_hundred_tables_are_printed(measured, monkeypatch):
    monkeypatch.setattr("kernelmark.bench.cli.progress.PAGE", 2)
    outs, _ = measured(planned(NT), planned(NN), planned("gemm/m9n8k8/f32/NN"))
    assert list(map(tables, outs)) == [[NT], [NN], []]


def test_a_terminal_has_one_line_of_progress_that_is_gone_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SWEEP)
    main, terminal = pty.openpty()
    words = [sys.executable, "-m", "kernelmark", "run", "s.toml", *HOT, "--db", "r.db"]
    done = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    written = b""
    with suppress(OSError):  # reading raises it at the end of a terminal
        while chunk := os.read(main, 65536):
            written += chunk
    out = done.communicate()[0].decode()
    assert done.returncode == 0
    drawn = [text for text in written.decode().split("\r") if text.strip()]
    assert any("copy/m3n5/f32" in text for text in drawn)
    assert all("/9, about " in text or text == "\033[K" for text in drawn)
    assert drawn[-1] == "\033[K"
    assert out.count("n5/f32") == 3


ONE_KERNEL = (*HOT, "--max-time", "0.01", "--threads", "1", "--kernels", "copy/numpy.copyto")
TWO_TYPES = "[[sweep]]\nop = 'copy'\ndtype = ['f32', 'f64']\nn = 5\nm = [1, 2, 3, 4, 5]\n"


@pytest.fixture
def shards(tmp_path):
    """The paths of two of three shards on the fake device; the second has another host and other ceilings."""
    suite = suite_file(tmp_path, range(1, 7))
    paths = []
    for index, (host, rate) in enumerate((("one", 1e9), ("two", 2e9)), 1):
        path = tmp_path / f"{index}.db"
        run_id = measure(path, suite, f"{index}/3")
        with Store(path) as store:
            what, rates = ("cpu", 2, "memory", "copy/m9n9/f32", "copy/k", "x"), (rate, 0.9 * rate, 1.1 * rate, rate)
            store.add_ceiling(run_id, Ceiling(*what, *rates, "1"))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE result SET host = ?", (host,))
            db.execute("UPDATE run SET environment = json_set(environment, '$.versions.numpy', ?)", (host,))
        paths.append(str(path))
    return paths


def test_a_merge_names_hosts_what_differs_and_what_is_missing(called, shards):
    done = called("merge", *reversed(shards), "--db", "all.db")
    assert done.status == 1
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert re.fullmatch(r"run 3-shards-[0-9a-f]{8}: 2 of 3 shards, \d+ of 36 cases", lines[0])
    assert [line.split()[0] for line in lines if re.match(r"\d/3 \d", line)] == ["1/3", "2/3"]
    assert [line.split()[2] for line in lines if re.match(r"\d/3 \d", line)] == ["one", "two"]
    assert any(line.startswith("cpu memory x2 copy/m9n9/f32 1.00 GB/s 1 2.00 GB/s 2 2x [1.64, 2.44]") for line in lines)
    assert "differs between shards: environment.versions.numpy is one (1), two (2)" in lines
    assert "shard 3 of 3 is missing; merge missing shards once they are measured" in lines
    assert any(re.match(r"3/3: copy/m\dn1/f", line) for line in lines)
    assert "`kernelmark merge` adds missing and continued shards" in called("show", "--db", "all.db").out
    line = called("run", "--resume", lines[0].split()[1].rstrip(":"), "--db", "all.db").refusal
    assert "is merged from shards" in line


@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_what_a_merge_prints_is_no_wider_than_the_terminal(called, shards, monkeypatch, columns):
    for path in shards:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE result SET host = host || '-of-a-cluster-with-a-long-name.example.org'")
            db.execute("UPDATE run SET environment = json_set(environment, '$.versions.torch', hex(randomblob(60)))")
    monkeypatch.setenv("COLUMNS", columns)
    lines = called("merge", *shards, "--db", "all.db").out.splitlines()
    assert any("differs between shards" in line for line in lines)
    assert [line for line in lines if len(line) > int(columns) and len(line.split()) > 1] == []


def test_problems_that_cannot_be_planned_again_are_not_listed(called, shards, tmp_path):
    (tmp_path / "s.toml").unlink()
    done = called("merge", *shards, "--db", "all.db")
    assert done.status == 1
    assert "the problems of missing shards are not known here" in " ".join(done.out.split())


def test_shards_measured_by_the_command_are_the_whole_suite(called, tmp_path):
    (tmp_path / "s.toml").write_text(TWO_TYPES)
    for shard in ("1/2", "2/2"):
        done = called("run", "s.toml", "--shard", shard, *ONE_KERNEL, "--db", f"{shard[0]}.db")
        assert done.status == 0, done.err
    merged = called("merge", "1.db", "2.db", "--db", "all.db").printed
    assert "2 of 2 shards, 10 of 10 cases" in merged
    assert "missing" not in merged
    assert re.search(r",host-[0-9a-f]{8},", called("export", "--db", "all.db").out)
    assert not re.search(r",host-[0-9a-f]{8},", called("export", "--identify", "--db", "all.db").out)


def test_a_merge_names_a_shard_that_has_not_ended(called, tmp_path):
    suite = suite_file(tmp_path, range(1, 7))
    run_id = measure(tmp_path / "1.db", suite, "1/2", most=3)
    measure(tmp_path / "2.db", suite, "2/2")
    done = called("merge", "1.db", "2.db", "--db", "all.db")
    assert done.status == 1
    words = f"shard 1 of 2 has not ended; `kernelmark run --resume {run_id}` continues it, then merge it again"
    assert words in " ".join(done.out.split())


def test_what_a_run_or_a_shard_would_take_is_listed_without_a_store(called, tmp_path):
    (tmp_path / "s.toml").write_text(TWO_TYPES)
    lines = called("run", "s.toml", "--list", *ONE_KERNEL, "--db", "none.db").printed.splitlines()
    assert lines[-1] == "5 comparison groups, 10 cases"
    groups = [line.split()[0] for line in lines if line.startswith("copy/")]
    parts = [called("run", "s.toml", "--list", "--shard", f"{i}/2", *ONE_KERNEL).out.splitlines() for i in (1, 2)]
    assert sorted(line.split()[0] for part in parts for line in part if line.startswith("copy/")) == sorted(groups)
    assert [part[-1].partition(":")[0] for part in parts] == ["shard 1/2", "shard 2/2"]
    assert not (tmp_path / "none.db").exists()
    declares = "@kernel('gemm', provider='mine', device='cpu', layouts=('TN',))\ndef f(problem, x): ..."
    (tmp_path / "tn.py").write_text(f"from kernelmark import kernel\n{declares}\n")
    listed = called("run", NT, "--list", "--plugin", "tn.py")
    assert (listed.status, listed.err) == (0, "--plugin: gemm/mine.f has no NT path; it has TN\n")


def test_a_dry_run_gives_what_was_measured_and_counts_what_was_not(called, tmp_path):
    (tmp_path / "s.toml").write_text(TWO_TYPES)
    words = ("run", "s.toml", *ONE_KERNEL, "--db", "r.db")
    unknown = " ".join(called(*words, "--dry-run").out.split())
    assert "time: unknown for 10 of 10 cases" in unknown
    assert "their time limits for sampling add up to 0.1 s" in unknown
    longer = " ".join(called(*words, "--max-time", "10.5", "--dry-run").out.split())
    assert "their time limits for sampling add up to 105 s" in longer
    assert "kernels: copy/numpy.copyto" in unknown
    assert "store: size unknown" in unknown
    assert not (tmp_path / "r.db").exists()
    assert called(*words).status == 0
    known = " ".join(called(*words, "--dry-run").out.split())
    assert re.search(r"time: about \S+ s for 10 of 10 cases, as in 1 earlier run on this machine", known)
    assert "for 10 rows of" in known
    assert called(*words).status == 0
    twice = " ".join(called(*words, "--dry-run").out.split())
    assert re.search(r"time: about \S+ s \[\S+ s, \S+ s\] for 10 of 10 cases, as in 2 earlier runs", twice)
    other = " ".join(called(*words[:-2], "--db", "r.db", "--rel-ci", "0.5", "--dry-run").out.split())
    assert "time: unknown for 10 of 10 cases" in other
