"""Direct convolution on the CPU, and depthwise convolution."""

from typing import Any

from kernelmark import DeviceLimits, Launch, Prefer, Tile, kernel
from kernelmark.kernels._host import powers, second_level_bytes
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.conv._shape import shape
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem

MANY = {"STEPS": 128, "AT_ONCE": 1024}
FEW = {"STEPS": 128, "AT_ONCE": 256}


def _rows(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile is not the default, or None. Each panel reads the input of the tile's rows again, from a cache.

    So the input must fit there, except for larger filters in nchw: several of their taps read the same lines in turn,
    which leaves time to fetch other lines.
    """
    g = shape(p)
    met = MANY["AT_ONCE"] * (g.c * g.stride_h * g.stride_w if p.direction == "fprop" else g.k)
    reads_again = p.direction != "wgrad" and (g.channels_last or g.r == g.s == 1)
    default = FEW if reads_again and 4 * met > second_level_bytes() // 2 else MANY
    return None if vars(t) == default else f"the default for this problem is {default['AT_ONCE']} rows at a time"


#: STEPS: steps of a sum at a time; 128 make a panel of at most 16 KiB, so that a first-level cache of 32 KiB has room
#: for the other operand, often a line per step. AT_ONCE: rows whose sums are computed at a time.
@kernel(
    "conv",
    provider="numba",
    device="cpu",
    dtypes=("f32",),
    modules=("numba",),
    threaded=True,
    tunables={"STEPS": (32, 64, 128, 256, 512, 1024, 2048, 4096), "AT_ONCE": (16, 32, 64, 128, 256, 512, 1024, 2048)},
    prefer=Prefer((MANY, FEW), _rows),
)
@threads_that_pay()
def direct(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Direct convolution without im2col: tiles of sums in vector registers, operands located by tables of offsets."""
    from kernelmark.kernels.conv.direct._stages import stages

    return stages(problem, x)


def _not_depthwise(p: ConvProblem) -> str | None:
    if p.groups != p.c:
        return f"groups is {p.groups}, expected c = {p.c}: each filter reads one channel"
    return None if p.k == p.c else f"k is {p.k}, expected c = {p.c}: each channel has one filter"


def _not_grouped(p: ConvProblem) -> str | None:
    if p.groups == 1:
        return "groups is 1, expected more: conv/numba.direct is for one group"
    return None if _not_depthwise(p) else "each channel has one filter, expected more: conv/numba.depthwise is for one"


#: HELD: the elements of a strip of rows that stays in a cache together with its sums.
_PLANES: dict[str, Any] = {
    "provider": "numba",
    "device": "cpu",
    "dtypes": ("f32",),
    "modules": ("numba",),
    "threaded": True,
    "tunables": {"HELD": powers(10, 18)},
    "prefer": Prefer(({"HELD": 2**17},)),
}


@kernel("conv", supports=_not_depthwise, **_PLANES)
@threads_that_pay()
def depthwise(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Depthwise: strips of zero-padded planes; vectors hold pixels, or channels with nhwc and with small planes."""
    from kernelmark.kernels.conv.direct._strips import strips

    return strips(problem, x)


@kernel("conv", supports=_not_grouped, **_PLANES)
@threads_that_pay()
def grouped(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Groups of few channels: strips of zero-padded planes, one vector of pixels for each tap."""
    from kernelmark.kernels.conv.direct._strips import strips

    return strips(problem, x)
