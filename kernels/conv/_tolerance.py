"""How far a right convolution may lie from the float64 reference, for operands uniform in [-1, 1]."""

import math

from kernelmark import DTYPES, accumulation_error, largest_sum, storing_error
from kernels.conv._sizes import ConvSizes
from kernels.conv._winograd import F2, F4, Transforms, growth

#: Roundings of an algorithm in transformed coordinates are those of its input, of its filter and of their product.
_ROUNDINGS = 16
WINOGRAD = {"winograd": F2, "winograd4": F4}


def tolerance(problem: ConvSizes, numerics: str) -> float:
    """Bound of the absolute error of one element of the output."""
    length = problem.reduction
    stored = storing_error(numerics, problem.dtype, largest_sum(length))
    if numerics in WINOGRAD:
        return _winograd(problem, WINOGRAD[numerics]) + stored
    return accumulation_error(numerics, problem.dtype, length) + (numerics == "fft") * _transforms(problem) + stored


def _winograd(problem: ConvSizes, f: Transforms) -> float:
    """Sums over channels are made of transformed operands, which are larger, and so are their errors.

    `growth` is the ratio of an error's size after the inverse transform to that which a sum of as many plain products
    would have (rms, independent roundings): Barabasz, Anderson, Soodhalter, Gregg, "Error Analysis and Improving the
    Accuracy of Winograd Convolution for Deep Neural Networks", ACM TOMS 46(4), 2020, with norms of rows in the place of
    worst cases. The transforms round each product a few times, the sum over channels then adds independent errors. A
    filter's gradient is summed over tiles instead.
    """
    side = len(f.at)
    length = math.ceil(problem.reduction / (side * side if problem.direction == "wgrad" else problem.r * problem.s))
    u = DTYPES["f32"].roundoff
    return growth(f) * (accumulation_error("winograd", problem.dtype, length) + _ROUNDINGS * u * math.sqrt(length))


def _transforms(problem: ConvSizes) -> float:
    """Three FFTs: each adds, in the norm, u log2(size) of it, evenly over all elements.

    Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 24.1; by Parseval the error of an element
    is then that share of the norm of what it is the sum of, sqrt(products) / 3.
    """
    size = (2 * (problem.h + sum(problem.pad_h))) * (2 * (problem.w + sum(problem.pad_w)))
    return _ROUNDINGS * DTYPES["f32"].roundoff * math.log2(size) * math.sqrt(problem.reduction)
