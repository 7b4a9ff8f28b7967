"""Kernels that crash or hang their process, in real processes: each costs one row."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from bench.measure import memory
from bench.measure.measurement import Measurement
from bench.plan.case import Budget, Job, WorkerKey
from bench.plan.modes import Mode
from bench.run.pool import Workers
from complaints import complaints

FAULTS = str(Path(__file__).parents[1].joinpath("faults.py"))
FAKE = str(Path(__file__).parents[1].joinpath("fake_device.py"))
HONEST = "copy/bad.honest"
SMALL = "copy/m3n5/f32"
#: The remark on a row that was measured again, alone; a row of a disturbed machine has other remarks too.
ALONE = "measured alone"
#: Ample for a call of 3 ms; set-up may take ten times that.
TIMEOUT_S = 0.5
Measure = Callable[..., list[Measurement]]


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers() as opened:
        yield opened


@pytest.fixture
def measure(workers: Workers) -> Measure:
    """The rows of these kernels as one job, in workers that outlive it."""

    def of(*kernels: str, problem: str = SMALL, timeout_s: float = 60.0) -> list[Measurement]:
        names = tuple(f"copy/{name}" if "." in name else f"copy/bad.{name}" for name in kernels)
        job = Job((problem,), names, Mode.HOT, (FAULTS, FAKE), 0, Budget(0.02), 1, names[0], timeout_s=timeout_s)
        return workers.run(job, WorkerKey("cpu", 1))

    return of


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a kernel leaves the number of a process."""
    monkeypatch.setenv("FAULTS_PID", str(tmp_path / "pid"))
    return tmp_path / "pid"


def statuses(rows: list[Measurement]) -> dict[str, tuple[str, str]]:
    return {row.kernel.partition(".")[2]: (row.status, row.reason) for row in rows}


def gone(pid: int) -> bool:
    """Return whether the process has ended; a zombie counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Poll until the condition holds, since no event announces it."""
    stop = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < stop, "has not come about"
        time.sleep(0.01)


def test_kernels_that_end_their_process_cost_a_row_each_and_the_others_are_measured_again(measure: Measure) -> None:
    rows = measure("honest", "segv_in_set_up", "aborts", "exits", "segv_in_sampling", "prints")
    assert [row.kernel for row in rows][:2] == [HONEST, "copy/bad.segv_in_set_up"]
    assert statuses(rows) == {
        "honest": ("ok", ""),
        "segv_in_set_up": ("crashed", "set-up: SIGSEGV"),
        "aborts": ("crashed", "verification: SIGABRT: cannot go on"),
        "exits": ("crashed", "verification: the process ended with status 3"),
        "segv_in_sampling": ("crashed", "sampling: SIGSEGV"),
        "prints": ("ok", ""),
    }
    attempts = [row.attempt for row in rows]
    assert attempts == [5, 2, 3, 4, 5, 5]  # one more for each worker that was lost before
    for row in rows:
        assert (len(row.samples) >= 6) == (row.interval is not None) == (row.status == "ok")
        assert ALONE not in row.disturbed
    assert rows[-1].ratio is not None  # it had the baseline beside it in the end


def test_the_next_job_is_unharmed(measure: Measure) -> None:
    (row,) = measure("segv")
    assert (row.status, row.attempt) == ("crashed", 1)
    (row,) = measure("honest")
    assert (row.status, row.attempt) == ("ok", 1)


def test_a_signal_from_a_stranger_costs_a_row_and_is_named(measure: Measure) -> None:
    rows = measure("killed_by_a_stranger", "honest")
    assert statuses(rows) == {"killed_by_a_stranger": ("crashed", "verification: SIGKILL"), "honest": ("ok", "")}


def test_an_interrupt_that_a_kernel_raises_ends_no_run(measure: Measure) -> None:
    bad, good = measure("raises_interrupt", "honest")
    assert (bad.status, good.status) == ("crashed", "ok")
    assert "KeyboardInterrupt" in bad.reason


def test_a_kernel_that_hangs_is_a_timeout_that_says_where(measure: Measure) -> None:
    rows = measure("hangs_in_set_up", "hangs_in_verification", "honest", "hangs_in_sampling", timeout_s=TIMEOUT_S)
    found = statuses(rows)
    assert found.pop("honest") == ("ok", "")
    for stage, limit in (("set-up", 10 * TIMEOUT_S), ("verification", TIMEOUT_S), ("sampling", TIMEOUT_S)):
        reason = f"{stage} took more than {limit:g} s; see --timeout"
        assert found[f"hangs_in_{stage.replace('-', '_')}"] == ("timeout", reason)
    assert [row.attempt for row in rows] == [1, 2, 4, 3]


def test_the_victim_of_a_corrupted_process_is_measured_alone_and_says_so(measure: Measure) -> None:
    culprit, victim = measure("corrupts", "reads")
    assert (culprit.status, victim.status, victim.reason) == ("ok", "ok", "")
    assert f"{ALONE}, since in company the worker was lost (verification: SIGSEGV)" in victim.disturbed
    assert (victim.ratio, victim.attempt) == (None, 2)


