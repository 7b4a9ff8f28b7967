"""Grouped products: the rows of A and C are consecutive groups, and each group is multiplied by its own B.

In a mixture of experts, each token (a row of A) goes to one expert, whose tokens are stored together.
"""

from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from kernelmark import Array, Bound, Verdict
from kernelmark.kernels.gemm._reference import Product, Reference, reference

Grouping = Literal["none", "equal", "skewed"]
GROUPED: tuple[Grouping, ...] = ("equal", "skewed")


@cache
def edges(m: int, groups: int, grouping: Grouping) -> tuple[int, ...]:
    """Return the first row of each group, and the end of the last group: groups + 1 numbers from 0 to m.

    equal: m / groups each. skewed: in proportion to 1, 1/2, 1/3 ... (Zipf's law). Edges are rounded down, so a
    group may have no rows if m is small.
    """
    shares = (Fraction(1, i if grouping == "skewed" else 1) for i in range(1, groups + 1))
    sums = [Fraction(0), *accumulate(shares)]
    return tuple(int(m * sum_ / sums[-1]) for sum_ in sums)


class GroupedReference(NamedTuple):
    """The references of the groups that have rows, each as group number, first row, end row and reference."""

    parts: tuple[tuple[int, int, int, Reference], ...]
    name: str = "c"
    beside: tuple[Reference, ...] = ()

    @property
    def values(self) -> Array:
        """Return all elements, (1, m, n). Valid only if no group is sampled."""
        return np.concatenate([part.values for *_, part in self.parts], axis=1)

    def check(self, c: Array, bound: Bound, mixed: bool = False) -> Verdict:
        """Compare C (1, m, n) by group; return the verdict on the first wrong group, else on the least exact group."""
        verdicts, bound = [], bound._replace(comparisons=len(self.parts) * bound.comparisons)
        for group, first, end, part in self.parts:
            verdict = part.check(c[:, first:end], bound, mixed)
            if verdict.reason:
                where = f"rows are counted from {first}, where group {group} begins"
                return msgspec.structs.replace(verdict, reason=f"{verdict.reason}; {where}")
            verdicts.append(verdict)
        return max(verdicts, key=lambda verdict: verdict.max_error or 0.0)


def grouped(product: Product, at: tuple[int, ...], rng: "np.random.Generator") -> GroupedReference:
    """Return the reference of a product in which A and C are (1, m, .) and B has a matrix for each group."""

    def part(group: int, rows: slice) -> Reference:
        c = None if product.c is None else product.c[:, rows]
        return reference(product._replace(a=product.a[:, rows], b=product.b[group : group + 1], c=c), rng)

    ranges = ((i, first, end) for i, (first, end) in enumerate(pairwise(at)) if end > first)
    return GroupedReference(tuple((i, first, end, part(i, slice(first, end))) for i, first, end in ranges))
