"""Direct convolution set up: surround an image with zeros, add up."""

from typing import Any

import numpy as np

from kernelmark import Array, Launch
from kernels._launches import in_bands, in_turn
from kernels._numba import bind
from kernels._tile import LANES
from kernels.conv._shape import shape
from kernels.conv.direct import _loops as loops
from kernels.conv.direct import _pixels
from kernels.conv.direct._phases import image_gradient
from kernels.conv.direct._plan import Border, Item, Plan, filter_gradient, forward, together
from kernels.conv.direct._tile import ROWS, WIDTH, tile_rows
from kernels.conv.problem import ConvOperands, ConvProblem

#: The plan of each direction, and which operand is b, v and the output.
_PLANS = {
    "fprop": (forward, ("x", "w", "y")),
    "dgrad": (image_gradient, ("y", "w", "x")),
    "wgrad": (filter_gradient, ("x", "y", "w")),
}
#: Those of a product of matrices whose lanes are pixels.
_OF_PIXELS = {"fprop": (_pixels.forward, ("w", "x", "y")), "dgrad": (_pixels.image_gradient, ("w", "y", "x"))}


def stages(problem: ConvProblem, x: ConvOperands) -> Launch:
    """The launches in turn, each on all threads."""
    g = shape(problem)
    plans = _OF_PIXELS if problem.direction in _OF_PIXELS and _pixels.is_better(g, WIDTH) else _PLANS
    tables, roles = plans[problem.direction]
    plan = tables(g, WIDTH, x.threads, x.tile.AT_ONCE)
    b, v, out = (getattr(x, name).reshape(-1) for name in roles)
    surrounded = b
    launches = []
    if not plan.border.empty:
        surrounded = x.scratch((problem.n * plan.border.strides[0],), "f32")
        launches.append(_surround(surrounded, b, problem.n, plan.border, x.threads))
    return in_turn(*launches, _sums(out, surrounded, v, plan, x))


def _surround(b: Array, source: Array, images: int, border: Border, threads: int) -> Launch:
    blocks, unit = (images, border.channels) if border.channels_last else (images * border.channels, 1)
    padded = border.height + border.top + border.bottom
    counts = border.height, padded, border.top
    inner = border.width * unit
    strides = inner, (border.width + border.left + border.right) * unit, border.left * unit
    return in_bands(
        blocks * padded, threads, lambda i, j: bind(loops.surround, b, source, counts, strides, inner, i, j)
    )


def _sums(out: Array, b: Array, v: Array, plan: Plan, x: ConvOperands) -> Launch:
    rows: Any = np.append(plan.rows, np.zeros(2 * ROWS, np.int64))  # the last tile reads beyond
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

    def band(start: int, stop: int) -> Launch:
        held = x.scratch(((-(-most // (2 * high)) * 2 * high + loops.SIDE) * WIDTH,), "f32")
        panel, turned = x.scratch((x.tile.STEPS * WIDTH,), "f32"), x.scratch((loops.SIDE**2,), "f32")
        return bind(loops.sums, out, b, v, held, panel, turned, *tables, start, stop)

    return in_bands(len(plan.items), x.threads, band)


def _even(rows: Array) -> int:
    """How many rows are evenly apart before the first that is not."""
    apart = np.diff(rows)
    return int(np.argmax(np.append(apart != apart[:1], True))) + 1
