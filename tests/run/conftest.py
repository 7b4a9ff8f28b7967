"""What the tests of runs share."""

from pathlib import Path

import pytest

from bench.plan.case import Plan
from bench.plan.errors import UsageError
from bench.plan.suites import find_suite
from bench.run.job import run_job
from bench.run.session import Session, run_suites
from small_runs import PROBLEMS, SUITE


def in_process(job, key):
    """Kernels that a test declares are known in its own process alone."""
    return run_job(job)


@pytest.fixture
def full_after(store, monkeypatch):
    """Call it with a number: the store takes that number of rows and is then full, until `monkeypatch.undo()`."""

    def of(rows):
        add, left = store.add, [rows]

        def full(*args):
            if not left[0]:
                raise UsageError("the disk is full")
            left[0] -= 1
            add(*args)

        monkeypatch.setattr(store, "add", full)

    return of


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.toml").write_text(SUITE.format(PROBLEMS))
    return tmp_path