def test_a_job_is_not_blamed_for_what_an_earlier_one_left_behind(measure: Measure) -> None:
    measure("corrupts")
    (victim,) = measure("reads")
    assert (victim.status, victim.attempt) == ("ok", 2)
    assert ALONE not in victim.disturbed


def test_a_worker_that_was_killed_while_it_waited_harms_no_job(measure: Measure, told: Path) -> None:
    measure("tells")
    os.kill(worker := int(told.read_text()), signal.SIGKILL)
    wait_for(lambda: gone(worker))
    first, second = measure("honest", "prints")
    assert (first.status, second.status) == ("ok", "ok")
    assert ALONE not in second.disturbed


def test_what_a_kernel_has_started_ends_with_it_and_keeps_nobody_waiting(measure: Measure, told: Path) -> None:
    bad, good = measure("leaves_a_child", "honest")
    assert (bad.status, bad.reason, good.status) == ("crashed", "verification: the process ended with status 3", "ok")
    wait_for(lambda: gone(int(told.read_text())))


@pytest.mark.parametrize("name", ["closes_all_files", "writes_into_the_pipe"])
def test_a_process_that_answers_nonsense_or_nothing_is_ended(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("bench.run.process.EXIT_S", 0.5)
    bad, good = measure(name, "honest")
    assert (bad.status, good.status) == ("crashed", "ok")
    assert bad.reason == "verification: the process answers no more, and has not ended"


def test_a_kernel_that_takes_the_last_of_the_memory_is_oom(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 200_000_000)
    monkeypatch.setattr(memory, "whole_bytes", lambda: 10_000_000_000)
    bad, good = measure("fills_memory", "honest")
    assert (bad.status, good.status) == ("oom", "ok")
    assert re.fullmatch(r"verification: the process took 0\.[23]\d* GB, 0\.2 GB are left", bad.reason)


def test_what_the_system_killed_for_memory_is_oom(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "kills_by_system", count().__next__)
    bad, good = measure("killed_by_a_stranger", "honest")
    assert (bad.status, bad.reason) == ("oom", "verification: killed by the system for want of memory")
    assert good.status == "ok"


def test_a_device_that_fails_for_good_costs_a_row_and_the_others_get_a_fresh_process(measure: Measure) -> None:
    rows = measure("fake.base", "fake.sticky", "fake.other")
    error = "cudaErrorIllegalAddress: an illegal memory access was encountered"
    assert [(row.status, row.reason, row.attempt) for row in rows] == [
        ("ok", "", 2),
        ("crashed", error, 2),
        ("ok", "", 2),
    ]


def test_ids_that_do_not_exist_are_refused_in_the_workers_words(
    measure: Measure, complaint: Callable[..., str]
) -> None:
    assert "copy/m0n5/f32" in complaint(lambda: measure("honest", problem="copy/m0n5/f32"))


def test_no_worker_can_be_started_where_nothing_can_be_written(
    measure: Measure, complaint: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert "TMPDIR names another folder" in complaint(lambda: measure("honest"))


SUITE = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 5\nm = [3, 4]\n"
QUICK = ("--mode", "hot", "--max-time", "0.02", "--no-ceilings", "--threads", "1", "--plugin", FAULTS)


def test_a_run_with_crashes_exits_1_and_prints_of_kernels_keep_out_of_its_tables(kernelmark, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SUITE)
    kernels = ("--kernels", "copy/bad.segv", "--kernels", "copy/bad.prints", "--kernels", "copy/bad.aborts")
    done = kernelmark("run", "s.toml", *QUICK, *kernels)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "6 rows: 4 crashed, 2 ok"
    assert "crashed: copy/bad.segv: verification: SIGSEGV" in done.stdout
    assert "what a kernel prints" not in done.stdout
    assert set(complaints(done.stderr)) == {"what a kernel prints", "cannot go on"}


@pytest.fixture
def hanging(tmp_path: Path, told: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A run in the midst of a call that does not end, and its worker's number."""
    script = str(Path(sys.executable).with_name("kernelmark"))
    words = ("run", SMALL, *QUICK, "--kernels", "copy/bad.hangs_and_tells", "--db", str(tmp_path / "r.db"))
    with subprocess.Popen(
        [sys.executable, script, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            wait_for(told.exists)
            yield run, int(told.read_text())
        finally:
            run.kill()


def test_no_worker_outlives_a_run_that_is_killed(hanging: tuple[subprocess.Popen[str], int]) -> None:
    run, worker = hanging
    assert not gone(worker)
    run.kill()
    wait_for(lambda: gone(worker))


def test_no_worker_outlives_a_second_interrupt(hanging: tuple[subprocess.Popen[str], int]) -> None:
    run, worker = hanging
    for _ in range(10):  # two that come at once count as one
        run.send_signal(signal.SIGINT)
        try:
            run.wait(1)
        except subprocess.TimeoutExpired:
            continue
        break
    assert run.returncode == 130
    assert complaints(run.communicate()[1]) == []
    wait_for(lambda: gone(worker))
