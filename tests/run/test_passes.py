"""A run of several processes: each is a pass over the suites, and its measurements of a kernel become one row."""

from functools import partial
from itertools import count
from types import SimpleNamespace

import msgspec
import pytest

from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.measure.measurement import Measurement, ProcessPart
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.run import session as sessions
from kernelmark.bench.run.job import run_job
from kernelmark.bench.run.passes import counted, is_settled, merge
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.session import Session, run_passes
from support.plugins import FAULTS
from support.runs import SMALL


class Heard(Progress):
    """Writes down which jobs begin in which process, and how long is waited between."""

    def __init__(self, said):
        self._said = said

    def begins(self, planned, process):
        self._said.append(f"process {process}: {planned.job.problems[0]}")

    def waits(self, left_s):
        self._said.append(f"wait {left_s:.1f} s")


DISTURBED = "other processes used 0.9 CPUs during 50 % of the sampling"


@pytest.fixture
def passes(registry, store):
    """A run of three passes over two problems, in real processes or here: its rows, what it said, and its session."""

    def of(*names, real=False, interrupted=lambda: False, session=None, disturbed=(), asked=(SMALL, "copy/m4n5/f32")):
        kernels = tuple(f"copy/{name}" for name in names)
        plan = Plan(("cpu",), kernels, Mode.HOT, plugins=(FAULTS,), max_time_s=0.02, ceilings=False, processes=3)
        plan = msgspec.structs.replace(plan, spread_s=0.0, suites=asked)
        known = discover(plan.plugins)
        suites = [find_suite(name, known) for name in plan.suites]
        said = []
        with Workers() as workers:

            def execute(job, key):
                found = workers.run(job, key) if real else run_job(job)
                for measured in found:  # whatever else the machine does
                    measured.disturbed = DISTURBED if key.process in disturbed and job.problems == (SMALL,) else ""
                return found

            session = Session(store, suites, plan, execute, session and session.run_id)
            planned = partial(jobs, suites, known, plan)
            run_passes(session, planned, progress=Heard(said), interrupted=interrupted)
        return [row for row, _ in store.results(session.run_id)], said, session

    return of


def test_each_process_is_a_pass_over_the_suites_and_rows_come_with_the_last(passes, store):
    rows, said, session = passes("numpy.copyto", "bad.honest", real=True)
    assert said == [f"process {n}: {problem}" for n in (1, 2, 3) for problem in (SMALL, "copy/m4n5/f32")]
    assert [(r.status, r.processes, r.interval) for r in rows] == [("ok", 3, "between-processes")] * 4
    assert all(len(store.parts(r.run_id, r.case)) == 3 and r.spread_s > 0 for r in rows)
    assert rows[1].speedup_ci95_low < rows[1].speedup < rows[1].speedup_ci95_high
    assert store.pending(session.run_id, 0) == store.pending(session.run_id, 1) == []


def test_a_problem_of_two_suites_is_measured_once_in_each_process(passes, store):
    rows, said, session = passes("numpy.copyto", "bad.honest", asked=(SMALL, SMALL))
    assert said == [f"process {n}: {SMALL}" for n in (1, 2, 3)]
    assert [(r.status, r.processes) for r in rows] == [("ok", 3)] * 2
    assert store.pending(session.run_id, 0) == store.pending(session.run_id, 1) == []


def test_a_kernel_that_crashes_in_one_process_is_not_asked_in_the_next(passes):
    rows, *_ = passes("numpy.copyto", "bad.segv", real=True, asked=(SMALL,))
    assert [(r.status, r.processes) for r in rows] == [("ok", 3), ("crashed", 1)]
    assert "SIGSEGV" in rows[1].reason


def test_a_run_that_is_left_between_passes_goes_on_with_what_its_processes_have_found(passes, store):
    looks = count()
    rows, said, session = passes("numpy.copyto", interrupted=lambda: next(looks) == 3)
    assert (rows, len(said)) == ([], 3)
    assert [len(store.pending(session.run_id, number)) for number in (0, 1)] == [2, 1]
    rows, said, _ = passes("numpy.copyto", session=session)
    assert [(r.status, r.processes) for r in rows] == [("ok", 3)] * 2
    assert [len(store.parts(r.run_id, r.case)) for r in rows] == [3, 3]


