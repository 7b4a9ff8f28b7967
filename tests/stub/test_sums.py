"""Sums on the host of gradients on a GPU, on the stub driver: they cross to locked memory and back."""

import re
from pathlib import Path

import pytest

from kernelmark.bench.measure.operands import GUARD_BYTES
from kernelmark.bench.plan.discovery import discover
from stub.library import Run, on_stub

PROBLEMS = ("aggregate/w3n1031/f32", "aggregate/w2n70/f64/update/ef")
KERNELS = ("aggregate/cuda.host_serial", "aggregate/cuda.host_parallel")
SUM = (KERNELS[0], "aggregate/w3n1031/f32")
NBYTES = 4 * 1031 * 4


@pytest.fixture(scope="module")
def runs(tools: None, folder: Path) -> dict[str, Run]:
    calls = {f"{kernel} {problem}": ("stub.jobs:summed", kernel, problem) for kernel in KERNELS for problem in PROBLEMS}
    calls["enough"] = ("stub.jobs:summed_in", 4 * NBYTES, *SUM)
    calls["little"] = ("stub.jobs:summed_in", 4 * NBYTES - 4, *SUM)
    return on_stub(calls, folder)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_that_cross_to_the_host_are_summed(runs: dict[str, Run], kernel: str, problem: str) -> None:
    found = runs[f"{kernel} {problem}"]
    assert {status for status, _, _ in found.value.values()} == {"ok"}
    assert found.violations == []


def test_what_is_locked_counts_as_scratch(runs: dict[str, Run]) -> None:
    assert runs[" ".join(SUM)].value[KERNELS[0]][2] == NBYTES


def test_sums_of_one_device_share_their_operands(runs: dict[str, Run]) -> None:
    allocated = re.findall(r"^cuMemAlloc_v2 of (\d+)", "\n".join(runs[" ".join(SUM)].log), re.MULTILINE)
    guarded = [str(operand.nbytes + 2 * GUARD_BYTES) for operand in discover().problem(SUM[1]).operands()]
    assert sorted(nbytes for nbytes in allocated if nbytes in guarded) == sorted(guarded)


def test_more_than_a_quarter_of_the_hosts_memory_is_refused_before_it_is_locked(runs: dict[str, Run]) -> None:
    assert runs["enough"].value[KERNELS[0]][0] == "ok"
    status, reason, _ = runs["little"].value[KERNELS[0]]
    assert status == "oom"
    assert reason.startswith("pinned memory: 1.65e-05 GB would be locked; expected at most ")
    assert runs["little"].value["aggregate/cuda.device"][0] == "ok"
