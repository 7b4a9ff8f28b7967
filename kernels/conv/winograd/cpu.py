"""Winograd convolution on the CPU."""

from typing import Any

from kernelmark import Launch, Prefer, Tile, kernel
from kernelmark.kernels._host import ALONE, powers, second_level_bytes
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.conv._winograd import F2, F4, Transforms
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem
from kernelmark.kernels.conv.winograd._tiling import Tiling, cut, filter_bytes, gradient_step, tiling

ALL, FEW, SOME, MANY = ({"HELD": 2**21, "OUTPUTS": some} for some in (0, 16, 32, 128))


def refused(problem: ConvProblem) -> str | None:
    """Return why the kernels cannot take a problem, or None: they support 3 x 3 filters without stride or dilation."""
    sizes = {"r": problem.r, "s": problem.s, "stride": problem.stride, "dilation": problem.dilation}
    sizes["groups"] = problem.groups
    for what, expected in (("r", 3), ("s", 3), ("stride", 1), ("dilation", 1), ("groups", 1)):
        if sizes[what] != expected:
            return f"{what} is {sizes[what]}, expected {expected}"
    return None


def executed(problem: ConvProblem, f: Transforms) -> int:
    """Return the operation count: additions and multiplications of the transforms, and the products."""
    m, side = f.at.shape
    g = tiling(problem, m)
    if problem.direction == "wgrad":
        return _executed_back(problem, f, g)
    tiles = problem.n * g.down * g.across
    images = tiles * (2 * side * _operations(f.bt) * g.inputs + (side + m) * _operations(f.at) * g.outputs)
    filters = (3 + side) * _operations(f.g) * problem.k * problem.c
    return int(images + filters + 2 * side * side * tiles * problem.k * problem.c)


def _executed_back(problem: ConvProblem, f: Transforms, g: Tiling) -> int:
    """Return the operation count of a filter's gradient, which uses the transposed matrices."""
    m, side = f.at.shape
    tiles = problem.n * g.down * g.across
    images = tiles * (2 * side * _operations(f.bt) * problem.c + (m + side) * _operations(f.at.T) * problem.k)
    filters = (side + 3) * _operations(f.g.T) * problem.k * problem.c
    return int(images + filters + 2 * side * side * tiles * problem.k * problem.c)


def _operations(matrix: Any) -> int:
    """Count the additions, and the multiplications by factors other than 1 and -1, for one vector."""
    return int((matrix != 0).sum() - len(matrix) + ((matrix != 0) & (abs(matrix) != 1)).sum())


def _launch(problem: ConvProblem, x: ConvOperands, m: int) -> Launch:
    from kernelmark.kernels._product import multiplying
    from kernelmark.kernels.conv.winograd import _gradient, _images

    run = _gradient.launch if problem.direction == "wgrad" else _images.launch
    return multiplying(lambda product: run(problem, x, m, product))


def _parts(p: ConvProblem, t: Tile, m: int) -> str | None:
    """Return why a tile is equivalent to one with OUTPUTS 0, or None."""
    if p.direction == "wgrad" and t.OUTPUTS and not _is_whole(p, t, m):
        return "blocks of tiles are summed one by one, each for all output channels, so OUTPUTS is 0"
    outputs = p.c if p.direction == "dgrad" else p.k
    return f"OUTPUTS is {t.OUTPUTS}, equivalent to 0 for {outputs} channels" if outputs <= t.OUTPUTS else None


def _is_whole(p: ConvProblem, t: Tile, m: int) -> bool:
    """Return whether one thread transforms all tiles of the problem in a single block."""
    g = tiling(p, m)
    return gradient_step(g, p.n, 1, t) == p.n * g.down if p.direction == "wgrad" else cut(g, p.n, 1, t).is_whole


def _suits(p: ConvProblem, t: Tile, m: int) -> str | None:
    """Return why a tile is not the default, or None: the default keeps filters in a cache until they are multiplied.

    The other operand is packed again for every OUTPUTS filters, which costs little if it is small; each thread of wgrad
    packs all of it rather than a share. If the cache has no room even for SOME filters, MANY are used, so that the
    other operand is packed less often, or FEW if tiles are so few that products do not pack it.
    """
    g, cache, default = tiling(p, m), second_level_bytes(), ALL
    row, tiles = filter_bytes(g), p.n * g.down * g.across
    limit = g.outputs // 8 if p.direction == "wgrad" else g.outputs
    if _is_whole(p, t, m) and tiles < limit and g.outputs * row > cache // 2:
        rest = FEW if tiles <= ALONE else MANY
        some = SOME if SOME["OUTPUTS"] * row <= cache else rest
        default = some if some["OUTPUTS"] < g.outputs else ALL
    return (
        None
        if vars(t) == default
        else f"the default for this problem is HELD {default['HELD']} and OUTPUTS {default['OUTPUTS']}"
    )


def _tiles(m: int) -> dict[str, Any]:
    """Return the declarations of tiles.

    HELD: elements of the transformed input and output that each thread has at a time. OUTPUTS: output channels
    whose filters are transformed, and multiplied or summed, at a time; 0 for all.
    """
    return {
        "tunables": {"HELD": powers(12, 24), "OUTPUTS": (0, *powers(2, 8))},
        "valid": lambda p, t, _: _parts(p, t, m),
        "prefer": Prefer((ALL, FEW, SOME, MANY), lambda p, t, _: _suits(p, t, m)),
    }


_CPU: dict[str, Any] = {
    "provider": "cpu",
    "device": "cpu",
    "dtypes": ("f32",),
    "modules": ("numba",),
    "threaded": True,
}


@kernel("conv", numerics="winograd", supports=refused, executed=lambda p, _: executed(p, F2), **_tiles(2), **_CPU)
@threads_that_pay()
def winograd(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Winograd F(2x2,3x3): transforms and 16 products, by blocks of tiles."""
    return _launch(problem, x, 2)


@kernel("conv", numerics="winograd4", supports=refused, executed=lambda p, _: executed(p, F4), **_tiles(4), **_CPU)
@threads_that_pay()
def winograd4(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Winograd F(4x4,3x3): transforms and 36 products, by blocks of tiles."""
    return _launch(problem, x, 4)
