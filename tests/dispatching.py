"""Runs on the fake device that stations measure, on GPUs that are fakes too or by an executor of Parsl."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.measure.host import Host, digests
from kernelmark.bench.plan.case import Plan, case_count, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.suites import load_suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.run.dispatch import Broker, Dispatch
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.session import Session

GPUS = ("GPU-one", "GPU-two")
#: Parsl's threads: nothing has to start.
THREADS = """
from parsl import Config
from parsl.executors import ThreadPoolExecutor
config = Config(executors=[ThreadPoolExecutor(max_threads=2)], run_dir={run_dir!r}, initialize_logging=False)
"""
#: Parsl's executor with two workers on this host.
LOCAL = """
from parsl import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
provider = LocalProvider(init_blocks=1, max_blocks=1{rest})
executor = HighThroughputExecutor(label="here", address="127.0.0.1", max_workers_per_node={workers}, provider=provider)
config = Config(executors=[executor], run_dir={run_dir!r}, strategy_period=1, initialize_logging=False)
"""
#: One storage type and one kernel a problem, so that a comparison group is a job with one row.
SINGLE = """
title = "Copies"
max_time = 0.001
[[sweep]]
op = "copy"
m = {{linear = [1, {rows}, 1]}}
n = [1]
dtype = ["f64"]
"""


def single_rows(folder: Path, rows: int) -> Path:
    """Write a suite of this many comparison groups."""
    path = folder / "single.toml"
    path.write_text(SINGLE.format(rows=rows))
    return path


def config_file(folder: Path, text: str = THREADS, **values: Any) -> str:
    path = folder / "executor.py"
    path.write_text(text.format(run_dir=str(folder / "runinfo"), **values))
    return str(path)


def dispatch(
    db: Path, plan: Plan, config: str = "", gpus: Sequence[str] = (), broker: Any = None, resume: str | None = None
) -> str:
    """Measure the suite of a plan by stations; return the id of the run."""
    plan = msgspec.structs.replace(plan, executor=config, gpus=tuple(gpus))
    registry = discover(plan.plugins)
    suites = [load_suite(Path(name), registry) for name in plan.suites]
    planned = list(jobs(suites, registry, plan))
    expected = Host("", "", "", plugins=digests(plan.plugins))
    with closing(Store(db)) as store, broker or Broker(config, gpus) as opened:
        session = Session(store, suites, plan, None, resume, planned=case_count(planned, registry))
        Dispatch(session, store, registry, plan, opened).run(planned, expected, lambda result: None, Progress())
    return session.run_id
