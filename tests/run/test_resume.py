"""Runs that are interrupted or ended by a full disk, and then resumed, in real processes or in this one."""

import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from kernelmark.bench.measure.lock import held_run
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.record.store import Store
from kernelmark.bench.run import session as sessions
from kernelmark.bench.run.session import plan_of
from support.processes import complaints, refusal, wait_for
from support.rows import DISTURBED
from support.runs import KERNELS, PROBLEMS, SMALL, SUITE, WORDS, all_are_there_and_ok, copy, declare, query, visible


def run_ids(path):
    return [row["run_id"] for row in query(path, "SELECT run_id FROM run")]


@pytest.mark.long
def test_two_runs_at_once_on_one_store_lose_nothing(folder, start):
    (folder / "s.toml").write_text(SUITE.format(20))
    runs = [start(*WORDS), start(*WORDS)]
    for run in runs:
        _, err = run.communicate()
        assert (run.returncode, complaints(err)) == (0, [])
    store = Store(folder / "r.db", create=False)
    counts = [len(list(store.results(run_id))) for run_id in run_ids(folder / "r.db")]
    store.close()
    assert counts == [20 * len(KERNELS)] * 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory, kernelmark_in):
    """Finish a run of two problems; return its folder, its id and its standard output."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "s.toml").write_text(SUITE.format(2))
    done = kernelmark_in(folder, *WORDS)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.split()[1], done.stdout


def test_a_finished_run_measures_nothing_and_shows_its_tables(finished, kernelmark_in):
    folder, run_id, printed = finished
    before = visible(folder / "r.db")
    for words in (("run", "--resume", run_id, "--db", "r.db"), (*WORDS, "--resume", run_id)):
        done = kernelmark_in(folder, *words, "--csv", "rows.csv")
        assert (done.returncode, done.stdout, complaints(done.stderr)) == (0, printed, [])
        assert visible(folder / "r.db") == before
        assert len((folder / "rows.csv").read_text().splitlines()) == 1 + len(before)
        (folder / "rows.csv").unlink()


def test_what_was_disturbed_is_measured_again_with_all_that_it_was_measured_with(finished, kernelmark_in, tmp_path):
    folder, run_id, _ = finished
    store = tmp_path / "r.db"
    copied = sqlite3.connect(store)
    sqlite3.connect(folder / "r.db").backup(copied)
    before = visible(store)
    noisy = next(iter(before))
    with copied:
        copied.execute("UPDATE result SET disturbed = CASE \"case\" WHEN ? THEN ? ELSE '' END", (noisy, DISTURBED))
    copied.close()
    words = ("run", "--resume", run_id, "--noisy-again", "--db", str(store))
    with held_run(store, run_id, "wait"):
        assert kernelmark_in(folder, *words).returncode == 2
    assert visible(store).keys() == before.keys()
    done = kernelmark_in(folder, *words)
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    after = visible(store)
    assert after.keys() == before.keys()
    again = {case for case in before if after[case]["job"] != before[case]["job"]}
    assert again == {case for case in before if before[case]["job"] == before[noisy]["job"]}
    assert len(again) == len(KERNELS)
    assert query(store, "SELECT result_id FROM ratio WHERE result_id NOT IN (SELECT result_id FROM result)") == []


def test_a_suite_file_that_has_changed_is_another_suite(finished, kernelmark_in):
    folder, run_id, _ = finished
    (folder / "s.toml").write_text(SUITE.format(3))
    try:
        done = kernelmark_in(folder, "run", "--resume", run_id, "--db", "r.db")
    finally:
        (folder / "s.toml").write_text(SUITE.format(2))
    assert refusal(done).startswith(f"kernelmark: --resume {run_id}: plan.suite_digests was ")


@pytest.mark.long
def test_no_other_process_goes_on_with_a_run_meanwhile_whatever_its_tmpdir(hanging, tmp_path, refused):
    run, _ = hanging
    (run_id,) = run_ids(tmp_path / "r.db")
    (tmp_path / "elsewhere").mkdir()
    line = refused("run", "--resume", run_id, "--db", "r.db", TMPDIR=str(tmp_path / "elsewhere"))
    assert f"run-{run_id}: is being measured by process {run.pid}" in line


def test_a_run_that_is_taken_up_counts_the_verdicts_that_it_had_and_measures_nothing_again(measured):
    declare("bad", lambda problem, x: lambda: None)
    declare("good", copy)
    _, before, _ = measured(SMALL, kernels=("copy/mine.*",))
    _, session, _ = measured(SMALL, kernels=("copy/mine.*",), resume=before.run_id, execute=None)
    assert (session.run_id, session.tally, session.against) == (before.run_id, {"wrong": 1, "ok": 1}, 1)


@pytest.mark.parametrize(
    ("problems", "plan", "reason"),
    [
        ((), {"seed": 1}, "plan.seed was 0 and is 1"),
        ((), {"threads": (1, 2)}, "plan.threads was [1] and is [1, 2]"),
        ((), {"seed": 1, "rel_ci": 0.1, "mode": Mode.HOT, "processes": 3}, "; and 1 more; only an unchanged run"),
        (("copy/m7n7/f32",), {}, f"suites was ['{SMALL}'] and is ['{SMALL}', 'copy/m7n7/f32']"),
    ],
)
def test_a_run_that_would_go_on_otherwise_is_refused(measured, complaint, problems, plan, reason):
    kernels = ("copy/numpy.copyto",)
    _, before, _ = measured(SMALL, kernels=kernels)
    assert reason in complaint(lambda: measured(SMALL, *problems, kernels=kernels, resume=before.run_id, **plan))


def test_another_machine_and_environment_are_named_by_what_differs(measured, complaint, monkeypatch):
    _, before, _ = measured(SMALL, kernels=("copy/numpy.copyto",))
    elsewhere = {**sessions.machine(), "cpus": 1234, "gpu": "another"}
    monkeypatch.setattr(sessions, "machine", lambda: elsewhere)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    reason = complaint(lambda: measured(SMALL, kernels=("copy/numpy.copyto",), resume=before.run_id))
    assert "machine.cpus was " in reason
    assert " and is 1234; machine.gpu was None and is another" in reason
    assert "environment.variables.OPENBLAS_NUM_THREADS was None and is 1" in reason
    assert "start a new one" in reason


def test_a_run_that_does_not_say_its_suites_cannot_be_taken_up_by_its_id_alone(measured, store, complaint):
    _, session, _ = measured(SMALL, kernels=("copy/numpy.copyto",))
    reason = complaint(lambda: plan_of(store, session.run_id))
    assert reason == f"--resume {session.run_id}: the run has no record of its suites; name them"


SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
#: The signals of the short test run, and how often each is sent; other tests send a single SIGINT or a SIGHUP.
SOON = (signal.SIGINT, 2), (signal.SIGTERM, 1)


@pytest.mark.parametrize(
    ("number", "times"),
    [*SOON, *(pytest.param(*sent, marks=pytest.mark.long) for sent in product(SIGNALS, (1, 2)) if sent not in SOON)],
)
def test_a_signal_ends_the_run_with_its_last_line_and_no_lock(folder, start, number, times):
    run = start(*WORDS)
    wait_for(lambda: bool(visible(folder / "r.db")))
    for _ in range(times):
        run.send_signal(number)
        time.sleep(0.01)  # signals at the same time count as one
    out, err = run.communicate()
    done = len(visible(folder / "r.db"))
    (run_id,) = run_ids(folder / "r.db")
    assert (run.returncode, complaints(err)) == (SIGNALS[number], [])
    again = f"`kernelmark run --resume {run_id} --db {folder / 'r.db'}`"
    assert out.splitlines()[-1] == f"{done} of {PROBLEMS * len(KERNELS)} cases done; {again}"
    assert not list(folder.glob("*.lock"))


@pytest.mark.parametrize(("closed", "problems"), [(True, PROBLEMS), (False, 10)])
def test_a_terminal_that_is_closed_costs_no_row_and_under_nohup_the_run_goes_on(folder, closed, problems):
    (folder / "s.toml").write_text(SUITE.format(problems))
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder)
        script = str(Path(sys.executable).with_name("kernelmark"))
        os.execv(*((script, [script, *WORDS]) if closed else ("/usr/bin/nohup", ["nohup", script, *WORDS])))
    wait_for(lambda: bool(visible(folder / "r.db")))
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert (status, all_are_there_and_ok(folder / "r.db", problems)) == ((129, False) if closed else (0, True))
    assert not list(folder.glob("*.lock"))


def test_a_file_that_may_not_grow_ends_the_run_in_one_line_and_keeps_the_rows(folder, python_in):
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000));"
        "from kernelmark.bench.cli import main; main()"
    )
    stopped(folder, python_in(folder, "-c", limited, *WORDS))


@pytest.mark.long
def test_a_full_disk_ends_the_run_in_one_line_and_keeps_the_rows(folder, small_disk, kernelmark_in):
    (folder / "s.toml").write_text(SUITE.format(30))  # twice as many rows as the disk holds
    small_disk("400k")
    words = [word if word != "r.db" else "disk/r.db" for word in WORDS]
    run_id, before = stopped(folder, kernelmark_in(folder, *words), "disk/r.db")
    small_disk("8m")
    done = kernelmark_in(folder, "run", "--resume", run_id, "--db", "disk/r.db")
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert all_are_there_and_ok(folder / "disk/r.db", 30)
    assert before.items() <= visible(folder / "disk/r.db").items()


def stopped(folder, done, db="r.db"):
    """Check that a run ended because its store could not be written; return its id and its rows."""
    assert done.returncode == 2, done.stderr
    (line,) = complaints(done.stderr)
    assert f"{db}: cannot be written: " in line
    assert "rows recorded so far are safe" in line
    written = visible(folder / db)
    assert 0 < len(written) < PROBLEMS * len(KERNELS)
    return done.stdout.split()[1], written


#: Commands that damage a store, each with the word for it in the error message.
SPOILT = {
    "rm r.db": "removed or moved",
    "mv other r.db": "replaced",
    ": > r.db": "cut short",
    "truncate -s $(($(stat -c %s r.db) / 2)) r.db": "cut short",
}


@pytest.mark.parametrize(
    ("words", "what"),
    [pytest.param(*spoilt, marks=[pytest.mark.long] * (i in (1, 2))) for i, spoilt in enumerate(SPOILT.items())],
)
def test_a_store_that_is_gone_ends_the_run_in_one_line_and_its_rows_are_beside(folder, start, words, what):
    Store(folder / "other").close()
    run = start(*WORDS)
    wait_for(lambda: len(visible(folder / "r.db")) > 1)
    subprocess.run(["sh", "-c", words], cwd=folder, check=True)
    _, err = run.communicate()
    (line,) = complaints(err)
    beside = re.findall(r"in (\S+/r-\w{8}\.db);", line)
    assert line.startswith(f"kernelmark: {folder}/r.db: was {what} while rows were written to it; ")
    assert run.returncode == 1
    assert len(visible(Path(*beside))) > 1
    assert not list(folder.glob("r.db-*.lock" if "truncate" in words else "r.db-*"))
    if what == "replaced":
        assert not visible(folder / "r.db")
