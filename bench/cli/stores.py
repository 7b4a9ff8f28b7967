"""The commands that manage a store, `runs`, `merge` and `import`, and `suite`, which makes a suite from a log."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

import click
import msgspec

from kernelmark.bench.cli.output import print_or_write, reading
from kernelmark.bench.cli.shared import AGAINST, OK, db_option, file_option, json_option, plugin_option, run_option
from kernelmark.bench.measure.lock import held_run
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.declared import is_foreign, require_figures
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.shards import group_of, owners
from kernelmark.bench.plan.text import escaped, indented, one_line
from kernelmark.bench.record.foreign.importing import import_files
from kernelmark.bench.record.foreign.logs import read_log, suite_toml
from kernelmark.bench.record.merge import merge_files
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report.format import count
from kernelmark.bench.report.runs import merged_lines, removed_line, runs_table, summaries
from kernelmark.bench.run.asked import jobs_asked, suites_asked
from kernelmark.bench.run.session import new_run_id

#: The most reasons for skipped lines that are printed; further reasons are only counted.
_NAMED = 3
_HOURS = {"h": 1, "d": 24, "w": 24 * 7}


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Convert `30d`, `12h`, `2w` or a UTC date to a time in the past. Raises click.BadParameter."""
    if value is None:
        return None
    now = datetime.now(UTC)
    try:
        if age := re.fullmatch(r"([1-9]\d*)([hdw])", value):
            then = now - timedelta(hours=int(age[1]) * _HOURS[age[2]])
        else:
            then = datetime.fromisoformat(value)
            then = then.astimezone(UTC) if then.tzinfo else then.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        then = None
    if then is None or then > now:
        raise click.BadParameter(f"is {value!r}, expected an age such as 12h, 30d or 8w, or a past date: 2026-01-31")
    return then.isoformat(timespec="seconds")


@click.command()
@run_option("--delete", multiple=True, text="Remove this run; may be repeated.")
@click.option(
    "--prune",
    metavar="OLDER",
    callback=_moment,
    help="Remove runs that are older than this age (30d), or began before this date (2026-01-31).",
)
@json_option
@db_option
def runs(delete: tuple[str, ...], prune: str | None, json_to: IO[str] | None, db: Path | None) -> None:
    """List the runs of the store, newest first, or remove some.

    --delete and --prune list the runs that they remove, and do not ask first. A RUN is an id, a name, or the beginning
    of an id or name.
    """
    if delete and prune:
        raise UsageError("--delete and --prune: each chooses the runs to remove; leave one out")
    with reading(db) as store:
        listed = summaries(store)
        if delete or prune:
            named = {store.find_run(text)["run_id"] for text in delete}
            listed = [run for run in listed if run.run_id in named or run.started_at < (prune or "")]
            with ExitStack() as locks:  # remove all runs or none
                for run in listed:
                    locks.enter_context(held_run(store.path, run.run_id, "end it with Ctrl-C"))
                store.remove([run.run_id for run in listed])
    if json_to is not None:
        click.echo(indented(listed), json_to)
        return
    click.echo(runs_table(listed))
    if delete or prune:
        click.echo(f"\n{removed_line(listed)}")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@db_option
def merge(files: tuple[Path, ...], db: Path | None) -> None:
    """Merge the stores of shards: their rows become one run.

    The result goes into the store --db; runs that are not sharded are copied. Files may be given in any order, in
    one or several commands, even repeatedly. Missing and unfinished shards are listed, and make the exit status 1.
    """
    target = db or default_store()
    merged = merge_files(target, files)
    with Store(target, create=False) as store:
        for line in merged_lines(store, merged, _problems):
            click.echo(line)
    raise SystemExit(OK if merged.complete else AGAINST)


def _problems(plan: dict[str, object], missing: list[int]) -> dict[int, list[str]]:
    try:
        campaign = msgspec.convert(plan, Plan)
    except msgspec.ValidationError as error:
        raise UsageError(f"the plan is damaged: {error}") from None
    registry = discover(campaign.plugins, campaign.timeout_s)
    suites = suites_asked(campaign, registry)
    if [suite.digest for suite in suites] != plan.get("suite_digests"):
        raise UsageError(f"the suite {', '.join(campaign.suites)} differs here")
    jobs = jobs_asked(suites, registry, campaign)
    assert campaign.shard
    shards = owners(jobs, campaign.shard.count, registry)
    problems: dict[int, dict[str, None]] = {index: {} for index in missing}
    for planned in jobs:
        owner = shards[group_of(planned.job.problems[0])]
        if owner in problems:
            problems[owner].update(dict.fromkeys(planned.job.problems))
    return {index: list(names) for index, names in problems.items()}


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@plugin_option
@db_option
def import_command(files: tuple[Path, ...], plugins: tuple[str, ...], db: Path | None) -> None:
    """Import results of other programs; each file becomes a run.

    Reads the JSON of pytest-benchmark and nvbench, and the CSV of kernelmark. Either all files are imported or none. If
    a benchmark's name, group or parameter is a problem's id, the benchmark is listed with the kernels on this problem.
    """
    registry = discover(plugins)
    for imported in import_files(db or default_store(), files, lambda text: _problem(registry, text), new_run_id):
        again = f" (imported before, as run {imported.before})" if imported.before else ""
        click.echo(f"run {imported.run_id}: {count(imported.rows, 'row')} from {escaped(str(imported.path))}{again}")
        for refused in imported.refused:
            click.echo(one_line(f"kernelmark: {refused}; this benchmark was not imported"), err=True)


@click.command()
@click.option(
    "--from",
    "log",
    required=True,
    metavar="LOG",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Log of oneDNN, cuBLAS, cuBLASLt, cuDNN, rocBLAS or hipBLASLt, or CSV from CUTLASS's profiler.",
)
@file_option("-o", "--output", text="The suite, a TOML file. [default: standard output]")
@plugin_option
def suite(log: Path, output: Path | None, plugins: tuple[str, ...]) -> None:
    """Make a suite of the problems in an application's log.

    Each problem appears once; `count` is the number of times that it was solved. Lines that were not understood are
    counted by reason on standard error.
    """
    registry = discover(plugins)
    require_file(log)
    with log.open(encoding="utf-8", errors="replace") as lines:
        logged = read_log(lines, registry)
    if not logged.problems:
        skipped = f" ({count(sum(logged.skipped.values()), 'line')} not understood)" if logged.skipped else ""
        remedy = "`kernelmark suite --help` lists the libraries"
        raise UsageError(f"{log}: contains no call of a known library{skipped}; {remedy}")
    print_or_write(suite_toml(logged, registry, f"From {log.name}"), output)
    calls = sum(logged.problems.values())
    made = f"{count(len(logged.problems), 'problem')} of {count(calls, 'call')}"
    click.echo(one_line(f"{made}{_skipped(logged.skipped)}"), err=True)


def _skipped(skipped: Mapping[str, int]) -> str:
    """Return `; not understood: oneDNN reorder (2)`: the most frequent reasons, then the number of other reasons."""
    ordered = sorted(skipped.items(), key=lambda item: -item[1])
    named = [f"{reason} ({number})" for reason, number in ordered[:_NAMED]]
    if rest := ordered[_NAMED:]:
        named.append(f"{count(len(rest), 'other reason')} ({sum(number for _, number in rest)})")
    return f"; not understood: {', '.join(named)}" if named else ""


def _problem(registry: Registry, text: str) -> Problem | None:
    try:
        problem = registry.problem(text)
    except UsageError:
        return None
    if is_foreign(type(problem)):
        require_figures(problem, text)
    return problem
