"""Heat map of a matrix product: storage layouts x kernels."""

from functools import partial
from statistics import geometric_mean
from typing import NamedTuple

from kernelmark.bench.report.contest import Contest, grouped
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import digits, figure_names, flop_unit
from kernelmark.bench.report.noise import MARK, is_noisy
from kernelmark.bench.report.run_data import RunData, sizes, work

MOST, MOST_KERNELS = 2, 16


class LayoutMap(NamedTuple):
    """The GFLOP/s of each (kernel, layout) for a matrix product of one size."""

    contests: list[Contest]
    layouts: list[str]
    kernels: list[str]
    rates: dict[tuple[str, str], float]
    noisy: set[tuple[str, str]]

    @property
    def unit(self) -> tuple[str, float]:
        return flop_unit(self.rates.values())


def layout_maps(data: RunData) -> style.Kind:
    """Return a figure for each product size and setting with at least two layouts, those with the most cells first."""
    by_product = grouped((c for c in data.contests if c.op == "gemm"), lambda c: (_without_layout(c), c.setting))
    maps = [_map(contests) for contests in by_product.values() if len({c.fastest.layout for c in contests}) > 1]
    maps.sort(key=lambda m: (-len(m.rates), -work(m.contests[0].fastest)))
    return style.kind("Layouts x kernels", [_figure(m) for m in maps], "no product was measured in two layouts", MOST)


def _without_layout(c: Contest) -> str:
    return c.problem.replace(f"/{c.fastest.layout}", "", 1)


def _map(contests: list[Contest]) -> LayoutMap:
    rates = {(r.kernel, r.layout): r.gflop_per_s or 0.0 for c in contests for r in c.ranked}
    by_kernel = grouped(rates.items(), lambda item: item[0][0])
    kernels = sorted(by_kernel, key=lambda k: -geometric_mean(rate for _, rate in by_kernel[k]))[:MOST_KERNELS]
    noisy = {(r.kernel, r.layout) for c in contests for r in c.ranked if is_noisy(r)}
    return LayoutMap(contests, sorted({layout for _, layout in rates}), kernels, rates, noisy)


def _figure(m: LayoutMap) -> style.Figure:
    first = m.contests[0]
    total = len({kernel for kernel, _ in m.rates})
    shown = f" The {len(m.kernels)} fastest of {total} kernels." * (len(m.kernels) < total)
    size = sizes(first.problem)
    device, _, threads, mode, _, isa, _ = first.setting
    return style.Figure(
        style.file_name("layouts", _without_layout(first), device, f"t{threads}", mode, isa),
        f"Layouts x kernels: gemm {size}",
        f"{first.setting.title}. {m.unit[0]}; op_A(A) op_B(B), row-major. A dash: no time in this layout. ~: measured "
        f"under noise.{shown}",
        partial(_draw, m),
    )


def _draw(m: LayoutMap) -> style.Drawing:
    import numpy as np

    figure, axes = style.panel(16 + 4.6 * len(m.kernels))
    name, unit = m.unit
    values = np.array([[m.rates.get((kernel, layout), np.nan) for layout in m.layouts] for kernel in m.kernels]) / unit
    image = axes.imshow(values, cmap="cividis", aspect="auto", vmin=0)
    middle = np.nanmax(values) / 2
    for (i, j), value in np.ndenumerate(values):
        known = bool(np.isfinite(value))
        colour = "white" if known and value < middle else "black" if known else style.INK
        mark = MARK * ((m.kernels[i], m.layouts[j]) in m.noisy)
        axes.text(j, i, f"{mark}{digits(value)}" if known else "-", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(m.layouts)), m.layouts)
    axes.set_yticks(range(len(m.kernels)), figure_names(m.kernels).values())
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.08)
    bar.set_label(name)
    bar.outline.set_visible(False)
    return figure
