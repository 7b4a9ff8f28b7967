"""Bytes that the strategies send, the sum's way to every worker included, as if each worker had its own memory."""

from collections.abc import Callable

from kernelmark import DTYPES
from kernels.aggregate._formats import FORMATS
from kernels.aggregate.problem import AggregateProblem


def by_host(problem: AggregateProblem) -> int:
    """Return what w gradients to the host and w sums from it take."""
    return 2 * problem.w * problem.n * DTYPES[problem.dtype].itemsize


def between_workers(problem: AggregateProblem) -> int:
    """Return what w - 1 gradients and w - 1 sums take: up and down a tree, around a ring, or by stripes."""
    return 2 * (problem.w - 1) * problem.n * DTYPES[problem.dtype].itemsize


def in_bf16(problem: AggregateProblem) -> int:
    """Return what the same takes in BF16."""
    return 2 * (problem.w - 1) * problem.n * DTYPES["bf16"].itemsize


def in_format(name: str) -> Callable[[AggregateProblem], int]:
    """Return how many bytes the same takes in a compressed format: stripes end where blocks do."""
    return lambda problem: 2 * (problem.w - 1) * FORMATS[name].nbytes(problem.n)
