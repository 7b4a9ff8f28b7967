"""The commands that measure: `run` and `verify`."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import click

from bench.cli import completion
from bench.cli.options import AGAINST, INTERRUPTED, OK, db_option, file_option, json_option, name_option, plan_option
from bench.cli.views import print_run
from bench.plan.errors import UsageError
from bench.plan.modes import Mode
from bench.plan.options import OPTIONS, Option


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
@file_option("--csv", "csv_path", text="Write the run's rows here.")
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=completion.runs,
    help="Go on with a run where it was left; without SUITE as it was asked for.",
)
def run(csv_path: Path | None, resume: str | None, **options: Any) -> None:
    """Verify and time the kernels of each SUITE: a name, a TOML file or one problem id."""
    _measure(csv_path, resume, **options)


@click.command()
@_asks([option for option in OPTIONS if not option.times])
def verify(**options: Any) -> None:
    """Verify the kernels of each SUITE; nothing is timed."""
    _measure(None, None, mode=Mode.VERIFY, **options)


def _measure(
    csv_path: Path | None,
    resume: str | None,
    db: Path | None,
    suites: tuple[str, ...],
    name: str,
    json_to: IO[str] | None,
    **options: Any,
) -> None:
    from bench.measure.lock import exclusive, held
    from bench.plan.case import case_count
    from bench.plan.discovery import discover
    from bench.plan.suites import find_suite
    from bench.record.store import Store, default_store
    from bench.report.export import check_writable, write_file
    from bench.report.run_json import write_run
    from bench.run.asked import plan_asked
    from bench.run.pool import Workers
    from bench.run.resume import plan_of
    from bench.run.session import Session

    _check(suites, resume, name)
    store = Store(db or default_store(), create=resume is None)
    try:
        plan = plan_asked(suites, options) if suites or resume is None else plan_of(store, resume)
        registry = discover(plan.plugins)
        chosen = [find_suite(name, registry) for name in plan.suites]
        if csv_path is not None:
            check_writable(csv_path)
        planned = case_count(chosen, registry, plan)
        if not planned:
            raise UsageError(f"no kernel matches on {' and '.join(plan.devices)}; `kernelmark list` names all")
        with exclusive(plan.devices, plan.share_gpu), Workers() as workers:
            session = Session(store, chosen, plan, workers.run, resume, name=name, planned=planned)
            click.echo(f"run {session.run_id}")
            with held(f"run-{session.run_id}", "start a run of your own", once=True):
                finished = _with_progress(session, chosen, registry, plan)
        print_run(store, session.run_id)
        if json_to is not None:
            write_run(store, session.run_id, json_to)
        if csv_path is not None:
            write_file(store, session.run_id, "csv", csv_path)
    finally:
        store.close()
    _exit(session, planned, finished)


def _check(suites: tuple[str, ...], resume: str | None, name: str) -> None:
    if not suites and resume is None:
        raise UsageError("no SUITE was named; `kernelmark list --suites` names those that exist")
    if name and resume is not None:
        raise UsageError(f"--name {name}: a run that goes on keeps its name; leave the option out")


def _exit(session: Any, planned: int, finished: bool) -> NoReturn:
    done = session.tally.total()
    if not finished:
        if done < planned:
            click.echo(f"\n{done} of {planned} cases done; `kernelmark run --resume {session.run_id}`")
        sys.exit(INTERRUPTED)
    sys.exit(AGAINST if session.against else OK)


def _with_progress(session: Any, suites: list[Any], registry: Any, plan: Any) -> bool:
    """Run the suites, with a bar on a terminal and nothing in a pipe."""
    from tqdm import tqdm

    from bench.run.session import run_suites

    with tqdm(unit=" case", disable=not sys.stderr.isatty(), leave=False) as bar:

        def progress(text: str) -> None:
            bar.set_postfix_str(text)

        def notify(result: Any) -> None:
            bar.set_postfix_str(f"{result.kernel} {result.problem.partition('/')[2]}", refresh=False)
            bar.update()

        return run_suites(session, suites, registry, plan, notify, progress)


COMMANDS = (run, verify)
