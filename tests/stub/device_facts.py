"""Facts about a device's clock, streams and memory, one function each, on the stub driver and a fake CuPy."""

import os
from dataclasses import replace
from traceback import format_exc
from types import SimpleNamespace
from unittest.mock import Mock, patch

import cuda.core as core
import cupy
import numpy as np
import pytest
from cuda.bindings import driver

from kernelmark.bench.measure import launch_pycuda
from kernelmark.bench.measure.cuda import Cuda, present_limits
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.launch import _LAUNCHERS, _set_attribute
from kernelmark.bench.measure.launch_pycuda import CubinFunction
from kernelmark.bench.measure.operands import OperandSet
from kernelmark.bench.measure.timing import captured
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import KernelCall
from kernelmark.bench.plan.limits import H100
from stub import control
from stub.programs import code, launch, new_stream, nothing


def holds(fact):
    """Return "" if a fact holds, otherwise the traceback of its function."""
    try:
        globals()[fact]()
    except BaseException:  # pytest's failures are not Exceptions
        return format_exc()
    return ""


def launching(device, name="nothing"):
    kernel, stream = nothing(name), core.Stream.from_handle(device.stream.ptr)
    return lambda: launch(stream, kernel)


def the_limits_of_the_present_device_are_those_of_its_driver():
    Cuda()
    assert present_limits() == replace(H100, l2_bytes=1 << 16)
    of_driver = driver.cuDeviceGetAttribute

    def with_minor(attribute, device):
        return (driver.CUresult.CUDA_SUCCESS, 6) if attribute.name.endswith("MINOR") else of_driver(attribute, device)

    with patch.object(driver, "cuDeviceGetAttribute", with_minor):
        assert present_limits().capability == 96


def a_grid_of_clusters_is_launched_with_as_many_blocks():
    device, seen = Cuda(), []
    control.run_launches_with(lambda launched: seen.append((*launched.grid, *launched.cluster)) or 0)
    kernel, cubin = discover().kernels["gemm/cuda.naive"], CubinFunction(code("nothing"), "nothing", {})
    call = KernelCall((6, 5, 4), 32, (), cluster=3)
    _LAUNCHERS["cuda-core"](kernel, cubin, call, [0, np.int32(7)], device.stream)()
    device.synchronize()
    control.run_launches_with(lambda launched: 0)
    assert seen == [(6, 5, 4, 3, 1, 1)]


def an_attribute_that_the_driver_refuses_is_unsupported():
    Cuda()
    with pytest.raises(Unsupported, match=r"cannot set MAX_DYNAMIC_SHARED_SIZE_BYTES to 232449: CUDA_ERROR_INVALID_V"):
        _set_attribute(nothing(), "MAX_DYNAMIC_SHARED_SIZE_BYTES", 232449)


def a_batch_during_which_the_devices_clock_jumps_is_refused():
    device = Cuda()
    call, clock = launching(device, "struck"), device.clock(hold=True)
    with patch.dict(os.environ, KM_STUB_FAULT="clock", KM_STUB_FAULT_AT="truc"):
        for _ in "an hour on", "an hour back":
            with pytest.raises(RuntimeError, match=r"the device's events span .*, but only .* passed on the host"):
                clock.time([call])


def a_driver_without_stream_waits_is_timed_without_holding():
    device = Cuda()
    clock = device.clock(hold=True)
    control.launches_take(4_000_000)
    with patch.object(driver, "cuStreamWaitValue32", lambda *_: (driver.CUresult.CUDA_ERROR_NOT_SUPPORTED,)):
        assert clock.time([launching(device)]) == pytest.approx(4e-3, rel=1e-3)
    assert not clock.holds_stream


