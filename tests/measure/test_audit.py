"""Checks after sampling, which find kernels that do less work when they are timed."""

import mmap
import os
import sys
from itertools import cycle
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from kernelmark.bench.measure import timing
from kernelmark.bench.measure.audit import LEAST_CHECKS, check_more, spared_when_renewed, stopped_sparing
from kernelmark.bench.measure.audit import complaint as complaint_of
from kernelmark.bench.measure.device import Window
from kernelmark.bench.measure.operands import OperandSet
from kernelmark.bench.measure.sample import Series
from kernelmark.bench.measure.timing import CpuClock
from kernelmark.bench.selftest.known import map_at
from support.timing import Monitoring, Rig, Script


@pytest.mark.parametrize(("check_s", "checks"), [(1e-4, LEAST_CHECKS), (0.01, 5), (0.1, 0)])
def test_after_sampling_more_outputs_are_summed_if_that_is_quick(rig, check_s, checks):
    series = rig.warmed(seconds=1e-4, samples=1)
    series.check_output, series.check_s = Mock(side_effect=lambda _: rig.fake.sleep(check_s)), check_s
    check_more(series)
    assert series.checks == series.check_output.call_count == checks


def test_a_timed_call_that_leaves_its_output_unwritten_is_seen(rig):
    series = rig.warmed(act=lambda operands: None, samples=20)
    assert complaint_of(series) == "returned before b was written"


@pytest.mark.parametrize(
    ("pairs", "accused"),
    [
        ([(0.1e-3, 0.5e-3)] * 22, True),
        ([(0.1e-3, 0.5e-3)] * 20 + [(5e-3, 0.5e-3)] * 2 + [(0.1e-3, 0.5e-3)] * 7, True),  # load slowed two calls
        ([(0.1e-3, 0.5e-3), (0.1e-3, 0.1e-3)] * 7, False),  # slower in half of the pairs, as by chance
        ([*[(0.1e-3, 0.5e-3)] * 7, *[(0.1e-3, 0.1e-3)] * 3] * 10, False),  # undecided after 100 pairs, the most
    ],
)
def test_a_kernel_is_accused_that_is_slower_in_most_pairs_when_all_operands_have_changed(pairs, accused):
    accusation = spared_when_renewed(SimpleNamespace(take_renewed=iter(pairs).__next__))
    text = "skips work: 0.0005 s per call when all operands have changed, 0.0001 s when a few elements have"
    assert accusation == (text if accused else None)


@pytest.mark.parametrize(
    ("again_s", "loaded", "before", "threads", "accused"),
    [
        ([0.22e-3], 0, {}, 2, True),
        ([0.22e-3], 290, {}, 1, True),
        ([0.9e-3], 291, {}, 1, False),
        ([0.9e-3], 300, {"noise": 0.9, "steal": 2.0}, 1, False),
        ([0.22e-3], 300, {"noise": 0.92}, 1, True),
        ([0.9e-3], 300, {"noise": 0.92}, 2, False),
        ([0.22e-3] * 39 + [0.19e-3], 0, {}, 1, False),
    ],
)
def test_a_kernel_is_accused_that_is_slower_after_all_checks_in_ten_windows_without_unusual_load(
    again_s, loaded, before, threads, accused
):
    causes = ["noise"] * (2 * loaded - 1)  # the first look reports no cause
    device = SimpleNamespace(stream=None, monitor=lambda: Script(causes))
    clock = SimpleNamespace(now=iter(range(2000)).__next__)
    windows = [Window(0.1, {"load": 0.5 * bool(causes)}, causes) for causes in (before, before, {"noise": 9.9})]
    samples, again = [9e-5] * 5 + [1e-4] * 4 + [9e-3] * 2, cycle(again_s).__next__
    fields = {"samples": samples, "batch": 1, "windows": windows, "device": device, "clock": clock}
    series = SimpleNamespace(**fields, take_again=again)
    text = f"skips work: 0.0001 s per call in the median of the samples, {again_s[0]:.2g} s or more after all checks"
    assert stopped_sparing(series, threads) == (text if accused else None)
    device.stream = 1  # a GPU, whose clock rate may have dropped
    assert stopped_sparing(series, threads) is None


@pytest.mark.parametrize(
    ("now", "accused"),
    [({"load": 0.19}, True), ({"load": 0.21}, False), ({"clock_mhz": 421.0}, True), ({"clock_mhz": 419.0}, False)],
)
def test_a_kernel_is_not_accused_if_other_cpus_have_more_load_or_the_clock_explains_its_time(now, accused):
    device = SimpleNamespace(stream=None, monitor=lambda: SimpleNamespace(look=lambda: Window(0.1, now)))
    windows = [Window(0.1, {"load": 0.1 - 1e-9, "clock_mhz": 2100.0})]
    clock = SimpleNamespace(now=iter(range(2000)).__next__)
    fields = {"samples": [1e-4], "batch": 1, "windows": windows, "device": device, "clock": clock}
    assert bool(stopped_sparing(SimpleNamespace(**fields, take_again=lambda: 1e-3), 1)) == accused


@pytest.mark.parametrize(("copies", "seconds", "samples"), [(False, 1e-3, 20), (True, 1e-3, 20), (False, 20e-3, 6)])
def test_an_output_that_a_trace_function_writes_is_seen(rig, copies, seconds, samples):
    def act(operands):
        def trace(*_):
            sys.settrace(before)
            np.copyto(operands.flat["b"], operands.flat["a"])

        if copies:  # a wrong result for these operands
            operands.flat["b"][:] = 0
        sys.settrace(trace)

    before = sys.gettrace()
    series = rig.warmed(act=act, seconds=seconds, samples=samples)
    assert complaint_of(series) == "returned before b was written"


