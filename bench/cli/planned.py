"""Make the plan and the jobs of `run` before anything is measured. `--list` and `--dry-run` stop after that."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from kernelmark.bench.cli.progress import Detail
from kernelmark.bench.measure.cpu import default_threads
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.plan.case import Entrant, Plan, PlannedJob, Shard, case_count, case_of
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import kept_plugin
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.shards import group_of, sharded
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report.estimate import Estimate, estimate
from kernelmark.bench.report.format import count, short, size
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.run.asked import checked_jobs, plan_asked, suites_asked, unfit
from kernelmark.bench.tune.select.contender import plugins_of
from kernelmark.bench.tune.tuned import with_tuned


class RunRequest(NamedTuple):
    """The arguments of `run` and `verify`. options: the options that make up the plan.

    executor: the file with Parsl's `config`, if Parsl's workers measure. start_timeout_s: the time limit for the start
    of the first worker. gpus: the numbers of the GPUs to measure on. known: the plan of the run to resume or reproduce.
    detail: how much is printed.
    """

    suites: tuple[str, ...]
    options: dict[str, Any]
    db: Path | None
    name: str
    resume: str | None = None
    noisy_again: bool = False
    reproduce: str | None = None
    tuned: str | None = None
    shard: Shard | None = None
    executor: Path | None = None
    start_timeout_s: float = 0.0
    gpus: tuple[int, ...] | None = None
    known: Plan | None = None
    detail: Detail = Detail.LINES


def asked_of(given: dict[str, Any]) -> RunRequest:
    """Return the arguments as a request. Raises UsageError if they contradict each other regardless of the machine."""
    fields = {name: value for name, value in given.items() if name in RunRequest._fields}
    request = RunRequest(**fields, options={name: value for name, value in given.items() if name not in fields})
    if "" in (request.resume, request.reproduce):
        option = "resume" if request.resume == "" else "reproduce"
        raise UsageError(f"--{option} '': is empty, expected a run; `kernelmark runs` lists them")
    if not request.suites and request.resume is None and request.reproduce is None:
        raise UsageError("no SUITE was named; `kernelmark list --suites` lists the suites")
    if request.name and request.resume is not None:
        raise UsageError(f"--name {request.name}: a resumed run keeps its name; leave the option out")
    return request


def with_plugins(options: dict[str, Any], select: str | None = None) -> dict[str, Any]:
    """Return the options with plug-ins added for selectors (`select`) and `--blas` libraries. Raises UsageError."""
    plugins, files = [*options["plugins"]], options.pop("blas")
    if select is not None:
        threads = options["threads"] or (default_threads(),)
        plugins += plugins_of(select, threads, options["mode"], discover())
    for file in files:
        if not file.is_file():
            raise UsageError(f"--blas {file}: there is no such file, expected a library with CBLAS")
        declares = f"from kernelmark.kernels.gemm._cblas import declare\n\ndeclare({str(file.resolve())!r})\n"
        plugins.append(str(kept_plugin(declares)))
    return {**options, "plugins": tuple(plugins)}


def plan_only(request: RunRequest, only_list: bool, dry_run: bool) -> None:
    """Print what would be measured, and the time it would take."""
    if request.executor is not None:
        complaint = f"--executor {request.executor}: --list and --dry-run plan for this machine only"
        raise UsageError(f"{complaint}; omit one of them")
    if request.resume is not None:
        raise UsageError("--resume: continues a run, but --list and --dry-run measure nothing; omit one of them")
    if not request.suites:
        complaint = "--reproduce: without SUITE uses the suites of its run, but --list and --dry-run need a SUITE"
        raise UsageError(f"{complaint}; name one")
    plan, registry, _, expanded = expanded_plan(plan_asked(request.suites, request.options), request)
    if only_list:
        print_list(plan, expanded, registry)
    if dry_run:
        print_estimate(plan, expanded, registry, request.db or default_store())


def expanded_plan(
    plan: Plan, request: RunRequest, store: Store | None = None
) -> tuple[Plan, Registry, list[Suite], list[PlannedJob]]:
    """Return the plan with tuned tiles, the registry, the suites and the jobs. Raises UsageError if there are no jobs.

    With --shard, return only this shard's jobs; a shard has none if there are more shards than comparison groups.
    """
    registry = discover(plan.plugins, plan.timeout_s)
    if tuned := request.tuned or plan.tuned:
        plan, remarks = with_tuned(plan, tuned, registry)
        for remark in remarks:  # remarks on tiles that are not used
            click.echo(remark, err=True)
    chosen = suites_asked(plan, registry)
    expanded = checked_jobs(chosen, registry, plan)
    for reason in unfit(plan, expanded, registry):
        click.echo(f"--plugin: {reason}", err=True)
    if shard := request.shard or plan.shard:
        plan, expanded = sharded(plan, shard, expanded, registry)
    if plan.reproduce and store:
        expanded = list(_reproduced(expanded, registry, store, plan.reproduce))
    _name_tiles(plan, expanded)
    return plan, registry, chosen, expanded


def _reproduced(
    planned_jobs: Sequence[PlannedJob], registry: Registry, store: Store, run_id: str
) -> Iterator[PlannedJob]:
    """Yield the jobs with the random bits (`entropy`) that a run recorded, so that they draw the same operand values.

    A job is split if its kernels' rows have different entropy. Kernels without a row use another kernel's.
    """
    mode, known = Mode(store.run(run_id).plan.get("mode", Mode.COLD)), store.entropies(run_id)
    missing = total = 0
    for planned in planned_jobs:
        job, alike = planned.job, defaultdict[str, list[Entrant]](list)
        before = msgspec.structs.replace(job, mode=mode)
        drawn = [known.get(case_of(before, e.problem, registry.kernels[e.kernel]), "") for e in job.entrants]
        shared = next(filter(None, drawn), "")
        for entrant, entropy in zip(job.entrants, drawn, strict=True):
            alike[entropy or shared].append(entrant)
        missing, total = missing + len(alike.get("", ())), total + len(job.entrants)
        for entropy, entrants in alike.items():
            yield msgspec.structs.replace(planned, job=msgspec.structs.replace(job.only(entrants), entropy=entropy))
    if missing:
        complaint = f"run {run_id} has no `entropy` for {missing} of {total} cases"
        click.echo(f"--reproduce: {complaint}; their values are drawn anew", err=True)


def _name_tiles(plan: Plan, jobs: Sequence[PlannedJob]) -> None:
    taken = dict.fromkeys(tile for planned in jobs for tile in planned.job.tiles)
    for tile in taken:
        click.echo(f"tuned: {tile.kernel} uses {tile.tile} on {tile.problem}, found by run {tile.run}", err=True)
    if plan.tiles and not taken:
        click.echo("tuned: none of the tuned tiles matches a kernel and a problem of this run", err=True)


def print_list(plan: Plan, jobs: Sequence[PlannedJob], registry: Registry) -> None:
    """Print the comparison groups of a run or a shard, with their problems, kernels and cases."""
    groups: dict[str, list[PlannedJob]] = {}
    for planned in jobs:
        groups.setdefault(group_of(planned.job.problems[0]), []).append(planned)
    columns = (
        TableColumn("comparison group"),
        TableColumn("problems", wraps=16),
        TableColumn("kernels", wraps=20),
        TableColumn("cases", "right"),
    )
    cells = []
    for group, members in groups.items():
        problems = dict.fromkeys(name.removeprefix(group + "/") for planned in members for name in planned.job.problems)
        kernels = dict.fromkeys(short(name) for planned in members for name in planned.job.kernels)
        cells.append((group, ", ".join(problems), ", ".join(kernels), str(case_count(members, registry))))
    if cells:
        click.echo(table(columns, cells, titled=True) + "\n")
    click.echo(_total(plan, len(groups), case_count(jobs, registry)))


def print_estimate(plan: Plan, jobs: Sequence[PlannedJob], registry: Registry, db: Path) -> None:
    """Print the kernels of a run or a shard, the time that it would take and the bytes that it would store."""
    with Store(db, create=False) if db.is_file() else nullcontext() as store:
        expected = estimate(store, jobs, plan, machine())
    groups = {group_of(planned.job.problems[0]) for planned in jobs}
    click.echo(_total(plan, len(groups), case_count(jobs, registry)))
    kernels = dict.fromkeys(name for planned in jobs for name in planned.job.kernels)
    for line in (f"kernels: {', '.join(kernels)}", *_times(expected), _bytes(expected, case_count(jobs, registry), db)):
        click.echo(paragraph(line))


def _total(plan: Plan, groups: int, cases: int) -> str:
    whole = f" of {plan.shard.cases}" if plan.shard else ""
    what = f"shard {plan.shard}: " if plan.shard else ""
    processes = f", in {plan.processes} processes each" if plan.processes > 1 else ""
    return f"{what}{count(groups, 'comparison group')}, {cases}{whole} cases{processes}"


def _times(expected: Estimate) -> Iterator[str]:
    if known := expected.cases - expected.unknown:
        span = f" [{_about(expected.low_s)}, {_about(expected.high_s)}]" if len(expected.runs) > 1 else ""
        runs = count(len(expected.runs), "earlier run")
        which = f"{known} of {expected.cases} cases"
        yield f"time: about {_about(expected.seconds)}{span} for {which}, as in {runs} on this machine"
    if expected.unknown:
        which = f"{expected.unknown} of {expected.cases} cases, which no complete run with these options measured here"
        yield f"time: unknown for {which}; their time limits for sampling add up to {_about(expected.limit_s)}"


def _bytes(expected: Estimate, cases: int, db: Path) -> str:
    if expected.row_bytes is None:
        return f"store: size unknown, since {db} has no row from which to estimate it"
    total = size(round(cases * expected.row_bytes))
    return f"store: {total}, for {cases} rows of {size(round(expected.row_bytes))} each, as in {db}"


def _about(seconds: float) -> str:
    unit, length = next(((unit, s) for unit, s in (("h", 3600), ("min", 60)) if seconds >= 2 * s), ("s", 1))
    number = seconds / length
    return f"{f'{number:.0f}' if number >= 10 else f'{number:.2g}'} {unit}"
