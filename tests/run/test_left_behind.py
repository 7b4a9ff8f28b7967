"""What kernels, workers and runs leave when they end: no process and no shared memory, whoever ended them."""

import signal
import subprocess
from pathlib import Path

import pytest

from kernelmark.bench.run.pool import Workers
from support.processes import complaints, gone, wait_for
from support.runs import TIMEOUT_S, Measure


def test_what_a_kernel_has_started_ends_with_it_and_keeps_nobody_waiting(measure: Measure, told: Path) -> None:
    bad, good = measure("leaves_a_child", "honest")
    assert (bad.status, bad.reason, good.status) == ("crashed", "verification: the process ended with status 3", "ok")
    wait_for(lambda: gone(int(told.read_text())))


@pytest.mark.parametrize("name", ["leaves_a_daemon", pytest.param("leaves_a_daemon_and_hangs", marks=pytest.mark.long)])
def test_what_has_left_group_and_session_and_lost_its_parent_ends_too(
    workers: Workers, measure: Measure, told: Path, name: str
) -> None:
    bad, good = measure(name, "honest", timeout_s=TIMEOUT_S)
    assert (bad.status, good.status) == ("timeout" if name.endswith("hangs") else "ok", "ok")
    workers.close()
    assert gone(int(told.read_text()))


@pytest.mark.long
def test_what_a_kernel_that_crashes_has_shared_is_removed_from_memory(measure: Measure, told: Path) -> None:
    bad, _ = measure("shares_memory", "honest")
    assert bad.reason.startswith("verification: the process ended with status 3")
    assert not Path("/dev/shm", told.with_suffix(".name").read_text()).exists()


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
