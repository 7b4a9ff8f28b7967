"""Winograd convolution of images: the output, or the input's gradient."""

# mypy: allow-untyped-calls

from kernelmark import Array, Launch
from kernelmark.kernels._launches import beside, in_numbered_bands, in_turn
from kernelmark.kernels._numba import bind
from kernelmark.kernels._product import SCRATCH
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem
from kernelmark.kernels.conv.winograd import _loops as loops
from kernelmark.kernels.conv.winograd._filters import lines, scratch
from kernelmark.kernels.conv.winograd._lines import LANES
from kernelmark.kernels.conv.winograd._planes import Planes, each_thread
from kernelmark.kernels.conv.winograd._tiling import cut, tiling


class _Image:
    """Data that the launches share: the cut of the image, planes, filters, and scratch for each thread."""

    def __init__(self, problem: ConvProblem, x: ConvOperands, m: int, product: Array) -> None:
        g, places = tiling(problem, m, LANES), (m + 2) ** 2
        self.product, self.threads, self.cut = product, x.threads, cut(g, problem.n, x.threads, x.tile)
        strips, channels, self.is_whole = self.cut.strips, self.cut.channels, self.cut.is_whole
        source, self.w, self.out = (getattr(x, name).reshape(-1) for name in ("ywx" if g.rotated else "xwy"))
        self.planes = Planes(problem, x, g, source, strips, self.is_whole)
        rows, tiles = channels if self.is_whole else g.outputs, strips * g.across
        self.g = g._replace(filter_plane=rows * g.filter_line + LANES)
        self.u = each_thread(x, places * self.g.filter_plane, not self.is_whole)
        self.products = each_thread(x, places * (channels * tiles + LANES))
        longest = (channels if g.channels_last else tiles) + LANES
        self.buffers = each_thread(x, max(scratch(g.filter_line), 2 * m * (m + 1) * longest + LANES))
        self.packed = each_thread(x, SCRATCH)
        x.chose(tiles=tiles)

    def filters(self, i: int, start: int, stop: int) -> Launch:
        first = start if self.is_whole else 0
        return bind(lines(self.g)[0], self.u[i], self.w, self.buffers[i], self.g, start, stop, first)

    def all_filters(self) -> Launch:
        unit, rows = lines(self.g)[1], self.g.outputs
        count = -(-rows // unit)
        return in_numbered_bands(count, self.threads, lambda i, a, b: self.filters(i, a * unit, min(rows, b * unit)))

    def block(self, i: int, s0: int, s1: int, f0: int, f1: int) -> Launch:
        run, planes = loops.block_last if self.g.channels_last else loops.block, self.planes
        arrays = self.u[i], planes.v[i], self.products[i], self.buffers[i], self.packed[i]
        item = s0, s1, f0, f1, 0 if self.is_whole else f0
        return bind(run, self.product, self.out, *arrays, self.g, planes.strides, item)

    def band(self, i: int, start: int, stop: int) -> Launch:
        launches, most = [], self.cut.channels
        for s0, s1, f0, f1 in self.cut.items[start:stop]:
            if not self.is_whole:
                launches.append(self.planes.fill_own(i, s0, s1))
            for f in range(f0, f1, most):
                last = min(f1, f + most)
                if self.is_whole:
                    launches.append(self.filters(i, f, last))
                launches.append(self.block(i, s0, s1, f, last))
        return in_turn(*launches)


def launch(problem: ConvProblem, x: ConvOperands, m: int, product: Array) -> Launch:
    """Return one launch: pad rows with zeros, transform shared planes, compute products and outputs block by block.

    Filters are transformed first if several blocks of tiles use them. Otherwise each thread transforms the filters of a
    few output channels at a time, and multiplies them while they are in its cache.
    """
    of = _Image(problem, x, m, product)
    if of.is_whole:
        first = in_turn(of.planes.rows, of.planes.fill(0, of.cut.strips))
    else:
        first = beside(of.all_filters(), of.planes.rows)
    return in_turn(first, in_numbered_bands(len(of.cut.items), x.threads, of.band))
