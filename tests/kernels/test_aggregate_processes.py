"""Aggregation by processes: right on ragged sizes; one that is killed costs its call alone; nothing is left of it."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.measure.devices import get_device
from bench.measure.draw import Draw
from bench.measure.operands import Operands, OperandSet, Scratch
from bench.plan.case import Budget, Job
from bench.plan.discovery import discover
from bench.plan.modes import Mode
from bench.run.job import run_job
from kernels.aggregate._processes import beyond_cpus
from kernels.aggregate._team import team_of

REGISTRY = discover()
EXACT, COMPRESSED = ("parallel", "tree", "ring"), ("onebit", "int8")
#: Each process loads Numba, which takes seconds.
pytestmark = pytest.mark.long
NEEDS_TWO = pytest.mark.skipif(
    bool(beyond_cpus(REGISTRY.problem("aggregate/w2n1/f32"))),  # type: ignore[arg-type]
    reason="two processes need two CPUs",
)


@pytest.fixture(autouse=True)
def teams() -> Iterator[None]:
    """End the processes that a test has started."""
    yield
    gc.collect()
    team_of(2).close()


@NEEDS_TWO
@pytest.mark.parametrize(
    ("problem", "names"),
    [
        ("w2n33/f32", EXACT),
        ("w2n1031/f32/update", EXACT),
        ("w2n9001/f32/ef", COMPRESSED),
        ("w2n1537/f32/update/ef", COMPRESSED),
    ],
)
def test_strategies_are_right_in_two_processes(problem: str, names: tuple[str, ...]) -> None:
    kernels = tuple(f"aggregate/process.{name}" for name in names)
    rows = run_job(Job((f"aggregate/{problem}",), kernels, Mode.VERIFY, (), 0, Budget(), threads=2))
    assert {row.kernel: (row.status, row.reason) for row in rows} == dict.fromkeys(kernels, ("ok", ""))


def test_more_workers_than_cpus_are_unsupported() -> None:
    job = Job(("aggregate/w1024n8/f32",), ("aggregate/process.ring",), Mode.VERIFY, (), 0, Budget(), threads=2)
    (row,) = run_job(job)
    assert row.status == "unsupported"
    assert row.reason.startswith("w is 1024, expected at most ")


def launch_of(name: str) -> tuple[Any, Any]:
    """Return what runs a strategy on two gradients, and its operands."""
    kernel, problem = REGISTRY.kernels[f"aggregate/process.{name}"], REGISTRY.problem("aggregate/w2n5000/f32")
    device = get_device("cpu")
    operands = OperandSet(problem, device, kernel.host_memory)
    draw = Draw(problem, 0)
    draw.redraw()
    operands.load(draw)
    scratch = Scratch(device, kernel.host_memory)
    return kernel.launch(problem, Operands(operands, "C", device, 2, scratch)), operands


@NEEDS_TWO
def test_a_process_that_is_killed_costs_one_call_and_the_next_has_another() -> None:
    launch, operands = launch_of("parallel")
    (killed,) = team_of(2).pids
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="worker process 2 of 2 ended SIGKILL"):
        launch()
    launch()
    assert team_of(2).pids != [killed]
    gradients = operands.flat["g"].reshape(2, 5000)
    assert np.array_equal(operands.flat["s"], gradients[0] + gradients[1])


@NEEDS_TWO
def test_a_process_unmaps_what_belongs_to_a_launch_that_is_gone() -> None:
    launch, operands = launch_of("ring")
    (pid,) = team_of(2).pids
    assert "kernelmark" in Path(f"/proc/{pid}/maps").read_text()
    del launch, operands
    gc.collect()
    other, _ = launch_of("tree")  # answered once what was dropped before has been forgotten
    own = Path(f"/proc/{pid}/maps").read_text().count("kernelmark")
    other()
    assert own <= 3
