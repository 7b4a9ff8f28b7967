"""The filters' gradient by Winograd's algorithm, with the transposes of the forward pass's transforms.

dw = G^T ((A dy A^T) * (B^T x B), summed over tiles) G. Both transformed operands have a plane for each of the
side x side positions in a tile. Planes of equal positions are multiplied, and each filter is transformed back once.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from functools import partial

from kernelmark import Array, Launch
from kernelmark.kernels._launches import beside, in_numbered_bands, in_turn
from kernelmark.kernels._numba import bind, jit, move
from kernelmark.kernels._product import SCRATCH, multiply
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem
from kernelmark.kernels.conv.winograd._lines import LANES, TAPS, filters_back, join
from kernelmark.kernels.conv.winograd._planes import Planes, each_thread
from kernelmark.kernels.conv.winograd._tiling import gradient_step, output_gradient, tiling


@jit
def _products(product, p, d, v, packed, strides, c, tiles, keep, rows, start, stop):
    """Compute planes start:stop of the sums over tiles, for the filters k in the range `rows` and all c input channels.

    strides: the distances between planes, channels and tiles in d, then those in v.
    """
    (d_plane, d_channel, d_tile), (v_plane, v_channel, v_tile) = strides
    count = rows[1] - rows[0]
    for e in range(start, stop):
        first = d, e * d_plane + rows[0] * d_channel, d_channel, d_tile
        second = v, e * v_plane, v_tile, v_channel
        multiply(product, packed, count, c, tiles, first, second, keep, (p, e * count * c, c, 1))


@jit
def _filters(w, p, buffer, g, line, plane, first, start, stop):
    """Compute filters start:stop from the planes p, whose first row belongs to filter `first`."""
    for k in range(start, stop):
        filters_back(g.tile, buffer, p, (0, line, (k - first) * g.c, plane), g.c)
        if g.channels_last:
            for tap in range(9):
                move(w, (9 * k + tap) * g.c, buffer, tap * line, g.c)
        else:
            join(TAPS, buffer, 9 * line, buffer, (0, line), g.c)
            move(w, 9 * k * g.c, buffer, 9 * line, 9 * g.c)


class _Gradient:
    """Data that all launches share: the planes of both operands, and scratch for each thread.

    In the methods, `rows` is the range (first, last) of the filters k whose sums are computed.
    """

    def __init__(self, problem: ConvProblem, x: ConvOperands, m: int, product: Array) -> None:
        self.x, self.g, self.product, self.places = x, tiling(problem, m, LANES), product, (m + 2) ** 2
        self.strips, self.step = problem.n * self.g.down, gradient_step(self.g, problem.n, x.threads, x.tile)
        x.chose(tiles=self.step * self.g.across)
        self.source = Planes(problem, x, self.g, x.x, self.step)
        self.result = Planes(problem, x, output_gradient(problem, m, LANES), x.y, self.step)
        self.rows = beside(self.source.rows, self.result.rows)
        self.line = -(-self.g.c // LANES) * LANES
        self.packed, self.buffers = (each_thread(x, size) for size in (SCRATCH, 18 * self.line))

    def sums(self, rows: int) -> Array:
        sums: Array = self.x.scratch((self.places * rows * self.g.c + LANES,), "f32")
        return sums

    def fill(self, first: int, last: int) -> Launch:
        return beside(self.source.fill(first, last), self.result.fill(first, last))

    def multiply(self, i: int, *ends: int, sums: Array, strips: int, keep: bool, rows: tuple[int, int]) -> Launch:
        operands, strides = (self.result.v[0], self.source.v[0]), (self.result.strides, self.source.strides)
        how = self.packed[i], strides, self.g.c, strips * self.g.across, keep, rows
        return bind(_products, self.product, sums, *operands, *how, *ends)

    def filters(self, i: int, *ends: int, sums: Array, rows: tuple[int, int]) -> Launch:
        plane = (rows[1] - rows[0]) * self.g.c
        return bind(_filters, self.x.w.reshape(-1), sums, self.buffers[i], self.g, self.line, plane, rows[0], *ends)


def launch(problem: ConvProblem, x: ConvOperands, m: int, product: Array) -> Launch:
    """Return one launch: pad rows with zeros, transform and multiply planes block by block, transform filters back.

    If one block has all strips, each thread multiplies OUTPUTS output channels at a time, and computes the filters'
    gradient from these products while they are in its cache.
    """
    of = _Gradient(problem, x, m, product)
    return (_by_rows if of.step == of.strips and x.tile.OUTPUTS else _by_blocks)(of)


def _by_rows(of: _Gradient) -> Launch:
    most = of.x.tile.OUTPUTS

    def band(i: int, start: int, stop: int) -> Launch:
        sums, launches = of.sums(most), []
        for k in range(start, stop, most):
            rows = k, min(stop, k + most)
            launches.append(of.multiply(i, 0, of.places, sums=sums, strips=of.strips, keep=False, rows=rows))
            launches.append(of.filters(i, *rows, sums=sums, rows=rows))
        return in_turn(*launches)

    return in_turn(of.rows, of.fill(0, of.strips), in_numbered_bands(of.g.k, of.x.threads, band))


def _by_blocks(of: _Gradient) -> Launch:
    blocks, sums, rows, threads = [], of.sums(of.g.k), (0, of.g.k), of.x.threads
    for first in range(0, of.strips, of.step):
        last = min(of.strips, first + of.step)
        these = partial(of.multiply, sums=sums, strips=last - first, keep=first > 0, rows=rows)
        blocks += [of.fill(first, last), in_numbered_bands(of.places, threads, these)]
    return in_turn(of.rows, *blocks, in_numbered_bands(of.g.k, threads, partial(of.filters, sums=sums, rows=rows)))