def test_a_disturbed_process_is_replaced_by_a_further_one(passes, store):
    rows, said, session = passes("numpy.copyto", "bad.honest", disturbed=(2,))
    assert said[6:] == [f"process 4: {SMALL}"]
    assert [(r.status, r.processes, r.disturbed) for r in rows] == [("ok", 3, "")] * 4
    assert all(len(store.parts(r.run_id, r.case)) == 3 for r in rows)
    assert store.pending(session.run_id, 0) == []


def test_a_machine_that_stays_disturbed_leaves_its_mark_after_half_as_many_processes_again(passes):
    rows, said, _ = passes("numpy.copyto", "bad.honest", disturbed=(2, 3, 4))
    assert said[6:] == [f"process 4: {SMALL}"]
    marks = {r.problem: (r.processes, was_noisy(r.disturbed)) for r in rows}
    assert marks == {SMALL: (3, True), "copy/m4n5/f32": (3, False)}


def test_a_job_whose_contenders_have_all_failed_has_no_further_process(registry):
    (planned,) = jobs([find_suite(SMALL, registry)], registry, Plan(("cpu",), ("copy/numpy.copyto",)))
    noisy, failed = (
        [Measurement(kernel="copy/numpy.copyto", problem=SMALL, **fields)]
        for fields in ({"disturbed": DISTURBED}, {"status": "crashed"})
    )
    assert is_settled(planned, [noisy, failed], 2)
    assert not is_settled(planned, [noisy, noisy], 2)
    assert is_settled(planned, [noisy] * 3, 2)


def test_a_process_in_which_a_kernel_failed_is_not_replaced():
    fine, noisy = ([Measurement(kernel="copy/k", disturbed=text)] for text in ("", DISTURBED))
    failed = [*noisy, Measurement(kernel="copy/bad", status="wrong")]
    assert counted([failed, noisy, fine, fine], 3) == [failed, fine, fine]


def test_passes_start_as_far_apart_as_is_asked_for(monkeypatch):
    clock = iter([10.0, 10.5, 11.5, 12.2, 12.2])
    slept, said = [], []
    monkeypatch.setattr(sessions, "now", clock.__next__)
    monkeypatch.setattr(sessions, "pause", slept.append)
    plan = Plan(("cpu",), processes=2, spread_s=2.2)
    run_passes(SimpleNamespace(plan=plan), list, progress=Heard(said))
    assert slept == [1.0, pytest.approx(0.7)]
    assert said == ["wait 1.7 s", "wait 0.7 s"]


def nobody(problem: str) -> None:
    """The baseline of every problem: none."""


def on_base(problem: str) -> str:
    """The baseline of every problem."""
    return "base"


ROUNDS = [0.98, 1.01, 1.0, 0.99, 1.02, 1.0]


def found(kernel: str, scale: float, **other: object) -> Measurement:
    """Return one process's measurement of a kernel that takes about `scale` seconds."""
    samples = [scale * round_ for round_ in ROUNDS]
    interval = median_interval(samples)
    parts = [ProcessPart(len(samples), interval.median)]
    return msgspec.structs.replace(
        Measurement(
            kernel=kernel,
            samples=samples,
            interval=interval,
            parts=parts,
            interval_scope="within-process",
            started_at="2026-01-01T00:00:00.000+00:00",
        ),
        **other,
    )


def test_one_process_stays_as_it_is() -> None:
    row = found("a", 1.0)
    assert merge([[row]], nobody) == [row]


def test_samples_are_kept_by_process_and_the_interval_says_what_it_holds_for() -> None:
    (row,) = merge([[found("a", scale)] for scale in (1.0, 1.1, 1.2)], nobody)
    assert [part.samples for part in row.parts] == [6, 6, 6]
    assert [part.median_s for part in row.parts] == pytest.approx([1.0, 1.1, 1.2])
    assert row.samples[6:12] == [1.1 * round_ for round_ in ROUNDS]
    assert row.interval_scope == "between-processes"
    assert row.interval is not None
    # Student's t for two degrees of freedom is 4.303 (any table): wider than what the processes themselves spread over.
    assert row.interval.low < 1.0
    assert row.interval.high > 1.2
    assert row.interval.median == pytest.approx(1.1)


def test_ratios_are_formed_within_each_process() -> None:
    """Both slow down from process to process; the ratio does not."""
    runs = [[found("base", 2 * scale), found("own", scale, over_baseline=object())] for scale in (1.0, 1.5, 3.0)]
    for run in runs:
        run[1].over_baseline = None
    base, own = merge(runs, on_base)
    assert base.over_baseline is None
    assert own.over_baseline is not None
    assert (own.over_baseline.low, own.over_baseline.median, own.over_baseline.high) == pytest.approx((2, 2, 2))