@pytest.mark.parametrize("call", [Series.sample, lambda series: series.burst(1e-3)])
def test_a_trace_function_is_removed_after_calls_and_named(rig, call):
    before = sys.gettrace()
    series = rig.warmed(act=lambda operands: sys.settrace(lambda *_: None), seconds=20e-3)
    call(series)
    assert sys.gettrace() is before
    series.unwritten = ""
    assert "sets a trace, profile or monitoring function" in complaint_of(series)


@pytest.mark.parametrize("freed", [False, True])
def test_a_monitoring_function_is_removed_after_a_timed_call(monkeypatch, freed):
    monitoring = getattr(sys, "monitoring", None) or Monitoring()
    monkeypatch.setattr(timing, "_MONITORING", monitoring)
    monkeypatch.setattr(timing, "_UNUSED", [3])

    def call():
        monitoring.use_tool_id(3, "cheat")
        monitoring.register_callback(3, monitoring.events.LINE, print)
        if freed:
            monitoring.set_events(3, monitoring.events.LINE)
            monitoring.free_tool_id(3)

    clock = CpuClock()
    clock.time([call])
    assert (clock.traced, monitoring.get_tool(3), monitoring.get_events(3)) == (True, None, 0)
    assert monitoring.register_callback(3, monitoring.events.LINE, None) is None


def known(new_s=(), known_s=(), apart_s=1e-6, late="", together_s=(1e-6,), **other):
    """Return a fake series with these times of calls on new and on known values. Its `sample` only adds to `apart`."""
    together = cycle(together_s)

    def sample():
        series.apart.append((next(together), apart_s))
        if len(series.apart) == 12:  # the last batch
            series.unwritten = late

    fields = {"unwritten": "", "made": (), "samples": [], "woken": [], "cuts": True, "meets_known": True, **other}
    clock = SimpleNamespace(left_signals=False, traced=False, time_apart=lambda calls: 0.1e-6)
    does = {"mark": lambda: None, "forget": lambda mark: None, "sample": sample, "clock": clock}
    sets = [SimpleNamespace(has_pages=False)]
    return (series := SimpleNamespace(new_s=new_s, known_s=known_s, apart=[], sets=sets, **does, **fields))


@pytest.mark.parametrize(
    ("new_s", "spared"),
    [
        ([10e-6] * 28 + [1e-6] * 2, True),  # two calls were disturbed, or guessed right
        ([10e-6] * 15 + [1e-6] * 15, False),  # half of the calls were disturbed
        ([1.3e-6] * 30, True),
        ([1.2e-6] * 30, False),
    ],
)
def test_a_call_on_new_values_that_takes_longer_than_one_on_known_ones_spares_work(new_s, spared):
    assert ("skips work" in (complaint_of(known(new_s, [1e-6] * 30)) or "")) == spared


@pytest.mark.parametrize(
    ("apart_s", "together_s", "calls", "spared"),
    [
        (2.05e-6, (1e-6,), 14, False),
        (2.2e-6, (1e-6,), 23, True),
        (3e-6, (3e-6, 3e-6, 3e-6, 1e-6), 34, False),
        (3e-6, (3e-6, 1e-6), 134, True),  # half of the batches are as slow: more calls decide
        (3e-6, (3e-6, 1e-6, 3e-6, 1e-6, 3e-6), 400, False),  # undecided
        (3e-6, (1e-6, 1e-6, 9e-6), 99, False),  # faster in a third of the pairs, so slower by chance
    ],
)
def test_a_call_after_a_pause_that_takes_twice_as_long_as_in_a_batch_spares_work(apart_s, together_s, calls, spared):
    series = known([1e-6] * 14, [1e-6] * 14, apart_s, together_s=together_s)
    assert ("s per call after a pause" in (complaint_of(series) or "")) == spared
    assert len(series.apart) == calls


def test_an_output_that_calls_apart_leave_unwritten_is_named():
    assert complaint_of(known([1e-6] * 14, [1e-6] * 14, late="b")) == "returned before b was written"


@pytest.mark.parametrize(
    ("flags", "reason"), [("MAP_PRIVATE", "100% of its output's pages"), ("MAP_SHARED", "b was written")]
)
def test_an_output_whose_pages_are_mapped_in_place_of_being_written_is_seen(flags, reason, fake_time):
    """The kernel maps the input's pages, or copies of them, at its output's address."""
    rig = Rig(fake_time, "copy/m128n256/f32", 1)
    rig.sets = [operands := OperandSet(rig.problem, rig.device, "small")]
    os.ftruncate(file := os.memfd_create("pages"), operands.flat["a"].nbytes)
    map_at(operands.flat["a"], mmap.MAP_SHARED, file)
    operands.load(rig.draw)
    series = rig.warmed(act=lambda operands: map_at(operands.flat["b"], getattr(mmap, flags), file), samples=10)
    assert reason in (complaint_of(series) or "")


def test_samples_that_one_more_call_before_makes_slower_are_worked_ahead():
    for factor, ahead in ((0.5, False), (1.2, False), (2.0, True)):
        samples = [1e-3, factor * 1e-3] * 30
        series = known(samples=samples, woken=[1, 2] * 30, cuts=False, meets_known=False)
        assert (complaint_of(series) or "").startswith("works ahead") == ahead
