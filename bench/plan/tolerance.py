"""Tolerances: the largest and the rms error of sums of products whose operands are uniform in [-1, 1].

The constants are checked by simulation in tests/plan/test_problem.py.
"""

import math

from kernelmark.bench.plan.dtypes import DTYPES, NUMERICS, operand_roundoff
from kernelmark.bench.plan.verdict import Bound

#: Rms error of one chain of k additions, each rounded to nearest, in units of u k: partial sums grow like a random
#: walk, and so do their roundings (Higham and Mary, SIAM J. Sci. Comput. 41, 2019, explain why the error does not grow
#: like k^2).
_CHAIN = 0.12
#: Additional rms error of the first products, whose roundings are larger relative to their sum, in units of u sqrt(k).
_PRODUCTS = 0.25
#: Rms error of chains that are truncated after every `step` products, in units of u k^1.5 / step.
_TRUNCATED = 0.18
#: Rms error of a product of two truncated operands, in units of u, here the spacing of numbers near 1: each product is
#: off by u / sqrt(21), always towards zero, and by more if few large products make up a sum. For operands rounded to
#: nearest the error is sqrt(2 / 63) = 0.18 of their u.
_OPERANDS = 0.27
#: The mean error of a sum of n products with 14 bits, and its spread, in units of u n^1.5 with u = 2^-13: products are
#: truncated to u relative to the largest of them and to the sum so far, which grows like sqrt(n). Truncation towards
#: zero has the mean 0; the values also cover truncation towards minus infinity, since sources do not say which of the
#: two Hopper uses.
_LIMITED, _LIMITED_MEAN, _LIMITED_SPREAD = 2.0**-13, 0.0042, 0.0055
#: The maximum number of a sum's roundings that count as independent, since a few large products may dominate it.
_INDEPENDENT = 64
#: Bounds on the largest of many million errors, in the same units.
_LARGEST_CHAIN, _LARGEST_TRUNCATED, _LARGEST_OPERANDS = 8 / 3, 2.0, 4.0
#: The same for sums with 14 bits: relative to their mean error, and in units of u n.
_LARGEST_MEAN, _LARGEST_LIMITED = 2.0, 1.5


def accumulation_error(numerics: str, storage: str, length: int) -> float:
    """Return a bound on the error, before rounding to storage, of a sum of `length` products of `storage` operands.

    With k products, 8/3 u k bounds the accumulation error of many million sums, even if all partial sums are large.
    Operands rounded to u_in have k independent errors of 0.2 u_in, whose sum grows like sqrt(k). Truncated sums lose
    about u_acc of their size with every addition, always towards zero.
    """
    u_in, u_acc = operand_roundoff(numerics, storage), NUMERICS[numerics].accumulate
    step = NUMERICS[numerics].truncating
    truncated = _LARGEST_TRUNCATED * u_acc * math.sqrt(length) * length / step if step else 0.0
    limited = 0.0
    if promoted := NUMERICS[numerics].promoted:
        mean, _, deep, sums = _limited(promoted, length)
        limited = _LARGEST_MEAN * mean + _LARGEST_LIMITED * _LIMITED * deep * math.sqrt(sums)
    return _LARGEST_CHAIN * u_acc * length + truncated + limited + _LARGEST_OPERANDS * u_in * math.sqrt(length)


def accumulation_rms(numerics: str, storage: str, length: int) -> float:
    """Return a bound on the rms error of many sums of `length` products; it is tight enough to tell numerics apart."""
    u_in, u_acc = operand_roundoff(numerics, storage), NUMERICS[numerics].accumulate
    step = NUMERICS[numerics].truncating
    chain = u_acc * math.hypot(_CHAIN * length, _PRODUCTS * math.sqrt(length))
    truncated = _TRUNCATED * u_acc * length**1.5 / step if step else 0.0
    promoted = NUMERICS[numerics].promoted
    limited = math.hypot(*_limited(promoted, length)[:2]) if promoted else 0.0
    return math.hypot(chain, truncated, limited, _OPERANDS * u_in * math.sqrt(length))


def _limited(promoted: int, length: int) -> tuple[float, float, int, float]:
    """Return the mean and the spread of the error, the products in each 14-bit sum, and the number of these sums.

    Of the `length` products, every `promoted` are summed before this sum is added to the accumulator. The mean grows
    in proportion to the number of sums, the spread only with its square root.
    """
    deep = min(promoted, length)
    sums, each = length / deep, _LIMITED * deep**1.5
    return _LIMITED_MEAN * each * sums, _LIMITED_SPREAD * each * math.sqrt(sums), deep, sums


def sum_bound(
    numerics: str,
    storage: str,
    length: int,
    stored: str,
    scale: float = 1.0,
    added: float = 0.0,
    roundings: int = 2**31,
) -> Bound:
    """Return the error bound for sums of `length` products times `scale`, plus at most `added`, stored as `stored`.

    roundings: as in `Bound`. In FP64 the bound also covers the reference's own error, which is just as large.
    """
    errs = 2 if 0 < NUMERICS[numerics].accumulate <= DTYPES["f64"].roundoff else 1
    # Scaling rounds once, and adding once more.
    rounded = (scale != 1.0 or added != 0.0) * 2 * NUMERICS[numerics].accumulate
    magnitude = scale * largest_sum(length) + added
    return Bound(
        errs * (scale * accumulation_error(numerics, storage, length) + rounded * magnitude),
        math.sqrt(errs) * math.hypot(scale * accumulation_rms(numerics, storage, length), rounded * magnitude / 4),
        stored,
        roundings,
    )


def independent_roundings(rows: int, columns: int, length: int) -> int:
    """Return a lower bound on the number of independent rounding errors in a product of matrices of these sizes.

    Elements in one row or column share operands, so not all of their errors are independent.
    """
    return min(rows, columns) * min(length, _INDEPENDENT)


def largest_sum(length: int) -> float:
    """Return a bound on the largest magnitude among many sums of `length` products."""
    return min(2.0 * math.sqrt(length) + 1, length)
