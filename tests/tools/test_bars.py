"""The promises of `make bars`, measured on few rows; and searches that are replayed on recorded spaces."""

import gc
import math
import weakref
from statistics import median
from subprocess import CalledProcessError

import pytest

import bars
import bars_kernels
import bars_runs
import bars_stores
import bars_tuning
import took
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.space import Space
from support.tools import TOOLS, needed

LAYER = "conv/n1c8h8w8k8r3s3pad1/f32/nchw/fprop"
TRUTHS = {truth.kernel: truth for truth in bars_tuning.truths()}


def names(group):
    return [promise.name for promise in bars.PROMISES if promise.group == group]


def test_each_promise_is_stated_once_and_has_a_measurement_and_a_page_that_exists():
    assert len({promise.name for promise in bars.PROMISES}) == len(bars.PROMISES)
    assert {promise.group for promise in bars.PROMISES} == set(bars.MEASURED)
    pages = {promise.page for promise in bars.PROMISES if promise.page}
    assert [page for page in pages if not (TOOLS.parent / "docs" / page).is_file()] == []


@pytest.mark.parametrize(
    ("measured", "word", "value", "status"),
    [
        ([("list.seconds", 0.3, "of 9")], "holds ", "0.3 (of 9)", 0),
        ([("list.seconds", 0.31, "of 9")], "MISSED", "0.31 (of 9)", 1),
        ([("list.seconds", math.nan, "of 9")], "MISSED", "nan (of 9)", 1),
        ([], "MISSED", "not measured", 1),
    ],
)
def test_a_promise_is_one_line_and_a_missed_one_gives_exit_status_1(monkeypatch, capsys, measured, word, value, status):
    monkeypatch.setitem(bars.MEASURED, "list", lambda: iter(measured))
    assert bars.main(["list"]) == status
    assert capsys.readouterr().out == f"{word} list.seconds: kernelmark list <= 0.3 s: {value}\n"


