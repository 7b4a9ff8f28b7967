"""The plan and the jobs of `run`, before anything is measured; for `--list` and `--dry-run` this is all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from kernelmark.bench.plan.errors import UsageError


class Asked(NamedTuple):
    """What a run is asked for by its command. known: the plan of a run that goes on as it was asked for before."""

    suites: tuple[str, ...]
    options: dict[str, Any]
    name: str
    resume: str | None
    tuned: str | None
    shard: Any
    known: Any
    noisy_again: bool


class Done(NamedTuple):
    """A run that has ended. planned: how many cases it has when it is complete. finished: whether it is."""

    session: Any
    registry: Any
    planned: int
    finished: bool


def check_asked(suites: tuple[str, ...], resume: str | None, name: str) -> None:
    """Raise UsageError for what contradicts itself, whatever the machine."""
    if resume == "":
        raise UsageError("--resume '': is empty, expected a run; `kernelmark runs` lists them")
    if not suites and resume is None:
        raise UsageError("no SUITE was named; `kernelmark list --suites` names those that exist")
    if name and resume is not None:
        raise UsageError(f"--name {name}: a run that goes on keeps its name; leave the option out")


def with_selector(where: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the plug-ins of the selectors that `--select` names."""
    if where is None:
        return options
    from kernelmark.bench.measure.cpu import cpu_count
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.tune.select.contender import plugins_of

    threads = options["threads"] or (cpu_count(),)
    return {**options, "plugins": (*options["plugins"], *plugins_of(where, threads, options["mode"], discover()))}


def plan_only(
    only_list: bool,
    dry_run: bool,
    *,
    db: Path | None,
    suites: tuple[str, ...],
    name: str,
    resume: str | None,
    tuned: str | None,
    shard: Any,
    executor: Path | None,
    start_timeout_s: float,
    gpus: tuple[int, ...] | None,
    **options: Any,
) -> None:
    """Print what would be measured, and what that would take."""
    from kernelmark.bench.cli.dry_run import print_estimate, print_list
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.record.store import default_store
    from kernelmark.bench.run.asked import plan_asked

    check_asked(suites, resume, name)
    if executor is not None:
        raise UsageError(f"--executor {executor}: --list and --dry-run plan for this machine; leave one of them out")
    if resume is not None:
        raise UsageError("--resume: goes on with a run, and --list and --dry-run begin none; leave one of them out")
    plan = plan_asked(suites, options)
    registry = discover(plan.plugins, plan.timeout_s)
    plan, _, expanded = expanded_plan(plan, tuned or "", shard, registry)
    if only_list:
        print_list(plan, expanded, registry)
    if dry_run:
        print_estimate(plan, expanded, registry, db or default_store())


def expanded_plan(plan: Any, tuned: str, shard: Any, registry: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return the plan with its tuned tiles, the suites and the jobs. Raises UsageError where there is none.

    shard: the part whose jobs these are; a shard may have none, where there are fewer comparison groups than shards.
    """
    from kernelmark.bench.plan.shards_owners import sharded
    from kernelmark.bench.run.asked import jobs_asked, suites_asked

    if tuned:
        plan = _with_tuned(plan, tuned, registry)
    chosen = suites_asked(plan, registry)
    expanded = jobs_asked(chosen, registry, plan)
    if not expanded:
        raise UsageError(_why_none(plan, chosen, registry))
    if shard:
        plan, expanded = sharded(plan, shard, expanded, registry)
    _name_tiles(plan, expanded)
    return plan, chosen, expanded


def _why_none(plan: Any, suites: list[Any], registry: Any) -> str:
    """Return in a line why no kernel contends: none is selected, or those that are need a device that is not used."""
    import msgspec

    from kernelmark.bench.run.asked import jobs_asked

    which = (
        f"no kernel matches{''.join(f' --kernels {glob!r}' for glob in plan.kernels)} on {' and '.join(plan.devices)}"
    )
    for device in sorted({kernel.device for kernel in registry.kernels.values()} - set(plan.devices)):
        found = jobs_asked(suites, registry, msgspec.structs.replace(plan, devices=(device,)))
        if names := list(dict.fromkeys(name for planned in found for name in planned.job.kernels)):
            listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            return f"{which}; on {device}, {listed} would; `kernelmark doctor` reports what is missing here"
    return f"{which}; `kernelmark list --all` names those there are"


def _with_tuned(plan: Any, where: str, registry: Any) -> Any:
    """Return the plan with tuned tiles; remarks on those that are not used go to standard error."""
    from kernelmark.bench.tune.use import with_tuned

    plan, remarks = with_tuned(plan, where, registry)
    for remark in remarks:
        click.echo(remark, err=True)
    return plan


def _name_tiles(plan: Any, jobs: Sequence[Any]) -> None:
    """Name the tuned tiles that the run takes."""
    taken = dict.fromkeys(tile for planned in jobs for tile in planned.job.tiles)
    for tile in taken:
        click.echo(f"tuned: {tile.kernel} takes {tile.tile} on {tile.problem}, as run {tile.run} found", err=True)
    if plan.tiles and not taken:
        click.echo("tuned: none of the tiles is for a kernel and a problem of this run", err=True)
