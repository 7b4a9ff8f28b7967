"""The commands that measure: `run` and `verify`."""

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import click

from kernelmark.bench.cli import completion
from kernelmark.bench.cli.elsewhere import Elsewhere, run_elsewhere
from kernelmark.bench.cli.options import (
    AGAINST,
    INTERRUPTED,
    OK,
    Read,
    db_option,
    file_option,
    json_option,
    name_option,
    plan_option,
)
from kernelmark.bench.cli.planned import Asked, Done, check_asked, expanded_plan, plan_only, with_selector
from kernelmark.bench.cli.views import print_end, print_run, table_style
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.gpus import parse_gpus
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.options import OPTIONS, Option, above_zero


def _shard(text: str) -> Any:
    from kernelmark.bench.plan.shards import parse_shard

    return parse_shard(text)


def _asks(options: Sequence[Option]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Take the suites, the store and these options to the plan."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function = json_option(name_option(db_option(function)))
        for option in reversed(options):
            function = plan_option(option)(function)
        return click.argument("suites", nargs=-1, metavar="SUITE...", shell_complete=completion.suites)(function)

    return decorate


@click.command()
@_asks(OPTIONS)
@file_option("--csv", "csv_path", text="Write the rows of the run to this file.")
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=completion.runs,
    help="Continue an interrupted run; without SUITE, as it was asked for.",
)
@click.option("--noisy-again", is_flag=True, help="With --resume: measure the problems with disturbed cases again.")
@click.option(
    "--report",
    "report_to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the page of the run to this folder, as `report` does, but no PDFs.",
)
@click.option(
    "--tuned",
    metavar="FILE",
    help="Use the tiles that `tune` has found, except for baselines; auto: this device's file.",
)
@click.option(
    "--select",
    metavar="FILE",
    help="Add a contender, OP/kernelmark.selected, that runs a selector's choice; auto: the selectors of this device.",
)
@click.option(
    "--shard",
    type=Read(_shard),
    metavar="I/N",
    help="Measure part I of N. Other machines measure the other parts, and `kernelmark merge` makes them one run.",
)
@click.option(
    "--executor",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="CONFIG.py",
    help="Measure on workers that Parsl starts; `config` in this file describes its executors.",
)
@click.option(
    "--start-timeout",
    "start_timeout_s",
    type=Read(above_zero),
    default=300.0,
    metavar="S",
    help="Seconds that the executor may take to start its first worker. [default: 300]",
)
@click.option(
    "--devices",
    "gpus",
    type=Read(parse_gpus),
    metavar="all|N,..",
    help="Measure on several GPUs of this machine, with a worker for each; numbers as in nvidia-smi.",
)
@click.option("--list", "only_list", is_flag=True, help="Print what would be measured, and measure nothing.")
@click.option("--dry-run", is_flag=True, help="Print jobs, machine-hours and bytes, and measure nothing.")
@click.option("--fail-noisy", is_flag=True, help="Exit with 1 if a case was disturbed by other load.")
def run(
    csv_path: Path | None,
    json_to: IO[str] | None,
    report_to: Path | None,
    fail_noisy: bool,
    noisy_again: bool,
    only_list: bool,
    dry_run: bool,
    select: str | None,
    **options: Any,
) -> None:
    """Verify and time the kernels of each SUITE.

    A SUITE is a name (`kernelmark list --suites`), a TOML file or one problem id.
    """
    options = with_selector(select, options)
    if noisy_again and options["resume"] is None:
        raise UsageError("--noisy-again: has no run to measure again; name it by --resume")
    if only_list or dry_run:
        if json_to is not None:
            raise UsageError("--json: prints the rows of a run, and --list and --dry-run measure none; leave one out")
        plan_only(only_list, dry_run, **options)
        return
    _measure(Wanted(csv_path, json_to, report_to, fail_noisy), noisy_again=noisy_again, **options)


@click.command()
@_asks([option for option in OPTIONS if not option.times])
def verify(json_to: IO[str] | None, **options: Any) -> None:
    """Verify the kernels of each SUITE without timing them.

    A SUITE is a name (`kernelmark list --suites`), a TOML file or one problem id.
    """
    _measure(Wanted(json=json_to), mode=Mode.VERIFY, **options)


