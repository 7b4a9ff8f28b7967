"""The commands that measure: `run` and `verify`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bench.cli.options import AGAINST, INTERRUPTED, OK, db_option, plugin_option
from bench.cli.views import print_run
from bench.plan.errors import UsageError
from bench.plan.modes import TIMED, Mode


def _thread_counts(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    from bench.plan.case import thread_counts

    return None if value is None else thread_counts("--threads", value)


def _selection(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.argument("suites", nargs=-1, metavar="SUITE..."),
        click.option(
            "--kernels", multiple=True, metavar="GLOB", help="Only kernels whose whole id matches; may be repeated."
        ),
        click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True),
        click.option("--threads", metavar="N,..", callback=_thread_counts, help="CPU thread counts. [default: all]"),
        click.option(
            "--isa",
            metavar="SET,..",
            help="Instruction sets of the CPU, each in processes of its own: sse, avx, avx2, avx512. OpenBLAS, oneDNN,"
            " MKL, NumPy and Numba keep to them; kernels on other libraries (pyFFTW) run as without, though their rows"
            " carry the set. [default: what the libraries choose]",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the operands."),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=60.0,
            show_default=True,
            metavar="S",
            help="Seconds for one call of a kernel; set-up may take ten times as long.",
        ),
        click.option("--share-gpu", is_flag=True, help="Measure although another run is using the GPU."),
        click.option(
            "--launcher",
            type=click.Choice(["cuda-core", "pycuda"]),
            default="cuda-core",
            show_default=True,
            help="What launches hand-written CUDA kernels.",
        ),
        plugin_option,
        db_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@_selection
@click.option("--mode", type=click.Choice(TIMED), default=Mode.COLD.value, show_default=True)
@click.option("--csv", "csv_path", type=click.Path(path_type=Path, dir_okay=False), help="Write the run's rows here.")
@click.option(
    "--max-time",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds a case, in each process. [default: 2, or the suite's]",
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
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Fresh processes a case; from 2 on the intervals hold for the next process too, 5 are for publishing.",
)
@click.option(
    "--spread",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds at least from one of those processes to the next: a machine drifts for about a minute.",
)
@click.option("--resume", metavar="RUN", help="Go on with a run where it was left; without SUITE as it was asked for.")
def run(csv_path: Path | None, resume: str | None, **options: Any) -> None:
    """Verify and time the kernels of each SUITE: a name, a TOML file or one problem id."""
    _measure(csv_path, resume, **options)


@click.command()
@_selection
def verify(**options: Any) -> None:
    """Verify the kernels of each SUITE; nothing is timed."""
    _measure(None, None, mode=Mode.VERIFY, **options)


def _measure(csv_path: Path | None, resume: str | None, db: Path | None, **options: Any) -> None:
    from bench.measure.lock import exclusive, held
    from bench.plan.case import jobs
    from bench.plan.discovery import discover
    from bench.plan.suites import find_suite
    from bench.record.store import Store, default_store
    from bench.report.export import check_writable, write_file
    from bench.run.pool import Workers
    from bench.run.session import Session, plan_of

    store = Store(db or default_store(), create=resume is None)
    try:
        plan = _plan(**options) if options["suites"] or resume is None else plan_of(store, resume)
        registry = discover(plan.plugins)
        chosen = [find_suite(name, registry) for name in plan.suites]
        if csv_path is not None:
            check_writable(csv_path)
        if next(jobs(chosen, registry, plan), None) is None:
            where = " and ".join(plan.devices)
            raise UsageError(f"no kernel matches on {where}; `kernelmark list` names those that exist")
        with exclusive(plan.devices, plan.share_gpu), Workers() as workers:
            session = Session(store, chosen, plan, workers.run, resume)
            click.echo(f"run {session.run_id}")
            with held(f"run-{session.run_id}", "start a run of your own", once=True):
                finished = _with_progress(session, chosen, registry, plan)
        print_run(store, session.run_id)
        if csv_path is not None:
            write_file(store, session.run_id, "csv", csv_path)
    finally:
        store.close()
    if not finished:
        sys.exit(INTERRUPTED)
    sys.exit(AGAINST if session.against else OK)


def _plan(
    suites: tuple[str, ...],
    device: str,
    kernels: tuple[str, ...],
    threads: tuple[int, ...] | None,
    isa: str | None,
    plugins: tuple[str, ...],
    seed: int,
    launcher: str,
    timeout: float,
    share_gpu: bool,
    mode: str,
    ceilings: bool = True,
    max_time: float | None = None,
    rel_ci: float = 0.01,
    processes: int = 1,
    spread: float = 60.0,
) -> Any:
    from bench.measure.device import choose_devices, cpu_count
    from bench.measure.isa import choose_isas
    from bench.plan.case import Plan
    from bench.plan.suites import full_name

    if not suites:
        raise UsageError("no SUITE was named; `kernelmark list --suites` names those that exist")
    return Plan(
        devices=choose_devices(device),
        kernels=kernels,
        mode=Mode(mode),
        threads=threads or (cpu_count(),),
        isas=choose_isas(isa),
        plugins=tuple(str(Path(plugin).absolute()) for plugin in plugins),
        seed=seed,
        max_time_s=max_time,
        rel_ci=rel_ci,
        launcher=launcher,
        ceilings=ceilings,
        timeout_s=timeout,
        processes=processes,
        spread_s=spread,
        suites=tuple(map(full_name, suites)),
        share_gpu=share_gpu,
    )


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
