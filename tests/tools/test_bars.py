"""The benchmarks of `make bars`, on few rows."""

import gc
import weakref
from subprocess import CalledProcessError
from types import SimpleNamespace

import pytest

from scripts import script


@pytest.fixture
def small(monkeypatch):
    """Return a function that gives a benchmark with other numbers than its own."""

    def of(name, **numbers):
        tool = script(name)
        for number, value in numbers.items():
            monkeypatch.setattr(tool, number, value)
        return tool

    return of


@pytest.mark.long
def test_every_command_reads_both_stores_and_tells_what_it_took(small):
    tool = small("scale_bars", FEW=20, MANY=60)
    found = list(tool.scale_bars())
    assert len(found) == 2 * len(tool.COMMANDS)
    assert [promise.partition(":")[0] for promise, *_ in found[::2]] == [" ".join(words) for words in tool.COMMANDS]
    assert all("20 rows" in promise for promise, *_ in found[::2])
    assert all("60 rows" in promise and "MB" in text for promise, text, _ in found[1::2])


def test_a_command_that_fails_is_no_figure(tmp_path):
    with pytest.raises(CalledProcessError):
        script("took").kernelmark("show", "base", "--db", str(tmp_path / "absent.db"))


@pytest.mark.long
def test_every_command_is_measured_over_the_same_rows(small):
    found = list(small("many_bars", ROWS=40, CASES=3).many_bars())
    names = [promise.partition(":")[0] for promise, *_ in found]
    assert names == ["show", "export", "import", "crossover", "report", "run", "verify"]
    assert all("40 rows" in promise and "MB" in text for promise, text, _ in found[:5])
    assert all("3 no-ops" in promise and "a second" in text for promise, text, _ in found[5:])


@pytest.mark.long
def test_two_merges_are_measured_and_what_they_make_is_compared(small):
    found = list(small("shard_bars", CASES=12, TIMES=2, SHARDS=2, LEAST_PER_S=0).shard_bars())
    assert [promise.partition(":")[0] for promise, *_ in found[:2]] == ["merge", "merge again"]
    assert found[2][1:] == ("24 rows, equal: True", True)


def test_the_gain_of_a_second_thread_is_measured_beside_that_of_the_ceiling(small):
    problem = "conv/n1c8h8w8k8r3s3pad1/f32/nchw/fprop"
    tool = small("thread_bars", SUITE=problem, ROUNDS=2, LEAST_S=1e-4, LEAST_FLOP=0)
    found = {each.kernel: each for each in tool.scalings()}
    assert {"conv/numba.direct", "conv/cpu.im2col"} < set(found)
    assert all(len(each.rounds) >= 2 for each in found.values())
    rows = list(tool.thread_bars())
    assert all(problem in shown and f"of {len(found)} less" in shown for _, shown, _ in rows)


def test_what_kernels_use_is_held_while_their_threads_are_compared(monkeypatch):
    tool, held = script("thread_bars"), []

    class Noted(tool.Scratch):
        def __init__(self, *args):
            super().__init__(*args)
            held.append(weakref.ref(self))

    monkeypatch.setattr(tool, "Scratch", Noted)
    registry = tool.discover()
    problem = registry.problem("conv/n1c8h8w8k8r3s3pad1/f32/nchw/fprop")
    pair = tool.pair(registry.kernels["conv/cpu.im2col"], problem)
    gc.collect()
    assert [one() is not None for one in held] == [True, True]
    pair.two()


def test_a_layer_takes_part_in_further_rounds_until_its_intervals_leave_the_bars(small, monkeypatch):
    problem = "conv/n1c8h8w8k8r3s3pad1/f32/nchw/fprop"
    tool = small("thread_bars", SUITE=problem, MOST_ROUNDS=5, QUIET=0, LEAST_S=1e-4)
    enough = {"conv/numba.direct": 9, "conv/cpu.im2col": 2}
    monkeypatch.setattr(
        tool.Scaling, "is_settled", property(lambda each: len(each.rounds) >= enough.get(each.kernel, 3))
    )
    rounds = {each.kernel: len(each.rounds) for each in tool.scalings()}
    assert [rounds.pop(kernel) for kernel in enough] == [5, 2]
    assert set(rounds.values()) == {3}


def test_rounds_in_which_the_ceiling_gained_less_than_it_can_do_not_count():
    tool = script("thread_bars")
    rounds = tuple(tool.Round(*numbers) for numbers in ((1.9, 2.0, 2.0), (1.1, 1.2, 2.0), (1.0, 2.0, 1.2)))
    scaling = tool.Scaling("conv/numba.direct", None, rounds)
    assert scaling.quiet([1.2, *[2.0] * 9]).rounds == rounds[:1]
    assert scaling.quiet([1.2] * 20 + [2.0]).rounds == rounds  # one that gained more by chance
    assert scaling.quiet([]).rounds == rounds


@pytest.mark.parametrize(("quiet", "counted"), [(2, 2), (1, 3)])
def test_where_too_few_rounds_were_quiet_all_of_them_count(small, monkeypatch, quiet, counted):
    problem = "conv/n1c8h8w8k8r3s3pad1/f32/nchw/fprop"
    tool = small("thread_bars", SUITE=problem, ROUNDS=2, MOST_ROUNDS=3, LEAST_S=1e-4)
    monkeypatch.setattr(tool.Scaling, "quiet", lambda each, _: each._replace(rounds=each.rounds[:quiet]))
    monkeypatch.setattr(tool.Scaling, "is_settled", property(lambda _: False))
    assert {len(each.rounds) for each in tool.scalings()} == {counted}


@pytest.mark.parametrize(
    ("gains", "flop", "settled"),
    [
        ((1.9, 2.0, 2.0), 1e9, True),
        ((1.5, 1.6, 1.6), 1e9, True),  # less than the share that is promised, whatever else comes
        ((1.6, 1.9, 2.0), 1e9, False),
        ((1.6, 1.9, 2.0), 1e6, True),
        ((0.9, 1.1, 1.2), 1e6, False),
    ],
)
def test_a_layer_is_settled_once_no_interval_reaches_to_both_sides_of_a_bar(gains, flop, settled):
    tool = script("thread_bars")
    rounds = tuple(tool.Round(gain, 2.0, 2.0) for gain in gains * 3)
    assert tool.Scaling("conv/numba.direct", SimpleNamespace(flop=flop), rounds).is_settled == settled
    assert not tool.Scaling("conv/numba.direct", SimpleNamespace(flop=flop), rounds[1:]).is_settled  # too few


def test_a_long_kernel_is_called_as_often_as_its_median_needs(small):
    tool, calls = small("thread_bars", LEAST_CALLS=3, LEAST_S=0), []
    tool._typical_s(lambda: calls.append(1))
    assert len(calls) == 1 + 3  # one that fills the caches


def test_a_gain_is_judged_by_its_median_and_a_share_round_by_round():
    tool = script("thread_bars")
    rounds = tool.Round(0.9, 0.8, 1.0), tool.Round(1.2, 2.0, 2.0), tool.Round(1.8, 2.0, 2.0)
    scaling = tool.Scaling("conv/numba.direct", None, rounds)
    assert scaling.gain.median == 1.2
    assert scaling.share.median == 0.9
