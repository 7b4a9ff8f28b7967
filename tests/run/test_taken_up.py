"""Runs that are taken up again in the same process: what is left of them, and what they may not differ in."""

import pytest

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.job import run_job
from kernelmark.bench.run.session import plan_of
from support.runs import SMALL, copy, declare, nothing


@pytest.fixture
def taken_up(measured):
    """The jobs that a session asks for which goes on with a run, and the session."""

    def of(run_id, *problems, **plan):
        asked = []

        def execute(job, key):
            asked.append(job.kernels)
            return run_job(job)

        _, session, _ = measured(*problems, execute=execute, resume=run_id, **plan)
        return asked, session

    return of


def test_a_run_that_was_left_between_two_rows_of_a_job_measures_the_rest_beside_the_baseline(
    measured, taken_up, store, full_after, monkeypatch
):
    for name in ("first", "second"):
        declare(name, copy)
    kernels = ("copy/mine.first", "copy/mine.second", "copy/numpy.copyto")
    full_after(2)
    with pytest.raises(UsageError, match="full"):
        measured(SMALL, kernels=kernels)
    monkeypatch.undo()
    run_id = store.find_run(None)["run_id"]
    before = {row.kernel: row for row, _ in store.results(run_id)}
    assert list(before) == ["copy/numpy.copyto", "copy/mine.first"]
    asked, session = taken_up(run_id, SMALL, kernels=kernels)
    assert asked == [("copy/numpy.copyto", "copy/mine.second")]
    after = {row.kernel: row for row, _ in store.results(run_id)}
    assert {name: after.pop(name) for name in before} == before
    assert after["copy/mine.second"].speedup is not None
    assert session.tally == {"ok": 3}


def test_a_run_that_is_taken_up_counts_the_verdicts_that_it_had(measured, taken_up):
    declare("bad", nothing)
    declare("good", copy)
    _, before, _ = measured(SMALL, kernels=("copy/mine.*",))
    asked, session = taken_up(before.run_id, SMALL, kernels=("copy/mine.*",))
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
    assert found in complaint(lambda: taken_up(before.run_id, SMALL, kernels=("copy/numpy.copyto",), **plan))


def test_a_run_that_does_not_say_its_suites_cannot_be_taken_up_by_its_id_alone(measured, store, complaint):
    _, session, _ = measured(SMALL, kernels=("copy/numpy.copyto",))
    found = complaint(lambda: plan_of(store, session.run_id))
    assert found == f"--resume {session.run_id}: the run has no record of its suites; name them"
