"""A way of launching is timed right where events, wall clock and known length agree."""

from typing import Any

import pytest

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.run.child import Lost
from kernelmark.bench.selftest import clocks
from kernelmark.bench.selftest.clocks import LaunchWay
from support.plugins import FAKE

SPAN = {"event_s": 2e-3, "wall_s": 2e-3}


@pytest.mark.parametrize(
    ("way", "found", "holds"),
    [
        ("cuda-core", SPAN, True),
        ("cuda-core", SPAN | {"wall_s": 2.03e-3}, True),
        ("cuda-core", SPAN | {"event_s": 5e-6}, False),
        ("cuda-core", {"event_s": 3e-3, "wall_s": 3e-3}, False),
        ("cuFFT", {"event_s": 3e-3, "wall_s": 3e-3}, True),
        ("cuFFT", {"event_s": 5e-6, "wall_s": 3e-3}, False),
        ("cuDNN", {"missing": "found no libcudnn"}, None),
        ("cuBLAS", Lost("SIGSEGV"), False),
    ],
)
def test_spans_that_differ_by_more_than_two_per_cent_do_not_hold(way: str, found: Any, holds: bool | None) -> None:
    assert clocks.judge(way, found).holds is holds


class LateHost:
    """A device whose events see `seen` of each second of work, and a host that wakes up late from all waits but one."""

    def __init__(self, seen: float) -> None:
        self._seen, self._now_s, self._waits = seen, 0.0, 0
        self.max_batch = 10

    def clock(self, hold: bool) -> "LateHost":
        return self

    def time(self, calls: list[Any]) -> float:
        return self._seen * 1e-2

    def now(self) -> float:
        return self._now_s

    def call(self) -> None:
        self._now_s += 1e-2

    def synchronize(self) -> None:
        self._waits += 1
        self._now_s += 0.0 if self._waits == 6 else 5e-3


@pytest.mark.parametrize(("seen", "holds"), [(1.0, True), (0.9, False)])
def test_a_late_host_is_not_taken_for_work_that_the_events_miss(
    seen: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = LateHost(seen)
    monkeypatch.setattr(clocks, "now", device.now)
    event_s, wall_s = clocks._timed(device, device.call, hold=True)
    assert clocks.judge("cuFFT", {"event_s": event_s, "wall_s": wall_s}).holds is holds


def test_work_that_the_devices_clock_does_not_see_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    discover((FAKE,))
    monkeypatch.setattr(clocks, "WAYS", {"fake": LaunchWay("copy/fake.noop", length_s=0.125)})
    (found,) = clocks.replies(["fake"])
    assert found["event_s"] == 0.125
    assert clocks.judge("fake", found).holds is False


def test_every_way_is_a_kernel_on_a_problem_that_it_takes() -> None:
    registry = discover((clocks.plugin("timed"),))
    for way in clocks.WAYS.values():
        assert registry.kernels[way.kernel].refuses(registry.problem(way.problem)) is None


def test_without_a_gpu_a_way_is_missing_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelmark.bench.measure.devices.cuda_missing", lambda: "no GPU today")
    clocks.get_device.cache_clear()
    assert list(clocks.replies(["cuBLAS"])) == [{"missing": "no GPU today"}]
