"""Set up direct convolution: a launch that pads images with zeros, and the launch of the sums."""

from typing import Any

import numpy as np

from kernelmark import Array, Launch
from kernelmark.kernels._host import second_level_bytes
from kernelmark.kernels._launches import beside, in_bands, in_numbered_bands, in_turn, parts
from kernelmark.kernels._numba import bind
from kernelmark.kernels._tile import LANES
from kernelmark.kernels.conv._shape import shape
from kernelmark.kernels.conv.direct import _loops as loops
from kernelmark.kernels.conv.direct import _pixels
from kernelmark.kernels.conv.direct._phases import image_gradient
from kernelmark.kernels.conv.direct._plan import Border, Item, Plan, filter_gradient, forward, lines_met, together
from kernelmark.kernels.conv.direct._tile import ROWS, WIDTH, tile_rows
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem

MOST_COPIES = 2  # the most copies of a line, on average, at which each thread still surrounds its own lines

#: The plan of each direction, and the operands that are b, v and the output.
_PLANS = {
    "fprop": (forward, ("x", "w", "y")),
    "dgrad": (image_gradient, ("y", "w", "x")),
    "wgrad": (filter_gradient, ("x", "y", "w")),
}
#: The same for matrix products with pixels as lanes.
_OF_PIXELS = {"fprop": (_pixels.forward, ("w", "x", "y")), "dgrad": (_pixels.image_gradient, ("w", "y", "x"))}


def stages(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Return one launch that surrounds images with zeros and computes the sums, on all threads."""
    g = shape(problem)
    plans = _OF_PIXELS if problem.direction in _OF_PIXELS and _pixels.is_better(g, WIDTH) else _PLANS
    tables, roles = plans[problem.direction]
    plan = tables(g, WIDTH, x.threads, x.tile.AT_ONCE)
    b, v, out = (getattr(x, name).reshape(-1) for name in roles)
    images, first = _images(b, plan, problem.n, x)
    sums = _sums(out, images, v, plan, x)
    if first is None:
        return sums
    return (in_turn if images[0] is images[-1] else beside)(first, sums)


def _images(b: Array, plan: Plan, n: int, x: ConvOperands) -> tuple[list[Array], Launch | None]:
    """Return the surrounded images that each band of items reads, and the launch that surrounds them with zeros.

    If the images fit in a thread's cache and a line is copied at most MOST_COPIES times on average, each thread
    surrounds the lines that it reads: reading lines from another thread's cache in the middle of the sums is slow.
    """
    bands, border = parts(len(plan.items), x.threads), plan.border
    if border.empty:
        return [b] * len(bands), None
    lines, size = border.lines(n), n * border.strides[0]
    fits = size * b.itemsize <= second_level_bytes()
    met = [lines_met(plan, n, *band) for band in bands] if fits else []
    if fits and sum(map(len, met)) <= MOST_COPIES * lines:
        copies = [x.scratch((size,), "f32") for _ in bands]
        run = in_numbered_bands(len(plan.items), x.threads, lambda i, *_: _surround(copies[i], b, border, met[i]))
        return copies, run
    shared = x.scratch((size,), "f32")
    launch = in_bands(lines, x.threads, lambda i, j: _surround(shared, b, border, np.arange(i, j)))
    return [shared] * len(bands), launch


def _surround(b: Array, source: Array, border: Border, which: Array) -> Launch:
    unit = border.channels if border.channels_last else 1
    counts = border.height, border.height + border.top + border.bottom, border.top
    inner = border.width * unit
    strides = inner, (border.width + border.left + border.right) * unit, border.left * unit
    return bind(loops.surround, b, source, counts, strides, inner, which)


def _sums(out: Array, images: list[Array], v: Array, plan: Plan, x: ConvOperands) -> Launch:
    rows: Any = np.append(plan.rows, np.zeros(2 * ROWS, np.int64))  # the last tile reads beyond the last row
    most = int((plan.items[:, 1] - plan.items[:, 0]).max())
    is_narrow = plan.items[:, Item._fields.index("lanes")].max() <= LANES
    high = tile_rows(most, _even(plan.rows) if is_narrow else None)
    tables = (
        rows,
        plan.steps,
        plan.places,
        together(plan.places, loops.SIDE),
        plan.targets,
        plan.lanes,
        plan.items,
        high,
        x.tile.STEPS,
    )

    def band(i: int, start: int, stop: int) -> Launch:
        totals = x.scratch(((-(-most // (2 * high)) * 2 * high + loops.SIDE) * WIDTH,), "f32")
        panel, turned = x.scratch((x.tile.STEPS * WIDTH,), "f32"), x.scratch((loops.SIDE**2,), "f32")
        return bind(loops.sums, out, images[i], v, totals, panel, turned, *tables, start, stop)

    return in_numbered_bands(len(plan.items), x.threads, band)


def _even(rows: Array) -> int:
    """Return how many rows at the beginning are evenly spaced."""
    apart = np.diff(rows)
    return int(np.argmax(np.append(apart != apart[:1], True))) + 1
