"""The command `kernelmark`: reads arguments, prints, sets the exit status; the work is done elsewhere."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bench.plan.errors import Unsupported, UsageError

OK, AGAINST, USAGE, INTERRUPTED = 0, 1, 2, 130


def _thread_counts(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """`1,2,4` as integers above 0, each once. Raises click.BadParameter."""
    if value is None:
        return None
    counts = [text.strip() for text in value.split(",")]
    if not all(text.isdigit() and int(text) > 0 for text in counts):
        raise click.BadParameter(f"is {value!r}, expected integers above 0, separated by commas")
    return tuple(dict.fromkeys(int(text) for text in counts))


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="kernelmark")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Microbenchmarks of GEMM, transposition and convolution kernels: proved right, then timed, with an interval."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _db(function: Callable[..., Any]) -> Callable[..., Any]:
    help_text = "The store to read or write. [default: $XDG_DATA_HOME/kernelmark/results.db]"
    return click.option("--db", type=click.Path(path_type=Path, dir_okay=False), help=help_text)(function)


def _plugins(function: Callable[..., Any]) -> Callable[..., Any]:
    help_text = "A Python file that registers kernels or operations; may be repeated."
    return click.option("--plugin", "plugins", multiple=True, metavar="FILE.py", help=help_text)(function)


def _selection(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.argument("suites", nargs=-1, required=True, metavar="SUITE..."),
        click.option(
            "--kernels", multiple=True, metavar="GLOB", help="Only kernels whose whole id matches; may be repeated."
        ),
        click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True),
        click.option("--threads", metavar="N,..", callback=_thread_counts, help="CPU thread counts. [default: all]"),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the operands."),
        click.option(
            "--launcher",
            type=click.Choice(["cuda-core", "pycuda"]),
            default="cuda-core",
            show_default=True,
            help="What launches hand-written CUDA kernels.",
        ),
        _plugins,
        _db,
    )
    for option in reversed(options):
        function = option(function)
    return function


@cli.command("list")
@click.option("--op", help="Only kernels of this operation.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Only kernels of this device.")
@click.option("--suites", is_flag=True, help="List suites instead of kernels.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_plugins
def list_command(op: str | None, device: str | None, suites: bool, as_json: bool, plugins: tuple[str, ...]) -> None:
    """Kernels and suites, and whether they can run here."""
    from bench.plan.discovery import discover
    from bench.report import listing

    registry = discover(plugins)
    if op is not None:
        registry.problem_class(op, "--op")
    rows = listing.suites(registry) if suites else listing.kernels(registry, op, device)
    click.echo(listing.render(rows, as_json))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_db
def doctor(as_json: bool, db: Path | None) -> None:
    """What is usable here, what is not and why, and the command that mends it; ceilings of the latest run."""
    from bench.report import doctor as diagnosis
    from bench.runner import default_store

    click.echo(diagnosis.render(diagnosis.examine(db or default_store()), as_json))


@cli.command()
@click.option("--kernels", default="*", metavar="GLOB", show_default=True, help="Only kernels whose whole id matches.")
@click.option("--arch", "archs", metavar="sm_90a,..", help="Architectures. [default: all that kernels are built for]")
@click.option("--format", "style", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@_plugins
def inspect(kernels: str, archs: str | None, style: str, plugins: tuple[str, ...]) -> None:
    """Registers, shared memory, spills and occupancy of hand-written kernels; needs no GPU."""
    from bench.measure.compile import ARCHS
    from bench.plan.discovery import discover
    from bench.report.inspect import inspect_rows, render

    rows = inspect_rows(discover(plugins), kernels, archs.split(",") if archs else ARCHS)
    click.echo(render(rows, style), nl=style != "csv")


@cli.command()
@_selection
@click.option("--mode", type=click.Choice(["cold", "hot", "graph"]), default="cold", show_default=True)
@click.option("--csv", "csv_path", type=click.Path(path_type=Path, dir_okay=False), help="Write the run's rows here.")
@click.option(
    "--max-time", type=click.FloatRange(min=0, min_open=True), help="Seconds a case. [default: 2, or the suite's]"
)
@click.option(
    "--rel-ci",
    type=click.FloatRange(min=0),
    default=0.01,
    show_default=True,
    help="Stop when the 95 % interval, over the median, is this wide.",
)
@click.option(
    "--ceilings/--no-ceilings", default=True, show_default=True, help="Measure this machine's limits beside the rows."
)
def run(csv_path: Path | None, **options: Any) -> None:
    """Verify and time the kernels of each SUITE: a name, a TOML file or one problem id."""
    _measure(csv_path, timed=True, **options)


@cli.command()
@_selection
def verify(**options: Any) -> None:
    """Verify the kernels of each SUITE; nothing is timed."""
    _measure(None, timed=False, **options)


def _measure(csv_path: Path | None, suites: tuple[str, ...], db: Path | None, **options: Any) -> None:
    from bench import runner
    from bench.plan.case import jobs
    from bench.plan.discovery import discover
    from bench.plan.suites import find_suite
    from bench.record.store import Store
    from bench.report.export import check_writable, write_file

    registry = discover(options["plugins"])
    plan = _plan(**options)
    chosen = [find_suite(name, registry) for name in suites]
    if csv_path is not None:
        check_writable(csv_path)
    if next(jobs(chosen, registry, plan), None) is None:
        raise UsageError(f"no kernel matches on {' and '.join(plan.devices)}; `kernelmark list` names those that exist")
    store = Store(db or runner.default_store())
    try:
        session = runner.Session(store, chosen, plan)
        click.echo(f"run {session.run_id}")
        finished = _with_progress(session, chosen, registry, plan)
        _show(store, session.run_id)
        if csv_path is not None:
            write_file(store, session.run_id, "csv", csv_path)
    finally:
        store.close()
    if not finished:
        sys.exit(INTERRUPTED)
    sys.exit(AGAINST if session.against else OK)


def _plan(
    device: str,
    kernels: tuple[str, ...],
    threads: tuple[int, ...] | None,
    plugins: tuple[str, ...],
    seed: int,
    launcher: str,
    timed: bool,
    mode: Any = "cold",
    ceilings: bool = True,
    max_time: float | None = None,
    rel_ci: float = 0.01,
) -> Any:
    from bench.measure.device import choose_devices, cpu_count
    from bench.plan.case import Plan

    return Plan(
        devices=choose_devices(device),
        kernels=kernels,
        mode=mode,
        threads=threads or (cpu_count(),),
        plugins=plugins,
        seed=seed,
        max_time_s=max_time,
        rel_ci=rel_ci,
        launcher=launcher,
        timed=timed,
        ceilings=ceilings,
    )


def _with_progress(session: Any, suites: list[Any], registry: Any, plan: Any) -> bool:
    """Run the suites, with a bar on a terminal and nothing in a pipe."""
    from tqdm import tqdm

    from bench import runner

    with tqdm(unit=" case", disable=not sys.stderr.isatty(), leave=False) as bar:

        def notify(result: Any) -> None:
            bar.set_postfix_str(f"{result.kernel} {result.problem.partition('/')[2]}", refresh=False)
            bar.update()

        return runner.run_suites(session, suites, registry, plan, notify)


@cli.command()
@click.argument("run_id", required=False, metavar="[RUN]")
@click.option(
    "--by",
    type=click.Choice(["problem", "network"]),
    default="problem",
    show_default=True,
    help="A table for each problem, or seconds a batch of whole networks.",
)
@_db
def show(run_id: str | None, by: str, db: Path | None) -> None:
    """The tables of a run; the latest if RUN is left out."""
    from bench.record.store import Store
    from bench.report.networks import network_table
    from bench.runner import default_store

    store = Store(db or default_store(), create=False)
    found = store.find_run(run_id)["run_id"]
    click.echo(f"run {found}")
    if by == "problem":
        _show(store, found)
    else:
        click.echo("\n" + network_table(store.layers(found), [result for result, _ in store.results(found)]))


@cli.command()
@click.argument("suite_name", metavar="SUITE")
@click.argument("run_id", required=False, metavar="[RUN]")
@click.option("--csv", "csv_path", type=click.Path(path_type=Path, dir_okay=False), help="Write the table here too.")
@_plugins
@_db
def crossover(
    suite_name: str, run_id: str | None, csv_path: Path | None, plugins: tuple[str, ...], db: Path | None
) -> None:
    """The fastest kernel of each problem of SUITE, and where another takes over, from the rows of a run.

    Without RUN, of the latest run that has a time for one of its problems.
    """
    from bench.plan.discovery import discover
    from bench.plan.suites import find_suite
    from bench.record.store import Store
    from bench.report.crossover import render, write_csv
    from bench.report.export import write_text
    from bench.report.standings import find_run, standings
    from bench.runner import default_store

    suite, store = find_suite(suite_name, discover(plugins)), Store(db or default_store(), create=False)
    chosen = find_run(suite, store, run_id)
    found = standings(suite, store, chosen)
    click.echo(f"run {chosen}\n\n{render(suite, found)}")
    if csv_path is not None:
        write_text(csv_path, lambda out: write_csv(suite, chosen, found, out))


def _show(store: Any, run_id: str) -> None:
    from bench.report.tables import ceiling_table, run_table, summary

    rows, ceilings = [result for result, _ in store.results(run_id)], store.ceilings(run_id)
    click.echo(f"\n{run_table(rows)}" if rows else "\nno rows")
    if ceilings:
        click.echo(f"\n{ceiling_table(ceilings)}")
    if rows:
        click.echo(f"\n{summary(rows)}")


@cli.command()
@click.argument("run_id", required=False, metavar="[RUN]")
@click.option(
    "--format", "style", type=click.Choice(["csv", "json", "markdown", "latex"]), default="csv", show_default=True
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="[default: standard output]")
@_db
def export(run_id: str | None, style: str, output: Path | None, db: Path | None) -> None:
    """The rows of a run for other programs and for papers; the latest run if RUN is left out."""
    from bench.record.store import Store
    from bench.report.export import WRITERS, check_writable, write_file
    from bench.runner import default_store

    store = Store(db or default_store(), create=False)
    found = store.find_run(run_id)["run_id"]
    if output is None:
        WRITERS[style](store, found, sys.stdout)
    else:
        check_writable(output)
        write_file(store, found, style, output)


def main() -> None:
    """Entry point: every complaint is one line on standard error and exit status 2."""
    try:
        cli.main(standalone_mode=False)
    except (UsageError, Unsupported) as error:
        _complain(str(error))
    except click.ClickException as error:
        _complain(error.format_message().replace("\n", " "))
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, as `| head` does
        sys.exit(OK)


def _complain(text: str) -> None:
    click.echo(f"kernelmark: {text}", err=True)
    sys.exit(USAGE)
