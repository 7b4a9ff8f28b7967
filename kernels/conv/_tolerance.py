"""The bound on a convolution's error relative to the float64 reference, for operands uniform in [-1, 1]."""

import math

from kernelmark import DTYPES, Bound, accumulation_error, accumulation_rms, sum_bound
from kernelmark.kernels.conv._sizes import ConvSizes
from kernelmark.kernels.conv._winograd import F2, F4, Transforms, growth, unevenness

#: The largest error of transforming the input, the filter and their product, in units of u sqrt(products).
_ROUNDINGS = 16
#: The rms of this error, in the same units: each transform rounds a value a few times, by 0.4 u / sqrt(3) of its size.
_RMS_ROUNDINGS = 1.0
#: The rms error of three FFTs, for each of their log2(size) steps: kernelmark's kernels stay below a fifth of it.
_RMS_STEPS = 0.5
WINOGRAD = {"winograd": F2, "winograd4": F4}
#: Numerics in which an output that no product reaches is not exactly 0.
TRANSFORMED = (*WINOGRAD, "fft")


def tolerance(problem: ConvSizes, numerics: str) -> Bound:
    """Return the bound on the errors of the output's elements."""
    bound = sum_bound(numerics, problem.dtype, problem.reduction, problem.dtype)
    if numerics in WINOGRAD:
        largest, rms, uneven = _winograd(problem, WINOGRAD[numerics])
        return bound._replace(largest=largest, rms=rms, uneven=uneven)
    if numerics == "fft":
        largest, rms = _transforms(problem)
        return bound._replace(largest=bound.largest + largest, rms=math.hypot(bound.rms, rms))
    return bound


def _winograd(problem: ConvSizes, f: Transforms) -> tuple[float, float, float]:
    """Return the largest error, the rms error and the unevenness of errors.

    Errors grow as transforms enlarge operands. `growth` is a ratio for independent roundings: the rms error after the
    inverse transform over the rms error of a sum of as many plain products. See Barabasz, Anderson, Soodhalter, Gregg,
    "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks", ACM TOMS 46(4), 2020,
    with norms of rows instead of worst cases. The transforms round each product a few times; the sum over channels then
    adds independent errors. A filter's gradient has transposed transforms, A for y and G^T for the sums over tiles.
    Tiles that end outside y count as whole ones: they add little to a sum, but each addition rounds the whole sum.
    """
    length = math.ceil(problem.reduction / (problem.r * problem.s))
    if problem.direction == "wgrad":
        length = problem.n * math.ceil(problem.p / len(f.at)) * math.ceil(problem.q / len(f.at))
        f = f._replace(at=f.g.T, g=f.at.T)
    rounding = DTYPES["f32"].roundoff * math.sqrt(length)
    largest = accumulation_error("winograd", problem.dtype, length) + _ROUNDINGS * rounding
    rms = math.hypot(accumulation_rms("winograd", problem.dtype, length), _RMS_ROUNDINGS * rounding)
    return growth(f) * largest, growth(f) / unevenness(f) * rms, unevenness(f)


def _transforms(problem: ConvSizes) -> tuple[float, float]:
    """Return the bound for three FFTs: each adds an error of u log2(size) times the norm, evenly over all elements.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 24.1. By Parseval's theorem, the
    error of an element is this share of the norm of its summands, sqrt(products) / 3.
    """
    size = (2 * (problem.h + sum(problem.pad_h))) * (2 * (problem.w + sum(problem.pad_w)))
    rounding = DTYPES["f32"].roundoff * math.log2(size) * math.sqrt(problem.reduction)
    return _ROUNDINGS * rounding, _RMS_STEPS * rounding
