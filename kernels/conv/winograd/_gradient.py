"""The filters' gradient by Winograd's transforms, which are those of the forward pass, transposed.

dw = G^T ((A dy A^T) * (B^T x B), summed over tiles) G: `side` x `side` planes of the input and of the output's gradient
are multiplied with one another, plane by plane, and each filter is transformed back once.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from kernelmark import Array, Launch
from kernels._launches import beside, in_bands, in_turn
from kernels._numba import bind, jit, move
from kernels._product import SCRATCH, multiply
from kernels.conv.problem import ConvOperands, ConvProblem
from kernels.conv.winograd._lines import LANES, TAPS, filters_back, join
from kernels.conv.winograd._planes import Planes
from kernels.conv.winograd._tiling import output_gradient, tiling


@jit
def _products(product, p, d, v, packed, shapes, tiles, keep, start, stop):
    """Planes start:stop of (k x c) sums over tiles; shapes: of d and of v their channels, plane, and both strides."""
    (k, d_plane, d_channel, d_tile), (c, v_plane, v_channel, v_tile) = shapes
    for e in range(start, stop):
        first, second = (d, e * d_plane, d_channel, d_tile), (v, e * v_plane, v_tile, v_channel)
        multiply(product, packed, k, c, tiles, first, second, keep, (p, e * k * c, c, 1))


@jit
def _filters(w, p, held, g, line, start, stop):
    """Filters start:stop out of their planes."""
    plane = g.k * g.c
    for k in range(start, stop):
        filters_back(g.tile, held, p, (0, line, k * g.c, plane), g.c)
        if g.channels_last:
            for tap in range(9):
                move(w, (9 * k + tap) * g.c, held, tap * line, g.c)
        else:
            join(TAPS, held, 9 * line, held, (0, line), g.c)
            move(w, 9 * k * g.c, held, 9 * line, 9 * g.c)


def launch(problem: ConvProblem, x: ConvOperands, m: int, product: Array) -> Launch:
    """The launches in turn: rows between zeros, planes and their products block by block, filters."""
    g, side = tiling(problem, m, LANES), m + 2
    strips = problem.n * g.down
    step = max(1, min(strips, x.threads * x.tile.HELD // (side * side * (g.c + g.k) * g.across)))
    x.chose(tiles=step * g.across)
    source = Planes(problem, x, g, x.x, step)
    result = Planes(problem, x, output_gradient(problem, m, LANES), x.y, step)
    sums = x.scratch((side * side * g.k * g.c + LANES,), "f32")
    packed = [x.scratch((SCRATCH,), "f32") for _ in range(x.threads)]

    def products(tiles: int, keep: bool) -> Launch:
        shapes, own = (result.shape, source.shape), iter(packed)

        def band(start: int, stop: int) -> Launch:
            return bind(_products, product, sums, result.v[0], source.v[0], next(own), shapes, tiles, keep, start, stop)

        return in_bands(side * side, x.threads, band)

    blocks: list[Launch] = []
    for first in range(0, strips, step):
        last = min(strips, first + step)
        blocks.append(beside(source.fill(first, last), result.fill(first, last)))
        blocks.append(products((last - first) * g.across, first > 0))
    line = -(-g.c // LANES) * LANES

    def filters(start: int, stop: int) -> Launch:
        held = x.scratch((18 * line,), "f32")
        return bind(_filters, x.w.reshape(-1), sums, held, g, line, start, stop)

    return in_turn(beside(source.rows, result.rows), *blocks, in_bands(g.k, x.threads, filters))
