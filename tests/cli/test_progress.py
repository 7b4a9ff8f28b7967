"""What `run` prints while it measures, in a pipe and on a terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmark.bench.cli.progress import Display
from kernelmark.bench.plan.case import Budget, Entrant, Job, PlannedJob, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.progress import Glimpse
from support.rows import result

NT, NN = "gemm/m8n8k8/f32/NT", "gemm/m8n8k8/f32/NN"
SUITE = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 5\nm = [3, 4, 6]\n"
QUICK = ("--mode", "hot", "--max-time", "0.02", "--no-ceilings")


def planned(*problems, threads=1):
    job = Job(problems, ("gemm/a.b", "gemm/a.c"), Mode.COLD, (), 0, Budget(2.0), threads)
    return PlannedJob(job, WorkerKey("cpu", threads), "s", 1)


@pytest.fixture
def measured(registry, capsys):
    """A display of these jobs, and after each job what has come on stdout; all of stderr at the end."""

    def of(*jobs, processes=1, during=lambda display: None):
        outs, errs = [], ""
        with Display(jobs, processes, registry, "simple") as display:
            for process in range(1, processes + 1):
                for one in jobs:
                    display.begins(one, process)
                    during(display)
                    for problem in one.job.problems if process == processes else ():
                        display.row(result(problem=problem, threads=one.job.threads, time_s_median=1e-3))
                    display.ends(one, process)
                    printed = capsys.readouterr()
                    outs.append(printed.out)
                    errs += printed.err
        assert capsys.readouterr().out == ""
        return outs, errs

    return of


def tables(out):
    return [line.split()[0] for line in out.splitlines() if line.startswith("gemm/")]


def test_each_table_is_printed_as_soon_as_its_problem_is_done(measured):
    outs, _ = measured(planned(NT), planned(NN))
    assert list(map(tables, outs)) == [[NT], [NN]]


def test_siblings_are_printed_together(measured):
    outs, _ = measured(planned(NT, NN))
    assert list(map(tables, outs)) == [[NT, NN]]


def test_the_thread_counts_of_a_problem_share_one_table(measured):
    outs, _ = measured(planned(NT, threads=1), planned(NT, threads=2), planned(NN))
    assert list(map(tables, outs)) == [[], [NT], [NN]]


def test_tables_of_several_processes_come_with_the_last(measured):
    outs, errs = measured(planned(NT), planned(NN), processes=2)
    assert list(map(tables, outs)) == [[], [], [NT], [NN]]
    assert [line[: line.index(", about")] for line in errs.splitlines()] == [
        "[process 1 of 2, 0 of 4 cases",
        "[process 1 of 2, 2 of 4 cases",
        "[process 2 of 2, 0 of 4 cases",
        "[process 2 of 2, 2 of 4 cases",
    ]


def test_a_pipe_gets_a_line_for_each_job_with_its_place_the_time_left_and_its_problems(measured):
    _, errs = measured(planned(NT, NN))
    assert errs == f"[0 of 4 cases, about 10 s left] {NT} and {NN}\n"


def test_the_first_times_of_a_long_job_are_called_provisional(measured):
    def during(display):
        display.glimpses([Glimpse(Entrant(NT, "gemm/a.b"), 2, 2e-3), Glimpse(Entrant(NT, "gemm/a.c"), 2, 1e-3)])

    outs, errs = measured(planned(NT), during=during)
    lines = errs.splitlines()
    assert lines[2] == "Provisional times, neither complete nor verified after timing; the table follows."
    assert [line.split() for line in lines[6:]] == [
        [NT, "a.c", "1.00", "ms", "0.00102", "2"],
        [NT, "a.b", "2.00", "ms", "0.000512", "2"],
    ]
    assert "rovisional" not in outs[0]


def test_no_more_than_a_hundred_tables_are_printed(measured, monkeypatch):
    monkeypatch.setattr("kernelmark.bench.cli.progress.PAGE", 2)
    outs, _ = measured(planned(NT), planned(NN), planned("gemm/m9n8k8/f32/NN"))
    assert list(map(tables, outs)) == [[NT], [NN], []]


def test_a_terminal_has_one_line_of_progress_that_is_gone_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SUITE)
    main, terminal = pty.openpty()
    words = [sys.executable, "-m", "kernelmark", "run", "s.toml", *QUICK, "--db", "r.db"]
    done = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=terminal, env=os.environ)
    os.close(terminal)
    written = b""
    while chunk := _read(main):
        written += chunk
    out = done.communicate()[0].decode()
    assert done.returncode == 0
    drawn = [text for text in written.decode().split("\r") if text.strip()]
    assert any("copy/m3n5/f32" in text for text in drawn)
    assert all("of 9 cases, about " in text or text == "\033[K" for text in drawn)
    assert drawn[-1] == "\033[K"
    assert out.count("copy/m") >= 3


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # how the end of a terminal is reported
        return b""
