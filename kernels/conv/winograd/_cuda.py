"""Helpers for the Winograd kernels in `cuda/conv`: their convolution, their limits, and the filters' transform."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kernelmark import KernelCall, Scratch, Tile
from kernelmark.kernels._cuda import GRID_LIMIT, ceil_div
from kernelmark.kernels.conv._geometry import fits_ints
from kernelmark.kernels.conv.problem import ConvProblem

TILES, CHANNELS = 32, 8  # tiles and channels of a block that fetches patches
TAPS = 3  # taps of a filter along either axis
#: Operations of cuda/conv/winograd.cuh to transform a filter, a patch of the input and a tile of products.
_TRANSFORMS = {2: (35, 32, 24), 4: (126, 228, 130)}
DOMAIN: dict[str, Any] = {
    "dtypes": ("f32",),
    "layouts": ("nchw", "nhwc"),
    "directions": ("fprop", "dgrad"),
    "min_arch": 80,
}


class View(NamedTuple):
    """A convolution of n images of h x w pixels to p x q pixels, with c input and k output channels per group.

    An output's patch of the input begins `top` rows above and `left` columns left of the output's own position;
    negative values mean below and right.
    """

    source: str
    target: str
    n: int
    c: int
    h: int
    w: int
    k: int
    p: int
    q: int
    top: int
    left: int
    groups: int

    def tiles(self, side: int) -> int:
        """Return the number of tiles of side x side outputs, rounded up to whole tiles at the edges."""
        return self.n * ceil_div(self.p, side) * ceil_div(self.q, side)


def view(p: ConvProblem) -> View:
    """Return the convolution to compute: for dgrad, a convolution of y with filters rotated by 180 degrees."""
    c, k, top, left = p.c // p.groups, p.k // p.groups, p.pad_h.before, p.pad_w.before
    if p.direction == "fprop":
        return View("x", "y", p.n, c, p.h, p.w, k, p.p, p.q, top, left, p.groups)
    return View("y", "x", p.n, k, p.p, p.q, c, p.h, p.w, TAPS - 1 - top, TAPS - 1 - left, p.groups)


def supports(most_groups: int) -> Callable[[ConvProblem], str | None]:
    """Return the predicate for kernels whose grid has room for at most `most_groups` groups."""

    def refusal(p: ConvProblem) -> str | None:
        shape = (("filter", f"{p.r}x{p.s}", "3x3"), ("stride", p.stride, 1), ("dilation", p.dilation, 1))
        for name, actual, expected in shape:
            if actual != expected:
                return f"{name} is {actual}, expected {expected}"
        channels = max(p.c, p.k)
        for name, count, most in (("groups", p.groups, most_groups), ("channels", channels, GRID_LIMIT * CHANNELS)):
            if count > most:
                return f"got {count} {name}, expected at most {most}: they are blocks along y and z"
        return fits_ints(p)

    return refusal


def executed(side: int) -> Callable[[ConvProblem, Tile], int]:
    """Return a function that counts operations of transforms, and (side + 2)^2 multiply-adds per tile, channel, filter.

    Each transform is counted once, although F(2x2,3x3) transforms the input for each block of filters.
    """

    def flop(p: ConvProblem, _: Tile) -> int:
        v, tiles = view(p), view(p).tiles(side)
        of_filter, of_patch, of_tile = _TRANSFORMS[side]
        transforms = of_filter * v.c * v.k + of_patch * tiles * v.c + of_tile * tiles * v.k
        return v.groups * (2 * frequencies(side) * tiles * v.c * v.k + transforms)

    return flop


def frequencies(side: int) -> int:
    """Return the number of products per tile, channel and filter."""
    return (side + TAPS - 1) ** 2


def transformed(v: View, side: int, ldk: int) -> Scratch:
    """Return scratch for the transformed filters, in rows of ldk for each frequency and channel."""
    return Scratch("filters", 4 * frequencies(side) * v.groups * v.c * ldk)


def filters(p: ConvProblem, side: int, ldk: int) -> KernelCall:
    """Return the launch that transforms the filters; it is timed as a part of the call."""
    v = view(p)
    turned = "true" if p.direction == "dgrad" else "false"
    return KernelCall(
        (ceil_div(ldk, 32), ceil_div(v.c, CHANNELS), v.groups),
        256,
        ("w", transformed(v, side, ldk), v.c, v.k, ldk),
        entry=f"winograd_filters<F{side}, Layout::{p.layout}, {turned}>",
    )
