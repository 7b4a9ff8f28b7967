"""The commands that draw conclusions from runs: `report`, `claims`, `scaling`, `trend`."""

import re
from pathlib import Path
from typing import IO

import click

from kernelmark.bench.claims import catalog, prices, views
from kernelmark.bench.claims.answer import claims_rows
from kernelmark.bench.claims.experiments import ExperimentRuns, measure_missing
from kernelmark.bench.claims.views import statements, write_files
from kernelmark.bench.cli import shared
from kernelmark.bench.cli.output import drawn_in, reading
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.numbers import DECIMAL
from kernelmark.bench.plan.options import per_cent
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.report import trend as trends
from kernelmark.bench.report.export import check_writable, write_text
from kernelmark.bench.report.figures.scaling import scaling_figures
from kernelmark.bench.report.layout import paragraph
from kernelmark.bench.report.page import write_report
from kernelmark.bench.report.runs import summary_of
from kernelmark.bench.report.scaling import ScalingQuestion, computed, render, write_json


@click.command()
@shared.run_argument
@shared.folder_option(
    "--out",
    text="The folder to write: index.html, figures/, tables/, method.txt, environment.json.",
    default=Path("kernelmark-report"),
)
@shared.plugin_option
@shared.db_option
def report(run_id: str | None, out: Path, plugins: tuple[str, ...], db: Path | None) -> None:
    """Write a page of a run, with figures and tables for a paper.

    The page opens without a network. Without RUN, it shows the latest run.
    """
    with reading(db) as store:
        chosen, registry = store.find_run(run_id)["run_id"], discover(plugins)
        run = summary_of(store, chosen)
        click.echo("\n".join(filter(None, (run.title, run.partial(store.path)))))
        click.echo(write_folder(store, chosen, out, registry))


def write_folder(store: Store, run_id: str, out: Path, registry: Registry, pdf: bool = True) -> Path:
    """Write the page of a run with its figures and tables, and return its path. pdf: also write the figures as PDF."""
    with store.snapshot():
        answers = claims_rows(store, [run_id], registry)
    page = write_report(store, run_id, out, registry, statements(answers), pdf)
    write_files(out / "tables", answers, f"run {run_id}")
    return page


@click.command()
@shared.run_argument
@shared.json_option
@shared.file_option("--csv", "csv_path", text="Also write each number as a row of this CSV file.")
@shared.file_option(
    "--prices",
    "prices_path",
    text="TOML file with the price of an hour of each device. [default: an example with published prices]",
)
@click.option("--only", metavar="ID,..", help="Test only these claims.")
@shared.db_option
def claims(
    run_id: str | None,
    json_to: IO[str] | None,
    csv_path: Path | None,
    prices_path: Path | None,
    only: str | None,
    db: Path | None,
) -> None:
    """Test published claims about performance against measured rows.

    Each claim is confirmed, refuted or neither. With RUN, only the rows of that run count. Without RUN, the latest cold
    rows of this machine count; missing rows are measured first, which takes about ten minutes.
    """
    wanted = tuple(name.strip() for name in only.split(",")) if only is not None else ()
    chosen, paid, registry = catalog.claims(wanted), prices.load_prices(prices_path), discover()
    if csv_path is not None:
        check_writable(csv_path)
    with Store(db or default_store(), create=run_id is None) as store:
        if run_id is None:
            try:
                evidence = measure_missing(store, chosen, registry, lambda line: click.echo(paragraph(line), err=True))
            except KeyboardInterrupt:
                click.echo(shared.KEPT, err=True)
                raise SystemExit(shared.INTERRUPTED) from None
        else:
            evidence = ExperimentRuns([store.find_run(run_id)["run_id"]])
        if prices_path is not None:
            prices.check_known(paid, prices_path, store, evidence.run_ids)
        answers = claims_rows(store, evidence.run_ids, registry, paid, wanted, here=run_id is None)
    if json_to is not None:
        views.write_json(answers, json_to)
    else:
        click.echo(views.heading(answers, evidence.run_ids, run_id is None) + "\n\n" + views.render(answers))
    if csv_path is not None:
        write_text(csv_path, lambda out: views.write_csv(answers, out))
    if not evidence.finished:
        raise SystemExit(shared.INTERRUPTED)
    raise SystemExit(shared.AGAINST if evidence.against else shared.OK)


