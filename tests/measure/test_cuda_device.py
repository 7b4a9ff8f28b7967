"""The device's own stream stays CuPy's current one, whatever is uploaded, evicted or entered. On a fake CuPy."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from kernelmark.bench.measure import launch_pycuda
from kernelmark.bench.measure.cuda import Cuda
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.operands import OperandSet
from kernelmark.bench.plan.registry import Registry
from support.cuda import FakeCupy


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits that were set in the driver, and (0, 0) for each reset of persisting lines."""
    from cuda.bindings import driver

    found: list[tuple[int, int]] = []
    monkeypatch.setattr(driver, "cuCtxSetLimit", lambda limit, value: found.append((int(limit), value)))
    monkeypatch.setattr(driver, "cuCtxResetPersistingL2Cache", lambda: found.append((0, 0)))
    return found


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, limits: list[tuple[int, int]]) -> FakeCupy:
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def test_work_of_cupy_runs_on_the_stream_of_the_events_after_an_upload_and_an_eviction(cupy: FakeCupy) -> None:
    device = Cuda()
    device.upload(device.bytes(8), np.arange(8, dtype=np.uint8))
    device.evict()
    cupy.launch("fft")
    assert {stream for _, stream in cupy.log} == {device.stream.ptr}
    assert device.strayed() is None


def test_a_kernel_that_enters_a_stream_of_its_own_leaves_the_devices_current(cupy: FakeCupy) -> None:
    device = Cuda()
    with cupy.cuda.Stream():
        assert device.stream is not cupy.current
    assert device.strayed() is None


def test_a_stream_that_is_left_current_is_named_and_the_devices_is_current_again(cupy: FakeCupy) -> None:
    device = Cuda()
    other = cupy.cuda.Stream().use()
    expected = f"current stream is {other.ptr:#x}, expected {device.stream.ptr:#x}"
    assert expected in (device.strayed() or "")
    assert device.strayed() is None


@pytest.mark.parametrize("free_bytes", [2**30, 0])
def test_an_input_is_compared_with_what_was_drawn_last(cupy: FakeCupy, registry: Registry, free_bytes: int) -> None:
    cupy.cuda.runtime.memGetInfo = lambda: (free_bytes, 2**30)
    device, problem = Cuda(), registry.problem("gemm/m3n5k7/f32/NN/lda+2")
    draw, operands = Draw(problem, 0), OperandSet(problem, device)
    for change in (draw.redraw, draw.refresh):
        change()
        assert not device.holds(operands.flat["a"], "a", draw)
        operands.load(draw)
        assert operands.damage(draw) is None
    operands.flat["a"][3] += 1
    assert operands.damage(draw) == "changed its input a"
    device.release()
    assert operands.damage(draw) == "changed its input a"


def test_a_copy_of_an_input_that_a_kernel_writes_to_accuses_nobody(cupy: FakeCupy, registry: Registry) -> None:
    device, problem = Cuda(), registry.problem("gemm/m3n5k7/f32/NN")
    draw, operands = Draw(problem, 0), OperandSet(problem, device)
    operands.load(draw)
    assert operands.damage(draw) is None
    device._copies["a"][1].fill(0)
    assert operands.damage(draw) is None


def test_pycudas_stream_becomes_the_devices_and_no_event_joins_the_two(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_pycuda, "pycuda_stream", lambda number: SimpleNamespace(handle=0x999))
    device = Cuda()
    before = device.stream
    launch_pycuda.take_stream(device)
    with before:
        pass
    cupy.launch("fft")
    assert device.stream.ptr == 0x999
    assert cupy.log == [("fft", 0x999)]
    taken = device.stream
    launch_pycuda.take_stream(device)
    assert device.stream is taken


def test_an_eviction_begins_with_lines_that_nothing_keeps_in_l2(cupy: FakeCupy, limits: list[tuple[int, int]]) -> None:
    from cuda.bindings import driver

    Cuda().evict()
    assert limits == [(int(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE), 0), (0, 0)]
