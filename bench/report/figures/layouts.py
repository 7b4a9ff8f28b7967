"""Heat map of a matrix product: storage layouts x kernels."""

from functools import partial
from statistics import geometric_mean

from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Contest, grouped
from kernelmark.bench.report.figures import style
from kernelmark.bench.report.format import digits, figure_names, flop_unit
from kernelmark.bench.report.noise import marked
from kernelmark.bench.report.run_data import RunData, sizes, work

MOST, MOST_KERNELS = 2, 16
#: The rows of a matrix product of one size, by kernel and layout.
Cells = dict[tuple[str, str], Result]


def layout_maps(data: RunData) -> style.Kind:
    """Return a figure for each product size and setting with at least two layouts, those with the most cells first."""
    by_product = grouped((c for c in data.contests if c.op == "gemm"), lambda c: (_without_layout(c), c.setting))
    several = [contests for contests in by_product.values() if len({c.fastest.layout for c in contests}) > 1]
    maps = [(contests[0], {(r.kernel, r.layout): r for c in contests for r in c.ranked}) for contests in several]
    maps.sort(key=lambda pair: (-len(pair[1]), -work(pair[0].fastest)))
    figures = [_figure(*pair) for pair in maps]
    return style.kind("Layouts x kernels", figures, "no product was measured in two layouts", MOST)


def _without_layout(c: Contest) -> str:
    return c.problem.replace(f"/{c.fastest.layout}", "", 1)


def _figure(first: Contest, cells: Cells) -> style.Figure:
    by_kernel = grouped(cells.values(), lambda r: r.kernel)
    ranked = sorted(by_kernel, key=lambda k: -geometric_mean(r.gflop_per_s or 0.0 for r in by_kernel[k]))
    kernels = ranked[:MOST_KERNELS]
    shown = f" The {len(kernels)} fastest of {len(ranked)} kernels." * (len(kernels) < len(ranked))
    device, _, threads, mode, _, isa, _ = first.setting
    unit, _ = flop_unit(r.gflop_per_s for r in cells.values())
    return style.Figure(
        style.file_name("layouts", _without_layout(first), device, f"t{threads}", mode, isa),
        f"Layouts x kernels: gemm {sizes(first.problem)}",
        f"{first.setting.title}. {unit}; op_A(A) op_B(B), row-major. A dash: no time in this layout. ~: measured "
        f"under noise.{shown}",
        partial(_draw, cells, kernels),
    )


def _draw(cells: Cells, kernels: list[str]) -> style.Drawing:
    import numpy as np

    figure, axes = style.panel(16 + 4.6 * len(kernels))
    name, unit = flop_unit(r.gflop_per_s for r in cells.values())
    layouts = sorted({layout for _, layout in cells})
    rows = [[cells.get((kernel, layout)) for layout in layouts] for kernel in kernels]
    values = np.array([[(r.gflop_per_s or 0.0) if r else np.nan for r in line] for line in rows]) / unit
    image = axes.imshow(values, cmap="cividis", aspect="auto", vmin=0)
    middle = np.nanmax(values) / 2
    for (i, j), value in np.ndenumerate(values):
        r = rows[i][j]
        colour = "white" if r and value < middle else "black" if r else style.INK
        axes.text(j, i, marked(digits(value), r) if r else "-", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(layouts)), layouts)
    axes.set_yticks(range(len(kernels)), figure_names(kernels).values())
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.08)
    bar.set_label(name)
    bar.outline.set_visible(False)
    return figure
