"""A run: it passes jobs to workers and rows to the store, and merges the rows of its passes, one for each process."""

import os
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import kernelmark
from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.measure.measurement import Measurement, ProcessPart
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.signals import interruptible
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import default_store
from kernelmark.bench.run import session as sessions
from kernelmark.bench.run.commit import COMMIT_FILE, git_commit, write_commit_file
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.job import run_job
from kernelmark.bench.run.passes import counted, is_settled, merge
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.session import new_run_id, run_passes
from support.plugins import FAULTS
from support.rows import DISTURBED
from support.runs import SMALL, copy, declare, nothing


def test_runs_that_begin_in_the_same_second_have_different_ids_that_sort_by_their_time():
    first, later = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
    first_id, second_id = new_run_id(first), new_run_id(first)
    assert first_id != second_id
    assert first_id.startswith("20260102-030405-")
    assert max(first_id, second_id) < new_run_id(later)


def test_a_baseline_that_is_wrong_gives_nobody_a_speedup(measured, tmp_path):
    declare("base", nothing)
    declare("good", copy)
    path = tmp_path / "s.toml"
    path.write_text("baseline = {copy = 'copy/mine.base'}\n[[sweep]]\nop = 'copy'\ndtype = 'f32'\nm = 3\nn = 5\n")
    rows, *_ = measured(str(path), kernels=("copy/mine.*",))
    outcomes = [(r.kernel, r.status, r.speedup) for r in rows]
    assert outcomes == [("copy/mine.base", "wrong", None), ("copy/mine.good", "ok", None)]


@pytest.mark.parametrize("threads", [(1, 2), (2, 1)])
def test_a_kernel_whose_worker_was_lost_has_the_threads_of_its_job_and_its_numerics(measured, threads):
    def execute(job, key):
        if job.threads == 1:
            return run_job(job)
        return [Measurement(kernel=kernel, problem=problem, status="crashed") for problem, kernel in job.entrants]

    declare("single", copy)
    declare("several", copy, threaded=True, numerics="fp32")
    rows, session, _ = measured(SMALL, kernels=("copy/mine.*",), threads=threads, execute=execute)
    outcomes = {(r.kernel, r.threads): r.status for r in rows}
    single = "ok" if threads[0] == 1 else "crashed"  # it runs in the first job alone
    several = {("copy/mine.several", 1): "ok", ("copy/mine.several", 2): "crashed"}
    assert outcomes == {("copy/mine.single", 1): single, **several}
    assert session.against == list(outcomes.values()).count("crashed")
    assert {(r.kernel, r.numerics) for r in rows} == {("copy/mine.single", "exact"), ("copy/mine.several", "fp32")}


def test_a_kernel_that_declares_no_numerics_for_the_storage_type_has_a_row(measured):
    declare("odd", copy, numerics={"f64": "fp64"})
    lost = Measurement(kernel="copy/mine.odd", problem="copy/m3n5/f32", status="crashed")
    rows, *_ = measured(SMALL, kernels=("copy/mine.odd",), execute=lambda job, key: [lost])
    assert [(r.status, r.numerics) for r in rows] == [("crashed", "")]


def test_a_run_tells_what_was_asked_for_on_which_machine_and_when_it_ended(measured, store):
    measured(SMALL, kernels=("copy/numpy.copyto",), seed=3)
    run = store.find_run(None)
    assert run["plan"]["seed"] == 3
    assert "cpus_usable" in run["machine"]
    assert "versions" in run["environment"]
    assert list(run["suites"]) == [str(SMALL)]
    assert run["started_at"] <= run["finished_at"]


def test_what_takes_too_long_after_a_signal_is_given_up():
    def interrupted(takes_s):
        with interruptible(0.05):
            signal.raise_signal(signal.SIGINT)
            time.sleep(takes_s)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    with pytest.raises(KeyboardInterrupt):
        interrupted(10.0)
    interrupted(0.0)
    time.sleep(0.1)  # after the end in time, the time limit must not apply any more
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == before


