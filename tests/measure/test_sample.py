"""The samples of one contender, with clocks that say what the test wants."""

from collections.abc import Callable

import pytest

from kernelmark.bench.measure.operands import OperandSet
from kernelmark.bench.measure.sample import Series
from kernelmark.bench.measure.timing import CpuClock
from support.timing import FakeTime, Rig, Script, called


def test_a_sample_is_seconds_a_call(rig: Rig) -> None:
    series = rig.warmed(seconds=10e-6)
    series.sample()
    assert series.samples == [pytest.approx(10e-6)]


def test_short_calls_are_batched_to_200_us_and_long_ones_are_not(rig: Rig) -> None:
    short, long = rig.warmed(seconds=10e-6), rig.warmed(seconds=1e-3)
    assert (short.batch, long.batch) == (20, 1)


def test_cold_rotates_over_all_sets_and_wakes_on_one_that_is_not_timed(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 4)
    series = rig.warmed(seconds=1e-3, cold=True, evict=True)
    for _ in range(4):
        series.sample()
    assert rig.log == ["k0", "k1", "k2", "k3", "k0", "k1", "k2", "k3"]
    assert rig.device.evictions == 4


def test_an_evicted_batch_touches_no_set_twice(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 4)
    series = rig.warmed(seconds=1e-6, cold=True, evict=True)
    series.sample()
    assert len(rig.log) == len(set(rig.log)) == 4


@pytest.mark.parametrize("sets", [1, 2])
def test_inouts_are_restored_before_each_sample_and_cold_evicts_afterwards(fake_time: FakeTime, sets: int) -> None:
    rig = Rig(fake_time, "gemm/m3n4k5/f32/NN/beta1", sets)
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


def test_warming_up_ends_when_a_block_is_hardly_faster_than_the_one_before(rig: Rig) -> None:
    durations = iter([12e-3, 11e-3, 10.5e-3, 10.4e-3, 99.0])
    rig.series(launches=[rig.lasting(durations)]).warm_up(0.0)
    assert next(durations) == 99.0


def test_warming_up_takes_no_more_than_its_share_of_a_short_limit(rig: Rig) -> None:
    rig.series(seconds=60e-6).warm_up(0.0, max_time_s=1e-3)
    assert len(rig.log) == 5


def test_warming_up_goes_on_while_the_clock_still_moves(rig: Rig) -> None:
    rig.series(seconds=12e-3).warm_up(0.0, monitor=Script(clocks=[1000, 2000, 3000, 3900, 3901, 3902]))
    assert len(rig.log) == 5


@pytest.mark.parametrize(("max_time_s", "expected_s"), [(100, 0.5), (0.4, 0.1), (1e-3, 10e-3)])
def test_warming_up_takes_half_a_second_at_most_or_a_quarter_of_the_limit_and_a_block_at_least(
    rig: Rig, fake_time: FakeTime, max_time_s: float, expected_s: float
) -> None:
    rig.series(seconds=10e-3).warm_up(0.0, max_time_s, Script(clocks=[1000, 2000] * 1000))
    assert fake_time.now == pytest.approx(expected_s, abs=15e-3)
