"""The command `tune`."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import msgspec

from kernelmark.bench.cli import shared
from kernelmark.bench.cli.progress import Display, show_line
from kernelmark.bench.measure.lock import exclusive
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.options import ALL, BUDGET, STRATEGIES, TUNE_OPTIONS
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.signals import interruptible
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report import tuning as report
from kernelmark.bench.report.layout import paragraph
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.run.asked import plan_asked, suites_asked
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.tune import tuning as tuner
from kernelmark.bench.tune.search import Subject, subjects_of
from kernelmark.bench.tune.static import arch_here, rank, words
from kernelmark.bench.tune.tuned import TileFile, keep, opened


def _asks(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(TUNE_OPTIONS):
        function = shared.plan_option(option)(function)
    return shared.db_option(function)


@click.command()
@click.argument("kernel_id", metavar="KERNEL", shell_complete=shared.complete_kernels)
@click.argument("suite_name", metavar="PROBLEM|SUITE", shell_complete=shared.complete_suites)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Number of tiles to measure. [default: all if there are at most {ALL}, otherwise {BUDGET}]",
)
@click.option("--static", is_flag=True, help="Only compile the tiles of a CUDA kernel and rank them; nothing is timed.")
@click.option("--strategy", type=shared.Choice(STRATEGIES), help="How to search more tiles than the budget allows.")
@shared.value_option(
    "--tuned",
    "where",
    kind=str,
    metavar="FILE",
    default="auto",
    text="The file to save the tile in; auto: the file of this device, which `run --tuned auto` reads.",
)
@_asks
def tune(
    kernel_id: str,
    suite_name: str,
    budget: int | None,
    static: bool,
    strategy: str | None,
    where: str,
    db: Path | None,
    **options: Any,
) -> None:
    """Search the tiles of KERNEL for a faster one.

    The default tile is kept unless another is certainly faster. Tiles are measured in short jobs, each in turn with the
    default tile; then the best three race the default in fresh processes. After an interruption the same command
    continues. KERNEL@A=1 searches only tiles in which the tunable A is 1.
    """
    with ExitStack() as stack:
        workers = stack.enter_context(Workers())
        registry, suite, plan, subjects = _planned(workers, kernel_id, suite_name, static, options)
        if static:
            for subject in subjects:
                arch = arch_here(subject.kernel)
                click.echo(words(subject, rank(subject, arch, budget, plan.seed), arch))
            return
        file = opened(where, subjects[0].kernel.device)
        store = stack.enter_context(Store(db or default_store()))
        stack.enter_context(exclusive(plan.devices, plan.share_gpu))
        rig = tuner.Rig(store, registry, workers.run, stack.enter_context(interruptible()), _tell)
        try:
            _carry_out(tuner.Tuning(subjects, suite, plan, tuner.SearchOptions(strategy, budget, where), rig), file)
        except (tuner.Interrupted, KeyboardInterrupt):
            click.echo(shared.KEPT)
            raise SystemExit(shared.INTERRUPTED) from None
        except tuner.DefaultFailed as error:
            click.echo(one_line(f"kernelmark: {error}"), err=True)
            raise SystemExit(shared.AGAINST) from None


def _planned(
    workers: Workers, kernel_id: str, suite_name: str, static: bool, options: dict[str, Any]
) -> tuple[Registry, Suite, Plan, list[Subject]]:
    if options["threads"] and len(options["threads"]) > 1:
        given = ",".join(map(str, options["threads"]))
        raise UsageError(f"--threads {given}: expected one number of threads")
    plan = plan_asked([suite_name], {**options, "devices": "auto", "kernels": (), "isas": None})
    workers.load(plan)
    registry = discover(plan.plugins, plan.timeout_s)
    (suite,) = suites_asked(plan, registry)
    subjects = subjects_of(registry, kernel_id, suite, plan.seed, static)
    kernel = subjects[0].kernel
    return registry, suite, msgspec.structs.replace(plan, devices=(kernel.device,), kernels=(kernel.id,)), subjects


def _carry_out(tuning: tuner.Tuning, file: TileFile) -> None:
    run_id = tuning.session.run_id
    click.echo(f"run {run_id}")
    for subject, choice in zip(tuning.subjects, tuning.choices, strict=True):
        text = f"{subject.kernel.id} on {subject.problem.id}: {report.size_words(subject.space)}; search: {choice}"
        click.echo(paragraph(text, rest=""))
    with tuning.held(run_id):
        tuning.search()
        show_line("")
        print_search(tuning.rig.store, run_id)
        verdicts = tuning.race(lambda jobs, processes: Display(jobs, processes, tuning.rig.registry))
        for verdict in verdicts:
            keep(file, verdict.key, verdict.entry)
            tuner.log_adopted(tuning.rig.store, verdict)
        tuning.session.finish()  # the same command then starts a new tuning
    print_race(tuning.rig.store, verdicts[0].default.run_id)
    for reason in tuning.skipped:
        click.echo(one_line(f"kernelmark: {reason}; this problem was skipped"), err=True)
    if tuning.skipped:
        raise SystemExit(shared.AGAINST)


def print_search(store: Store, run_id: str) -> None:
    """Print the result of a search on each problem."""
    with store.snapshot():
        for searched in report.searches(RunData(store, run_id)):
            click.echo(f"\n{report.searched_words(searched)}")


def print_race(store: Store, run_id: str) -> None:
    """Print the decision of a race."""
    click.echo(f"\nrace: run {run_id}")
    with store.snapshot():
        raced = report.races(RunData(store, run_id))
    for each in raced:
        click.echo(f"\n{paragraph(report.sentence(each), rest='')}")
    if raced[0].tunes.overall:
        click.echo(f"\n{report.over_suite(raced)}\n\n{paragraph(report.overall_words(raced), rest='')}")


def _tell(screen: tuner.Screen) -> None:
    """Show the progress of the search: one changing line in a terminal, a line for each job in a pipe."""
    show_line(tuner.progress(screen))
    if not sys.stderr.isatty():
        click.echo(f"[{tuner.progress(screen)}]", err=True)
