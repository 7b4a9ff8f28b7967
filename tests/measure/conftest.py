"""Fixtures of the tests of measuring: a clock that only a test moves, and a GPU that records its launches."""

import sys

import pytest

from kernelmark.bench.measure import launch, sample, tensormap, timing
from kernelmark.bench.measure.compile import compile_cubin
from kernelmark.bench.plan.limits import H100
from support.cuda import CLUSTERED, HALVES, PADDED, TILED, Gpu
from support.timing import FakeTime, Rig


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(timing, "time", fake)
    monkeypatch.setattr(timing, "resolution", lambda: 1e-7)
    monkeypatch.setattr(sample, "LONGEST_PAUSE_S", 0.0)  # pauses end by the clock
    return fake


@pytest.fixture
def rig(fake_time: FakeTime) -> Rig:
    """One set of operands of a small copy."""
    return Rig(fake_time, "copy/m3n4/f32", 1)


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch, cuda_compiler: str) -> Gpu:
    """A device of compute capability 9.0; what the tests launch is compiled before cuda.core is replaced."""
    from cuda.bindings import driver

    import cuda

    for kernel, problem in ((TILED, PADDED), (CLUSTERED, HALVES)):
        tile = kernel.tile_for(problem)
        assert tile is not None
        compile_cubin(kernel.source, [kernel.calls(problem, tile)[0][0]], "sm_90a")
    gpu = Gpu(H100)
    for name, module in gpu.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cuda, "core", gpu.modules["cuda.core"], raising=False)
    monkeypatch.setattr(tensormap, "encode_tiled", lambda: gpu.encode)
    monkeypatch.setattr(tensormap, "encode_im2col", lambda: gpu.encode)
    monkeypatch.setattr(driver, "cuLaunchKernelEx", gpu.drive)
    monkeypatch.setattr(driver, "cuKernelSetAttribute", gpu.set_attribute)
    monkeypatch.setattr(driver, "cuDeviceGetAttribute", gpu.attribute)
    launch._cuda_core_kernel.cache_clear()
    return gpu
