"""Fixtures for tests of runs."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from kernelmark.bench.plan.case import Budget, Job, Plan, WorkerKey, jobs
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.job import run_job
from kernelmark.bench.run.session import Session, run_jobs
from support.plugins import FAKE, FAULTS
from support.processes import wait_for
from support.runs import PROBLEMS, QUICK, SMALL, SUITE


@pytest.fixture
def measured(registry, store):
    """Return a function that runs kernels on problems and returns the rows, the session, and whether the run finished.

    execute: measures a job, by default in this process, since no other process knows kernels that a test declares.
    resume: the id of a run to resume.
    """

    def of(*problems, kernels=(), execute=lambda job, key: run_job(job), resume=None, progress=None, **plan):
        plan = Plan(**{"devices": ("cpu",), "kernels": kernels, "max_time_s": 0.005, "ceilings": False, **plan})
        suites = [find_suite(problem, registry) for problem in problems]
        session = Session(store, suites, plan, execute, resume)
        done = run_jobs(session, partial(jobs, suites, registry, plan), progress=progress)
        return [row for row, _ in store.results(session.run_id)], session, done

    return of


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "s.toml").write_text(SUITE.format(PROBLEMS))
    return tmp_path


@pytest.fixture
def workers():
    with Workers() as opened:
        yield opened


@pytest.fixture
def measure(workers):
    """Return a function that measures kernels as one job and returns their rows. Its workers outlive the job."""

    def of(*kernels, problems=(SMALL,), timeout_s=60.0):
        names = tuple(f"copy/{name}" if "." in name else f"copy/bad.{name}" for name in kernels)
        job = Job(problems, names, Mode.HOT, (FAULTS, FAKE), 0, Budget(0.02), 1, names[0], timeout_s=timeout_s)
        return workers.run(job, WorkerKey("cpu", 1))

    return of


@pytest.fixture
def told(tmp_path, monkeypatch):
    """The file into which a kernel writes a process id."""
    monkeypatch.setenv("FAULTS_PID", str(tmp_path / "pid"))
    return tmp_path / "pid"


@pytest.fixture
def start(folder):
    script, begun = str(Path(sys.executable).with_name("kernelmark")), []

    def run(*words):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        begun.append(subprocess.Popen([sys.executable, script, *words], cwd=folder, **pipes))
        return begun[-1]

    yield run
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture
def hanging(start, told):
    """Start a run whose kernel hangs in a call; return the run and its worker's process id."""
    run = start("run", SMALL, *QUICK, "--kernels", "copy/bad.hangs_and_tells", "--db", "r.db")
    wait_for(told.exists)
    return run, int(told.read_text())
