"""Clocks: the host's, and a GPU's on a held stream that stays CuPy's current one, on fakes."""

import gc
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.measure import launch_pycuda
from kernelmark.bench.measure.cuda import Cuda
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.operands import OperandSet
from kernelmark.bench.measure.timing import CpuClock, CudaClock, call_overhead, captured
from kernelmark.bench.plan.registry import Registry
from support.cuda import FakeCupy


class FakeGpu:
    """A stream on which events are stamped in microseconds, and a wait that a flag ends."""

    def __init__(self) -> None:
        self.flag = np.zeros(1, np.uint32)
        self.now_ms = 0.0
        self.holding = False
        self.waits = 0
        self.wait_status = "success"
        self.after_stop_s = 0.0

    def wait_value(self, stream: Any, address: int, value: int, flags: Any) -> tuple[str]:
        self.waits += 1
        assert self.flag[0] == 0, "held with the flag already up"
        return (self.wait_status,)

    def synchronising_call(self) -> None:
        """Blocks the host until the stream is let go."""
        while not self.flag[0]:
            threading.Event().wait(0.001)
        self.now_ms += 1.0

    def call(self) -> None:
        self.now_ms += 0.5


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()

    class Event:
        at_ms = 0.0

        def record(self, stream: Any) -> None:
            self.at_ms = fake.now_ms

        def synchronize(self) -> None:
            assert fake.flag[0] == 1 or not fake.waits, "would wait for ever on the held stream"

    class Pinned(np.ndarray):
        ptr = 0x1000

    memory = fake.flag.view(Pinned)
    cuda = SimpleNamespace(
        Event=Event, get_elapsed_time=lambda a, b: b.at_ms - a.at_ms, alloc_pinned_memory=lambda nbytes: memory
    )
    driver = ModuleType("cuda.bindings.driver")
    vars(driver).update(
        CUstreamWaitValue_flags=SimpleNamespace(CU_STREAM_WAIT_VALUE_GEQ=0),
        CUresult=SimpleNamespace(CUDA_SUCCESS="success"),
        cuStreamWaitValue32=fake.wait_value,
    )
    bindings = ModuleType("cuda.bindings")
    vars(bindings)["driver"] = driver
    cupy = ModuleType("cupy")
    vars(cupy)["cuda"] = cuda
    for name, module in (("cupy", cupy), ("cuda.bindings", bindings), ("cuda.bindings.driver", driver)):
        monkeypatch.setitem(sys.modules, name, module)
    return fake


class Device:
    """A device whose stream is current until a test changes that; it counts what is done before a sample."""

    def __init__(self) -> None:
        self.stream = SimpleNamespace(ptr=1)
        self.reason: str | None = None
        self.forgotten = 0

    def synchronize(self) -> None:
        pass

    def strayed(self) -> str | None:
        return self.reason

    def forget_persisting(self) -> None:
        self.forgotten += 1


def _clock(hold: bool = True, device: Device | None = None) -> CudaClock:
    return CudaClock(device or Device(), hold)


def test_a_held_batch_is_timed_by_its_events(gpu: FakeGpu) -> None:
    assert _clock().time([gpu.call] * 4) == pytest.approx(0.5e-3)
    assert gpu.waits == 1
    assert gpu.flag[0] == 1


def test_a_call_that_synchronises_is_released_and_timed_again_without_holding(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CudaClock, "RELEASE_S", 0.05)
    clock = _clock()
    assert clock.time([gpu.synchronising_call]) == pytest.approx(1e-3)
    assert not clock.held
    clock.time([gpu.synchronising_call])
    assert gpu.waits == 1


@pytest.mark.parametrize("jump_ms", [-1.0, 3.6e6])
def test_a_batch_over_which_the_clock_of_the_device_jumps_is_refused(gpu: FakeGpu, jump_ms: float) -> None:
    def jump() -> None:
        gpu.now_ms += jump_ms

    with pytest.raises(RuntimeError, match=r"events of the device span .* within .* of the host's clock"):
        _clock().time([jump])


def test_a_driver_without_stream_waits_is_timed_without_holding(gpu: FakeGpu) -> None:
    gpu.wait_status = "not supported"
    clock = _clock()
    assert clock.time([gpu.call]) == pytest.approx(0.5e-3)
    assert not clock.held


def test_a_raising_call_lets_the_stream_go(gpu: FakeGpu) -> None:
    def explode() -> None:
        raise RuntimeError("launch failed")

    with pytest.raises(RuntimeError, match="launch failed"):
        _clock().time([explode])
    assert gpu.flag[0] == 1


def test_work_beyond_the_events_is_named(gpu: FakeGpu) -> None:
    clock = _clock()
    clock.unseen_s = [0.005] * 5
    assert "beyond" in (clock.hidden_work([1e-3] * 5, batch=1) or "")
    clock.unseen_s = [50e-6] * 5
    assert clock.hidden_work([1e-3] * 5, batch=1) is None


def test_nothing_is_timed_while_another_stream_is_current(gpu: FakeGpu) -> None:
    device, called = Device(), []
    device.reason = "CuPy's current stream is 0x0, expected 0x1"
    with pytest.raises(RuntimeError, match="current stream is 0x0, expected 0x1"):
        _clock(device=device).time([lambda: called.append(1)])
    assert called == []


def test_a_call_that_leaves_another_stream_current_has_no_time(gpu: FakeGpu) -> None:
    device = Device()

    def stray() -> None:
        device.reason = "CuPy's current stream is 0x2"

    with pytest.raises(RuntimeError, match="current stream is 0x2"):
        _clock(device=device).time([stray])
    assert gpu.flag[0] == 1


def test_no_line_persists_in_l2_when_a_sample_begins(gpu: FakeGpu) -> None:
    device = Device()
    seen: list[int] = []
    clock = _clock(device=device)
    for _ in range(2):
        clock.time([lambda: seen.append(device.forgotten)])
    assert seen == [1, 2]


class Recording:
    """A stream in the manner of CuPy's: while it captures, calls go to the graph and not to the device."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.graph: list[str] | None = None

    def begin_capture(self) -> None:
        self.graph = []

    def call(self) -> None:
        (self.log if self.graph is None else self.graph).append("call")

    def end_capture(self) -> Any:
        held, self.graph = list(self.graph or []), None
        return SimpleNamespace(launch=lambda stream: stream.log.extend(f"replayed {name}" for name in held))


def test_a_captured_launch_runs_only_when_it_is_replayed() -> None:
    stream = Recording()
    replay = captured(lambda: (stream.call(), stream.call()), stream)
    assert stream.log == []
    replay()
    replay()
    assert stream.log == ["replayed call"] * 4


def test_a_launch_that_fails_in_capture_leaves_the_stream_usable() -> None:
    stream = Recording()

    def explode() -> None:
        raise RuntimeError("not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="capturing"):
        captured(explode, stream)
    stream.call()
    assert stream.log == ["call"]


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


def test_the_overhead_of_an_empty_call_is_positive_and_small() -> None:
    assert 0 < call_overhead(CpuClock()) < 1e-5


def test_garbage_collection_is_given_back_after_a_sample_that_raises() -> None:
    def explode() -> None:
        assert not gc.isenabled()
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        CpuClock().time([explode])
    assert gc.isenabled()
