"""Convolution on the CPU by products with columns (im2col)."""

from typing import Any

from kernelmark import Array, DeviceLimits, Launch, Prefer, Tile, kernel
from kernelmark.kernels._launches import in_bands, in_turn
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.conv.columns._plan import Plan
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem

DEFAULT = {"DEPTH": 384, "AREA": 2**17}


def _formed(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile has no effect on a problem whose images are multiplied in place, or None."""
    return "a 1 x 1 filter has no columns, so blocks have no effect" if p.pointwise and vars(t) != DEFAULT else None


#: DEPTH: products added at a time; AREA: elements of a block of columns, by default half of a 1 MiB L2 cache.
@kernel(
    "conv",
    provider="cpu",
    device="cpu",
    dtypes=("f32",),
    modules=("numba",),
    threaded=True,
    tunables={"DEPTH": (64, 96, 128, 192, 256, 384, 512, 768), "AREA": tuple(2**i for i in range(13, 21))},
    valid=_formed,
    prefer=Prefer((DEFAULT,)),
)
@threads_that_pay()
def im2col(problem: ConvProblem, x: ConvOperands) -> Launch:
    """Columns are created in cache, block by block, and multiplied there; 1x1 filters need none."""
    from kernelmark.kernels._product import multiplying

    return multiplying(lambda product: _launch(problem, x, product))


def _launch(problem: ConvProblem, x: ConvOperands, product: Array) -> Launch:
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels._order import PANELS
    from kernelmark.kernels._packing import SIDE, WIDTH
    from kernelmark.kernels._product import SCRATCH
    from kernelmark.kernels.conv._shape import shape
    from kernelmark.kernels.conv.columns import _loops, _plan

    g, plain = shape(problem), problem.pointwise
    pixelwise = True if g.channels_last else None
    name = {"fprop": "forward", "dgrad": "image_gradient", "wgrad": "filter_gradient"}[problem.direction]
    plan: Plan = getattr(_plan, name)(g, plain, x.threads, x.tile)
    x.chose(pixels=plan.step, depth=_plan.depth(plan.blocks))
    images, w, y = (array.reshape(-1) for array in (x.x, x.w, x.y))
    if plan.sharers > 1:
        return _shared(x, plan, product, (images, w, y), (pixelwise, g))
    every: tuple[Any, ...] = (0, len(plan.blocks), True, True), (0, 1)
    steps, launches = every if problem.direction == "fprop" else (plan.step,), []
    if problem.direction == "dgrad":
        repeated = not g.channels_last and g.n * g.p * g.q > x.threads * PANELS * WIDTH
        steps += (not repeated,)
        if repeated:  # otherwise each product would gather the filters' rows again
            stored, w = w, x.scratch(w.shape, "f32")
            count = g.groups * -(-g.k // SIDE)
            launches.append(in_bands(count, x.threads, lambda i, j: bind(_loops.turned, w, stored, g, i, j)))

    parts = x.scratch((plan.parts - 1, w.size), "f32") if plan.parts > 1 else None

    def band(start: int, stop: int) -> Launch:
        to = w if parts is None or start == 0 else parts[start - 1]
        columns = None if plain else x.scratch((plan.columns,), "f32")
        tables = (plan.items, plan.blocks, *steps)
        buffer = x.scratch((SCRATCH,), "f32")
        return bind(getattr(_loops, name), product, buffer, images, to, y, columns, pixelwise, g, *tables, start, stop)

    launches.append(in_bands(len(plan.items), x.threads, band))
    if parts is not None:
        launches.append(in_bands(w.size, x.threads, lambda i, j: bind(_loops.add, w, parts, i, j)))
    return in_turn(*launches)


def _shared(x: ConvOperands, plan: Plan, product: Array, arrays: tuple[Array, ...], kind: tuple[Any, ...]) -> Launch:
    """Return the forward launch of threads that divide the filters: each creates a part of a block of columns.

    Then each multiplies its filters with the whole block. While some threads still do this, others create their parts
    of the next block in the other half of the scratch.
    """
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels._product import SCRATCH
    from kernelmark.kernels.conv.columns import _loops

    threads, size = plan.sharers, plan.columns
    columns, buffers = x.scratch((2 * size,), "f32"), [x.scratch((SCRATCH,), "f32") for _ in range(threads)]
    steps = [(first, e) for first in range(0, len(plan.items), threads) for e in range(len(plan.blocks))]

    def does(step: int, thread: int, forms: bool) -> Launch:
        (first, e), half = steps[step], columns[step % 2 * size :][:size]
        what, item = ((e, e + 1, forms, not forms), (thread, threads)), first + thread
        tables = *kind, plan.items, plan.blocks, *what, item, item + 1
        return bind(_loops.forward, product, buffers[thread], *arrays, half, *tables)

    def together(step: int) -> Launch:
        def band(thread: int, _: int) -> Launch:
            multiplies = [does(step - 1, thread, forms=False)] if step > 0 else []
            return in_turn(*multiplies, *([does(step, thread, forms=True)] if step < len(steps) else []))

        return in_bands(threads, threads, band)

    return in_turn(*map(together, range(len(steps) + 1)))
