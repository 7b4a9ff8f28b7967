"""A run: jobs to the worker, rows to the store."""

import signal
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from bench.plan.case import Plan, jobs
from bench.plan.discovery import discover
from bench.plan.errors import UsageError
from bench.plan.modes import Mode
from bench.plan.suites import find_suite
from bench.record.store import Store, default_store
from bench.run import session as sessions
from bench.run.job import run_job
from bench.run.pool import Workers
from bench.run.resume import plan_of
from bench.run.session import Session, new_run_id, run_passes, run_suites
from kernelmark import Unsupported, kernel

SMALL = "copy/m3n5/f32"


def in_process(job, key):
    """Kernels that a test declares are known in its own process alone."""
    return run_job(job)


@pytest.fixture
def measured(registry, store):
    """The rows of a run of these kernels on these problems, and its session."""

    def of(*problems, kernels=(), notify=lambda result: None, **plan):
        plan = Plan(**{"devices": ("cpu",), "kernels": kernels, "max_time_s": 0.005, "ceilings": False, **plan})
        suites = [find_suite(problem, registry) for problem in problems]
        session = Session(store, suites, plan, in_process)
        done = run_suites(session, suites, registry, plan, notify)
        return [row for row, _ in store.results(session.run_id)], session, done

    return of


def declare(name, set_up, **options):
    kernel("copy", name=name, **{"provider": "mine", "device": "cpu", "numerics": "exact", **options})(set_up)


def copy(problem, x):
    def launch():
        x.b[...] = x.a

    return launch


def nothing(problem, x):
    return lambda: None


def raises(problem, x):
    raise ValueError("no luck\nat all")


def refuses(problem, x):
    raise Unsupported("takes even m")


def out_of_memory(problem, x):
    raise MemoryError("too large")


@pytest.mark.parametrize(
    ("set_up", "status", "reason", "against"),
    [
        (nothing, "wrong", "was not written", 1),
        (raises, "failed", "ValueError: no luck", 1),
        (refuses, "unsupported", "takes even m", 0),
        (out_of_memory, "oom", "too large", 0),
    ],
)
def test_a_kernel_that_does_not_succeed_is_a_row_and_harms_no_other(measured, set_up, status, reason, against):
    declare("bad", set_up)
    declare("good", copy)
    rows, session, done = measured(SMALL, "copy/m4n5/f32", kernels=("copy/mine.*",))
    bad, good = rows[::2], rows[1::2]
    assert [(r.kernel, r.status) for r in bad] == [("copy/mine.bad", status)] * 2
    assert [(r.kernel, r.status) for r in good] == [("copy/mine.good", "ok")] * 2
    assert all(reason in r.reason and "\n" not in r.reason and r.time_s_median is None for r in bad)
    assert all(r.time_s_median > 0 and r.gbyte_per_s > 0 and r.samples >= 6 for r in good)
    assert (done, session.against) == (True, 2 * against)


def test_a_kernel_named_in_full_outside_its_domain_is_an_unsupported_row(measured):
    rows, session, _ = measured("gemm/m8n8k8/f32/NT", kernels=("gemm/scipy.dgemm",))
    assert [(r.status, r.reason) for r in rows] == [("unsupported", "gemm/scipy.dgemm has no f32 path; it has f64")]
    assert session.against == 0


def test_a_case_that_two_suites_share_is_measured_once(measured):
    calls = []

    def counted(problem, x):
        calls.append(problem.id)
        return copy(problem, x)

    declare("counted", counted)
    rows, session, _ = measured(SMALL, SMALL, "copy/m4n5/f32", kernels=("copy/mine.*",), mode=Mode.HOT)
    assert [r.problem for r in rows] == [SMALL, "copy/m4n5/f32"]
    assert session.tally == {"ok": 2}
    assert calls.count(SMALL) == calls.count("copy/m4n5/f32")


def test_the_same_case_in_another_run_is_measured_again(measured, store):
    first, *_ = measured(SMALL, kernels=("copy/numpy.copyto",))
    second, *_ = measured(SMALL, kernels=("copy/numpy.copyto",))
    assert len(first) == len(second) == 1
    assert first[0].run_id != second[0].run_id
    assert store.find_run(None)["run_id"] == second[0].run_id


def test_samples_are_kept_and_the_row_is_made_of_them(measured, store):
    (r,), *_ = measured(SMALL, kernels=("copy/numpy.copyto",))
    samples = store.samples(r.run_id, r.case)
    assert len(samples) == r.samples >= 6
    assert min(samples) == r.time_s_min <= r.time_s_median <= max(samples)
    assert r.time_s_ci95_low <= r.time_s_median <= r.time_s_ci95_high


def test_runs_that_begin_in_the_same_second_have_different_ids_that_sort_by_their_time():
    first, later = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
    one, other = new_run_id(first), new_run_id(first)
    assert one != other
    assert one.startswith("20260102-030405-")
    assert max(one, other) < new_run_id(later)


