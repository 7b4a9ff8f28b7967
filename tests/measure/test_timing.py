"""The timing loop, with clocks that say what the test wants."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

from bench.measure import timing
from bench.measure.device import Cpu
from bench.measure.operands import Draw, OperandSet
from bench.measure.series import Series, interleave
from bench.measure.timing import CpuClock, call_overhead
from bench.plan.case import Budget
from bench.plan.discovery import discover


class FakeTime:
    """A clock that moves only when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(timing, "time", fake)
    monkeypatch.setattr(timing, "resolution", lambda: 1e-7)
    return fake


class Rig:
    """A problem's sets, with launches that record which set they ran on and let time pass."""

    def __init__(self, fake: FakeTime, text: str, sets: int) -> None:
        problem = discover().problem(text)
        self.device = CountingCpu()
        self.draw = Draw(problem, 0)
        self.draw.redraw()
        self.sets = [OperandSet(problem, self.device) for _ in range(sets)]
        for operands in self.sets:
            operands.load(self.draw)
        self.fake = fake
        self.log: list[str] = []

    def launch(self, which: int, name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            self.log.append(f"{name}{which}")
            self.fake.now += seconds

        return call

    def series(self, name: str = "k", seconds: float = 1e-3, cold: bool = False, evict: bool = False) -> Series:
        launches = [self.launch(i, name, seconds) for i in range(len(self.sets))]
        return Series(launches, self.sets, self.draw, self.device, CpuClock(), cold, evict, called)


def called(stage: str) -> AbstractContextManager[None]:
    return nullcontext()


class CountingCpu(Cpu):
    """A CPU that counts evictions instead of doing them."""

    def __init__(self) -> None:
        super().__init__()
        self.evictions = 0

    def evict(self) -> None:
        self.evictions += 1


def test_a_sample_is_seconds_a_call(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    series = rig.series(seconds=10e-6)
    series.warm_up(0.0)
    series.sample()
    assert series.samples == [pytest.approx(10e-6)]


def test_short_calls_are_batched_to_200_us_and_long_ones_are_not(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    short, long = rig.series(seconds=10e-6), rig.series(seconds=1e-3)
    short.warm_up(0.0)
    long.warm_up(0.0)
    assert (short.batch, long.batch) == (20, 1)


def test_cold_rotates_over_all_sets_and_wakes_on_one_that_is_not_timed(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 4)
    series = rig.series(seconds=1e-3, cold=True, evict=True)
    series.warm_up(0.0)
    rig.log.clear()
    for _ in range(4):
        series.sample()
    assert rig.log == ["k0", "k1", "k2", "k3", "k0", "k1", "k2", "k3"]
    assert rig.device.evictions == 4


def test_an_evicted_batch_touches_no_set_twice(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 4)
    series = rig.series(seconds=1e-6, cold=True, evict=True)
    series.warm_up(0.0)
    rig.log.clear()
    series.sample()
    assert len(rig.log) == len(set(rig.log)) == 4


def test_inouts_are_restored_before_each_sample_and_cold_evicts_afterwards(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "gemm/m3n4k5/f32/NN/beta1", 2)
    seen: list[bool] = []

    def accumulate(operands: OperandSet) -> Callable[[], None]:
        def call() -> None:
            seen.append(bool((operands.flat["c"] == rig.draw.flat["c"]).all()))
            operands.flat["c"] += 1
            fake_time.now += 1e-3

        return call

    series = Series([accumulate(s) for s in rig.sets], rig.sets, rig.draw, rig.device, CpuClock(), True, False, called)
    series.warm_up(0.0)
    seen.clear()
    for _ in range(5):
        series.sample()
    assert seen[1::2] == [True] * 5  # every other call is the untimed one
    assert rig.device.evictions == 5


def test_contenders_take_turns_forward_and_backward(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    series = {name: rig.series(name, seconds=20e-3) for name in "abc"}
    for one in series.values():
        one.warm_up(0.0)
    rig.log.clear()
    interleave(series, Budget(max_time_s=0.01, rel_ci=0), None, False, _unexpected)
    assert "".join(entry[0] for entry in rig.log)[:12] == "abccbaabccba"


def test_no_contender_stops_below_six_samples(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    series = {"a": rig.series("a", seconds=10.0)}
    series["a"].warm_up(0.0)
    interleave(series, Budget(max_time_s=0.01), None, False, _unexpected)
    assert len(series["a"].samples) == 6
    assert series["a"].stopped_by == "time"


def test_a_steady_contender_stops_by_its_interval_after_a_second(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    series = {"a": rig.series("a", seconds=10e-3)}
    series["a"].warm_up(0.0)
    began = fake_time.now
    interleave(series, Budget(max_time_s=100), None, False, _unexpected)
    assert series["a"].stopped_by == "interval"
    assert 1.0 <= fake_time.now - began < 3.0


def test_the_baseline_goes_on_until_the_last_contender_stops(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    series = {"base": rig.series("b", seconds=0.5), "slow": rig.series("s", seconds=0.1)}
    for one in series.values():
        one.warm_up(0.0)
    interleave(series, Budget(max_time_s=3, rel_ci=0), "base", False, _unexpected)
    assert len(series["base"].samples) == len(series["slow"].samples) > 6


def test_a_contender_that_raises_leaves_the_others_alone(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)

    def explode() -> None:
        raise RuntimeError("late")

    bad = rig.series("x", seconds=1e-3)
    bad.warm_up(0.0)
    bad._launches = [explode]
    series = {"bad": bad, "good": rig.series("g", seconds=1e-3)}
    series["good"].warm_up(0.0)
    errors: list[str] = []
    interleave(series, Budget(max_time_s=0.05), "bad", False, lambda name, error: errors.append(f"{name}: {error}"))
    assert errors == ["bad: late"]
    assert series["good"].stopped_by is not None


def test_the_overhead_of_an_empty_call_is_positive_and_small() -> None:
    assert 0 < call_overhead(CpuClock()) < 1e-5


def test_garbage_collection_is_given_back_after_a_sample_that_raises() -> None:
    import gc

    def explode() -> None:
        assert not gc.isenabled()
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        CpuClock().time([explode])
    assert gc.isenabled()


def _unexpected(name: str, error: Exception) -> None:
    raise AssertionError(f"{name}: {error}")
