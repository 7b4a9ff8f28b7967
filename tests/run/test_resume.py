"""Runs that are interrupted and taken up again, with real processes and a real store."""

import sqlite3
import subprocess
from pathlib import Path

import pytest

from kernelmark.bench.measure.lock import held_run
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.run import session as sessions
from kernelmark.bench.run.session import plan_of
from support.processes import complaints
from support.runs import KERNELS, PROBLEMS, SUITE, WORDS, Start, query, visible


def run_ids(path: Path) -> list[str]:
    return [row["run_id"] for row in query(path, "SELECT run_id FROM run")]


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


def test_what_was_disturbed_is_measured_again_with_all_that_it_was_measured_with(finished, kernelmark_in, tmp_path):
    folder, run_id, _ = finished
    store = tmp_path / "r.db"
    copied = sqlite3.connect(store)
    sqlite3.connect(folder / "r.db").backup(copied)
    before = visible(store)
    noisy = next(iter(before))
    with copied:
        words = "others took 0.98 CPUs during 60 % of the sampling"
        copied.execute("UPDATE result SET disturbed = CASE \"case\" WHEN ? THEN ? ELSE '' END", (noisy, words))
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


def test_only_a_run_can_be_measured_again(refused) -> None:
    line = refused("run", "copy/m8n8/f32", "--noisy-again")
    assert line == "kernelmark: --noisy-again: has no run to measure again; name it by --resume"


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


def test_an_empty_run_is_refused(refused) -> None:
    line = refused("run", "--resume", "")
    assert line == "kernelmark: --resume '': is empty, expected a run; `kernelmark runs` lists them"


@pytest.mark.long
def test_no_other_process_goes_on_with_a_run_meanwhile_whatever_its_tmpdir(
    hanging: tuple[subprocess.Popen[str], int], tmp_path: Path, refused
) -> None:
    run, _ = hanging
    (run_id,) = run_ids(tmp_path / "r.db")
    (tmp_path / "elsewhere").mkdir()
    line = refused("run", "--resume", run_id, "--db", "r.db", TMPDIR=str(tmp_path / "elsewhere"))
    assert f"run-{run_id}: is being measured by process {run.pid}" in line


@pytest.mark.parametrize("words", [("run", "--resume", "19700101"), (*WORDS, "--resume", "19700101")])
def test_a_run_that_is_not_there_is_named(finished, kernelmark_in, words) -> None:
    done = kernelmark_in(finished[0], *words, "--db", "r.db")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "19700101" in line


def test_nothing_can_be_taken_up_where_there_is_no_store(refused, tmp_path: Path) -> None:
    assert "there is no store" in refused("run", "--resume", "2026", "--db", "none.db")
    assert not (tmp_path / "none.db").exists()
