"""An image convolved by Winograd's transforms: the output, or the input's gradient."""

# mypy: allow-untyped-calls

from kernelmark import Array, Launch
from kernels._launches import beside, in_numbered_bands, in_turn
from kernels._numba import bind
from kernels._product import SCRATCH
from kernels.conv.problem import ConvOperands, ConvProblem
from kernels.conv.winograd import _loops as loops
from kernels.conv.winograd._filters import lines, scratch
from kernels.conv.winograd._lines import LANES
from kernels.conv.winograd._planes import Planes, each_thread
from kernels.conv.winograd._tiling import cut, tiling


def launch(problem: ConvProblem, x: ConvOperands, m: int, product: Array) -> Launch:
    """The launches in turn: rows between zeros, planes that threads share, products and outputs block by block.

    Filters are transformed first where several blocks of tiles meet them. Else each thread transforms those of a few
    channels of the output at a time, and multiplies them while they are in its cache.
    """
    g, side = tiling(problem, m, LANES), m + 2
    c = cut(g, problem.n, x.threads, x.tile)
    source, w, out = (getattr(x, name).reshape(-1) for name in ("ywx" if g.rotated else "xwy"))
    planes = Planes(problem, x, g, source, c.strips, c.is_whole)
    transform, unit = lines(g)
    rows = c.channels if c.is_whole else g.outputs
    own = g._replace(filter_plane=rows * g.filter_line + LANES)
    u = each_thread(x, side * side * own.filter_plane, not c.is_whole)
    tiles = c.strips * g.across
    products = each_thread(x, side * side * (c.channels * tiles + LANES))
    longest = (c.channels if g.channels_last else tiles) + LANES
    held = each_thread(x, max(scratch(g.filter_line), (m * m + m * side) * longest + LANES))
    packed = each_thread(x, SCRATCH)
    x.chose(tiles=tiles)

    def filters(i: int, start: int, stop: int) -> Launch:
        first = start if c.is_whole else 0
        return bind(transform, u[i], w, held[i], own, start, stop, first)

    def block(i: int, s0: int, s1: int, f0: int, f1: int) -> Launch:
        run = loops.block_last if g.channels_last else loops.block
        item = s0, s1, f0, f1, 0 if c.is_whole else f0
        return bind(run, product, out, u[i], planes.v[i], products[i], held[i], packed[i], own, planes.strides, item)

    def band(i: int, start: int, stop: int) -> Launch:
        launches = []
        for s0, s1, f0, f1 in c.items[start:stop]:
            if not c.is_whole:
                launches.append(planes.fill_own(i, s0, s1))
            for f in range(f0, f1, c.channels):
                last = min(f1, f + c.channels)
                if c.is_whole:
                    launches.append(filters(i, f, last))
                launches.append(block(i, s0, s1, f, last))
        return in_turn(*launches)

    if c.is_whole:
        first = [planes.rows, planes.fill(0, problem.n * g.down)]
    else:
        every = in_numbered_bands(
            -(-g.outputs // unit), x.threads, lambda i, a, b: filters(i, a * unit, min(g.outputs, b * unit))
        )
        first = [beside(every, planes.rows)]
    return in_turn(*first, in_numbered_bands(len(c.items), x.threads, band))
