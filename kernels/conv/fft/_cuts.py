"""Where an FFT convolution cuts its tiles out of the operands, and which part of a tile it puts back."""

from typing import NamedTuple

from kernels.conv.fft._tiling import Axis, Tiling
from kernels.conv.problem import ConvProblem


class Cut(NamedTuple):
    """Where the planes of an operand are: a plane is one channel of one tile, or of one filter.

    images, channels, rows, columns: its extents, and its strides in elements. spacing: what lies between neighbours,
    strided outputs and dilated filters being taken as dense ones with zeros between. origin, step: where tiles begin,
    these zeros counted; `across` of `tiles` an image lie side by side. extent: how much of a tile is the operand's;
    the rest is zero. window: from where on, in an output. flip: backwards. tiles_first: whether neighbouring planes
    belong to neighbouring tiles, not channels.
    """

    images: int
    channels: int
    rows: int
    columns: int
    stride_n: int
    stride_c: int
    stride_h: int
    stride_w: int
    spacing_h: int
    spacing_w: int
    across: int
    tiles: int
    origin_h: int
    origin_w: int
    step_h: int
    step_w: int
    extent_h: int
    extent_w: int
    window_h: int
    window_w: int
    flip: bool
    tiles_first: bool


def cut(problem: ConvProblem, tiling: Tiling, name: str, output: bool) -> Cut:
    """Of an operand of `problem`. The tile of a filter is a filter."""
    images, channels, rows, columns = {
        "x": (problem.n, problem.c, problem.h, problem.w),
        "w": (problem.k, problem.c // problem.groups, problem.r, problem.s),
        "y": (problem.n, problem.k, problem.p, problem.q),
    }[name]
    spacing_h, spacing_w = {
        "x": (1, 1),
        "w": (problem.dilation_h, problem.dilation_w),
        "y": (problem.stride_h, problem.stride_w),
    }[name]
    last, tiled = problem.layout == "nhwc", name != "w"
    height = _ends(name, output, problem.direction, tiling.height, problem.pad_h.before)
    width = _ends(name, output, problem.direction, tiling.width, problem.pad_w.before)
    return Cut(
        images=images,
        channels=channels,
        rows=rows,
        columns=columns,
        stride_n=channels * rows * columns,
        stride_c=1 if last else rows * columns,
        stride_h=columns * channels if last else columns,
        stride_w=channels if last else 1,
        spacing_h=spacing_h,
        spacing_w=spacing_w,
        across=tiling.width.tiles if tiled else 1,
        tiles=tiling.height.tiles * tiling.width.tiles if tiled else 1,
        origin_h=height.origin,
        origin_w=width.origin,
        step_h=tiling.height.step,
        step_w=tiling.width.step,
        extent_h=height.extent,
        extent_w=width.extent,
        window_h=height.window,
        window_w=width.window,
        flip=(problem.direction, name) in (("fprop", "w"), ("wgrad", "y")),
        tiles_first=tiled and not last,
    )


class _Ends(NamedTuple):
    """Along one axis: where the first tile begins, how much of a tile is the operand's, and from where on."""

    origin: int
    extent: int
    window: int = 0


def _ends(name: str, output: bool, direction: str, axis: Axis, pad: int) -> _Ends:
    """A circular convolution of `side` is right from taps - 1 on; of y backwards with x, from step - 1 on."""
    if name == "w":
        return _Ends(0, axis.taps, axis.step - 1)
    if output:
        return _Ends(0, axis.step, axis.taps - 1)
    if direction == "dgrad":
        return _Ends(pad - axis.taps + 1, axis.side)
    return _Ends(-pad, axis.side) if name == "x" else _Ends(0, axis.step)