@pytest.mark.parametrize("set_to", ["/somewhere", "", None])
def test_results_are_kept_in_the_users_data_folder(monkeypatch, set_to):
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if set_to is not None:
        monkeypatch.setenv("XDG_DATA_HOME", set_to)
    expected = Path(set_to) if set_to else Path.home() / ".local" / "share"
    assert default_store() == expected / "kernelmark" / "results.db"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree that kernelmark runs from, without git, and a folder for the file with its commit."""
    monkeypatch.setattr(kernelmark, "__file__", str(tmp_path / "kernelmark" / "__init__.py"))
    monkeypatch.delenv("KERNELMARK_COMMIT", raising=False)
    (tmp_path / "build").mkdir()
    return tmp_path


def test_a_tree_without_git_has_the_commit_that_it_is_given(tree, monkeypatch):
    version = f"kernelmark {kernelmark.__version__}"
    assert git_commit.__wrapped__() == version
    for content, commit in ((b"", version), (b" \n", version), (b"\xff\xfe", version), (b"beef-dirty\n", "beef-dirty")):
        (tree / COMMIT_FILE).write_bytes(content)
        assert git_commit.__wrapped__() == commit
    monkeypatch.setenv("KERNELMARK_COMMIT", "c0ffee")
    assert git_commit.__wrapped__() == "c0ffee"
    (tree / ".git").mkdir()  # an empty folder, not a repository
    assert git_commit.__wrapped__() == "c0ffee"
    monkeypatch.delenv("KERNELMARK_COMMIT")
    assert git_commit.__wrapped__() == f"{version} (git names no commit)"


def test_a_commit_file_holds_the_commit_of_the_checkout(tree, monkeypatch, complaint):
    def git(*words):
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
        done = subprocess.run(["git", *who, *words], cwd=tree, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert complaint(lambda: write_commit_file(tree)).startswith(f"{tree}: git finds no commit here")
    git("init")
    (tree / COMMIT_FILE).mkdir()
    (tree / "reports").mkdir()
    for file in (tree / "file", tree / "reports" / "file"):
        file.write_text("as committed")
    git("add", "file", "reports")
    git("commit", "-m", "Begin")
    commit = git("rev-parse", "HEAD")
    assert complaint(lambda: write_commit_file(tree)) == f"{tree}/build/commit: cannot be written: Is a directory"
    (tree / COMMIT_FILE).rmdir()
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook of another repository
    if not os.geteuid():
        os.chown(tree, 54321, 54321)  # in a container, another user may own the checkout
    assert write_commit_file(tree) == commit
    assert write_commit_file(tree) == commit  # writing the file does not make the checkout dirty
    (tree / "reports" / "file").write_text("published since")
    assert write_commit_file(tree) == commit, "a run can be resumed after its rows were published"
    (tree / "file").write_text("changed")
    assert write_commit_file(tree) == f"{commit}-dirty"
    shutil.rmtree(tree / ".git")
    assert git_commit.__wrapped__() == f"{commit}-dirty"


class Heard(Progress):
    """Records the jobs that begin in each process, and the waits between processes."""

    def __init__(self, said):
        self._said = said

    def begins(self, planned, process):
        self._said.append(f"process {process}: {planned.job.problems[0]}")

    def waits(self, left_s):
        self._said.append(f"wait {left_s:.1f} s")


@pytest.fixture
def passes(measured):
    """Return a function that runs three passes over two problems: it returns rows, recorded progress and the session.

    real: use worker processes. interrupted: interrupt the run after this many measurements. session: the run to resume.
    """

    def of(*names, real=False, interrupted=0, session=None, disturbed=(), suites=(SMALL, "copy/m4n5/f32")):
        said, numbers = [], count(1)
        with Workers() as workers:

            def execute(job, key):
                results = workers.run(job, key) if real else run_job(job)
                if next(numbers) == interrupted:  # not earlier: a timer that runs in a call would accuse the kernel
                    signal.raise_signal(signal.SIGINT)
                for row in results:  # regardless of real disturbances
                    row.disturbed = DISTURBED if key.process in disturbed and job.problems == (SMALL,) else ""
                return results

            plan = {"mode": Mode.HOT, "plugins": (FAULTS,), "max_time_s": 0.02, "processes": 3, "spread_s": 0.0}
            plan |= {"kernels": tuple(f"copy/{name}" for name in names), "resume": session and session.run_id}
            rows, session, _ = measured(*suites, execute=execute, progress=Heard(said), **plan)
        return rows, said, session

    return of


def test_each_process_is_a_pass_over_the_suites_and_rows_come_with_the_last(passes, store):
    rows, said, session = passes("numpy.copyto", "bad.honest", real=True)
    assert said == [f"process {n}: {problem}" for n in (1, 2, 3) for problem in (SMALL, "copy/m4n5/f32")]
    assert [(r.status, r.processes, r.interval) for r in rows] == [("ok", 3, "between-processes")] * 4
    assert all(len(store.parts(r.run_id, r.case)) == 3 and r.spread_s > 0 for r in rows)
    assert rows[1].speedup_ci95_low < rows[1].speedup < rows[1].speedup_ci95_high
    assert store.pending(session.run_id, 0) == store.pending(session.run_id, 1) == []


def test_a_problem_of_two_suites_is_measured_once_in_each_process(passes, store):
    rows, said, session = passes("numpy.copyto", "bad.honest", suites=(SMALL, SMALL))
    assert said == [f"process {n}: {SMALL}" for n in (1, 2, 3)]
    assert [(r.status, r.processes) for r in rows] == [("ok", 3)] * 2
    assert store.pending(session.run_id, 0) == store.pending(session.run_id, 1) == []


def test_a_kernel_that_crashes_in_one_process_is_not_asked_in_the_next(passes):
    rows, *_ = passes("numpy.copyto", "bad.segv", real=True, suites=(SMALL,))
    assert [(r.status, r.processes) for r in rows] == [("ok", 3), ("crashed", 1)]
    assert "SIGSEGV" in rows[1].reason


def test_a_run_that_is_left_between_passes_goes_on_with_what_its_processes_have_found(passes, store):
    rows, said, session = passes("numpy.copyto", interrupted=3)
    assert (rows, len(said)) == ([], 3)
    assert [len(store.pending(session.run_id, number)) for number in (0, 1)] == [2, 1]
    rows, said, _ = passes("numpy.copyto", session=session)
    assert [(r.status, r.processes) for r in rows] == [("ok", 3)] * 2
    assert [len(store.parts(r.run_id, r.case)) for r in rows] == [3, 3]


def test_a_disturbed_process_is_replaced_by_a_further_one(passes, store):
    rows, said, session = passes("numpy.copyto", disturbed=(2,))
    assert said[6:] == [f"process 4: {SMALL}"]
    assert [(r.status, r.processes, r.disturbed) for r in rows] == [("ok", 3, "")] * 2
    assert all(len(store.parts(r.run_id, r.case)) == 3 for r in rows)
    assert store.pending(session.run_id, 0) == []


def test_a_machine_that_stays_disturbed_leaves_its_mark_after_half_as_many_processes_again(passes):
    rows, said, _ = passes("numpy.copyto", disturbed=(2, 3, 4))
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
    run_passes(SimpleNamespace(plan=Plan(("cpu",), processes=2, spread_s=2.2)), list, progress=Heard(said))
    assert (slept, said) == ([1.0, pytest.approx(0.7)], ["wait 1.7 s", "wait 0.7 s"])


#: Functions that return the baseline of a problem; the rows here have no problem.
NO_BASELINE, BASELINE = {}.get, {"": "base"}.get
ROUNDS = [0.98, 1.01, 1.0, 0.99, 1.02, 1.0]


def timed(kernel, scale=1.0, **other):
    """Return one process's measurement of a kernel that takes about `scale` seconds."""
    samples = [scale * round_ for round_ in ROUNDS]
    interval = median_interval(samples)
    row = Measurement(kernel=kernel, samples=samples, interval=interval, interval_scope="within-process")
    row.parts, row.started_at = [ProcessPart(len(samples), interval.median)], "2026-01-01T00:00:00.000+00:00"
    return msgspec.structs.replace(row, **other)


