"""Direct convolution set up: surround an image with zeros, pack the other operand, add up."""

from typing import Any

import numpy as np

from kernelmark import Array, Launch
from kernels._host import in_turn
from kernels._numba import bind
from kernels._team import in_bands
from kernels.conv._shape import shape
from kernels.conv.direct import _loops as loops
from kernels.conv.direct import _pixels
from kernels.conv.direct._phases import image_gradient
from kernels.conv.direct._plan import Border, Plan, filter_gradient, forward
from kernels.conv.direct._tile import ROWS, WIDTH
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
    panels = x.scratch((len(plan.bases) * len(plan.places) * WIDTH,), "f32")
    return in_turn(*launches, _pack(panels, v, plan, x.threads), _sums(out, surrounded, panels, plan, x))


def _surround(b: Array, source: Array, images: int, border: Border, threads: int) -> Launch:
    blocks, unit = (images, border.channels) if border.channels_last else (images * border.channels, 1)
    padded = border.height + border.top + border.bottom
    counts = border.height, padded, border.top
    inner = border.width * unit
    strides = inner, (border.width + border.left + border.right) * unit, border.left * unit
    return in_bands(
        blocks * padded, threads, lambda i, j: bind(loops.surround, b, source, counts, strides, inner, i, j)
    )


def _pack(panels: Array, source: Array, plan: Plan, threads: int) -> Launch:
    straight = bool((np.diff(plan.places) == 1).all()) and WIDTH % loops.SIDE == 0

    def band(start: int, stop: int) -> Launch:
        return bind(loops.pack, panels, source, plan.bases, plan.places, plan.lanes[0], straight, start, stop)

    return in_bands(len(plan.bases), threads, band)


def _sums(out: Array, b: Array, panels: Array, plan: Plan, x: ConvOperands) -> Launch:
    rows: Any = np.append(plan.rows, np.zeros(ROWS, np.int64))  # the last tile reads beyond
    most = int((plan.items[:, 1] - plan.items[:, 0]).max())
    tables = rows, plan.steps, plan.targets, plan.lanes[1], plan.items, x.tile.STEPS

    def band(start: int, stop: int) -> Launch:
        held = x.scratch((-(-most // ROWS) * ROWS * WIDTH,), "f32")
        return bind(loops.sums, out, b, panels, held, *tables, start, stop)

    return in_bands(len(plan.items), x.threads, band)