def test_kernels_share_a_job_over_processes_only_if_they_shared_it_in_each() -> None:
    runs = [[found(kernel, 1.0, job=f"{n}") for kernel in ("base", "own", "alone")] for n in range(3)]
    runs[1][2].job = "another"
    base, own, alone = merge(runs, on_base)
    assert base.job == own.job != alone.job
    assert base.job not in ("0", "1", "2", "")
    assert own.over_baseline is not None
    assert alone.over_baseline is None
    assert alone.interval is not None


def test_another_execution_of_the_same_kernels_is_another_job() -> None:
    one, other = ([[found("a", 1.0, job=job)], [found("a", 1.0, job="c")]] for job in "ab")
    assert merge(one, nobody)[0].job != merge(other, nobody)[0].job


def test_a_kernel_that_fails_in_any_process_has_failed_and_says_in_which() -> None:
    bad = Measurement(kernel="b", status="crashed", reason="sampling: SIGSEGV", attempt=2)
    good, failed = merge([[found("a", 1.0), found("b", 1.0)], [found("a", 1.0), bad], [found("a", 1.0)]], lambda _: "a")
    assert good.status == "ok"
    assert (failed.status, failed.reason) == ("crashed", "in process 2 of 3: sampling: SIGSEGV")
    assert (failed.samples, failed.parts, failed.interval, failed.over_baseline) == ([], [], None, None)


def test_what_fails_at_once_fails_for_its_own_reason() -> None:
    bad = Measurement(kernel="b", status="unsupported", reason="takes even m")
    _, row = merge([[found("a", 1.0), bad], [found("a", 1.0)]], lambda _: "a")
    assert (row.status, row.reason) == ("unsupported", "takes even m")


def test_a_baseline_that_failed_gives_nobody_a_ratio() -> None:
    bad = Measurement(kernel="base", status="wrong", reason="b[0, 0] is 1")
    _, own = merge([[found("base", 1.0), found("own", 1.0)], [bad, found("own", 1.0)]], on_base)
    assert (own.status, own.over_baseline) == ("ok", None)


def test_the_worst_of_errors_scratch_and_attempts_is_kept_and_repeats_are_summed() -> None:
    first = found("a", 1.0, max_error=1e-3, scratch_bytes=8, attempt=1, repeated=2, disturbed="throttled")
    second = found("a", 1.0, max_error=2e-3, scratch_bytes=4, attempt=3, repeated=1, disturbed="throttled")
    third = found("a", 1.0, max_error=None, scratch_bytes=None, disturbed="stolen")
    (row,) = merge([[first], [second], [third]], nobody)
    assert (row.max_error, row.scratch_bytes, row.attempt, row.repeated) == (2e-3, 8, 3, 3)
    assert row.disturbed == "throttled; stolen"


def test_a_run_that_any_process_stopped_by_time_was_stopped_by_time() -> None:
    runs = [[found("a", 1.0, stopped_by=stop)] for stop in ("interval", "time", "interval")]
    assert merge(runs, nobody)[0].stopped_by == "time"
    assert merge(runs[::2], nobody)[0].stopped_by == "interval"


def test_readings_of_the_machine_are_averaged() -> None:
    (row,) = merge([[found("a", 1.0, state={"clock_mhz": mhz})] for mhz in (1000.0, 2000.0)], nobody)
    assert row.state == {"clock_mhz": 1500.0}


def test_processes_that_differ_in_what_a_case_is_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in what must be equal"):
        merge([[found("a", 1.0, numerics="fp32")], [found("a", 1.0, numerics="tf32")]], nobody)


def test_what_is_not_sampled_is_that_of_the_first_process() -> None:
    runs = [[found("a", 1.0, setup_s=s, tunables=f"{s}", launched=f"k{s}")] for s in (2.0, 1.0, 3.0)]
    (row,) = merge(runs, nobody)
    assert (row.setup_s, row.tunables, row.launched) == (2.0, "2.0", "k2.0")


def test_it_is_known_how_far_apart_the_processes_were() -> None:
    times = ("2026-01-01T00:00:00.000+00:00", "2026-01-01T00:01:00.500+00:00", "2026-01-01T00:02:01.000+00:00")
    (row,) = merge([[found("a", 1.0, started_at=time)] for time in times], nobody)
    assert row.spread_s == 121.0
