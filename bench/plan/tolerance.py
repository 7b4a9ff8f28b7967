"""Bounds of the absolute error of sums of products, for operands uniform in [-1, 1]."""

import math

from bench.plan.dtypes import DTYPES, NUMERICS, operand_roundoff


def accumulation_error(numerics: str, storage: str, length: int) -> float:
    """Bound the error of a sum of `length` products of operands stored as `storage`, before it is stored.

    Accumulation: independent roundings of partial sums that grow like a random walk give about 0.14 u k as standard
    deviation for one chain of k additions (Higham and Mary, SIAM J. Sci. Comput. 41, 2019, on why it is not k^2);
    8/3 u k leaves room for the largest of many million elements. Operands rounded to u_in: sqrt(k) independent errors
    of 0.3 u_in each. Truncated sums lose about u_acc of their size, sqrt(k) / 3, with every addition, always towards
    zero: 2 u_acc leaves room for the largest.
    """
    u_in, u_acc = operand_roundoff(numerics, storage), NUMERICS[numerics].accumulate
    step = NUMERICS[numerics].truncating
    truncated = 2 * u_acc * math.sqrt(length) * length / step if step else 0.0
    return 8 / 3 * u_acc * length + truncated + 4 * u_in * math.sqrt(length)


def storing_error(numerics: str, storage: str, magnitude: float) -> float:
    """Bound the error of scaling results of this size and rounding them to their storage type."""
    return (DTYPES[storage].roundoff + 2 * NUMERICS[numerics].accumulate) * magnitude


def largest_sum(length: int) -> float:
    """Size of the largest of many sums of `length` products."""
    return min(2.0 * math.sqrt(length) + 1, length)