class Wanted(NamedTuple):
    """What is written after the tables, and whether noise is a failure."""

    csv: Path | None = None
    json: IO[str] | None = None
    report: Path | None = None
    fail_noisy: bool = False


def _measure(
    wanted: Wanted,
    *,
    db: Path | None,
    suites: tuple[str, ...],
    name: str,
    resume: str | None = None,
    noisy_again: bool = False,
    tuned: str | None = None,
    shard: Any = None,
    executor: Path | None = None,
    start_timeout_s: float = 0.0,
    gpus: tuple[int, ...] | None = None,
    **options: Any,
) -> None:
    from kernelmark.bench.record.store import Store, default_store
    from kernelmark.bench.report.export import check_writable
    from kernelmark.bench.run.session import plan_of

    check_asked(suites, resume, name)
    with closing(Store(db or default_store(), create=resume is None)) as store:
        known = None if suites or resume is None else plan_of(store, resume)
        if wanted.csv is not None:
            check_writable(wanted.csv)
        asked = Asked(suites, options, name, resume, tuned, shard, known, noisy_again)
        if executor or gpus is not None or (known and (known.executor or known.gpus)):
            done = run_elsewhere(store, asked, Elsewhere(executor, start_timeout_s, gpus))
        else:
            done = _run_here(store, asked)
        (print_run if resume else print_end)(store, done.session.run_id)
        noisy = _write(store, done.session.run_id, done.registry, wanted)
    _exit(done.session, done.planned, done.finished, noisy)


def _run_here(store: Any, asked: Asked) -> Done:
    from kernelmark.bench.cli.progress import Display
    from kernelmark.bench.measure.lock import exclusive, held_run
    from kernelmark.bench.plan.case import case_count
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.run.asked import plan_asked
    from kernelmark.bench.run.pool import Workers
    from kernelmark.bench.run.session import Session, run_jobs

    plan = asked.known or plan_asked(asked.suites, asked.options)
    with Workers() as workers:
        workers.load(plan)
        registry = discover(plan.plugins, plan.timeout_s)
        plan, chosen, expanded = expanded_plan(plan, asked.tuned or plan.tuned, asked.shard or plan.shard, registry)
        planned = case_count(expanded, registry)
        display = Display(expanded, plan.processes, registry, None if asked.resume else table_style())
        workers.progress = display
        with exclusive(plan.devices, plan.share_gpu), workers:
            again = asked.resume, asked.noisy_again
            session = Session(store, chosen, plan, workers.run, *again, name=asked.name, planned=planned)
            click.echo(f"run {session.run_id}")
            with held_run(store.path, session.run_id, "start a run of your own"), display:
                finished = run_jobs(session, lambda: expanded, registry, plan, display.row, display)
    return Done(session, registry, planned, finished)


def _write(store: Any, run_id: str, registry: Any, wanted: Wanted) -> bool:
    """Write what is wanted of a run, and return whether its noise is a failure."""
    from kernelmark.bench.cli.report import write_folder
    from kernelmark.bench.report.export import write_file
    from kernelmark.bench.report.runs import summary_of, write_run

    if wanted.json is not None:
        write_run(store, run_id, wanted.json)
    if wanted.csv is not None:
        write_file(store, run_id, "csv", wanted.csv)
    if wanted.report is not None:
        click.echo(f"\npage: {write_folder(store, run_id, wanted.report, registry, pdf=False)}")
    return wanted.fail_noisy and summary_of(store, run_id).noisy > 0


def _exit(session: Any, planned: int, finished: bool, noisy: bool) -> NoReturn:
    done = session.tally.total()
    if not finished:
        if done < planned:
            click.echo(f"\n{done} of {planned} cases done; `kernelmark run --resume {session.run_id}`")
        sys.exit(INTERRUPTED)
    sys.exit(AGAINST if session.against or noisy else OK)


COMMANDS = (run, verify)
