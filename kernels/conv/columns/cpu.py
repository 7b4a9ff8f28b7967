"""Convolution on the CPU by products with columns (im2col)."""

from kernelmark import Launch, kernel
from kernels._host import in_bands
from kernels.conv.problem import ConvOperands, ConvProblem


@kernel(
    "conv",
    provider="cpu",
    device="cpu",
    dtypes=("f32",),
    modules=("numba", "scipy", "threadpoolctl"),
    threaded=True,
)
def im2col(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Columns formed in cache, block by block, and multiplied by the BLAS under SciPy; none for 1x1 filters."""
    from kernels._numba import bind
    from kernels.conv._blas import address, alone
    from kernels.conv._shape import shape
    from kernels.conv.columns import _loops, _plan

    g, plain = shape(problem), problem.pointwise
    name = {"fprop": "forward", "dgrad": "image_gradient", "wgrad": "filter_gradient"}[problem.direction]
    plan: _plan.Plan = getattr(_plan, name)(g, plain, x.threads)
    x.chose(pixels=plan.step, depth=_plan.depth(plan.blocks))
    flat = [array.reshape(-1) for array in (x.x, x.w, x.y)]
    steps = () if problem.direction == "fprop" else (plan.step,)

    def band(start: int, stop: int) -> Launch:
        columns = x.scratch((0 if plain else plan.columns,), "f32")
        tables = (plan.items, plan.blocks, *steps)
        return bind(getattr(_loops, name), address(), *flat, columns, g, plain, *tables, start, stop)

    return alone(in_bands(len(plan.items), x.threads, band), x.threads)
