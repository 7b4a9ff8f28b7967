"""The self-test: its arithmetic on recorded numbers, its cheats and wrong results, its runs in real processes."""

import os
import weakref
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from kernelmark.bench.cli.selftest import selftest
from kernelmark.bench.measure.compile import ARCHS, compile_cubin
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.ratio import BaselineRatio
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.case import Budget
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.verdict import Verdict
from kernelmark.bench.run.child import Lost
from kernelmark.bench.selftest import adversaries, checks, clocks, durations, known_ratios, repeats, wrong
from kernelmark.bench.selftest.clocks import LaunchWay
from kernelmark.bench.selftest.finding import Finding, Tick, table
from kernelmark.bench.selftest.known import counter_missing
from kernelmark.bench.selftest.neighbour import Neighbour, pinned
from kernelmark.bench.selftest.wrong import conv, library
from kernelmark.bench.selftest.wrong.library import Family
from support.compared import times
from support.pages import valid
from support.plugins import FAKE


def _row(median_s: float, **others: Any) -> Measurement:
    return Measurement(kernel="copy/selftest.spin", interval=Interval(median_s, median_s, median_s), **others)


@pytest.mark.parametrize(
    ("measured_us", "holds"),
    [
        ((20.3, 50.0, 100.0, 200.9, 502.4, 1991.0, 20099.0), [True] * 7),
        ((20.31, 49.7, 100.6, 201.1, 502.6, 1989.0, 20101.0), [False] * 7),
    ],
)
def test_a_duration_may_be_half_a_per_cent_off_or_longer_by_the_cost_of_a_call(measured_us, holds):
    rows = [_row(time_us * 1e-6) for time_us in (0.04, *measured_us)]
    findings = list(durations.judge(rows, dict.fromkeys(durations.DURATIONS_US, 300.0001e-9), "quiet"))
    assert [finding.holds for finding in findings] == holds
    assert findings[0].check == "durations: 20 us, quiet"
    assert findings[0].bound == "300 ns (cost of a call)"
    assert findings[3].bound == "0.5 %"


def test_a_duration_that_was_not_timed_misses_its_bound():
    rows = [_row(1e-6)] * 7 + [Measurement(kernel="k", status="crashed", reason="SIGSEGV")]
    finding = list(durations.judge(rows, dict.fromkeys(durations.DURATIONS_US, 1.0), "quiet"))[-1]
    assert (finding.found, finding.bound, finding.holds) == ("crashed: SIGSEGV", "a time", False)


def test_a_processor_without_a_counter_is_not_testable_and_misses_no_bound(monkeypatch):
    monkeypatch.setattr(durations, "counter_missing", lambda: "no counter")
    assert next(durations.check(lambda: None)) == Finding("durations", "not testable here", "no counter", None)


@pytest.mark.long
@pytest.mark.skipif(counter_missing() is not None, reason=str(counter_missing()))
def test_a_compiled_kernel_that_spins_is_timed_in_quiet_and_with_a_neighbour(monkeypatch):
    monkeypatch.setattr(durations, "DURATIONS_US", (0, 20))
    monkeypatch.setattr(durations, "FEWEST", 3)
    monkeypatch.setattr(durations, "MOST", 3)
    monkeypatch.setattr(durations, "BUDGET", Budget(max_time_s=0.05))
    jobs: list[None] = []
    findings = {f.check: f for f in durations.check(lambda: jobs.append(None))}
    assert len(jobs) == durations.jobs()
    for where in ("quiet", "neighbour"):
        assert " us (" in findings[f"durations: 20 us, {where}"].found
    assert "in a batch" in findings["durations: a call that does nothing"].found


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")
def test_a_neighbour_is_on_the_same_core_and_the_affinity_is_restored():
    before = os.sched_getaffinity(0)
    with pinned(), Neighbour() as neighbour:
        assert len(os.sched_getaffinity(0)) == 1
        assert os.sched_getaffinity(neighbour.pid) == os.sched_getaffinity(0)
    assert os.sched_getaffinity(0) == before
    assert 0 <= neighbour.share <= 1


#: By habit and operation, the names of the habit in each mode; those in `adversaries.EXPECTED` are left out.
MODES = {
    name: [habit for habit in adversaries.HABITS if habit.startswith(f"{name} ")]
    for name in dict.fromkeys(habit.rpartition(" ")[0] for habit in adversaries.HABITS)
    if name not in adversaries.EXPECTED
}


