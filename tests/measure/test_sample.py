"""Samples of contenders in turn, with clocks that tests control, and other metrics."""

import math
from itertools import chain, pairwise, repeat
from unittest.mock import Mock

import numpy as np
import pytest

from kernelmark.bench.measure import sample
from kernelmark.bench.measure.disturbance import disturbance
from kernelmark.bench.measure.monitor import means
from kernelmark.bench.measure.observers import METERED_S, Energy
from kernelmark.bench.measure.operands import OperandSet, Spots
from kernelmark.bench.measure.stats import MIN_SAMPLES
from kernelmark.bench.measure.timing import CpuClock
from kernelmark.bench.measure.turns import Turns
from kernelmark.bench.plan.case import Budget
from support.timing import Rig, Script


def test_short_calls_are_batched_to_200_us_and_long_ones_are_not(rig):
    short, long = rig.warmed(seconds=10e-6), rig.warmed(seconds=1e-3)
    assert (short.batch, long.batch) == (20, 1)


def test_cold_draws_each_set_from_those_that_have_waited_longest(fake_time):
    rig = Rig(fake_time, "copy/m3n4/f32", 8)
    rig.warmed(samples=40, cold=True)
    assert {*rig.log} == {f"k{which}" for which in range(8)}
    assert all(len(set(rig.log[at : at + 7])) == 7 for at in range(len(rig.log) - 7))
    assert len({*zip(rig.log, rig.log[1:], strict=False)}) > 16  # more than in a fixed order


def test_an_evicted_sample_touches_no_set_twice_after_its_one_eviction(fake_time):
    rig = Rig(fake_time, "copy/m3n4/f32", 16)
    series = rig.warmed(seconds=10e-6, cold=True, evict=True)
    series.sample()
    assert len(rig.log) == len(set(rig.log)) == series.batch + series.woken[0]
    assert rig.device.evict.call_count == 1


@pytest.mark.parametrize("compares", [False, True])
def test_with_eviction_a_kernel_cannot_work_ahead_in_waking_calls(compares, fake_time):
    rig, evicted, kept, unchanged = Rig(fake_time, "copy/m30n40/f32", 16), [True], {}, []

    def copy(operands):
        if evicted:
            evicted.clear()
            kept.update({id(each): each.flat["a"].copy() for each in rig.sets})
        elif rig.device.evict.called:
            unchanged.append(np.array_equal(kept[id(operands)], operands.flat["a"]))
        operands.flat["b"][:] = operands.flat["a"] if compares else kept[id(operands)]

    rig.device.evict.side_effect = lambda: evicted.append(True)
    series = rig.warmed(act=copy, cold=True, evict=True, sums=True, samples=MIN_SAMPLES)
    assert len(unchanged) >= MIN_SAMPLES
    assert not any(unchanged)
    assert ("expected" in series.wrong) == (not compares)


def test_every_call_of_a_hot_batch_is_timed_in_stretches_of_random_length(rig):
    series = rig.warmed(seconds=10e-6, samples=200)
    assert len(rig.log) == sum(series.woken) + (200 + len(series.apart)) * series.batch
    assert {*series.woken} == {1, 2, 3}
    assert min(len(series.new_s), len(series.known_s)) > 5
    assert series.samples == [pytest.approx(10e-6)] * 200


def test_few_long_calls_follow_a_waking_call_and_one_of_the_first_does(rig):
    few, many = rig.warmed(seconds=20e-3, samples=6), rig.warmed(seconds=20e-3, samples=400)
    assert sum(few.woken) == few.woken.count(1) >= 1
    assert sum(many.woken) < 80


def test_pauses_come_before_some_stretches_and_differ(rig, fake_time, monkeypatch):
    monkeypatch.setattr(sample, "LONGEST_PAUSE_S", 1.0)
    began = []
    series = rig.warmed(act=lambda operands: began.append(fake_time.now))
    fake_time.step = 1e-6
    began.clear()
    for _ in range(60):
        series.sample()
    gaps = np.diff(began) - 1e-3
    assert 0.05 < np.mean(gaps > 1e-4) < 0.6