def test_one_process_stays_as_it_is():
    row = timed("a")
    assert merge([[row]], NO_BASELINE) == [row]


def test_samples_are_kept_by_process_and_the_interval_says_what_it_holds_for():
    (row,) = merge([[timed("a", scale)] for scale in (1.0, 1.1, 1.2)], NO_BASELINE)
    assert [part.samples for part in row.parts] == [6, 6, 6]
    assert [part.median_s for part in row.parts] == pytest.approx([1.0, 1.1, 1.2])
    assert (row.samples[6:12], row.interval_scope) == ([1.1 * round_ for round_ in ROUNDS], "between-processes")
    # Student's t for two degrees of freedom is 4.303 (any table), so the interval is wider than the processes' medians.
    assert row.interval.low < 1.0 < 1.2 < row.interval.high
    assert row.interval.median == pytest.approx(1.1)


def test_ratios_are_formed_within_each_process():
    base, other = merge([[timed("base", 2 * scale), timed("own", scale)] for scale in (1.0, 1.5, 3.0)], BASELINE)
    assert base.over_baseline is None
    assert (other.over_baseline.low, other.over_baseline.median, other.over_baseline.high) == pytest.approx((2, 2, 2))


def test_kernels_share_a_job_over_processes_only_if_they_shared_it_in_each():
    runs = [[timed(kernel, job=f"{n}") for kernel in ("base", "own", "alone")] for n in range(3)]
    runs[1][2].job = "another"
    base, other, alone = merge(runs, BASELINE)
    assert base.job == other.job != alone.job
    assert base.job not in ("0", "1", "2", "")
    assert other.over_baseline is not None
    assert alone.over_baseline is None
    assert alone.interval is not None