def test_contenders_have_a_speedup_over_the_baseline_with_an_interval(measured):
    declare("good", copy)
    rows, *_ = measured(SMALL, kernels=("copy/mine.good", "copy/numpy.copyto"))
    speedups = {r.kernel: (r.baseline, r.speedup, r.speedup_ci95_low) for r in rows}
    assert speedups["copy/numpy.copyto"] == ("copy/numpy.copyto", None, None)
    baseline, speedup, low = speedups["copy/mine.good"]
    assert baseline == "copy/numpy.copyto"
    assert 0 < low <= speedup


def test_a_baseline_that_is_wrong_gives_nobody_a_speedup(measured, tmp_path):
    declare("base", nothing)
    declare("good", copy)
    path = tmp_path / "s.toml"
    path.write_text("baseline = {copy = 'copy/mine.base'}\n[[sweep]]\nop = 'copy'\ndtype = 'f32'\nm = 3\nn = 5\n")
    rows, *_ = measured(str(path), kernels=("copy/mine.*",))
    assert [(r.kernel, r.status, r.speedup) for r in rows] == [
        ("copy/mine.base", "wrong", None),
        ("copy/mine.good", "ok", None),
    ]


def test_what_is_verified_only_is_not_timed(measured):
    (r,), *_ = measured(SMALL, kernels=("copy/numpy.copyto",), mode=Mode.VERIFY)
    assert (r.mode, r.status, r.samples, r.time_s_median, r.max_error) == ("verify", "ok", 0, None, 0.0)


def test_a_run_tells_what_was_asked_for_on_which_machine_and_when_it_ended(measured, store):
    measured(SMALL, kernels=("copy/numpy.copyto",), seed=3)
    run = store.find_run(None)
    assert '"seed": 3' in run["plan"]
    assert '"cpus_usable"' in run["facts"]
    assert '"versions"' in run["environment"]
    assert run["suites"] == f'["{SMALL}"]'
    assert run["started_at"] <= run["finished_at"]


def test_sigint_finishes_the_job_in_hand_and_starts_no_other(measured, store):
    before = signal.getsignal(signal.SIGINT)
    rows, _, done = measured(
        SMALL,
        "copy/m4n5/f32",
        kernels=("copy/numpy.*",),
        notify=lambda result: signal.raise_signal(signal.SIGINT) if result.kernel == "copy/numpy.copyto" else None,
    )
    assert not done
    assert {r.problem for r in rows} == {SMALL}
    assert {r.kernel for r in rows} == {"copy/numpy.copyto", "copy/numpy.threaded"}
    assert signal.getsignal(signal.SIGINT) is before
    assert store.find_run(None)["finished_at"]


