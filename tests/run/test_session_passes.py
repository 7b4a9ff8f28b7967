"""A run of several processes: each is a pass over the suites, and rows come with the last."""

from itertools import count

import msgspec
import pytest

from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.run import session as sessions
from kernelmark.bench.run.passes import counted, is_settled
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


DISTURBED = "others took 0.9 CPUs during 50 % of the sampling"


@pytest.fixture
def passes(registry, store):
    """A run of three passes over two problems, in real processes: its rows, what it said, and its session."""

    def of(*names, interrupted=lambda: False, session=None, disturbed=(), asked=(SMALL, "copy/m4n5/f32")):
        kernels = tuple(f"copy/{name}" for name in names)
        plan = Plan(("cpu",), kernels, Mode.HOT, plugins=(FAULTS,), max_time_s=0.02, ceilings=False, processes=3)
        plan = msgspec.structs.replace(plan, spread_s=0.0, suites=asked)
        known = discover(plan.plugins)
        suites = [find_suite(name, known) for name in plan.suites]
        said = []
        with Workers() as workers:

            def execute(job, key):
                found = workers.run(job, key)
                for measured in found:  # whatever else the machine does
                    measured.disturbed = DISTURBED if key.process in disturbed and job.problems == (SMALL,) else ""
                return found

            session = Session(store, suites, plan, execute, session and session.run_id)
            run_passes(
                session, lambda: jobs(suites, known, plan), known, plan, lambda r: None, Heard(said), interrupted
            )
        return [row for row, _ in store.results(session.run_id)], said, session

    return of


def test_each_process_is_a_pass_over_the_suites_and_rows_come_with_the_last(passes, store):
    rows, said, session = passes("numpy.copyto", "bad.honest")
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


def test_a_kernel_that_crashes_in_one_process_is_not_asked_in_the_next(passes, tmp_path, monkeypatch):
    rows, *_ = passes("numpy.copyto", "bad.segv")
    assert [(r.status, r.processes) for r in rows] == [("ok", 3), ("crashed", 1)] * 2
    assert all("SIGSEGV" in r.reason for r in rows[1::2])


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
    run_passes(None, list, None, plan, lambda row: None, Heard(said), lambda: False)
    assert slept == [1.0, pytest.approx(0.7)]
    assert said == ["wait 1.7 s", "wait 0.7 s"]