@pytest.mark.parametrize(("number", "reason"), [(0, "sampling: SIGSEGV"), (1, "in process 2 of 3: sampling: SIGSEGV")])
def test_a_kernel_that_fails_in_any_process_has_failed_and_says_in_which_later_one(number, reason):
    runs = [[timed("a"), timed("b")], [timed("a"), timed("b")], [timed("a")]]
    runs[number][1] = Measurement(kernel="b", status="crashed", reason="sampling: SIGSEGV", attempt=2)
    good, failed = merge(runs, {"": "a"}.get)
    assert (good.status, failed.status, failed.reason) == ("ok", "crashed", reason)
    assert (failed.samples, failed.parts, failed.interval, failed.over_baseline) == ([], [], None, None)


def test_a_baseline_that_failed_gives_nobody_a_ratio():
    bad = Measurement(kernel="base", status="wrong", reason="b[0, 0] is 1")
    _, other = merge([[timed("base"), timed("own")], [bad, timed("own")]], BASELINE)
    assert (other.status, other.over_baseline) == ("ok", None)


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("scratch_bytes", (8, 4, None), 8),
        ("attempt", (1, 3, 1), 3),
        ("repeated", (2, 1, None), 3),
        ("disturbed", ("throttled", "throttled", "stolen"), "throttled; stolen"),
        ("stopped_by", ("interval", "time", "interval"), "time"),
        ("stopped_by", ("interval", "interval"), "interval"),
        ("state", ({"clock_mhz": 1000.0}, {"clock_mhz": 2000.0}), {"clock_mhz": 1500.0}),
        ("setup_s", (2.0, 1.0, 3.0), 2.0),
        ("tunables", ("2", "1", "3"), "2"),
        ("launched", ("k2", "k1", "k3"), "k2"),
    ],
)
def test_the_values_of_several_processes_become_one(column, values, expected):
    (row,) = merge([[timed("a", **{column: value})] for value in values], NO_BASELINE)
    assert getattr(row, column) == expected


def test_the_error_that_is_closest_to_its_bound_is_kept_with_this_bound():
    pairs = ((1e-5, 2e-5), (3e-5, 9e-5), (None, None))
    (row,) = merge([[timed("a", max_error=error, error_bound=bound)] for error, bound in pairs], NO_BASELINE)
    assert (row.max_error, row.error_bound) == (1e-5, 2e-5)


def test_processes_that_differ_in_what_a_case_is_are_refused():
    with pytest.raises(ValueError, match="differ in a value that must be equal"):
        merge([[timed("a", numerics="fp32")], [timed("a", numerics="tf32")]], NO_BASELINE)


def test_it_is_known_how_far_apart_the_processes_were():
    times = ("2026-01-01T00:00:00.000+00:00", "2026-01-01T00:01:00.500+00:00", "2026-01-01T00:02:01.000+00:00")
    (row,) = merge([[timed("a", started_at=time)] for time in times], NO_BASELINE)
    assert row.spread_s == 121.0