def test_a_pair_of_an_audit_differs_in_its_values_alone(fake_time):
    rig = Rig(fake_time, "copy/m30n40/f32", 4)
    series = rig.warmed(cold=True)
    series.take_pair()
    series.take_pair()
    assert [bool((a == b).all()) for a, b in pairwise(rig.met)] == [True, False, True]
    assert series.new_s == series.known_s == [pytest.approx(1e-3)] * 2


@pytest.mark.parametrize("sets", [1, 2])
def test_inouts_are_restored_before_each_call_and_cold_evicts_afterwards(fake_time, sets):
    rig = Rig(fake_time, "gemm/m3n4k5/f32/NN/beta1", sets)
    seen = []

    def accumulate(operands):
        seen.append(float((operands.flat["c"] != rig.draw.flat["c"]).mean()))
        operands.flat["c"] += 1

    series = rig.warmed(act=accumulate, cold=True)
    seen.clear()
    for _ in range(5):
        series.sample()
    series.restore()  # the operands of the last call
    seen.append(float((rig.sets[int(rig.log[-1][1:])].flat["c"] != rig.draw.flat["c"]).mean()))
    assert max(seen) < 1  # all elements have the drawn values, except the changed ones
    assert rig.device.evict.call_count >= 5


def test_every_stretch_meets_new_values_in_a_few_elements(fake_time):
    rig = Rig(fake_time, "copy/m30n40/f32", 1)
    rig.warmed(samples=10)
    changed = [int((values != rig.draw.flat["a"]).sum()) for values in rig.met]  # one call, so new values
    assert changed == [8] * len(rig.met)
    assert len({values.tobytes() for values in rig.met}) == len(rig.met)


def test_outputs_that_are_judged_are_of_stretches_drawn_from_all(fake_time):
    rig = Rig(fake_time, "copy/m30n40/f32", 1)
    calls = iter(range(10**6))

    def copy(operands):
        np.copyto(operands.flat["b"], operands.flat["a"])
        operands.flat["b"][0] = next(calls)

    series = rig.warmed(act=copy, shared=4, samples=200)
    assert sorted(series.snapshots) == [0, 1, 2, 3]
    assert max(snapshot["b"][0] for snapshot in series.snapshots.values()) > 100
    for number, snapshot in series.snapshots.items():
        with rig.draw.holding(series.shared[number]):
            assert np.array_equal(snapshot["b"][1:], rig.draw.flat["a"][1:])


def test_operands_are_looked_through_after_judged_calls_alone_and_never_before(rig, monkeypatch):
    monkeypatch.setattr(OperandSet, "damage", damage := Mock(return_value=None))
    monkeypatch.setattr(OperandSet, "snapshot", snapshot := Mock(return_value={}))
    rig.warmed(shared=4, samples=100)
    assert damage.call_count == snapshot.call_count > 4


@pytest.mark.parametrize(("sets", "cold"), [(1, False), (1, True), (8, True)])
def test_outputs_of_timed_calls_are_summed_as_they_were_left(fake_time, monkeypatch, sets, cold):
    monkeypatch.setattr(sample, "CHECKED_SHARE", 1.0)
    rig = Rig(fake_time, "copy/m30n40/f32", sets)
    calls = iter(range(10**6))

    def copy(operands):
        np.copyto(operands.flat["b"], operands.flat["a"])
        if next(calls) >= 2300:
            operands.flat["b"][7] = 5

    series = rig.warmed(act=copy, cold=cold, seconds=10e-6, sums=True)
    series.check_output = check_output = Mock(wraps=series.check_output)
    while not series.wrong and len(series.samples) < 1000:
        series.sample()
    assert next(calls) < 2300 + 3 * series.batch
    assert series.wrong.startswith("b[0, 7] is 5, expected ")
    assert check_output.call_count > 5


