"""A run whose jobs are measured by the workers of an executor, or by one on each of several GPUs."""

from pathlib import Path
from typing import Any, NamedTuple

import click

from kernelmark.bench.cli.planned import Asked, Done, expanded_plan
from kernelmark.bench.cli.views import table_style
from kernelmark.bench.plan.errors import UsageError


class Elsewhere(NamedTuple):
    """Who measures: the executor of a file, whose first worker must start in time, or GPUs by their numbers."""

    executor: Path | None
    start_timeout_s: float
    gpus: tuple[int, ...] | None


def run_elsewhere(store: Any, asked: Asked, where: Elsewhere) -> Done:
    """Measure a run, and record it here."""
    from kernelmark.bench.cli.progress import Display
    from kernelmark.bench.measure.lock import exclusive, held_run
    from kernelmark.bench.plan.case import case_count
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.run.dispatch import Broker, Dispatch
    from kernelmark.bench.run.pool import Workers
    from kernelmark.bench.run.session import Session

    config, gpus = _who(asked, where)
    with exclusive(("cuda",) if gpus else (), False, gpus), Broker(config, gpus) as broker:
        plan, host = _planned(asked, where, broker, config, gpus)
        with Workers() as workers:
            workers.load(plan)
        registry = discover(plan.plugins, plan.timeout_s)
        plan, chosen, expanded = expanded_plan(plan, asked.tuned or plan.tuned, asked.shard or plan.shard, registry)
        planned = case_count(expanded, registry)
        display = Display(expanded, 1, registry, None if asked.resume else table_style())
        own = {"name": asked.name, "planned": planned, **_recorded(store, asked.resume, host)}
        session = Session(store, chosen, plan, None, asked.resume, asked.noisy_again, **own)
        click.echo(f"run {session.run_id}")
        with held_run(store.path, session.run_id, "start a run of your own"), display:
            dispatch = Dispatch(session, store, registry, plan, broker)
            finished = dispatch.run(expanded, host, display.row, display)
    return Done(session, registry, planned, finished)


def _who(asked: Asked, where: Elsewhere) -> tuple[str, tuple[str, ...]]:
    """Return the executor's file and the UUIDs of GPUs, one of which is empty. Raises UsageError."""
    from kernelmark.bench.measure.cuda import gpu_uuids
    from kernelmark.bench.plan.gpus import chosen_gpus

    if where.executor is not None and where.gpus is not None:
        raise UsageError("--executor and --devices: each chooses who measures; a worker of an executor has one GPU")
    if where.executor is not None:
        if asked.tuned == "auto":
            raise UsageError("--tuned auto: is the file of this machine's device, and --executor measures elsewhere")
        return _file(where.executor), ()
    present = gpu_uuids()
    if where.gpus is not None:
        try:
            return "", chosen_gpus(where.gpus, present)
        except ValueError as error:
            raise UsageError(f"--devices: {error}") from None
    if missing := [gpu for gpu in asked.known.gpus if gpu not in present]:
        raise UsageError(f"--resume {asked.resume}: {missing[0]} is not here; it goes on only on its own GPUs")
    return (_file(Path(asked.known.executor)) if asked.known.executor else ""), asked.known.gpus


def _file(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"--executor {path}: there is no such file; expected one with `config`, see docs/cluster.md")
    return str(path.absolute())


def _planned(asked: Asked, where: Elsewhere, broker: Any, config: str, gpus: tuple[str, ...]) -> tuple[Any, Any]:
    """Return the plan, which the first worker makes for its machine, and that worker's host."""
    import msgspec

    from kernelmark import __version__
    from kernelmark.bench.measure.host import Host, digests
    from kernelmark.bench.plan.suites import full_name
    from kernelmark.bench.run.commit import git_commit
    from kernelmark.bench.run.dispatch import first_answer
    from kernelmark.bench.run.task import Task

    plan = asked.known
    plugins = [str(Path(plugin).absolute()) for plugin in (plan.plugins if plan else asked.options["plugins"])]
    here = Host("", git_commit(), __version__, plugins=digests(plugins))
    if plan is None:
        options = msgspec.to_builtins({**asked.options, "plugins": plugins})
        plan = first_answer(broker, Task(here, asked=options), where.start_timeout_s).plan
        plan = msgspec.structs.replace(plan, suites=tuple(map(full_name, asked.suites)))  # type: ignore[type-var]
    plan = msgspec.structs.replace(plan, executor=config, gpus=gpus)
    return plan, first_answer(broker, Task(here, plan), where.start_timeout_s).host


def _recorded(store: Any, resume: str | None, host: Any) -> dict[str, Any]:
    """Return the machine and the environment that the run records.

    A run that goes on keeps those that it has: other hosts of the same versions may take part now.
    """
    if resume is None:
        return {"machine": host.machine, "environment": host.environment}
    before = store.run(resume)
    alike = {name: host.environment[name] for name in ("kernelmark", "versions")}
    return {"machine": before.machine, "environment": {**before.environment, **alike}}