def test_promises_are_listed_without_measuring(capsys):
    assert bars.main(["list", "durations", "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "list.seconds: kernelmark list <= 0.3 s",
        "durations.missed: known durations (2.000 ms and others) wrong by 0.5 % <= 0 (docs/measurement.md)",
    ]


def test_a_command_that_fails_has_no_time_and_functions_are_timed_in_turn_after_an_untimed_call(tmp_path):
    with pytest.raises(CalledProcessError):
        took.kernelmark("show", "base", "--db", str(tmp_path / "absent.db"))
    called = []
    times = took.in_turn(2, lambda: called.append("a"), lambda: called.append("b"))
    assert ("".join(called), [len(each) for each in times]) == ("ababba", [2, 2])


@pytest.mark.long
@pytest.mark.parametrize(
    ("tool", "group", "numbers"),
    [
        (bars_stores, "scale", {"FEW": 20, "LARGE": 60}),
        (bars_stores, "many", {"ROWS": 40}),
        (bars_stores, "merge", {"CASES": 12, "TIMES": 2, "SHARDS": 2}),
        (bars_runs, "no_ops", {"NO_OPS": 3}),
        (bars_runs, "fake", {"FAKE_CASES": 300, "SETTLED": 100}),
    ],
)
def test_a_measurement_finds_the_number_of_each_of_its_promises(monkeypatch, tool, group, numbers):
    for name, number in numbers.items():
        monkeypatch.setattr(tool, name, number)
    measured = {name: value for name, value, _ in bars.MEASURED[group]()}
    assert sorted(measured) == sorted(names(group))
    assert all(math.isfinite(value) for value in measured.values())
    assert measured.get("merge.differ", 0) == 0
    assert measured.get("fake.rows", 300) == 300


def test_the_gain_of_a_second_thread_is_measured_with_that_of_the_ceiling(monkeypatch):
    for name, value in {"SUITE": LAYER, "ROUNDS_OF_THREADS": 2, "LEAST_S": 1e-4, "LEAST_FLOP": 0}.items():
        monkeypatch.setattr(bars_kernels, name, value)
    scalings = list(bars_kernels.scalings())
    assert {"conv/numba.direct", "conv/cpu.im2col"} < {kernel for kernel, _, _ in scalings}
    assert all(len(rounds) == 2 for _, _, rounds in scalings)
    monkeypatch.setattr(bars_kernels, "scalings", lambda: iter(scalings))
    rows = list(bars_kernels.threads())
    assert [name for name, *_ in rows] == names("threads")
    assert all(LAYER in text for *_, text in rows)


def test_scratch_is_kept_while_thread_counts_of_a_kernel_are_compared(monkeypatch):
    buffers = []

    class Noted(bars_kernels.ScratchBuffers):
        def __init__(self, *args):
            super().__init__(*args)
            buffers.append(weakref.ref(self))

    monkeypatch.setattr(bars_kernels, "ScratchBuffers", Noted)
    registry = bars_kernels.discover()
    pair = bars_kernels.Pair(registry.kernels["conv/cpu.im2col"], registry.problem(LAYER))
    gc.collect()
    assert [buffer() is not None for buffer in buffers] == [True, True]
    pair.launches[1]()


def test_rounds_in_which_the_ceiling_gained_less_than_it_can_do_not_count(monkeypatch):
    rounds = [bars_kernels.Round(*numbers) for numbers in ((1.9, 2.0, 2.0), (1.1, 1.2, 2.0), (1.0, 2.0, 1.2))]
    assert bars_kernels.quiet(rounds, [1.2, *[2.0] * 9]) == rounds  # too few were quiet
    monkeypatch.setattr(bars_kernels, "LEAST_QUIET", 1)
    assert bars_kernels.quiet(rounds, [1.2, *[2.0] * 9]) == rounds[:1]
    assert bars_kernels.quiet(rounds, [1.2] * 20 + [2.0]) == rounds  # a single larger gain is chance


def test_a_gain_is_judged_by_its_median_and_a_share_round_by_round(registry, monkeypatch):
    rounds = tuple(bars_kernels.Round(*numbers) for numbers in ((0.9, 0.8, 1.0), (1.2, 2.0, 2.0), (1.8, 2.0, 2.0)))
    calls, scaled = [], ("conv/numba.direct", registry.problem(LAYER), rounds)
    monkeypatch.setattr(bars_kernels, "scalings", lambda: iter([scaled]))
    for name in ("LEAST_S", "LEAST_FLOP"):
        monkeypatch.setattr(bars_kernels, name, 0)
    assert [value for _, value, _ in bars_kernels.threads()] == [1.2, 0.9]
    bars_kernels.typical_s(lambda: calls.append(1))
    assert len(calls) == 1 + bars_kernels.LEAST_CALLS  # the first fills the caches


@pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)
def test_a_recorded_space_is_complete_and_large_and_its_median_is_far_from_its_best(registry, truth):
    assert len(truth.costs) > 300
    assert min(truth.costs.values()) / median(truth.costs.values()) <= 0.7
    assert truth.costs[truth.field.default] == 1
    space = Space(registry.kernels[truth.kernel], registry.problem(truth.problem), H100)
    assert tuple(truth.field.names) == tuple(space.values)
    assert {tuple(getattr(tile, name) for name in space.values) for tile in space.valid()} == set(truth.costs)
    speeds = [truth.found("random", seed) for seed in range(3)]
    assert speeds == [truth.found("random", seed) for seed in range(3)]
    assert all(0 < share <= 1 for share in speeds)


@pytest.mark.long
def test_the_default_strategy_keeps_its_promise_on_three_spaces_with_15_percent_of_the_evaluations(capsys):
    needed(module_missing("kernel_tuner"))
    assert len(TRUTHS) == 3
    assert bars.main(["replay"]) == 0, capsys.readouterr().out
