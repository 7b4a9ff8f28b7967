"""Aggregation by processes: right on ragged sizes; a killed process only fails its call, and leaves nothing behind."""

import gc
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from kernelmark.kernels.aggregate._team import team_of
from kernelmark.kernels.aggregate.process import beyond_cpus
from support.kernels import REGISTRY, failures, set_up

EXACT, COMPRESSED = ("parallel", "tree", "ring"), ("onebit", "int8")
#: Each process loads Numba, which takes seconds.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(beyond_cpus(REGISTRY.problem("aggregate/w2n1/f32"))), reason="two processes need two CPUs"),
]


@pytest.fixture(autouse=True)
def teams():
    yield
    gc.collect()
    team_of(2).close()


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        ("w2n33/f32", EXACT),
        ("w2n1031/f32/update", EXACT),
        ("w2n9001/f32/ef", COMPRESSED),
        ("w2n1537/f32/update/ef", COMPRESSED),
    ],
)
def test_strategies_are_right_in_two_processes(problem, names):
    assert not failures(f"aggregate/{problem}", *(f"aggregate/process.{name}" for name in names))


def test_a_killed_process_fails_one_call_and_is_replaced_for_the_next():
    launch, operands, *_ = set_up("aggregate/w2n5000/f32", "aggregate/process.parallel")
    (killed,) = team_of(2).pids
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="worker process 2 of 2 ended SIGKILL"):
        launch()
    launch()
    assert team_of(2).pids != [killed]
    gradients = operands.flat["g"].reshape(2, 5000)
    assert np.array_equal(operands.flat["s"], gradients[0] + gradients[1])


def test_a_process_unmaps_the_memory_of_a_dropped_launch():
    dropped = set_up("aggregate/w2n5000/f32", "aggregate/process.ring")
    (pid,) = team_of(2).pids
    assert "kernelmark" in Path(f"/proc/{pid}/maps").read_text()
    del dropped
    gc.collect()
    # The process answers this set-up after it has released the dropped launch.
    other, *_ = set_up("aggregate/w2n5000/f32", "aggregate/process.tree")
    mappings = Path(f"/proc/{pid}/maps").read_text().count("kernelmark")
    other()
    assert mappings <= 3