CHEATS = [(("adversaries", cheat), [pytest.mark.long] * (cheat != "cached")) for cheat in adversaries.EXPECTED]
CHEATS += [(("habits", modes[i % len(modes)]), [pytest.mark.long]) for i, modes in enumerate(MODES.values())]


@pytest.mark.parametrize(("check", "cheat"), [pytest.param(*cheat, marks=marks) for cheat, marks in CHEATS])
def test_a_cheat_is_caught_and_the_honest_product_is_not_accused(check, cheat, monkeypatch):
    monkeypatch.setattr(adversaries, "cheats", lambda check, cheats=adversaries.cheats: {cheat: cheats(check)[cheat]})
    (finding,) = adversaries.run(check, lambda: None)
    if not finding.holds:  # one draw in a hundred may miss it; two more must not
        (finding,) = adversaries.run(check, lambda: None, seeds=2)
    assert finding.holds, finding


@pytest.mark.parametrize(
    ("honest", "status", "samples", "holds"),
    [
        ("ok", "wrong", [], True),
        ("ok", "mistrusted", [], False),
        ("ok", "ok", [1.0], False),
        ("ok", "wrong", [1.0], False),
        ("wrong", "wrong", [], False),
    ],
)
def test_a_cheat_is_caught_if_it_has_a_status_and_no_time_and_the_honest_product_is_ok(honest, status, samples, holds):
    cheat = Measurement(kernel="k", status=status, reason="why", samples=samples)
    finding = adversaries.caught("adversaries: in_set_up", Measurement(kernel="h", status=honest), cheat, ("wrong",))
    assert (finding.check, finding.bound, finding.holds) == ("adversaries: in set up", "wrong", holds)
    assert finding.found.startswith(f"{status}: why")


def test_a_cheat_that_gets_a_time_is_caught_by_its_note():
    rows = Measurement(kernel="h"), Measurement(kernel="k", disturbed="a note", samples=[1.0])
    assert [adversaries.caught("a", *rows, ("ok",), note).holds for note in ("note", "other")] == [True, False]


@pytest.mark.parametrize(("values", "holds"), [((1.0, 1.02, 1.0, 1.02), True), ((1.0, 1.04, 1.0, 1.04), False)])
def test_the_spread_of_a_ratio_is_its_standard_deviation_over_processes(values, holds):
    finding = known_ratios.spread_of([BaselineRatio(value, 0, 0, "abba-quads", 1.0) for value in values])
    expected = np.std(values, ddof=1) / np.mean(values)
    assert finding.found.startswith(f"sd {100 * expected:.2f} % over 4 processes (of minima: 0.00 %)")
    assert finding.holds is holds


def test_cold_against_hot_is_the_ratio_of_the_means_of_both_turns():
    text = "2.00 times slower (4e+06 us, hot 2e+06 us)"
    expected = Finding("cold: a copy of 1 MB, cold against hot", text, "at least 2", True)
    assert known_ratios.slower([3.0, 5.0], [2.0, 2.0]) == expected
    assert known_ratios.slower([3.0, 4.9], [2.0, 2.0]).holds is False


@pytest.mark.parametrize(("asking", "holds"), [(1.0, True), (0.96, True), (0.9, False)])
def test_a_copy_that_asks_to_stay_in_l2_may_not_be_faster_for_it(asking, holds):
    rows = [SimpleNamespace(interval=SimpleNamespace(median=median)) for median in (1.0, asking)]
    assert known_ratios.persisting(*rows).holds is holds


def test_coverage_counts_intervals_with_the_grand_median_and_spread_is_the_coefficient_of_variation():
    rows = [Interval(m, m - 0.15, m + 0.15) for m in (0.8, 1.0, 1.0, 1.1, 1.2)]
    finding = repeats.coverage(rows)
    assert finding.found.startswith("60 % (3 of 5 runs); width 30.00 %")
    assert finding.holds is False
    assert repeats.coverage(rows[1:4]).holds is True
    finding = repeats.spread([Interval(m, m, m) for m in (0.991, 1.0, 1.009)])
    assert (finding.found, finding.bound, finding.holds) == ("CV 0.90 % over 3 runs", "1 %", True)
    assert repeats.spread([Interval(m, m, m) for m in (0.98, 1.0, 1.02)]).holds is False


