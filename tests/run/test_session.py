"""A run: jobs to the worker, rows to the store."""

import os
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import kernelmark
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.signals import interruptible
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.run.commit import COMMIT_FILE, git_commit, write_commit_file
from kernelmark.bench.run.session import new_run_id
from support.runs import SMALL, copy, declare, nothing, out_of_memory, raises, refuses


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


def test_a_run_tells_what_was_asked_for_on_which_machine_and_when_it_ended(measured, store):
    measured(SMALL, kernels=("copy/numpy.copyto",), seed=3)
    run = store.find_run(None)
    assert run["plan"]["seed"] == 3
    assert "cpus_usable" in run["machine"]
    assert "versions" in run["environment"]
    assert list(run["suites"]) == [str(SMALL)]
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
    assert store.find_run(None)["finished_at"] is None


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


def test_what_takes_too_long_after_a_signal_is_given_up():
    def interrupted(takes_s):
        with interruptible(0.05):
            signal.raise_signal(signal.SIGINT)
            time.sleep(takes_s)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    with pytest.raises(KeyboardInterrupt):
        interrupted(10.0)
    interrupted(0.0)
    time.sleep(0.1)  # what ended in time is not ended later
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == before


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


def test_a_tree_without_git_has_the_commit_that_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(kernelmark, "__file__", str(tmp_path / "kernelmark" / "__init__.py"))
    monkeypatch.delenv("KERNELMARK_COMMIT", raising=False)
    assert git_commit.__wrapped__() == f"kernelmark {kernelmark.__version__}"
    (tmp_path / "build").mkdir()
    (tmp_path / COMMIT_FILE).write_text("beef-dirty\n")
    assert git_commit.__wrapped__() == "beef-dirty"
    monkeypatch.setenv("KERNELMARK_COMMIT", "c0ffee")
    assert git_commit.__wrapped__() == "c0ffee"
    (tmp_path / ".git").mkdir()  # which is no repository
    assert git_commit.__wrapped__() == "c0ffee"
    monkeypatch.delenv("KERNELMARK_COMMIT")
    assert git_commit.__wrapped__() == f"kernelmark {kernelmark.__version__} (git names no commit)"


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_a_commit_file_without_a_commit_counts_for_nothing(tmp_path, monkeypatch, content):
    monkeypatch.setattr(kernelmark, "__file__", str(tmp_path / "kernelmark" / "__init__.py"))
    monkeypatch.delenv("KERNELMARK_COMMIT", raising=False)
    (tmp_path / "build").mkdir()
    (tmp_path / COMMIT_FILE).write_bytes(content)
    assert git_commit.__wrapped__() == f"kernelmark {kernelmark.__version__}"


def test_a_commit_file_holds_the_commit_of_the_checkout(tmp_path, monkeypatch, complaint):
    def git(*words):
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert complaint(lambda: write_commit_file(tmp_path)).startswith(f"{tmp_path}: git finds no commit here")
    git("init")
    (tmp_path / COMMIT_FILE).mkdir(parents=True)
    (tmp_path / "reports").mkdir()
    for file in (tmp_path / "file", tmp_path / "reports" / "file"):
        file.write_text("as committed")
    git("add", "file", "reports")
    git("commit", "-m", "Begin")
    commit = git("rev-parse", "HEAD")
    assert (
        complaint(lambda: write_commit_file(tmp_path)) == f"{tmp_path}/build/commit: cannot be written: Is a directory"
    )
    (tmp_path / COMMIT_FILE).rmdir()
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as a hook of another repository has it
    if not os.geteuid():
        os.chown(tmp_path, 54321, 54321)  # a container may run another user's checkout
    assert write_commit_file(tmp_path) == commit
    assert write_commit_file(tmp_path) == commit  # the file itself makes nothing dirty
    (tmp_path / "reports" / "file").write_text("published since")
    assert write_commit_file(tmp_path) == commit, "a run goes on after what it measured was published"
    (tmp_path / "file").write_text("changed")
    assert write_commit_file(tmp_path) == f"{commit}-dirty"
    shutil.rmtree(tmp_path / ".git")
    monkeypatch.setattr(kernelmark, "__file__", str(tmp_path / "kernelmark" / "__init__.py"))
    monkeypatch.delenv("KERNELMARK_COMMIT", raising=False)
    assert git_commit.__wrapped__() == f"{commit}-dirty"