def a_call_that_raises_an_error_releases_the_stream():
    device = Cuda()
    with pytest.raises(ZeroDivisionError):
        device.clock(hold=True).time([lambda: 1 // 0])
    device.stream.synchronize()


def work_outside_the_events_is_reported():
    clock = Cuda().clock(hold=True)
    clock.unseen_s = [0.005] * 5
    assert "beyond" in (clock.hidden_work([1e-3] * 5, batch=1) or "")
    clock.unseen_s = [50e-6] * 5
    assert clock.hidden_work([1e-3] * 5, batch=1) is None


def nothing_is_timed_while_another_stream_is_current_and_the_devices_stream_is_restored():
    device, called = Cuda(), []
    other = cupy.cuda.Stream(non_blocking=True).use()
    expected = f"current stream is {other.ptr:#x}, expected {device.stream.ptr:#x}"
    with pytest.raises(RuntimeError, match=expected):
        device.clock(hold=True).time([lambda: called.append(1)])
    assert called == []
    assert device.strayed() is None


def a_call_that_makes_another_stream_current_is_not_timed():
    device, other = Cuda(), cupy.cuda.Stream(non_blocking=True)
    with pytest.raises(RuntimeError, match=f"current stream is {other.ptr:#x}"):
        device.clock(hold=True).time([other.use])
    device.stream.synchronize()


def the_devices_stream_is_current_after_a_kernel_leaves_its_own():
    device = Cuda()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        assert cupy.cuda.get_current_stream().ptr == stream.ptr != device.stream.ptr
    assert device.strayed() is None


def the_devices_stream_is_current_after_an_upload_and_an_eviction_of_persisting_lines():
    device = Cuda()
    device.upload(device.bytes(8), np.arange(8, dtype=np.uint8))
    with patch.object(driver, "cuCtxSetLimit") as limit, patch.object(driver, "cuCtxResetPersistingL2Cache") as reset:
        device.evict()
    limit.assert_called_once_with(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)
    reset.assert_called_once_with()
    assert device.strayed() is None


def a_captured_launch_runs_only_when_it_is_replayed_and_one_that_fails_leaves_the_stream_usable():
    device, ran = Cuda(), []
    call = launching(device)
    control.run_launches_with(lambda launched: ran.append(launched.entry) or 0)
    replay = captured(lambda: (call(), call()), device.stream)
    assert ran == []
    replay()
    replay()
    with pytest.raises(ZeroDivisionError):
        captured(lambda: 1 // 0, device.stream)
    with pytest.raises(Unsupported, match="cannot be captured: calling cuBLAS API"):
        captured(Mock(side_effect=NotImplementedError("calling cuBLAS API during stream capture")), device.stream)
    call()
    device.stream.synchronize()
    control.run_launches_with(lambda launched: 0)
    assert ran == [b"nothing"] * 5


def pycudas_stream_replaces_the_devices():
    device, theirs = Cuda(), new_stream()
    before = device.stream
    with patch.object(launch_pycuda, "pycuda_stream", lambda number: SimpleNamespace(handle=int(theirs.handle))):
        launch_pycuda.take_stream(device)
        with before:
            pass
        taken = device.stream
        launch_pycuda.take_stream(device)
    assert device.stream is taken
    assert cupy.cuda.get_current_stream().ptr == taken.ptr == int(theirs.handle)


def an_input_is_compared_with_the_last_draw_on_the_device_or_if_that_is_full_on_the_host():
    for free_bytes in (2**30, 0):
        with patch.object(cupy.cuda.runtime, "memGetInfo", lambda free_bytes=free_bytes: (free_bytes, 2**30)):
            device, problem = Cuda(), discover().problem("gemm/m3n5k7/f32/NN/lda+2")
            draw, operands = Draw(problem, 0), OperandSet(problem, device)
            for _ in range(2):
                draw.redraw()
                assert not device.holds(operands.flat["a"], "a", draw)
                operands.load(draw)
                assert operands.damage(draw) is None
            device.scatter(operands.flat["a"], np.array([3]), np.array([7.0], np.float32))
            assert operands.damage(draw) == "changed its input a"
            device.release()
            assert operands.damage(draw) == "changed its input a"


def a_changed_copy_of_an_input_accuses_no_kernel():
    device, problem = Cuda(), discover().problem("gemm/m3n5k7/f32/NN")
    draw, operands = Draw(problem, 0), OperandSet(problem, device)
    operands.load(draw)
    assert operands.damage(draw) is None
    device._copies["a"][1].fill(0)
    assert operands.damage(draw) is None


def an_array_on_several_gpus_lies_in_parts_between_its_edges():
    edge, memory = 8, Cuda().peers((0, 1, 2), 8)
    for n in (1, 7, 100):
        raw = memory.bytes(3 * n * 4 + 2 * edge)
        raw.fill(0xA5)
        flat, want = raw[edge : edge + 3 * n * 4].view("f4"), np.arange(3 * n, dtype="f4")
        memory.upload(flat, want)
        assert [part.get().tolist() for part in flat.parts] == want.reshape(3, n).tolist()
        assert memory.download(flat).tolist() == want.tolist()
        for guard in (raw[:edge], raw[-edge:]):
            assert memory.download(guard).tobytes() == bytes([0xA5]) * edge


def single_elements_are_written_on_the_gpu_that_has_them():
    memory = Cuda().peers((0, 1, 2), 8)
    flat = memory.bytes(12 * 8 + 2 * 8)[8:-8].view("f8")
    memory.upload(flat, np.zeros(12))
    memory.scatter(flat, np.array([0, 3, 4, 11, 3]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert memory.download(flat).tolist() == [1, 0, 0, 5, 3, 0, 0, 0, 0, 0, 0, 4]