QUIET = [1.00, 1.01, 0.99, 1.005, 0.995]


def test_false_alarms_are_pairs_that_differ_and_planted_slowdowns_must_be_slower():
    base = [times(1, QUIET)] * 4
    finding = repeats.false_alarms(base, [times(f, QUIET) for f in (1.001, 0.999, 1, 1.05)])
    assert finding.found == "25 % (1 of 4 pairs)"
    assert finding.holds is False
    assert repeats.false_alarms(base, base).holds is True
    slowed = [times(1.05, QUIET)] * 3 + [times(0.95, QUIET)]
    planted, smallest = repeats.planted(base, base, slowed)
    assert planted.found == "75 % (3 of 4 tries); 5.00 %"
    assert planted.holds is False
    assert next(repeats.planted(base, base, [times(1.05, QUIET)] * 4)).holds is True
    assert smallest.holds is None
    assert smallest.found.endswith(" %")


@pytest.mark.long
def test_repeats_are_runs_of_the_real_runner_in_fresh_processes(monkeypatch):
    monkeypatch.setattr(repeats, "RUNS", 2)
    monkeypatch.setattr(repeats, "PLAN", msgspec.structs.replace(repeats.PLAN, processes=2, max_time_s=0.02))
    jobs: list[None] = []
    findings = list(repeats.check(lambda: jobs.append(None)))
    assert len(jobs) == 2 * 2 * 2
    assert [finding.name for finding in findings] == ["coverage", "spread", "aa", "planted", "planted"]
    assert all(finding.holds is not None for finding in findings[:4])
    assert "of 4 runs" in findings[0].found
    assert "of 2 pairs" in findings[2].found


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.usefixtures("cuda_compiler")
def test_the_kernel_that_spins_on_a_gpu_compiles_without_spills(arch):
    used = compile_cubin("selftest/spin.cu", ("selftest_spin",), arch).resources["selftest_spin"]
    assert (used.spill_bytes, used.stack_bytes) == (0, 0)


def test_quick_names_the_checks_that_it_leaves_out(fake):
    fake(Finding("durations: x", "1", "2", True))
    done = CliRunner().invoke(selftest, ["--quick"])
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == "not run: habits, wrong, cold, coverage, spread, aa, planted"
    assert checks.chosen(None, quick=True) == ("durations", "clocks", "adversaries", "ratio")
    assert checks.chosen(None, quick=False) == checks.NAMES


@pytest.mark.parametrize(("holds", "status"), [(True, 0), (None, 0), (False, 1)])
def test_the_exit_status_is_1_if_a_bound_does_not_hold(fake, holds, status):
    fake(Finding("durations: x", "1", "2", holds))
    done = CliRunner().invoke(selftest, ["--only", "durations", "--json"])
    assert done.exit_code == status
    document = valid(done.stdout, "selftest")
    assert document["findings"] == [{"check": "durations: x", "found": "1", "bound": "2", "holds": holds}]
    assert document["left_out"] == [name for name in checks.NAMES if name != "durations"]


def test_of_checks_that_share_runs_only_the_chosen_one_is_shown(fake):
    fake(Finding("coverage: x", "1", "2", True), Finding("spread: x", "1", "2", True))
    assert [f.name for f in checks.run(("spread",), lambda: None)] == ["spread"]


