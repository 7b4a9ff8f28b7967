"""The held stream and its watchdog, on a fake driver whose stream stands still until the flag is raised."""

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.measure.timing import CudaClock, captured


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
