"""Winograd convolution on the CPU."""

from typing import Any

import numpy as np

from kernelmark import Array, DeviceLimits, Launch, Prefer, Tile, kernel
from kernels._host import NARROW, powers, split
from kernels._launches import beside, in_bands, in_turn
from kernels._worth import threads_that_pay
from kernels.conv._winograd import F2, F4, Transforms
from kernels.conv.problem import ConvOperands, ConvProblem
from kernels.conv.winograd._tiling import Tiling, tiling


def refused(problem: ConvProblem) -> str | None:
    """Why the problem cannot be taken: the transforms are for 3 x 3 filters that meet neighbours."""
    found = {"r": problem.r, "s": problem.s, "stride": problem.stride, "dilation": problem.dilation}
    found["groups"] = problem.groups
    for what, expected in (("r", 3), ("s", 3), ("stride", 1), ("dilation", 1), ("groups", 1)):
        if found[what] != expected:
            return f"{what} is {found[what]}, expected {expected}"
    return None


def executed(problem: ConvProblem, f: Transforms, t: Tile) -> int:
    """Additions and multiplications of the transforms, and the products in their place.

    The input is transformed once for each cut of the output's channels that the tile asks for.
    """
    m, side = f.at.shape
    g = tiling(problem, m)
    if problem.direction == "wgrad":
        return _executed_back(problem, f, g)
    tiles, parts = problem.n * g.down * g.across, -(-g.outputs // (t.OUTPUTS or g.outputs))
    images = tiles * (2 * side * _operations(f.bt) * g.inputs * parts + (side + m) * _operations(f.at) * g.outputs)
    filters = (3 + side) * _operations(f.g) * problem.k * problem.c
    return int(images + filters + 2 * side * side * tiles * problem.k * problem.c)


def _executed_back(problem: ConvProblem, f: Transforms, g: Tiling) -> int:
    """Return those of a filter's gradient, whose transforms are the transposed ones."""
    m, side = f.at.shape
    tiles = problem.n * g.down * g.across
    images = tiles * (2 * side * _operations(f.bt) * problem.c + (m + side) * _operations(f.at.T) * problem.k)
    filters = (side + 3) * _operations(f.g.T) * problem.k * problem.c
    return int(images + filters + 2 * side * side * tiles * problem.k * problem.c)


def _operations(matrix: Any) -> int:
    """Additions, and multiplications by other than 1 and -1, of one vector."""
    return int((matrix != 0).sum() - len(matrix) + ((matrix != 0) & (abs(matrix) != 1)).sum())


def _cut(g: Tiling, images: int, threads: int, t: Tile) -> Any:
    """Items for threads: strips, and channels of the output where strips are few or the tile has fewer channels."""
    side, strips = g.m + 2, images * g.down
    most = max(1, t.HELD // (side * side * (g.inputs + g.outputs) * g.across))
    wide = strips * g.across >= NARROW * threads
    blocks = split(strips, most, 1 if wide else 4 * threads, threads)
    channels = split(g.outputs, t.OUTPUTS or g.outputs, len(blocks), threads)
    return np.array([(*s, *f) for f in channels for s in blocks])


def _launch(problem: ConvProblem, x: ConvOperands, m: int) -> Launch:
    from kernels._product import multiplying
    from kernels.conv.winograd._gradient import launch

    run = launch if problem.direction == "wgrad" else _of_image
    return multiplying(lambda product: run(problem, x, m, product))


def _of_image(problem: ConvProblem, x: ConvOperands, m: int, product: Array) -> Launch:
    from kernels._numba import bind
    from kernels._product import SCRATCH
    from kernels.conv.winograd import _filters
    from kernels.conv.winograd import _loops as loops
    from kernels.conv.winograd._lines import LANES
    from kernels.conv.winograd._planes import Planes, between_zeros

    g = tiling(problem, m, LANES)
    items, side, threads = _cut(g, problem.n, x.threads, x.tile), m + 2, x.threads
    source, w, out = (getattr(x, name).reshape(-1) for name in ("ywx" if g.rotated else "xwy"))
    u = x.scratch((side * side * g.filter_plane,), "f32")
    lines, count = _filters.lines(g)
    tiles = int((items[:, 1] - items[:, 0]).max()) * g.across
    strips, v, filled = problem.n * g.down, None, (0, 0)
    if len(items) > 1 and tiles == strips * g.across and not x.tile.OUTPUTS:  # threads would each transform all of it
        planes = Planes(problem, x, g, source, strips)
        image, v, filled = planes.image, planes.v, planes.strides
        rows, fill = planes.rows, [planes.fill(0, strips)]
    else:
        (image, rows), fill = between_zeros(problem, x, g, source), []
    channels = int((items[:, 3] - items[:, 2]).max())
    x.chose(tiles=tiles)

    def filters(start: int, stop: int) -> Launch:
        held = x.scratch((_filters.scratch(side, g.filter_line),), "f32")
        return bind(lines, u, w, held, g, start, stop)

    def block(start: int, stop: int) -> Launch:
        own = x.scratch((side * side * (g.inputs * tiles + LANES),), "f32") if v is None else v
        products = x.scratch((side * side * (channels * tiles + LANES),), "f32")
        strip = side * g.inputs if g.channels_last else loops.STRIPS * (g.phases * g.columns + LANES)
        longest = (channels if g.channels_last else tiles) + LANES
        held = x.scratch((max(side * (strip + 2 * LANES), (m * m + m * side) * longest + LANES),), "f32")
        packed = x.scratch((SCRATCH,), "f32")
        run = loops.blocks_last if g.channels_last else loops.blocks
        return bind(run, product, out, image, u, own, products, held, packed, g, filled, items, start, stop)

    transforms = beside(in_bands(count, threads, filters), *fill)  # the images last, since threads share them
    return in_turn(rows, transforms, in_bands(len(items), threads, block))


def _parts(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Why a tile does nothing that a smaller one does not, or None."""
    outputs = p.c if p.direction == "dgrad" else p.k
    if p.direction == "wgrad" and t.OUTPUTS:
        return "a filter's gradient has no channels of the output to cut, so OUTPUTS is 0"
    return f"{t.OUTPUTS} channels are all {outputs} of the output, as 0 is" if outputs <= t.OUTPUTS else None


#: HELD: elements of transformed operands, the input's and the output's, for each thread at a time; OUTPUTS: channels
#: of the output, or 0 for all, for which they are multiplied at a time.
_CPU: dict[str, Any] = {
    "provider": "cpu",
    "device": "cpu",
    "dtypes": ("f32",),
    "modules": ("numba",),
    "threaded": True,
    "tunables": {"HELD": powers(12, 24), "OUTPUTS": (0, *powers(2, 8))},
    "valid": _parts,
    "prefer": Prefer(({"HELD": 2**21, "OUTPUTS": 0},)),
}


@kernel("conv", numerics="winograd", supports=refused, executed=lambda p, t: executed(p, F2, t), **_CPU)
@threads_that_pay()
def winograd(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Winograd F(2x2,3x3): transforms and 16 products, block of tiles by block."""
    return _launch(problem, x, 2)


@kernel("conv", numerics="winograd4", supports=refused, executed=lambda p, t: executed(p, F4, t), **_CPU)
@threads_that_pay()
def winograd4(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Winograd F(4x4,3x3): transforms and 36 products, block of tiles by block."""
    return _launch(problem, x, 4)
