"""Kernels end to end on the stub driver: the project's launcher, clock and verification over the real cuda-core."""

from pathlib import Path

import pytest

from stub.library import on_stub

PLAIN = ("gemm/cuda.tiled", "gemm/m33n31k17/f32/NT")


@pytest.mark.parametrize(
    ("kernel", "problem", "launched"),
    [
        pytest.param(*PLAIN, "grid 1 2 1, block 32 32 1", id="plain"),
        pytest.param("gemm/cuda.async", "gemm/m33n31k17/f32/NT", "shared 50176", id="dynamic shared memory"),
        pytest.param("transpose/cuda.c2r_fused", "transpose/m17n12/f32/in", "cooperative 1", id="cooperative"),
        pytest.param("transpose/cuda.tma", "transpose/m64n32/f32/out", "shared 99328", id="tensor maps"),
        pytest.param("gemm/cuda.wgmma_tf32", "gemm/m40n48k64/f32/NT", "cluster 2 1 1", id="cluster and tensor maps"),
    ],
)
def test_a_kernel_verifies(tmp_path: Path, kernel: str, problem: str, launched: str) -> None:
    run = on_stub("stub.jobs:verified", tmp_path, KERNEL=kernel, PROBLEM=problem)
    assert (run.value["status"], run.value["reason"], run.value["complaints"]) == ("ok", "", [])
    assert run.value["ran"] >= 1
    assert run.violations == []
    assert any(line.startswith("cuLaunchKernelEx ") and launched in line for line in run.log)


def test_a_kernel_that_is_launched_and_not_run_is_wrong(tmp_path: Path) -> None:
    run = on_stub("stub.jobs:not_run", tmp_path, KERNEL=PLAIN[0], PROBLEM=PLAIN[1])
    assert run.value["status"] == "wrong"


@pytest.mark.parametrize("mode", ["hot", "cold", "graph"])
def test_every_sample_is_the_length_of_a_launch(tmp_path: Path, mode: str) -> None:
    run = on_stub("stub.jobs:timed", tmp_path, KERNEL=PLAIN[0], PROBLEM=PLAIN[1], MODE=mode)
    assert (run.value["status"], run.value["reason"], run.value["complaints"]) == ("ok", "", [])
    assert run.value["disturbed"] == ""
    assert set(run.value["samples"]) == {0.02}
    assert run.violations == []
    assert run.called["cuStreamWaitValue32_v2"] == run.called["cuEventElapsedTime_v2"]
    assert ("cuGraphLaunch" in run.called) == (mode == "graph")
