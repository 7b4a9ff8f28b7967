"""Grouped products that take another group's B, end a group elsewhere, or leave one out."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.selftest.wrong.library import Family, Inputs, Spoil, Wrong, put

#: Small ones, and ones that are sampled. The last groups of the first have a row or none.
WHOLE = "gemm/m40n70k90/f32/NT/groups12-skewed", "gemm/m301n90k80/bf16.f32/NN/groups7-equal"
SAMPLED = "gemm/m2100n1100k700/f32/NT/groups3-skewed"
#: Returns the edges of groups and the matrix of each, for those of the problem.
Change = Callable[[list[int], list[int]], tuple[list[int], list[int]]]


def product(problem: Any, inputs: Inputs, edges: list[int], matrices: list[int]) -> Array:
    """Rows between two edges times the matrix that stands there in the list."""
    a, b = (inputs[name].astype(np.float64) for name in "ab")
    b = b.transpose(0, 2, 1) if problem.op_b == "T" else b
    return np.concatenate([a[i:j] @ b[g] for (i, j), g in zip(pairwise(edges), matrices, strict=True)])


def exact(problem: Any, inputs: Inputs) -> Array:
    """The product in float64."""
    return product(problem, inputs, list(problem.group_rows), list(range(problem.groups)))


def with_groups(problem: str, change: Change) -> Spoil:
    """Return what multiplies groups that are changed."""

    def spoil(_c: Array, inputs: Inputs, _rng: np.random.Generator) -> Array:
        parsed: Any = discover().problem(problem)
        return product(parsed, inputs, *change(list(parsed.group_rows), list(range(parsed.groups))))

    return spoil


def row_unwritten(problem: str) -> Spoil:
    """Return what leaves out the last row of the first group."""

    def spoil(values: Array, _inputs: Inputs, _rng: np.random.Generator) -> None:
        parsed: Any = discover().problem(problem)
        values[parsed.group_rows[1] - 1] = np.nan

    return spoil


GROUPS = Family(
    exact,
    tuple(
        Wrong(name, problem, spoil, numerics)
        for problem, numerics in ((WHOLE[0], "fp32"), (WHOLE[1], "bf16"), (SAMPLED, "fp32"))
        for name, spoil in (
            ("B of the group before", with_groups(problem, lambda edges, of: (edges, [*of[-1:], *of[:-1]]))),
            ("one B for all groups", with_groups(problem, lambda edges, of: (edges, [0] * len(of)))),
            (
                "a group that ends a row late",
                with_groups(problem, lambda edges, of: ([0, edges[1] + 1, *edges[2:]], of)),
            ),
            (
                "a group that ends a row early",
                with_groups(problem, lambda edges, of: ([0, edges[1] - 1, *edges[2:]], of)),
            ),
            (
                "the last group's rows by the B before",
                with_groups(problem, lambda edges, of: (edges, [*of[:-1], of[-2]])),
            ),
            ("the last row of a group NaN", row_unwritten(problem)),
            ("an element NaN", put(np.nan, None, None)),
        )
    ),
)
