"""Cut images into tiles for Winograd convolution on the CPU; pure arithmetic on shapes."""

from typing import NamedTuple

from kernelmark import Tile
from kernelmark.kernels._host import NARROW, split
from kernelmark.kernels.conv.problem import ConvProblem


class Tiling(NamedTuple):
    """The tiling of a convolution from `inputs` to `outputs` channels: `down` strips of `across` tiles of m x m.

    tile: m numbers; their count is part of the type, so that Numba compiles the transforms for this m alone. k, c:
    sizes of the stored filters; transformed filters are planes of `filter_plane` elements in rows of `filter_line`.
    rotated: whether filters are rotated (dgrad). back: whether tiles are m x m parts of the output's gradient (wgrad).
    height, width, top, left: the image's sizes and zero padding. rows: rows of the padded copy. phases: parts of a row.
    columns: elements of a part, padded to whole vectors if it is longer than one. With channels last, `width`, `left`
    and `columns` count the elements of all channels.
    """

    m: int
    tile: tuple[int, ...]
    k: int
    c: int
    filter_line: int
    filter_plane: int
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
    back: bool = False


def tiling(problem: ConvProblem, m: int, lanes: int = 1) -> Tiling:
    """Return the tiling of fprop, or of dgrad, which equals fprop on y with rotated filters and padding r - 1 - pad."""
    back, last, channels = problem.direction == "dgrad", problem.layout == "nhwc", (problem.c, problem.k)
    inputs, outputs = reversed(channels) if back else channels
    images, results = (problem.h, problem.w), (problem.p, problem.q)
    (height, width), (out_height, out_width) = (results, images) if back else (images, results)
    top, left = (2 - pad.before if back else pad.before for pad in (problem.pad_h, problem.pad_w))
    down, across, unit = -(-out_height // m), -(-out_width // m), inputs if last else 1
    line = -(-inputs // lanes) * lanes
    return Tiling(
        m=m,
        tile=(0,) * m,
        k=problem.k,
        c=problem.c,
        filter_line=line,
        filter_plane=outputs * line + lanes,
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
        columns=(m * across + 2) * inputs if last else _columns(across + 1, lanes),
        phases=1 if last else m,
        channels_last=last,
    )


def output_gradient(problem: ConvProblem, m: int, lanes: int) -> Tiling:
    """Return the tiling of the output's gradient, without a border, for wgrad."""
    g, last = tiling(problem, m, lanes), problem.layout == "nhwc"
    return g._replace(
        back=True,
        inputs=problem.k,
        height=problem.p,
        width=problem.q * (problem.k if last else 1),
        top=0,
        left=0,
        rows=m * g.down,
        columns=m * g.across * problem.k if last else _columns(g.across, lanes),
    )


def _columns(count: int, lanes: int) -> int:
    """Return `count`, rounded up to whole vectors if it exceeds one vector; shorter parts would become mostly zeros."""
    return count if count <= lanes else -(-count // lanes) * lanes


class Cut(NamedTuple):
    """The division of an image among threads: items of strips s0:s1 of tiles and output channels f0:f1.

    strips: the most strips in an item. channels: the output channels to multiply at a time. is_whole: whether every
    item has all strips; then no two items use the same filters.
    """

    items: list[tuple[int, int, int, int]]
    strips: int
    channels: int
    is_whole: bool


def cut(g: Tiling, images: int, threads: int, t: Tile) -> Cut:
    """Divide the strips among threads, and also the output channels if there are few strips."""
    strips = images * g.down
    most = max(1, t.HELD // ((g.m + 2) ** 2 * (g.inputs + g.outputs) * g.across))
    wide = strips * g.across >= NARROW * threads
    blocks = split(strips, most, 1 if wide else 4 * threads, threads)
    ranges = split(g.outputs, g.outputs, len(blocks), threads)
    return Cut(
        items=[(*s, *f) for f in ranges for s in blocks],
        strips=max(b - a for a, b in blocks),
        channels=min(t.OUTPUTS or g.outputs, max(b - a for a, b in ranges)),
        is_whole=len(blocks) == 1,
    )


def gradient_step(g: Tiling, images: int, threads: int, t: Tile) -> int:
    """Return how many strips of both operands wgrad transforms to planes and multiplies at a time."""
    elements: int = threads * t.HELD
    return max(1, min(images * g.down, elements // ((g.m + 2) ** 2 * (g.c + g.k) * g.across)))


def filter_bytes(g: Tiling) -> int:
    """Return the bytes of the transformed filters of an output channel."""
    return 4 * (g.m + 2) ** 2 * g.filter_line
