"""The bytes that strategies send if each worker has its own memory, and the declarations of compressing strategies.

The bytes include the sum, which is sent to every worker.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from kernelmark import DTYPES
from kernelmark.kernels.aggregate._formats import FORMATS
from kernelmark.kernels.aggregate.problem import AggregateProblem


def by_host(problem: AggregateProblem) -> int:
    """Return the bytes of sending w gradients to the host and w sums back."""
    return 2 * problem.w * problem.n * DTYPES[problem.dtype].itemsize


def between_workers(problem: AggregateProblem) -> int:
    """Return the bytes of w - 1 gradients and w - 1 sums, which are the same for a tree, a ring and stripes."""
    return 2 * (problem.w - 1) * problem.n * DTYPES[problem.dtype].itemsize


def in_bf16(problem: AggregateProblem) -> int:
    """Return the bytes of w - 1 gradients and w - 1 sums in BF16."""
    return 2 * (problem.w - 1) * problem.n * DTYPES["bf16"].itemsize


def in_format(name: str) -> Callable[[AggregateProblem], int]:
    """Return a function that computes the bytes of w - 1 gradients and w - 1 sums in a compressed format."""
    return lambda problem: 2 * (problem.w - 1) * FORMATS[name].nbytes(problem.n)


def _fits_block(name: str, problem: AggregateProblem) -> str | None:
    """Return why a gradient is too short for the blocks of a format, or None."""
    block = FORMATS[name].block
    return None if problem.n >= block else f"n is {problem.n}, expected at least {block}, a block of {name}"


def compressing(name: str) -> dict[str, Any]:
    """Return the declarations of a strategy with a compressed format.

    The strategy requires error feedback (/ef): otherwise unsent parts would be lost, the sum would be wrong by about
    the resolution of 1 or 8 bits, and only a loose bound could be checked.
    """
    return {
        "numerics": name,
        "dtypes": ("f32",),
        "feedbacks": ("ef",),
        "supports": partial(_fits_block, name),
        "wire": in_format(name),
    }
