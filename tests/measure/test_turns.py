"""Contenders in turn: their order, when each stops, and what is taken again since the machine was disturbed."""

from itertools import cycle

import pytest

from bench.measure.disturbance import disturbance
from bench.measure.monitor import means
from bench.measure.series import Series
from bench.measure.turns import interleave
from bench.plan.case import Budget
from timing_rig import FakeTime, Rig, Script


def _unexpected(name: str, error: Exception) -> None:
    raise AssertionError(f"{name}: {error}")


def _sampled(rig: Rig, names: str, seconds: float, budget: Budget, monitor: Script) -> list[Series]:
    series = {name: rig.series(name, seconds) for name in names}
    for one in series.values():
        one.warm_up(0.0)
    rig.log.clear()
    interleave(series, budget, (), False, _unexpected, {"cpu": monitor})
    return list(series.values())


def test_contenders_take_turns_forward_and_backward(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    series = {name: rig.series(name, seconds=20e-3) for name in "abc"}
    for one in series.values():
        one.warm_up(0.0)
    rig.log.clear()
    interleave(series, Budget(max_time_s=0.01, rel_ci=0), (), False, _unexpected)
    assert "".join(entry[0] for entry in rig.log)[:12] == "abccbaabccba"


def test_no_contender_stops_below_six_samples(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    series = {"a": rig.series("a", seconds=10.0)}
    series["a"].warm_up(0.0)
    interleave(series, Budget(max_time_s=0.01), (), False, _unexpected)
    assert len(series["a"].samples) == 6
    assert series["a"].stopped_by == "time"


def test_a_steady_contender_stops_by_its_interval_after_a_second(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    series = {"a": rig.series("a", seconds=10e-3)}
    series["a"].warm_up(0.0)
    began = fake_time.now
    interleave(series, Budget(max_time_s=100), (), False, _unexpected)
    assert series["a"].stopped_by == "interval"
    assert 1.0 <= fake_time.now - began < 3.0


def test_the_baseline_goes_on_until_the_last_contender_stops(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    series = {"base": rig.series("b", seconds=0.5), "slow": rig.series("s", seconds=0.1)}
    for one in series.values():
        one.warm_up(0.0)
    interleave(series, Budget(max_time_s=3, rel_ci=0), {"base"}, False, _unexpected)
    assert len(series["base"].samples) == len(series["slow"].samples) > 6


def test_a_contender_that_raises_leaves_the_others_alone(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    broken: list[bool] = []

    def explode() -> None:
        fake_time.now += 1e-3
        if broken:
            raise RuntimeError("late")

    series = {"bad": rig.series(launches=[explode]), "good": rig.series("g", seconds=1e-3)}
    for one in series.values():
        one.warm_up(0.0)
    broken.append(True)
    errors: list[str] = []
    interleave(series, Budget(max_time_s=0.05), {"bad"}, False, lambda name, error: errors.append(f"{name}: {error}"))
    assert errors == ["bad: late"]
    assert series["good"].stopped_by is not None


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
    series = rig.series(launches=[rig.lasting(cycle([1e-3] * 20 + [50e-3]))])
    series.warm_up(0.0)
    interleave({"a": series}, Budget(0.5, rel_ci=-1), (), False, _unexpected, {"cpu": Script()})
    assert series.repeated == 0
    assert max(series.samples) == pytest.approx(50e-3)
