"""Set up grouped (and depthwise) convolution: strips of planes for the threads, and their scratch."""

from kernelmark import Array, Launch
from kernelmark.kernels._launches import in_bands, in_turn
from kernelmark.kernels._numba import bind
from kernelmark.kernels._tile import LANES
from kernelmark.kernels.conv._shape import shape
from kernelmark.kernels.conv.direct import _depthwise as loops
from kernelmark.kernels.conv.direct._planes import (
    Cut,
    Side,
    channels,
    forward,
    image_gradient,
    items,
    turned_side,
    turns,
    unit_of,
    x_side,
    y_side,
)
from kernelmark.kernels.conv.direct._vectors import ROWS, SLACK
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem


def strips(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Return a launch that computes all planes on all threads."""
    if problem.direction == "wgrad":
        return _filters(problem, x)
    g = shape(problem)
    turned, unit = turns(g, LANES, 1), unit_of(g, LANES, 1)
    order = 1 if problem.direction == "fprop" else -1
    plan = (forward if order == 1 else image_gradient)(g, unit, None if turned else x.tile.HELD)
    (source, out), stored = (x.x, x.y)[::order], (x_side(g, unit), y_side(g, unit))[::order]
    side, to = (turned_side(each, unit) for each in stored) if turned else stored
    cut, listed, vectors = plan.cut, items(g, plan, 1 if turned else x.threads), -(-channels(g, unit) // LANES)
    w, packed = x.w.reshape(-1), x.scratch((vectors * len(plan.weights) * LANES * (unit > 1),), "f32")
    tables = cut, plan.parts, plan.offsets, plan.weights, plan.planes, plan.strides, listed

    def band(start: int, stop: int) -> Launch:
        b = x.scratch((plan.planes[0] * cut.size + SLACK,), "f32")
        strip_sums = x.scratch((ROWS * (plan.strip * cut.pitch * unit + SLACK),), "f32")
        factors = packed if unit > 1 else x.scratch((len(plan.weights) * ROWS,), "f32")
        flat = out.reshape(-1), source.reshape(-1), w
        scratch = _turned(x, stored) if turned else None
        return bind(loops.images, *flat, b, strip_sums, factors, scratch, to, side, *tables, (start, stop))

    def pack(start: int, stop: int) -> Launch:
        return bind(loops.pack, packed, w, plan.planes[0], plan.strides, plan.weights, start, stop)

    sums = in_bands(len(listed), x.threads, band)
    return in_turn(in_bands(vectors, x.threads, pack), sums) if unit > 1 else sums


def _filters(problem: ConvProblem, x: ConvOperands) -> Launch:
    g = shape(problem)
    turned, unit = turns(g, LANES, x.threads), unit_of(g, LANES, x.threads)
    plan = forward(g, unit, None if turned else x.tile.HELD)
    cut, taps, stored = plan.cut, len(plan.offsets), (x_side(g, unit), y_side(g, unit))
    sides = [turned_side(each, unit) for each in stored] if turned else stored
    like = Cut(1, 1, 0, 0, plan.strip, cut.pitch, unit)
    tables = cut, like, plan.offsets, plan.weights, plan.planes, plan.strides, (plan.strip, g.n, channels(g, unit))

    def band(start: int, stop: int) -> Launch:
        b = x.scratch((plan.planes[0] * cut.size + SLACK,), "f32")
        d, sums = x.scratch((like.size + SLACK,), "f32"), x.scratch((max(g.k * LANES, unit) * taps,), "f32")
        flat = (array.reshape(-1) for array in (x.w, x.x, x.y))
        scratch = _turned(x, stored) if turned else None
        return bind(loops.filters, *flat, b, d, sums, scratch, *sides, *tables, start, stop)

    return in_bands(-(-channels(g, unit) // unit), x.threads, band)


def _turned(x: ConvOperands, stored: tuple[Side, ...]) -> tuple[Array | Side, ...]:
    """Return scratch for a vector of planes of the source and of the target, and the sides of both as stored."""
    return *(x.scratch((side.height * side.width * LANES,), "f32") for side in stored), *stored