def test_a_check_after_a_long_sample_is_followed_by_a_waking_call(rig, monkeypatch):
    monkeypatch.setattr(sample, "CHECKED_SHARE", math.inf)
    monkeypatch.setattr(sample, "LONG_WAKING", 10**9)
    series = rig.warmed(
        act=lambda operands: np.copyto(operands.flat["b"], operands.flat["a"]), seconds=20e-3, sums=True
    )
    for _ in range(10):
        series.sample()
    assert (series.checks, len(rig.log)) == (10, 10 + 10 + 1)  # one of the first samples has a waking call


def test_warming_up_ends_when_a_block_is_hardly_faster_than_the_one_before(rig):
    durations = iter([12e-3, 11e-3, 10.5e-3, 10.4e-3, 99.0])
    rig.series(launches=[lambda: rig.fake.sleep(next(durations))]).warm_up(0.0)
    assert next(durations) == 99.0


def test_warming_up_goes_on_while_the_clock_still_moves(rig):
    rig.series(seconds=12e-3).warm_up(0.0, monitor=Script(clocks=[1000, 2000, 3000, 3900, 3901, 3902]))
    assert len(rig.log) == 5


@pytest.mark.parametrize(("max_time_s", "expected_s"), [(100, 0.5), (0.4, 0.1), (1e-3, 10e-3)])
def test_warming_up_takes_from_a_block_to_half_a_second_or_a_quarter_of_the_limit(
    rig, fake_time, max_time_s, expected_s
):
    rig.series(seconds=10e-3).warm_up(0.0, max_time_s, Script(clocks=[1000, 2000] * 1000))
    assert fake_time.now == pytest.approx(expected_s, abs=15e-3)


def _unexpected(name, error):
    raise AssertionError(f"{name}: {error}")


def _sampled(rig, names, seconds, budget, monitor):
    series = {name: rig.warmed(name, seconds) for name in names}
    Turns(series, budget, (), False, _unexpected, {"cpu": monitor}).run()
    return list(series.values())


@pytest.mark.usefixtures("without_waking")
def test_contenders_take_turns_forward_and_backward(rig):
    series = {name: rig.warmed(name, seconds=20e-3) for name in "abc"}
    Turns(series, Budget(max_time_s=0.01, rel_ci=0), (), False, _unexpected, {}).run()
    assert "".join(entry[0] for entry in rig.log)[:12] == "abccbaabccba"


def test_a_baseline_takes_at_most_four_times_the_limit_for_the_sake_of_others(rig):
    series = {"base": rig.warmed("b", seconds=0.5), "fast": rig.warmed("f", seconds=5e-3)}
    Turns(series, Budget(max_time_s=2, rel_ci=-1), {"base"}, False, _unexpected, {}).run()
    assert 8 <= series["base"].spent_s < 10
    assert len(series["base"].samples) == len(series["fast"].samples)
    assert [contender.stopped_by for contender in series.values()] == ["time", "time"]


def test_a_contender_that_raises_leaves_the_others_alone(rig):
    bad, on_error = Mock(), Mock()
    series = {"bad": rig.warmed(act=bad), "good": rig.warmed("g", seconds=1e-3)}
    bad.side_effect = RuntimeError("late")
    Turns(series, Budget(max_time_s=0.05), {"bad"}, False, on_error, {}).run()
    on_error.assert_called_once_with("bad", bad.side_effect)
    assert series["good"].stopped_by is not None


def test_contenders_that_share_sets_take_those_that_none_of_them_has_used_for_longest(fake_time):
    rig, order = Rig(fake_time, "copy/m3n4/f32", 9), [*range(9)]
    contenders = [rig.warmed(name, cold=True, by_last_use=order) for name in "abcd"]
    for series in contenders * 20:
        series.sample()
    used = [entry[1:] for entry in rig.log]
    last = {which: place for place, which in enumerate(used[:100])}
    for place, which in enumerate(used[100:], 100):
        assert len({*used[last.get(which, 0) + 1 : place]}) >= 6
        last[which] = place


