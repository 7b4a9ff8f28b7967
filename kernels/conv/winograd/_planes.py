"""Zero-padded rows of images for Winograd's transforms on the CPU, and planes that threads share."""

# mypy: allow-untyped-defs, allow-untyped-calls

from kernelmark import Array, Launch
from kernelmark.kernels._host import ALONE
from kernelmark.kernels._launches import in_bands, in_numbered_bands
from kernelmark.kernels._numba import bind, jit
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem
from kernelmark.kernels.conv.winograd import _loops as loops
from kernelmark.kernels.conv.winograd._lines import LANES
from kernelmark.kernels.conv.winograd._tiling import Tiling


def _between_zeros(problem: ConvProblem, x: ConvOperands, g: Tiling, source: Array) -> tuple[Array, Launch]:
    """Return scratch for all rows, padded with zeros, and the launch that fills it."""
    lines = problem.n * (1 if g.channels_last else g.inputs) * g.rows
    image = x.scratch((lines * g.phases * g.columns + LANES,), "f32")

    def band(start: int, stop: int) -> Launch:
        buffer = x.scratch((2 * g.phases * (g.columns + LANES),), "f32")
        return bind(loops.padded, image, source, buffer, g, start, stop)

    return image, in_bands(lines, x.threads, band)


@jit
def channels(v, x, buffer, g, strides, s0, s1, start, stop):
    """Transform channels start:stop. Whole vectors of tiles are written; the next line overwrites the excess.

    A line is written to scratch and copied from there if its tiles are not contiguous, or if its vectors would extend
    beyond the last line: the memory after the last line may belong to another thread.
    """
    side, tiles, (plane, channel, tile) = g.m + 2, (s1 - s0) * g.across, strides
    far = tiles + LANES
    edge = buffer[len(buffer) - side * side * far :]
    for c in range(start, stop):
        copied = tile != 1 or (c + 1) * channel + LANES > stop * channel
        to, apart, line = (edge, far, 0) if copied else (v, plane, channel)
        loops.planes(to, x, buffer, g, apart, line, c, c + 1, s0, s1)
        if copied:
            for e in range(side * side):
                for i in range(tiles):
                    v[e * plane + c * channel + i * tile] = edge[e * far + i]


@jit
def strips(v, x, buffer, g, strides, s0, s1, start, stop):
    loops.planes_last(v, x, buffer, g, strides[0], strides[2], s0 + start, s0 + stop, start * g.across)


def strides(g: Tiling, count: int) -> tuple[int, int, int]:
    """Return the stride of planes of `count` strips, and the strides of channels and tiles within a plane.

    Tiles are contiguous, unless channels are last or tiles are few; then channels are contiguous. An extra vector after
    each plane keeps planes from competing for the same cache sets. A tile's channels are padded to whole vectors, so
    that threads, which write whole vectors, do not overwrite each other's tiles.
    """
    tiles, line = count * g.across, -(-g.inputs // LANES) * LANES
    if g.channels_last or tiles <= ALONE:
        return tiles * line + LANES, 1, line
    return g.inputs * tiles + LANES, tiles, 1


def each_thread(x: ConvOperands, elements: int, is_shared: bool = False) -> list[Array]:
    """Return scratch for each thread, or a buffer that all threads share."""
    buffers = [x.scratch((elements,), "f32") for _ in range(1 if is_shared else x.threads)]
    return buffers * x.threads if is_shared else buffers


class Planes:
    """The input or the output's gradient: its rows padded with zeros, and its transform in planes of `step` strips.

    v: scratch for the planes, one buffer for each thread or the same for all. strides: the distances between planes,
    between channels and between tiles.
    """

    def __init__(
        self, problem: ConvProblem, x: ConvOperands, g: Tiling, source: Array, step: int, is_shared: bool = True
    ) -> None:
        self._g, self._threads, side = g, x.threads, g.m + 2
        self._image, self.rows = _between_zeros(problem, x, g, source.reshape(-1))
        self.strides = strides(g, step)
        self.v = each_thread(x, side * side * self.strides[0], is_shared)
        strip = side * g.inputs if g.channels_last else loops.STRIPS * (g.phases * g.columns + LANES)
        edge = 0 if g.channels_last else side * side * (step * g.across + LANES)
        self._buffers = each_thread(x, side * (strip + LANES) + LANES + edge)

    def fill(self, first: int, last: int) -> Launch:
        """Return a launch that transforms strips first:last to the planes that threads share."""
        return in_numbered_bands(
            self._lines(first, last), self._threads, lambda i, *ends: self._band(i, first, last, *ends)
        )

    def fill_own(self, thread: int, first: int, last: int) -> Launch:
        """Return a launch that transforms strips first:last to a thread's own planes."""
        return self._band(thread, first, last, 0, self._lines(first, last))

    def _lines(self, first: int, last: int) -> int:
        return last - first if self._g.channels_last else self._g.inputs

    def _band(self, thread: int, first: int, last: int, start: int, stop: int) -> Launch:
        run, buffer = strips if self._g.channels_last else channels, self._buffers[thread]
        return bind(run, self.v[thread], self._image, buffer, self._g, self.strides, first, last, start, stop)