def test_a_second_sigint_stops_at_once_and_keeps_what_was_committed(measured, store):
    def interrupted(problem, x):
        if problem.m == 4:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return copy(problem, x)

    declare("interrupted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured(SMALL, "copy/m4n5/f32", kernels=("copy/mine.*",))
    assert [r.problem for r, _ in store.results(store.find_run(None)["run_id"])] == [SMALL]


@pytest.mark.parametrize("set_to", ["/somewhere", "", None])
def test_results_are_kept_in_the_users_data_folder(monkeypatch, set_to):
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if set_to is not None:
        monkeypatch.setenv("XDG_DATA_HOME", set_to)
    expected = Path(set_to) if set_to else Path.home() / ".local" / "share"
    assert default_store() == expected / "kernelmark" / "results.db"


def test_rows_are_readable_by_another_while_the_run_goes_on(measured, store):
    seen = []

    def look(result):
        other = Store(store.path, create=False)
        seen.append(len(list(other.results(result.run_id))))
        other.close()

    measured(SMALL, "copy/m4n5/f32", kernels=("copy/numpy.copyto",), notify=look)
    assert seen == [1, 2]


@pytest.fixture
def taken_up(registry, store):
    """A session that goes on with a run, and the jobs that it asks for."""

    def of(session, *problems, kernels=(), **plan):
        plan = Plan(**{"devices": ("cpu",), "kernels": kernels, "max_time_s": 0.005, "ceilings": False, **plan})
        suites = [find_suite(problem, registry) for problem in problems]
        asked = []

        def execute(job, key):
            asked.append(job.kernels)
            return run_job(job)

        session = Session(store, suites, plan, execute, session.run_id)
        run_suites(session, suites, registry, plan, lambda result: None)
        return asked, session

    return of


def test_a_run_that_was_left_between_two_rows_of_a_job_measures_the_rest_beside_the_baseline(
    measured, taken_up, store, monkeypatch
):
    for name in ("first", "second"):
        declare(name, copy)
    kernels = ("copy/mine.first", "copy/mine.second", "copy/numpy.copyto")
    add, left = store.add, [2]

    def full(*args):
        if not left[0]:
            raise UsageError("the disk is full")
        left[0] -= 1
        add(*args)

    monkeypatch.setattr(store, "add", full)
    with pytest.raises(UsageError, match="full"):
        measured(SMALL, kernels=kernels)
    monkeypatch.undo()
    run_id = store.find_run(None)["run_id"]
    before = {row.kernel: row for row, _ in store.results(run_id)}
    assert list(before) == ["copy/numpy.copyto", "copy/mine.first"]
    asked, session = taken_up(SimpleNamespace(run_id=run_id), SMALL, kernels=kernels)
    assert asked == [("copy/numpy.copyto", "copy/mine.second")]
    after = {row.kernel: row for row, _ in store.results(run_id)}
    assert {name: after.pop(name) for name in before} == before
    assert after["copy/mine.second"].speedup is not None
    assert session.tally == {"ok": 3}


def test_a_run_that_is_taken_up_counts_the_verdicts_that_it_had(measured, taken_up):
    declare("bad", nothing)
    declare("good", copy)
    _, before, _ = measured(SMALL, kernels=("copy/mine.*",))
    asked, session = taken_up(before, SMALL, kernels=("copy/mine.*",))
    assert asked == []
    assert session.run_id == before.run_id
    assert (session.tally, session.against) == ({"wrong": 1, "ok": 1}, 1)


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        ({"seed": 1}, "plan.seed was 0 and is 1"),
        ({"max_time_s": 0.006}, "plan.max_time_s was 0.005 and is 0.006"),
        ({"threads": (1, 2)}, "plan.threads was [1] and is [1, 2]"),
        ({"seed": 1, "rel_ci": 0.1, "mode": Mode.HOT, "processes": 3}, "; and 1 more; a run goes on only as it began"),
    ],
)
def test_a_run_that_would_go_on_otherwise_is_refused(measured, taken_up, complaint, plan, found):
    _, before, _ = measured(SMALL, kernels=("copy/numpy.copyto",))
    assert found in complaint(lambda: taken_up(before, SMALL, kernels=("copy/numpy.copyto",), **plan))


def test_a_run_that_does_not_say_its_suites_cannot_be_taken_up_by_its_id_alone(measured, store, complaint):
    _, session, _ = measured(SMALL, kernels=("copy/numpy.copyto",))
    found = complaint(lambda: plan_of(store, session.run_id))
    assert found == f"--resume {session.run_id}: the run does not say its suites; name them"


FAULTS = str(Path(__file__).parents[1].joinpath("faults.py"))


@pytest.fixture
def passes(registry, store):
    """A run of three passes over two problems, in real processes: its rows, what it said, and its session."""

    def of(*names, interrupted=lambda: False, session=None):
        kernels = tuple(f"copy/{name}" for name in names)
        plan = Plan(("cpu",), kernels, Mode.HOT, plugins=(FAULTS,), max_time_s=0.02, ceilings=False, processes=3)
        plan = msgspec.structs.replace(plan, spread_s=0.0, suites=(SMALL, "copy/m4n5/f32"))
        known = discover(plan.plugins)
        suites = [find_suite(name, known) for name in plan.suites]
        said = []
        with Workers() as workers:
            session = Session(store, suites, plan, workers.run, session and session.run_id)
            run_passes(
                session, lambda: jobs(suites, known, plan), known, plan, lambda r: None, said.append, interrupted
            )
        return [row for row, _ in store.results(session.run_id)], said, session

    return of


def test_each_process_is_a_pass_over_the_suites_and_rows_come_with_the_last(passes, store):
    rows, said, session = passes("numpy.copyto", "bad.honest")
    assert said == [f"process {n} of 3: {problem}" for n in (1, 2) for problem in (SMALL, "copy/m4n5/f32")]
    assert [(r.status, r.processes, r.interval) for r in rows] == [("ok", 3, "between-processes")] * 4
    assert all(len(store.parts(r.run_id, r.case)) == 3 and r.spread_s > 0 for r in rows)
    assert rows[1].speedup_ci95_low < rows[1].speedup < rows[1].speedup_ci95_high
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


def test_passes_start_as_far_apart_as_is_asked_for(monkeypatch):
    clock = iter([10.0, 10.5, 11.5, 12.2, 12.2])
    slept, said = [], []
    monkeypatch.setattr(sessions, "now", clock.__next__)
    monkeypatch.setattr(sessions.time, "sleep", slept.append)
    plan = Plan(("cpu",), processes=2, spread_s=2.2)
    run_passes(None, list, None, plan, lambda row: None, said.append, lambda: False)
    assert slept == [1.0, pytest.approx(0.7)]
    assert said == ["the next process starts in 2 s", "the next process starts in 1 s"]