@pytest.mark.usefixtures("without_waking")
def test_what_was_disturbed_is_taken_again_from_every_contender_and_counted(rig):
    budget = Budget(max_time_s=0.5, rel_ci=-1)
    calm = _sampled(rig, "ab", 13e-3, budget, Script())
    undisturbed = len(rig.log)
    a, b = _sampled(rig, "ab", 13e-3, budget, Script(causes=["", "noise", "noise", ""]))
    assert (a.repeated, b.repeated) == (8, 8)  # two windows of four rounds of 26 ms
    assert len(rig.log) == undisturbed + 16
    assert [len(contender.samples) for contender in (a, b)] == [len(contender.samples) for contender in calm]
    assert (disturbance(a.windows), means(a.windows)) == ("", {"load": 0.0})


@pytest.mark.usefixtures("without_waking")
def test_a_window_holds_an_even_number_of_rounds_so_that_quads_stay_whole(rig):
    a, _, _ = _sampled(rig, "abc", 14e-3, Budget(0.5, rel_ci=-1), Script(causes=["noise"] * 2))
    assert a.repeated % 2 == 0
    assert "".join(entry[0] for entry in rig.log).startswith("abccba" * (a.repeated // 2 + 3))
    assert len(a.samples) % 2 == 0


@pytest.mark.usefixtures("without_waking")
def test_samples_that_are_set_aside_cost_none_of_the_time_limit(rig):
    (contender,) = _sampled(rig, "a", 20e-3, Budget(1.0, rel_ci=-1), Script(causes=["noise"] * 3))
    assert contender.spent_s == pytest.approx(len(contender.samples) * 20e-3)
    assert contender.spent_s >= 1.0


def test_where_it_never_ends_a_run_takes_twice_its_time_and_says_what_disturbed_it(rig):
    began = rig.fake.now
    a, b = _sampled(rig, "ab", 20e-3, Budget(1.0, rel_ci=-1), Script(causes=["noise"] * 1000))
    assert 2 * (1.0 + 1.0) - 0.3 < rig.fake.now - began < 2 * (1.0 + 1.0) + 0.3
    assert a.repeated > 0
    assert disturbance(a.windows) == disturbance(b.windows) == "noise during 100 % of the sampling"


def test_long_samples_are_taken_again_twice_at_most(rig):
    (contender,) = _sampled(rig, "a", 0.6, Budget(10.0, rel_ci=-1), Script(causes=["noise"] * 100))
    assert contender.repeated <= 4  # two windows of two rounds
    assert contender.repeated > 0


def metered(fake):
    """Return a monitor whose energy counter shows 100 W and steps every 70 ms."""
    return Script(joules=lambda: 100 * 0.07 * (fake.now // 0.07))


def test_energy_is_that_of_calls_between_two_steps_of_the_counter(fake_time):
    rig = Rig(fake_time, "copy/m3n4/f32", 3)
    series = rig.warmed(seconds=1e-3)
    results = Energy(series, metered(fake_time)).results(METERED_S)
    assert results == {"energy_j": pytest.approx(0.1, rel=0.05)}
    assert len(rig.log) >= 500
    assert {*pairwise(rig.log)} == {("k0", "k1"), ("k1", "k2"), ("k2", "k0")}


def test_without_a_sensor_or_with_one_that_stands_still_there_is_no_energy(fake_time):
    rig = Rig(fake_time, "copy/m3n4/f32", 3)
    series, evicted = rig.warmed(), rig.warmed(cold=True, evict=True)
    assert Energy(series, Script()).results(METERED_S) == {}
    # Evicted caches would be warm in back-to-back calls.
    assert Energy(evicted, metered(fake_time)).results(METERED_S) == {}
    assert rig.log == []
    assert Energy(series, Script(joules=lambda: 5.0)).results(METERED_S) == {}


def test_samples_are_spread_over_a_second_from_the_first_sample_on(rig):
    series = rig.warmed()
    rig.fake.now += 5  # other contenders warm up
    while not series.stopped_by:
        series.sample()
        series.decide(Budget(max_time_s=2, rel_ci=0.5))
    assert len(rig.log) >= 1000  # calls of a millisecond
    assert series.stopped_by == "interval"


def test_a_sample_after_all_checks_is_not_kept(rig):
    series = rig.warmed(seconds=1e-3, shared=2, sums=True)
    series.sample()
    before, taken = dict(series.snapshots), len(rig.log)
    assert series.take_again() == pytest.approx(1e-3)
    assert (series.samples, len(series.woken), series.snapshots) == ([pytest.approx(1e-3)], 1, before)
    assert len(rig.log) > taken


def test_a_batch_follows_some_samples_whose_calls_are_apart(rig):
    series = rig.warmed(seconds=10e-6, samples=200)
    assert 20 < len(series.apart) < 80
    assert {one_s for one_s, _ in series.apart} <= {*series.samples}


def test_a_call_is_long_if_its_samples_are(rig):
    durations = chain([20e-3] * 3, repeat(1e-3))
    series = rig.series(launches=[lambda: rig.fake.sleep(next(durations))])
    series.warm_up(0.0, 1e-3)
    assert series.is_long
    while series.samples[-1:] != [pytest.approx(1e-3)]:
        series.sample()
    assert not series.is_long


def test_reads_before_the_clock_are_not_in_kept_times(fake_time, monkeypatch):
    rig = Rig(fake_time, "copy/m3n4/f32", 1)
    monkeypatch.setattr(Spots, "early_reads", lambda spots: [lambda: fake_time.sleep(1.0)])
    for seconds in 1e-3, 20e-3:
        assert max(rig.warmed(seconds=seconds, samples=40).samples) == pytest.approx(seconds)


def test_a_timed_call_that_still_writes_its_operand_while_it_is_copied_is_late(fake_time, monkeypatch):
    rig = Rig(fake_time, "transpose/m9n9/f32/in", 1)
    series, copied = rig.warmed(shared=100), OperandSet.snapshot

    def written_late(operands, into):
        operands.flat["a"] += 1
        return copied(operands, into)

    for late, expected in [(copied, ""), (written_late, "a")]:
        monkeypatch.setattr(OperandSet, "snapshot", late)
        for _ in range(20):
            series.sample()
        assert series.unwritten == expected


def test_a_batch_whose_calls_are_apart_meets_changed_values_and_poison_in_each(fake_time):
    rig = Rig(fake_time, "copy/m30n40/f32", 1)
    copy = Mock(wraps=lambda operands: np.copyto(operands.flat["b"], operands.flat["a"]))
    series = rig.warmed(act=copy, seconds=10e-6)
    fake_time.step = 1e-6  # time passes, so that pauses end
    series.sample()
    series.take_apart()
    apart = rig.met[-series.batch :]
    assert [int((a != b).sum()) for a, b in pairwise(apart)] == [1] * (series.batch - 1)
    assert not series.unwritten
    copy.side_effect = [None] * series.batch
    series.take_apart()
    assert series.unwritten == "b"


def test_calls_on_renewed_operands_and_on_changed_ones_follow_as_many_writes(fake_time):
    rig = Rig(fake_time, "copy/m30n40/f32", 1)

    def act(operands):
        if len(rig.met) > 1 and (rig.met[-1] != rig.met[-2]).sum() > 8:
            rig.fake.now += 1e-3

    assert rig.warmed(act=act).take_renewed() == (pytest.approx(1e-3), pytest.approx(2e-3))
    assert [int((a != b).sum()) for a, b in pairwise(rig.met)] == [8, 0, 1200]


def test_calls_apart_are_timed_without_their_pauses(fake_time):
    fake_time.step = 1e-7
    assert CpuClock().time_apart([lambda: fake_time.sleep(1e-3)] * 5) == pytest.approx(1e-3, rel=1e-3)
