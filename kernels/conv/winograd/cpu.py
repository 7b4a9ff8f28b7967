"""Winograd convolution on the CPU."""

from typing import Any, NamedTuple

import numpy as np

from kernelmark import DeviceLimits, Launch, Prefer, Tile, kernel
from kernels._host import NARROW, in_turn, powers, split
from kernels._team import in_bands
from kernels.conv._winograd import F2, F4, Transforms
from kernels.conv.problem import ConvOperands, ConvProblem


class Tiling(NamedTuple):
    """An image of `inputs` channels to one of `outputs`, in tiles of m x m: `down` strips of `across` tiles.

    k, c, w_c, w_tap: the filters as stored; `filter_line` is a row of their transforms. rotated: for dgrad.
    height, width, top, left, rows, columns, phases: of the padded copy, whose parts are whole vectors
    of `lanes`. With channels last, widths count elements.
    """

    m: int
    k: int
    c: int
    w_c: int
    w_tap: int
    filter_line: int
    rotated: bool
    inputs: int
    outputs: int
    out_height: int
    out_width: int
    down: int
    across: int
    height: int
    width: int
    top: int
    left: int
    rows: int
    columns: int
    phases: int
    channels_last: bool


def tiling(problem: ConvProblem, m: int, lanes: int = 1) -> Tiling:
    """The tiling of fprop, or of dgrad as fprop of y with rotated filters, its padding the rest of r - 1."""
    back, last, channels = problem.direction == "dgrad", problem.layout == "nhwc", (problem.c, problem.k)
    inputs, outputs = reversed(channels) if back else channels
    images, results = (problem.h, problem.w), (problem.p, problem.q)
    (height, width), (out_height, out_width) = (results, images) if back else (images, results)
    top, left = (2 - pad.before if back else pad.before for pad in (problem.pad_h, problem.pad_w))
    down, across, unit = -(-out_height // m), -(-out_width // m), inputs if last else 1
    return Tiling(
        m=m,
        k=problem.k,
        c=problem.c,
        w_c=1 if last else 9,
        w_tap=problem.c if last else 1,
        filter_line=-(-problem.c // lanes) * lanes,
        rotated=back,
        inputs=inputs,
        outputs=outputs,
        out_height=out_height,
        out_width=out_width,
        down=down,
        across=across,
        height=height,
        width=width * unit,
        top=top,
        left=left * unit,
        rows=m * down + 2,
        columns=(m * across + 2) * inputs if last else -(-(across + 1) // lanes) * lanes,
        phases=1 if last else m,
        channels_last=last,
    )


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
    tiles, parts = problem.n * g.down * g.across, -(-g.outputs // (t.OUTPUTS or g.outputs))
    images = tiles * (2 * side * _operations(f.bt) * g.inputs * parts + (side + m) * _operations(f.at) * g.outputs)
    filters = (3 + side) * _operations(f.g) * problem.k * problem.c
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
    from kernels._numba import bind
    from kernels._product import SCRATCH
    from kernels.conv.winograd import _loops as loops
    from kernels.conv.winograd._lines import LANES

    g = tiling(problem, m, LANES)
    items, side, threads = _cut(g, problem.n, x.threads, x.tile), m + 2, x.threads
    source, w, out = (getattr(x, name).reshape(-1) for name in ("ywx" if g.rotated else "xwy"))
    u = x.scratch((side * side * g.k * g.filter_line + LANES,), "f32")
    lines = problem.n * (1 if g.channels_last else g.inputs) * g.rows
    image = x.scratch((lines * g.phases * g.columns + LANES,), "f32")
    tiles = int((items[:, 1] - items[:, 0]).max()) * g.across
    channels = int((items[:, 3] - items[:, 2]).max())
    x.chose(tiles=tiles)

    def rows(start: int, stop: int) -> Launch:
        held = x.scratch((g.phases * g.columns,), "f32")
        return bind(loops.padded, image, source, held, g, start, stop)

    def filters(start: int, stop: int) -> Launch:
        held = x.scratch(((9 + 3 * side) * g.filter_line + LANES,), "f32")
        return bind(loops.filter_planes, u, w, held, g, start, stop)

    def block(start: int, stop: int) -> Launch:
        v = x.scratch((side * side * (g.inputs * tiles + LANES),), "f32")
        products = x.scratch((side * side * (channels * tiles + LANES),), "f32")
        across = side * g.inputs if g.channels_last else g.phases * g.columns
        longest = (channels if g.channels_last else tiles) + LANES
        held = x.scratch((max(side * (across + 2 * LANES), (m * m + m * side) * longest + LANES),), "f32")
        packed = x.scratch((SCRATCH,), "f32")
        return bind(loops.blocks, out, image, u, v, products, held, packed, g, items, start, stop)

    return in_turn(
        in_bands(lines, threads, rows),
        in_bands(g.k, threads, filters),
        in_bands(len(items), threads, block),
    )


def _parts(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Why a tile does nothing that a smaller one does not, or None."""
    outputs = p.c if p.direction == "dgrad" else p.k
    return f"{t.OUTPUTS} channels are all {outputs} of the output, as 0 is" if outputs <= t.OUTPUTS else None


#: HELD: elements of transformed operands, the input's and the output's, that a thread has at a time; OUTPUTS: channels
#: of the output, or 0 for all, for which they are multiplied at a time.
_CPU: dict[str, Any] = {
    "provider": "cpu",
    "device": "cpu",
    "dtypes": ("f32",),
    "directions": ("fprop", "dgrad"),
    "modules": ("numba",),
    "threaded": True,
    "tunables": {"HELD": powers(12, 24), "OUTPUTS": (0, *powers(2, 8))},
    "valid": _parts,
    "prefer": Prefer(({"HELD": 2**21, "OUTPUTS": 0},)),
}


@kernel("conv", numerics="winograd", supports=refused, executed=lambda p, t: executed(p, F2, t), **_CPU)
def winograd(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Winograd F(2x2,3x3): transforms and 16 products, block of tiles by block."""
    return _launch(problem, x, 2)


@kernel("conv", numerics="winograd4", supports=refused, executed=lambda p, t: executed(p, F4, t), **_CPU)
def winograd4(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Winograd F(4x4,3x3): transforms and 36 products, block of tiles by block."""
    return _launch(problem, x, 4)
