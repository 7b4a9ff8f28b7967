"""`kernelmark scaling`."""

import re
from pathlib import Path
from typing import IO

import click

from kernelmark.bench.cli.options import Read, db_option, json_option, plugin_option, run_argument

MOST_WORKERS = 10**6
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "Mbit": 1e6 / 8, "Gbit": 1e9 / 8, "Tbit": 1e12 / 8}


def _workers(text: str) -> tuple[int, ...]:
    """`1,2,4` as integers, each once, ascending. Raises ValueError."""
    words = text.split(",")
    if all(re.fullmatch("[0-9]{1,7}", word) and 1 <= int(word) <= MOST_WORKERS for word in words):
        return tuple(sorted({int(word) for word in words}))
    raise ValueError(f"is {text!r}, expected integers from 1 to {MOST_WORKERS}, separated by commas, such as 1,2,4,96")


def _rate(text: str) -> float:
    """`8GB/s` or `10Gbit/s` as bytes a second. Raises ValueError."""
    from kernelmark.bench.plan.numbers import DECIMAL

    found = re.fullmatch(rf"({DECIMAL})({'|'.join(_UNITS)})/s", text)
    rate = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 1 <= rate <= 1e18:
        raise ValueError(f"is {text!r}, expected a rate from 1 B/s to 1 EB/s, such as 8GB/s or 10Gbit/s")
    return rate


@click.command()
@click.argument("network")
@run_argument
@click.option(
    "--workers",
    type=Read(_workers),
    default="1,2,4,8,16,96",
    show_default=True,
    metavar="N,..",
    help="Numbers of workers, each of which has a batch of its own.",
)
@click.option(
    "--link",
    type=Read(_rate),
    required=True,
    metavar="RATE",
    help="The rate of each worker's link in each direction, such as 8GB/s or 10Gbit/s.",
)
@click.option("--aggregation", metavar="RUN", help="The run that has the aggregations. [default: the latest that fits]")
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also draw the speedups to this folder, as SVG and PDF.",
)
@json_option
@plugin_option
@db_option
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
    """Compute what data parallelism of NETWORK would gain.

    Computes a speedup for each strategy of aggregation from the measured times of its layers in RUN, measured times of
    aggregations, and the stated rate of a link. Nothing is measured.
    """
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.record.store import Store, default_store
    from kernelmark.bench.report.scaling import Asked, computed
    from kernelmark.bench.report.scaling_view import render, write_json

    store = Store(db or default_store(), create=False)
    found = computed(store, discover(plugins), Asked(network, workers, link), run_id, aggregation)
    if json_to is not None:
        write_json(found, json_to)
    else:
        click.echo(render(found))
    if figures is not None:
        click.echo("\n" + _draw(found, figures))


def _draw(found: object, folder: Path) -> str:
    """Write the figures, and return where they are or why there is none. Raises UsageError."""
    from kernelmark.bench.plan.errors import UsageError
    from kernelmark.bench.report.figures import draw
    from kernelmark.bench.report.figures.scaling import scaling_figures

    kind = scaling_figures(found)  # type: ignore[arg-type]  # what the model found; importing its type takes long
    try:
        folder.mkdir(parents=True, exist_ok=True)
        drawn = [str(folder / f"{figure.name}.svg") for figure in draw([kind], folder)]
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}; --figures DIR names another") from None
    return "\n".join([*drawn, *filter(None, [kind.omitted])])


COMMANDS = (scaling,)
