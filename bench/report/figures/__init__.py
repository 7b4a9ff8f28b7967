"""Figures of a run, for a paper and for the page, as SVG and PDF."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from warnings import catch_warnings, filterwarnings

from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.report.figures import (
    aggregation,
    crossover,
    heat,
    layouts,
    rates,
    roofline,
    samples,
    scaling,
    speedups,
    style,
    threads,
    trends,
    tunables,
    variants,
    winners,
)
from kernelmark.bench.report.figures.style import Kind
from kernelmark.bench.report.run_data import RunData


class Drawn(NamedTuple):
    """A figure that was written to disk. svg: the text of its SVG file."""

    name: str
    title: str
    caption: str
    svg: str
    pdf: bool = True


def kinds(data: RunData, registry: Registry | None = None) -> list[Kind]:
    """Return the kinds of figures, each with a note on figures left out. registry: where to find the run's suites."""
    looks = style.looks(r.kernel for r in data.timed)
    tiles = tunables.tunables(data) if data.tunes else heat.heat_maps(data)  # one column per tile would not fit a page
    return [
        speedups.speedups(data),
        tiles,
        roofline.rooflines(data, looks),
        rates.rates(data, looks),
        variants.ratio_lines(data, looks),
        layouts.layout_maps(data),
        threads.thread_scaling(data, looks),
        threads.gains_over_size(data, looks),
        crossover.crossover_maps(data, registry),
        winners.winner_maps(data, looks),
        aggregation.aggregations(data, registry),
        scaling.scaling_of_run(data, registry),
        trends.trends(data, looks),
        samples.distributions(data, looks),
    ]


def first(kinds: Sequence[Kind], most: int) -> list[Kind]:
    """Return the kinds with at most `most` figures in total: the first of each kind, then the second of each."""
    places = sorted((rank, at) for at, kind in enumerate(kinds) for rank in range(len(kind.figures)))[:most]
    counts = Counter(at for _, at in places)
    return [kind._replace(figures=kind.figures[: counts[at]]) for at, kind in enumerate(kinds)]


def draw(kinds: Sequence[Kind], folder: Path, pdf: bool = True) -> Iterator[Drawn]:
    """Write each figure as `NAME.svg` and, if wanted, `NAME.pdf`; the same data give the same bytes."""
    from matplotlib import rc_context

    names: Counter[str] = Counter()
    for figure in (figure for kind in kinds for figure in kind.figures):
        names[figure.name] += 1
        name = figure.name + (f"-{names[figure.name]}" if names[figure.name] > 1 else "")
        with rc_context(style.RC), catch_warnings():
            filterwarnings("ignore", r"Glyph (\d\d?|1[2-5]\d) ")  # control characters in foreign names
            svg = style.save(figure.draw(), folder / name, pdf)
        yield Drawn(name, figure.title, figure.caption, svg, pdf)
