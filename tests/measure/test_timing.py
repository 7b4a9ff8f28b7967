"""The timing loop, with clocks that say what the test wants."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle

import pytest

from bench.measure import timing
from bench.measure.cpu import Cpu
from bench.measure.device import Window
from bench.measure.draw import Draw
from bench.measure.energy import energy_per_call_j
from bench.measure.monitor import disturbance, means
from bench.measure.operands import OperandSet
from bench.measure.series import Series
from bench.measure.timing import CpuClock, call_overhead
from bench.measure.turns import interleave
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


class Script:
    """A monitor that says what the test wants: a cause or none, window by window, or clocks, or joules."""

    def __init__(self, causes: Iterable[str] = (), clocks: Iterable[float] = (), joules: object = None) -> None:
        self._causes, self._clocks, self._joules = iter(causes), iter(clocks), joules
        self.looks = 0

    def look(self) -> Window:
        self.looks += 1
        cause = next(self._causes, "") if self.looks > 1 else ""  # the first look begins the sampling
        return Window(0.1, {"load": 0.5 if cause else 0.0}, {cause: 1.0} if cause else {})

    def clock_mhz(self) -> float | None:
        return next(self._clocks, None)

    def energy_j(self) -> float | None:
        return self._joules() if callable(self._joules) else None


def _sampled(rig: Rig, names: str, seconds: float, budget: Budget, monitor: Script) -> list[Series]:
    series = {name: rig.series(name, seconds) for name in names}
    for one in series.values():
        one.warm_up(0.0)
    rig.log.clear()
    interleave(series, budget, None, False, _unexpected, {"cpu": monitor})
    return list(series.values())


def test_warming_up_ends_when_a_block_is_hardly_faster_than_the_one_before(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    durations = iter([12e-3, 11e-3, 10.5e-3, 10.4e-3, 99.0])

    def call() -> None:
        fake_time.now += next(durations)

    series = rig.series()
    series._launches = [call]
    series.warm_up(0.0)
    assert next(durations) == 99.0


def test_warming_up_goes_on_while_the_clock_still_moves(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    rig.series(seconds=12e-3).warm_up(0.0, monitor=Script(clocks=[1000, 2000, 3000, 3900, 3901, 3902]))
    assert len(rig.log) == 5


@pytest.mark.parametrize(("max_time_s", "expected_s"), [(100, 0.5), (0.4, 0.1), (1e-3, 10e-3)])
def test_warming_up_takes_half_a_second_at_most_or_a_quarter_of_the_limit_and_a_block_at_least(
    fake_time: FakeTime, max_time_s: float, expected_s: float
) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    rig.series(seconds=10e-3).warm_up(0.0, max_time_s, Script(clocks=[1000, 2000] * 1000))
    assert fake_time.now == pytest.approx(expected_s, abs=15e-3)


def test_what_was_disturbed_is_taken_again_from_every_contender_and_counted(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    budget = Budget(max_time_s=0.5, rel_ci=-1)
    calm = _sampled(rig, "ab", 13e-3, budget, Script())
    undisturbed = len(rig.log)
    a, b = _sampled(rig, "ab", 13e-3, budget, Script(causes=["", "noise", "noise", ""]))
    assert (a.repeated, b.repeated) == (8, 8)  # two windows, in each four rounds of 26 ms
    assert len(rig.log) == undisturbed + 16
    assert [len(one.samples) for one in (a, b)] == [len(one.samples) for one in calm]
    assert (disturbance(a.windows), means(a.windows)) == ("", {"load": 0.0})


def test_a_window_holds_an_even_number_of_rounds_so_that_quads_stay_whole(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    a, _, _ = _sampled(rig, "abc", 7e-3, Budget(0.5, rel_ci=-1), Script(causes=["noise"] * 2))
    assert a.repeated % 2 == 0
    assert "".join(entry[0] for entry in rig.log[::2]).startswith("abccba" * (a.repeated // 2 + 3))
    assert len(a.samples) % 2 == 0


def test_samples_that_are_set_aside_cost_none_of_the_time_limit(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    (one,) = _sampled(rig, "a", 20e-3, Budget(1.0, rel_ci=-1), Script(causes=["noise"] * 3))
    assert one.spent_s == pytest.approx(len(one.samples) * 20e-3)
    assert one.spent_s >= 1.0


def test_where_it_never_ends_a_run_takes_twice_its_time_and_says_what_disturbed_it(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    began = fake_time.now
    a, b = _sampled(rig, "ab", 20e-3, Budget(1.0, rel_ci=-1), Script(causes=["noise"] * 1000))
    assert 2 * (1.0 + 1.0) - 0.3 < fake_time.now - began < 2 * (1.0 + 1.0) + 0.3
    assert a.repeated > 0
    assert disturbance(a.windows) == disturbance(b.windows) == "noise during 100 % of the sampling"


def test_long_samples_are_taken_again_twice_at_most(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    (one,) = _sampled(rig, "a", 0.6, Budget(10.0, rel_ci=-1), Script(causes=["noise"] * 100))
    assert one.repeated <= 4  # two windows of two rounds
    assert one.repeated > 0


def test_outliers_alone_set_nothing_aside(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    durations = cycle([1e-3] * 20 + [50e-3])

    def call() -> None:
        fake_time.now += next(durations)

    series = rig.series()
    series.warm_up(0.0)
    series._launches = [call]
    interleave({"a": series}, Budget(0.5, rel_ci=-1), None, False, _unexpected, {"cpu": Script()})
    assert series.repeated == 0
    assert max(series.samples) == pytest.approx(50e-3)


class Meter:
    """A counter of 100 W that is brought up to date every 70 ms."""

    def __init__(self, fake: FakeTime) -> None:
        self._fake = fake

    def __call__(self) -> float:
        return 100 * 0.07 * (self._fake.now // 0.07)


def test_energy_is_that_of_calls_between_two_steps_of_the_counter(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 3)
    series = rig.series(seconds=1e-3)
    series.warm_up(0.0)
    rig.log.clear()
    joules = energy_per_call_j(series, Script(joules=Meter(fake_time)))
    assert joules == pytest.approx(0.1, rel=0.05)
    assert len(rig.log) >= 500
    assert rig.log[:4] == ["k0", "k1", "k2", "k0"]


def test_without_a_sensor_or_with_one_that_stands_still_there_is_no_energy(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 3)
    series, evicted = rig.series(), rig.series(cold=True, evict=True)
    series.warm_up(0.0)
    evicted.warm_up(0.0)
    rig.log.clear()
    assert energy_per_call_j(series, Script()) is None
    assert energy_per_call_j(evicted, Script(joules=Meter(fake_time))) is None  # back to back it would be warm
    assert rig.log == []
    assert energy_per_call_j(series, Script(joules=lambda: 5.0)) is None


def _unexpected(name: str, error: Exception) -> None:
    raise AssertionError(f"{name}: {error}")
