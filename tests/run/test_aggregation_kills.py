"""SIGKILL during an aggregation by processes: at most one row is lost, and no process, memory or file is left.

Gradients are in files without names, which vanish with the last process that has them open.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kernelmark.bench.run.family import below
from support.processes import at_work_in, command, gone, wait_for
from support.runs import Start, query

PROBLEM = "aggregate/w2n2000000/f32"
KERNELS = ("aggregate/cpu.host_serial", *(f"aggregate/process.{name}" for name in ("parallel", "ring")))
SELECTED = [word for name in KERNELS for word in ("--kernels", name)]
LIMITS = ("--mode", "hot", "--max-time", "0.5", "--no-ceilings", "--threads", "2")
WORDS = ("run", PROBLEM, *SELECTED, *LIMITS, "--db", "r.db")
#: What waits for its orders in a socket has given way once for each call: this many show that phases are under way.
CALLS = 20
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processes need two CPUs"),
]


def helpers(run: subprocess.Popen[str]) -> list[int]:
    """The worker processes of an aggregation below a run."""
    return [each.pid for each in below(run.pid) if "kernelmark.kernels.aggregate._worker" in command(each.pid)]


def status(pid: int, name: str) -> str:
    """A line of what the system has on a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def stopped_at_work(run: subprocess.Popen[str]) -> tuple[int, int]:
    """Stop a worker process between two calls or in one; return it and its leader, once that waits for it."""
    wait_for(lambda: bool(helpers(run)) or run.poll() is not None)
    (helper,) = helpers(run)
    wait_for(lambda: "memfd:kernelmark" in Path(f"/proc/{helper}/maps").read_text())
    first = int(status(helper, "voluntary_ctxt_switches"))
    wait_for(lambda: int(status(helper, "voluntary_ctxt_switches")) > first + CALLS)
    os.kill(helper, signal.SIGSTOP)
    leader = int(status(helper, "PPid"))
    wait_for(lambda: _waits(leader))
    return helper, leader


def _waits(pid: int) -> bool:
    """Whether it sleeps each time for a fifth of a second: a run does not pause for that long."""
    for _ in range(20):
        if status(pid, "State") != "S":
            return False
        time.sleep(0.01)
    return True


def rows(folder: Path) -> dict[str, tuple[str, str]]:
    found = query(folder / "r.db", "SELECT kernel, status, disturbed FROM result")
    return {row["kernel"]: (row["status"], row["disturbed"]) for row in found}


def test_a_kernel_whose_worker_process_is_killed_in_a_phase_is_judged_again_and_leaves_nothing(
    folder: Path, start: Start
) -> None:
    run = start(*WORDS)
    helper, _ = stopped_at_work(run)
    os.kill(helper, signal.SIGKILL)
    _, err = run.communicate()
    assert (run.returncode, "Traceback" in err) == (0, False)
    found = rows(folder)
    assert found.keys() == set(KERNELS)
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    (killed,) = (kernel for kernel, (_, disturbed) in found.items() if "it was failed" in disturbed)
    assert killed.startswith("aggregate/process.")
    assert "worker process 2 of 2 ended SIGKILL" in found[killed][1]
    wait_for(lambda: at_work_in(folder) == [])


def test_a_job_that_is_killed_in_a_phase_is_measured_again_and_leaves_nothing(folder: Path, start: Start) -> None:
    run = start(*WORDS)
    helper, leader = stopped_at_work(run)
    os.kill(leader, signal.SIGKILL)
    wait_for(lambda: gone(helper))
    _, err = run.communicate()
    assert (run.returncode, "Traceback" in err) == (0, False)
    assert {verdict for verdict, _ in rows(folder).values()} == {"ok"}
    assert rows(folder).keys() == set(KERNELS)
    wait_for(lambda: at_work_in(folder) == [])


def test_a_run_that_is_killed_in_a_phase_leaves_no_process(folder: Path, start: Start) -> None:
    run = start(*WORDS)
    stopped_at_work(run)
    run.kill()
    wait_for(lambda: at_work_in(folder) == [])
