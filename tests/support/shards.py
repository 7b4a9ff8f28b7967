"""Runs on the fake device, whose times come from a trace: whole, in shards, by stations on GPUs, or by Parsl."""

from contextlib import nullcontext
from pathlib import Path

import msgspec

from kernelmark.bench.measure.host import Host, digests
from kernelmark.bench.plan.case import Plan, case_count, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.shards import parse_shard, sharded
from kernelmark.bench.plan.suites import load_suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.run.dispatch import Broker, Dispatch
from kernelmark.bench.run.job import run_job
from kernelmark.bench.run.session import Session, run_jobs
from support.plugins import FAKE

KERNELS = ("copy/fake.*", "!copy/fake.sticky")
#: Columns that differ between runs even if all times are equal.
RUN_OWN = {"run_id", "job", "entropy", "started_at", "setup_s", "load", "threads_used"}
SUITE = """
title = "Copies"
max_time = 0.001
baseline = {{copy = "copy/fake.base"}}
[[sweep]]
op = "copy"
m = {sizes}
n = [1]
dtype = ["f64", "f32"]
part = "forward"
"""


def suite_file(folder, sizes=range(1, 13)):
    path = folder / "s.toml"
    path.write_text(SUITE.format(sizes=list(sizes)))
    return path


def plan_of(suite, plugins=(FAKE,), **fields):
    usual = {"devices": ("fake",), "kernels": KERNELS, "mode": Mode.HOT, "ceilings": False}
    return Plan(**{**usual, "plugins": tuple(plugins), "suites": (str(suite),), **fields})


def measure(db, suite, shard="", name="", most=None, resume=None, **fields):
    """Measure a suite, or a shard of it, on the fake device; return the id of the run.

    most: leave the run after this many jobs. resume: the id of a run to resume.
    """
    plan = plan_of(suite, **fields)
    registry = discover(plan.plugins)
    suites = [load_suite(suite, registry)]
    planned = list(jobs(suites, registry, plan))
    if shard:
        plan, planned = sharded(plan, parse_shard(shard), planned, registry)
    with Store(db) as store:
        options = {"name": name, "planned": case_count(planned, registry), "resume": resume}
        session = Session(store, suites, plan, lambda job, key: run_job(job), **options)
        for number, planned_job in enumerate(planned[:most] if most is not None else []):
            session.note(planned_job)
            session.measure(number, planned_job)
        if most is None:
            run_jobs(session, lambda: planned)
    return session.run_id


def rows(db, run_id=None):
    """Return the rows of a run in order, without the columns in RUN_OWN."""
    from kernelmark.bench.record.columns import COLUMNS

    with Store(db, create=False) as store:
        full_id = store.find_run(run_id)["run_id"]
        records = list(store.records(full_id, samples=True))
    named = [
        {**dict(zip(COLUMNS, record.values, strict=True)), **record.dims, "samples": record.samples.tolist()}
        for record in records
    ]
    return [{name: value for name, value in row.items() if name not in RUN_OWN} for row in named]


GPUS = ("GPU-one", "GPU-two")
#: A configuration of Parsl with threads, so that no process must start.
THREADS = """
from parsl import Config
from parsl.executors import ThreadPoolExecutor
config = Config(executors=[ThreadPoolExecutor(max_threads=2)], run_dir={run_dir!r}, initialize_logging=False)
"""
#: A configuration of Parsl with worker processes on this host.
LOCAL = """
from parsl import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
provider = LocalProvider(init_blocks=1, max_blocks=1{rest})
executor = HighThroughputExecutor(label="here", address="127.0.0.1", max_workers_per_node={workers}, provider=provider)
config = Config(executors=[executor], run_dir={run_dir!r}, strategy_period=1, initialize_logging=False)
"""


def config_file(folder, text=THREADS, workers=1, rest=""):
    path = folder / "executor.py"
    path.write_text(text.format(run_dir=str(folder / "runinfo"), workers=workers, rest=rest))
    return str(path)


def dispatch(db, plan, config="", gpus=(), broker=None, resume=None):
    plan = msgspec.structs.replace(plan, executor=config, gpus=tuple(gpus))
    registry = discover(plan.plugins)
    suites = [load_suite(Path(name), registry) for name in plan.suites]
    planned = list(jobs(suites, registry, plan))
    expected = Host("", "", "", plugins=digests(plan.plugins))
    with Store(db) as store, nullcontext(broker) if broker else Broker(config, gpus) as opened:
        session = Session(store, suites, plan, None, resume, planned=case_count(planned, registry))
        Dispatch(session, store, opened).run(planned, expected)
    return session.run_id
