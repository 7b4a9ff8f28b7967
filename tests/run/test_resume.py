"""Runs that are killed and taken up again, with real processes and a real store."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.plan.suites import find_suite
from bench.record.store import Store
from bench.run import session as sessions
from bench.run.resume import plan_of
from complaints import complaints
from small_runs import KERNELS, PROBLEMS, SUITE, WORDS, all_are_there_and_ok, query, visible

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Begin the command in the folder, not waiting for its end."""
    script, begun = str(Path(sys.executable).with_name("kernelmark")), []

    def run(*words: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        begun.append(subprocess.Popen([sys.executable, script, *words], cwd=folder, **pipes))
        return begun[-1]

    yield run
    for process in begun:
        process.kill()
        process.communicate()


def wait_for_rows(path: Path, count: int, run: subprocess.Popen[str]) -> dict[str, sqlite3.Row]:
    """Return the visible rows once there are `count` of them, or once the run is over."""
    stop = time.monotonic() + 60
    while len(rows := visible(path)) < count and run.poll() is None:
        assert time.monotonic() < stop, f"{len(rows)} rows of {count}"
        time.sleep(0.01)
    return rows


def run_ids(path: Path) -> list[str]:
    return [row["run_id"] for row in query(path, "SELECT run_id FROM run")]


@pytest.mark.long
def test_a_run_that_is_killed_again_and_again_has_each_case_once_and_no_row_changed(folder: Path, start: Start) -> None:
    path, dice = folder / "r.db", random.Random(6)
    kept: dict[str, sqlite3.Row] = {}
    run = start(*WORDS)
    for kill in range(5):
        kept |= wait_for_rows(path, len(kept) + dice.randint(1, 6), run)
        time.sleep(dice.uniform(0, 0.05))
        assert run.poll() is None, f"was over before kill {kill}"
        run.kill()
        run.communicate()
        (run_id,) = run_ids(path)
        now = visible(path)
        assert kept.items() <= now.items()
        kept = now
        run = start("run", "--resume", run_id, "--db", "r.db")
    out, err = run.communicate()
    assert (run.returncode, complaints(err)) == (0, [])
    assert out.startswith(f"run {run_id}\n")
    assert all_are_there_and_ok(path)
    assert kept.items() <= visible(path).items()


@pytest.mark.long
def test_a_worker_that_is_killed_again_and_again_costs_no_row(folder: Path, start: Start) -> None:
    path, dice = folder / "r.db", random.Random(7)
    run, kills = start(*WORDS), 0
    for rows in (0, 5, 12, 20, 30):
        wait_for_rows(path, rows, run)
        time.sleep(dice.uniform(0, 0.05))
        kills += kill_worker(run.pid)
    _, err = run.communicate()
    assert (run.returncode, complaints(err)) == (0, [])
    assert kills >= 3
    assert all_are_there_and_ok(path)


def kill_worker(parent: int) -> bool:
    """Whether there was one to kill."""
    for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if b"bench.run.worker" in Path(f"/proc/{word}/cmdline").read_bytes():
            os.kill(int(word), signal.SIGKILL)
            return True
    return False


@pytest.mark.long
def test_two_runs_at_once_on_one_store_lose_nothing(folder: Path, start: Start) -> None:
    runs = [start(*WORDS), start(*WORDS)]
    for run in runs:
        _, err = run.communicate()
        assert (run.returncode, complaints(err)) == (0, [])
    store = Store(folder / "r.db", create=False)
    counts = [len(list(store.results(run_id))) for run_id in run_ids(folder / "r.db")]
    store.close()
    assert counts == [PROBLEMS * len(KERNELS)] * 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory, kernelmark_in):
    """A run of two problems that is done, its folder, its id and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "s.toml").write_text(SUITE.format(2))
    done = kernelmark_in(folder, *WORDS)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.split()[1], done.stdout


def test_a_finished_run_measures_nothing_and_shows_its_tables(finished, kernelmark_in) -> None:
    folder, run_id, printed = finished
    before = visible(folder / "r.db")
    for words in (("run", "--resume", run_id, "--db", "r.db"), (*WORDS, "--resume", run_id)):
        done = kernelmark_in(folder, *words, "--csv", "rows.csv")
        assert (done.returncode, done.stdout, complaints(done.stderr)) == (0, printed, [])
        assert visible(folder / "r.db") == before
        assert len((folder / "rows.csv").read_text().splitlines()) == 1 + len(before)
        (folder / "rows.csv").unlink()


@pytest.mark.parametrize(
    ("words", "variables", "found"),
    [
        (("--seed", "3"), {}, "plan.seed was 0 and is 3"),
        (("--mode", "cold"), {}, "plan.mode was hot and is cold"),
        (("--processes", "2"), {}, "plan.processes was 1 and is 2"),
        ((), {"OPENBLAS_NUM_THREADS": "1"}, "environment.variables.OPENBLAS_NUM_THREADS was None and is 1"),
        (("copy/m7n7/f32",), {}, "suites was ['s'] and is ['s', 'copy/m7n7/f32']"),
    ],
)
def test_a_run_goes_on_only_as_it_began(finished, kernelmark_in, words, variables, found) -> None:
    folder, run_id, _ = finished
    before = visible(folder / "r.db")
    done = kernelmark_in(folder, *WORDS, "--resume", run_id, *words, **variables)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"kernelmark: --resume {run_id}: ")
    assert found in line
    assert "start a new one" in line
    assert visible(folder / "r.db") == before


def test_a_suite_file_that_has_changed_is_another_suite(finished, kernelmark_in) -> None:
    folder, run_id, _ = finished
    (folder / "s.toml").write_text(SUITE.format(3))
    try:
        done = kernelmark_in(folder, "run", "--resume", run_id, "--db", "r.db")
    finally:
        (folder / "s.toml").write_text(SUITE.format(2))
    assert done.returncode == 2
    assert "plan.suite_digests was " in done.stderr


def test_another_machine_is_named_by_what_differs(finished, registry, monkeypatch, complaint) -> None:
    folder, run_id, _ = finished
    monkeypatch.chdir(folder)
    store = Store(folder / "r.db", create=False)
    plan = plan_of(store, run_id)
    suites = [find_suite(name, registry) for name in plan.suites]
    elsewhere = {**store.run(run_id).machine, "cpus": 1234, "gpu": "another"}
    monkeypatch.setattr(sessions, "machine", lambda: elsewhere)
    found = complaint(lambda: sessions.Session(store, suites, plan, None, run_id))
    store.close()
    assert "machine.cpus was " in found
    assert " and is 1234" in found
    assert "machine.gpu was None and is another" in found


@pytest.mark.parametrize("words", [("run", "--resume", "19700101"), (*WORDS, "--resume", "19700101")])
def test_a_run_that_is_not_there_is_named(finished, kernelmark_in, words) -> None:
    done = kernelmark_in(finished[0], *words, "--db", "r.db")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "19700101" in line


def test_nothing_can_be_taken_up_where_there_is_no_store(refused, tmp_path: Path) -> None:
    assert "there is no store" in refused("run", "--resume", "2026", "--db", "none.db")
    assert not (tmp_path / "none.db").exists()