def test_the_table_has_a_row_per_finding_wraps_reasons_and_marks_missed_bounds(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    reason, other = Finding("a: b", "long " * 50, "c", False), Finding("d", "e", "f", None)
    lines = table([reason, other]).splitlines()
    assert lines[2].endswith("NO")
    assert sum(line.count("long") for line in lines) == 50
    assert lines[-1].split() == ["d", "e", "f", "-"]


@pytest.fixture
def fake(monkeypatch):
    def plant(*findings: Finding) -> None:
        def check(names: tuple[str, ...], tick: Tick, *_: int) -> Iterator[Finding]:
            tick()
            yield from (finding for finding in findings if finding.name in names)

        groups = [group._replace(check=partial(check, group.names)) for group in checks.GROUPS]
        monkeypatch.setattr(checks, "GROUPS", groups)

    return plant


SPAN = {"event_s": 2e-3, "wall_s": 2e-3}


@pytest.mark.parametrize(
    ("way", "reply", "holds"),
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
def test_spans_that_differ_by_more_than_two_per_cent_do_not_hold(way: str, reply: Any, holds: bool | None) -> None:
    assert clocks.judge(way, reply).holds is holds


class LateHost:
    """A device whose events show a share `seen` of the time, on a host that wakes up late from all waits but one."""

    max_batch = 10

    def __init__(self, seen: float) -> None:
        self._seen, self.now_s, self._waits = seen, 0.0, 0

    def clock(self, hold: bool) -> "LateHost":
        return self

    def time(self, calls: list[Any]) -> float:
        return self._seen * 1e-2

    def call(self) -> None:
        self.now_s += 1e-2

    def synchronize(self) -> None:
        self._waits += 1
        self.now_s += 0.0 if self._waits == 6 else 5e-3


@pytest.mark.parametrize(("seen", "holds"), [(1.0, True), (0.9, False)])
def test_a_late_host_is_not_taken_for_work_that_the_events_miss(seen, holds, monkeypatch):
    device = LateHost(seen)
    monkeypatch.setattr(clocks, "now", lambda: device.now_s)
    event_s, wall_s = clocks._timed(device, device.call, hold=True)
    assert clocks.judge("cuFFT", {"event_s": event_s, "wall_s": wall_s}).holds is holds


def test_work_that_the_devices_clock_misses_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    discover((FAKE,))
    monkeypatch.setattr(clocks, "WAYS", {"fake": LaunchWay("copy/fake.noop", length_s=0.125)})
    (reply,) = clocks.replies(["fake"])
    assert reply["event_s"] == 0.125
    assert clocks.judge("fake", reply).holds is False


def test_every_way_is_a_kernel_that_takes_its_problem_and_is_missing_without_a_gpu(monkeypatch) -> None:
    registry = discover((clocks.plugin("timed"),))
    for way in clocks.WAYS.values():
        assert registry.kernels[way.kernel].refuses(registry.problem(way.problem)) is None
    monkeypatch.setattr("kernelmark.bench.measure.devices.cuda_missing", lambda: "no GPU today")
    clocks.get_device.cache_clear()
    assert list(clocks.replies(["cuBLAS"])) == [{"missing": "no GPU today"}]


MEMBERS = [member for family in wrong.FAMILIES for member in family.members]


def test_wrong_results_cover_every_operation_and_at_least_sixty_ideas():
    assert {member.problem.partition("/")[0] for member in MEMBERS} == set(discover().operations)
    assert len({(member.name, member.problem.partition("/")[0], member.numerics) for member in MEMBERS}) >= 60


LATER = (wrong.GROUPS, wrong.SCALES, wrong.ARITHMETIC, wrong.CONV)


@pytest.mark.parametrize(
    "family", [pytest.param(family, marks=[pytest.mark.long] * (family in LATER)) for family in wrong.FAMILIES]
)
def test_each_wrong_result_is_detected_on_a_draw(family):
    findings = list(library.trial((family,), lambda: None, 1))
    assert len(findings) == len(family.members)
    assert [finding for finding in findings if finding.holds is False] == []


def test_the_scratch_of_a_right_convolution_lasts_as_long_as_its_launch(monkeypatch):
    pytest.importorskip("numba")
    buffers, seen = [], []

    class Noted(conv.ScratchBuffers):
        def __init__(self, *args):
            super().__init__(*args)
            buffers.append(weakref.ref(self))

    class Looking(conv.OperandSet):
        def outputs(self, order):
            seen.append(buffers[0]() is not None)
            return super().outputs(order)

    monkeypatch.setattr(conv, "ScratchBuffers", Noted)
    monkeypatch.setattr(conv, "OperandSet", Looking)
    problem = discover().problem("conv/n1c2h5w5k3r3s3pad1/f32/nchw/fprop")
    assert conv.exact(problem, {"x": np.ones((1, 2, 5, 5)), "w": np.ones((3, 2, 3, 3))})[0, 0, 2, 2] == 18
    assert seen == [True]


def test_a_checker_that_sees_nothing_fails_the_trial(monkeypatch):
    monkeypatch.setattr("kernelmark.kernels.gemm._reference.Reference.check", lambda *_: Verdict())
    small = tuple(member for member in wrong.GEMM.members if "m33n65" in member.problem)
    findings = list(library.trial((Family(wrong.GEMM.exact, small),), lambda: None, 2))
    assert {finding.found for finding in findings} == {"0 of 2"}
    assert not any(finding.holds for finding in findings)