MOST_WORKERS = 10**6
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "Mbit": 1e6 / 8, "Gbit": 1e9 / 8, "Tbit": 1e12 / 8}


def _workers(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if all(re.fullmatch("[0-9]{1,7}", word) and 1 <= int(word) <= MOST_WORKERS for word in words):
        return tuple(sorted({int(word) for word in words}))
    raise ValueError(f"is {text!r}, expected integers from 1 to {MOST_WORKERS}, separated by commas, such as 1,2,4,96")


def _rate(text: str) -> float:
    match = re.fullmatch(rf"({DECIMAL})({'|'.join(_UNITS)})/s", text)
    rate = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 1 <= rate <= 1e18:
        raise ValueError(f"is {text!r}, expected a rate from 1 B/s to 1 EB/s, such as 8GB/s or 10Gbit/s")
    return rate


@click.command()
@click.argument("network")
@shared.run_argument
@shared.value_option(
    "--workers",
    kind=shared.Read(_workers),
    metavar="N,..",
    default="1,2,4,8,16,96",
    text="Numbers of workers; each worker processes its own batch.",
)
@shared.value_option(
    "--link",
    kind=shared.Read(_rate),
    metavar="RATE",
    required=True,
    text="The rate of each worker's link in each direction, such as 8GB/s or 10Gbit/s.",
)
@click.option(
    "--aggregation",
    metavar="RUN",
    help="The run with the times of aggregations. [default: the latest run that has them]",
)
@shared.folder_option("--figures", text="Also draw the speedups to this folder, as SVG and PDF.")
@shared.json_option
@shared.plugin_option
@shared.db_option
def scaling(
    network: str,
    run_id: str | None,
    workers: tuple[int, ...],
    link: float,
    aggregation: str | None,
    figures: Path | None,
    json_to: IO[str] | None,
    plugins: tuple[str, ...],
    db: Path | None,
) -> None:
    """Compute the speedup of training NETWORK with data parallelism.

    Prints a speedup for each strategy of aggregation. Nothing is measured: RUN has the times of the network's layers,
    the run of --aggregation has the times of aggregations, and --link states the rate of a link.
    """
    result = computed(reading(db), discover(plugins), ScalingQuestion(network, workers, link), run_id, aggregation)
    if json_to is not None:
        write_json(result, json_to)
    else:
        click.echo(render(result))
    if figures is not None:
        click.echo("\n" + drawn_in(figures, [scaling_figures(result)]))


@click.command()
@click.argument("subject", metavar="CASE|SUITE", shell_complete=shared.complete_suites)
@shared.value_option(
    "--margin",
    kind=shared.Read(per_cent),
    metavar="P%",
    default="2%",
    text="Show steps (changes between runs) that are larger than this.",
)
@shared.select_options
@shared.json_option
@shared.plugin_option
@shared.db_option
def trend(
    subject: str,
    margin: float,
    selection: Selection,
    json_to: IO[str] | None,
    plugins: tuple[str, ...],
    db: Path | None,
) -> None:
    """Show how the times of a case or SUITE changed over the runs.

    CASE is a part of a row's name: kernel, problem, mode and threads. A step is a statistically significant change
    (corrected for the number of tests) between two runs of several processes. Each step is printed with the recorded
    facts that differ between the two runs: commit, versions, tile.
    """
    try:
        problems, text = [entry.problem.id for entry in find_suite(subject, discover(plugins)).entries()], ""
    except UsageError:
        if subject.endswith(".toml"):
            raise
        problems, text = [], subject
    with reading(db, selection) as store:
        result = trends.trend(store, subject, text, problems, margin)
        if not result.cases and not result.single:
            raise UsageError(f"{subject}: {store.path} has no timed row of it; `kernelmark runs` lists the runs")
    if json_to is not None:
        trends.write_json(result, json_to)
    else:
        click.echo("\n\n".join(trends.page(result)))
