"""Contenders in turn: their order, when each stops, and what is taken again since the machine was disturbed."""

from itertools import cycle

import pytest

from kernelmark.bench.measure.disturbance import disturbance
from kernelmark.bench.measure.monitor import means
from kernelmark.bench.measure.sample import Series
from kernelmark.bench.measure.turns import interleave
from kernelmark.bench.plan.case import Budget
from support.timing import Rig, Script


def _unexpected(name: str, error: Exception) -> None:
    raise AssertionError(f"{name}: {error}")


def _sampled(rig: Rig, names: str, seconds: float, budget: Budget, monitor: Script) -> list[Series]:
    series = {name: rig.warmed(name, seconds) for name in names}
    interleave(series, budget, (), False, _unexpected, {"cpu": monitor})
    return list(series.values())


def test_contenders_take_turns_forward_and_backward(rig: Rig) -> None:
    series = {name: rig.warmed(name, seconds=20e-3) for name in "abc"}
    interleave(series, Budget(max_time_s=0.01, rel_ci=0), (), False, _unexpected)
    assert "".join(entry[0] for entry in rig.log)[:12] == "abccbaabccba"


def test_the_baseline_goes_on_until_the_last_contender_stops(rig: Rig) -> None:
    series = {"base": rig.warmed("b", seconds=0.5), "slow": rig.warmed("s", seconds=0.1)}
    interleave(series, Budget(max_time_s=3, rel_ci=0), {"base"}, False, _unexpected)
    assert len(series["base"].samples) == len(series["slow"].samples) > 6


def test_a_baseline_takes_at_most_four_times_the_limit_for_the_sake_of_others(rig: Rig) -> None:
    series = {"base": rig.warmed("b", seconds=0.5), "fast": rig.warmed("f", seconds=5e-3)}
    interleave(series, Budget(max_time_s=2, rel_ci=-1), {"base"}, False, _unexpected)
    assert 8 <= series["base"].spent_s < 10
    assert len(series["base"].samples) == len(series["fast"].samples)
    assert [one.stopped_by for one in series.values()] == ["time", "time"]


def test_a_contender_that_raises_leaves_the_others_alone(rig: Rig) -> None:
    broken: list[bool] = []

    def explode() -> None:
        rig.fake.now += 1e-3
        if broken:
            raise RuntimeError("late")

    series = {"bad": rig.warmed(launches=[explode]), "good": rig.warmed("g", seconds=1e-3)}
    broken.append(True)
    errors: list[str] = []
    interleave(series, Budget(max_time_s=0.05), {"bad"}, False, lambda name, error: errors.append(f"{name}: {error}"))
    assert errors == ["bad: late"]
    assert series["good"].stopped_by is not None


def test_what_was_disturbed_is_taken_again_from_every_contender_and_counted(rig: Rig) -> None:
    budget = Budget(max_time_s=0.5, rel_ci=-1)
    calm = _sampled(rig, "ab", 13e-3, budget, Script())
    undisturbed = len(rig.log)
    a, b = _sampled(rig, "ab", 13e-3, budget, Script(causes=["", "noise", "noise", ""]))
    assert (a.repeated, b.repeated) == (8, 8)  # two windows, in each four rounds of 26 ms
    assert len(rig.log) == undisturbed + 16
    assert [len(one.samples) for one in (a, b)] == [len(one.samples) for one in calm]
    assert (disturbance(a.windows), means(a.windows)) == ("", {"load": 0.0})


def test_a_window_holds_an_even_number_of_rounds_so_that_quads_stay_whole(rig: Rig) -> None:
    a, _, _ = _sampled(rig, "abc", 7e-3, Budget(0.5, rel_ci=-1), Script(causes=["noise"] * 2))
    assert a.repeated % 2 == 0
    assert "".join(entry[0] for entry in rig.log[::2]).startswith("abccba" * (a.repeated // 2 + 3))
    assert len(a.samples) % 2 == 0


def test_samples_that_are_set_aside_cost_none_of_the_time_limit(rig: Rig) -> None:
    (one,) = _sampled(rig, "a", 20e-3, Budget(1.0, rel_ci=-1), Script(causes=["noise"] * 3))
    assert one.spent_s == pytest.approx(len(one.samples) * 20e-3)
    assert one.spent_s >= 1.0


def test_where_it_never_ends_a_run_takes_twice_its_time_and_says_what_disturbed_it(rig: Rig) -> None:
    began = rig.fake.now
    a, b = _sampled(rig, "ab", 20e-3, Budget(1.0, rel_ci=-1), Script(causes=["noise"] * 1000))
    assert 2 * (1.0 + 1.0) - 0.3 < rig.fake.now - began < 2 * (1.0 + 1.0) + 0.3
    assert a.repeated > 0
    assert disturbance(a.windows) == disturbance(b.windows) == "noise during 100 % of the sampling"


def test_long_samples_are_taken_again_twice_at_most(rig: Rig) -> None:
    (one,) = _sampled(rig, "a", 0.6, Budget(10.0, rel_ci=-1), Script(causes=["noise"] * 100))
    assert one.repeated <= 4  # two windows of two rounds
    assert one.repeated > 0


def test_outliers_alone_set_nothing_aside(rig: Rig) -> None:
    series = rig.warmed(launches=[rig.lasting(cycle([1e-3] * 20 + [50e-3]))])
    interleave({"a": series}, Budget(0.5, rel_ci=-1), (), False, _unexpected, {"cpu": Script()})
    assert series.repeated == 0
    assert max(series.samples) == pytest.approx(50e-3)
