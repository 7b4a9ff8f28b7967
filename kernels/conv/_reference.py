"""The float64 reference of a convolution: the whole output, or some elements and weighted sums of all.

Channels are the second axis of all arrays here, whatever the problem's layout.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from kernelmark import (
    DTYPES,
    Array,
    Arrays,
    Bound,
    Verdict,
    compare,
    error_variance,
    independent_roundings,
    sum_weights,
    sums_limit,
)
from kernelmark.kernels.conv._convolve import convolve
from kernelmark.kernels.conv._sizes import ConvSizes, as_nchw
from kernelmark.kernels.conv._tolerance import WINOGRAD

#: Problems of at most this many multiply-adds are computed in full (about 20 ms of DGEMM).
WHOLE_REFERENCE_MACS = 2**29
SAMPLED = 128
#: The number of independent sets of weights for the sums.
SUMS = 2
#: The largest special value of a usual draw. Bounds of transformed tiles hold for products of two such values.
SPECIALS = 4.0


class Reference(NamedTuple):
    """The expected values in float64: the whole output, or a sample (at `places`) and weighted sums of all elements.

    unit: the scale of each value's error, i.e. the norm of the products in the value's sum, divided by the norm of
    as many products of uniform operands. least: for algorithms that spread errors of large products to other elements,
    the least unit in each plane, by numerics. squares: sums of squared units, weighted with squared weights. reached:
    masks of the rows and columns of the output (wgrad: of a filter) to which any product contributes; other elements
    are 0. weights: of shape (SUMS or 1, groups, channels of a group). As in Freivalds' check, a sum runs over the
    output's channels of one group (wgrad: its filters). The sums are the output of a convolution with few channels,
    which is cheap to compute.
    """

    problem: ConvSizes
    reached: tuple[Array, Array]
    values: Array
    unit: Array
    least: dict[str, Array]
    places: tuple[Array, ...] | None = None
    weights: Array | None = None
    sums: Array | None = None
    squares: Array | None = None

    def check(self, name: str, output: Array, bound: Bound, numerics: str) -> Verdict:
        """Return the verdict on an output whose second axis is channels; weighted sums are bounded as for GEMM."""
        dtype, least = self.problem.dtype, self.least.get(numerics)
        unit = self.unit if least is None else self._spread(self.unit, least)
        bound = bound._replace(unit=unit, roundings=self._roundings())
        verdict = self._check_elements(name, output, bound)
        if verdict.reason:
            return verdict
        within = 0.0 if least is None else bound.largest * float(np.max(bound.unit))
        zeros = self._wrong_zeros(name, output, within)
        if zeros or self.places is None or self.weights is None or self.sums is None or self.squares is None:
            return msgspec.structs.replace(verdict, reason=zeros)
        unstored = error_variance(output[self.places], self.values, bound, self.weights.shape[-1])
        squares, own_error, _ = bounding(self.problem, self.weights, self.squares, least)
        stored = DTYPES[dtype].roundoff ** 2 / 3 * channel_sums(self.problem, output, self.weights**2, squared=True)
        checksums = channel_sums(self.problem, output, self.weights)
        limit = sums_limit(unstored * squares + stored, own_error)
        sums = compare(f"checksum of {name}", checksums, self.sums, limit, "f64")
        return msgspec.structs.replace(verdict, reason=sums.reason)

    def _roundings(self) -> int:
        first, second, *pixels = self.problem.shapes()[self.problem.output]
        rows, others = (first, second) if self.problem.direction == "wgrad" else (second, first)
        groups = self.problem.groups
        columns = others * math.prod(pixels)
        return groups * independent_roundings(rows // groups, columns, self.problem.reduction)

    def _spread(self, unit: Array, least: Array) -> Array:
        """Return the largest unit of each plane or of the sample, or `least` or 1 (for uniform operands) if larger."""
        if self.places is not None:
            unit, least = unit.max(initial=1.0, keepdims=True), least.max()
        else:
            unit = unit.max(axis=(-2, -1), initial=1.0, keepdims=True)
        units: Array = np.maximum(unit, least)
        return units

    def _check_elements(self, name: str, output: Array, bound: Bound) -> Verdict:
        """Check all elements, then leave out those without products, whose exact zeros would hide a large rms error."""
        dtype = self.problem.dtype
        if self.places is not None:
            return compare(f"sampled {name}", output[self.places], self.values, bound, dtype)
        everywhere = all(reached.all() for reached in self.reached)
        bound = bound._replace(comparisons=1 if everywhere else 2)
        verdict = compare(name, output, self.values, bound, dtype)
        if verdict.reason or everywhere:
            return verdict
        at = np.ix_(*map(np.arange, output.shape[:2]), *map(np.flatnonzero, self.reached))
        return compare(f"reached {name}", output[at], self.values[at], bound.of(at, output.shape), dtype)

    def _wrong_zeros(self, name: str, output: Array, limit: float) -> str | None:
        rows, columns = (~reached for reached in self.reached)
        if not (rows.any() or columns.any()):
            return None
        unreached, within = rows[:, None] | columns, f" within {limit:.3g}" if limit else ""
        for i, plane in enumerate(output):
            wrong = ~(np.abs(plane.astype(np.float64)) <= limit) & unreached
            if wrong.any():
                where = tuple(np.argwhere(wrong)[0].tolist())
                return f"{name}{[i, *where]} is {float(plane[where]):.9g}, expected 0{within}: no product reaches it"
        return None


def reference(problem: ConvSizes, inputs: Arrays, rng: "np.random.Generator") -> Reference:
    """Return the reference of the output for inputs in the problem's layout."""
    arrays = {name: as_nchw(array, problem.layout) for name, array in inputs.items()}
    squares = {name: np.square(array.astype(np.float32)) for name, array in arrays.items()}
    reached, each, least = problem.reached(), 9 / problem.reduction, least_units(problem, squares)
    if problem.flop // 2 <= WHOLE_REFERENCE_MACS:
        unit = np.sqrt(convolve(problem, squares, np.float32) * np.float32(each))
        return Reference(problem, reached, convolve(problem, arrays), unit, least)
    groups, summed = problem.groups, problem.c if problem.direction == "dgrad" else problem.k
    count = min(SUMS, summed // groups)
    weights = sum_weights(rng, (count, groups, summed // groups))
    places = _sampled(problem, reached, rng)
    unit = np.sqrt(each * _elements(problem, squares, places))
    return Reference(
        *(problem, reached, _elements(problem, arrays, places), unit, least, places, weights),
        sums=convolve(*narrowed(problem, arrays, weights)),
        squares=each * convolve(*narrowed(problem, squares, weights**2)),
    )


def narrowed(problem: ConvSizes, arrays: Arrays, weights: Array) -> tuple[ConvSizes, dict[str, Array]]:
    """Return a smaller convolution, whose output channels are weighted sums of the problem's, and its operands."""
    count, groups, _ = weights.shape
    if problem.direction == "dgrad":
        w = arrays["w"].reshape(groups, -1, *arrays["w"].shape[1:])
        filters = np.einsum("gkcrs,tgc->gktrs", w, weights).reshape(problem.k, count, problem.r, problem.s)
        return msgspec.structs.replace(problem, c=groups * count), {**arrays, "w": filters}
    name, sums = ("w", _sum_of_filters) if problem.direction == "fprop" else ("y", _sums_of_channels)
    return msgspec.structs.replace(problem, k=groups * count), {**arrays, name: sums(arrays[name], weights)}


def channel_sums(problem: ConvSizes, output: Array, weights: Array, squared: bool = False) -> Array:
    """Return weighted sums of an output over its channels (wgrad: over its filters). squared: sum the squares."""
    return (_sum_of_filters if problem.direction == "wgrad" else _sums_of_channels)(output, weights, squared)


def least_units(problem: ConvSizes, squares: Arrays) -> dict[str, Array]:
    """Return each plane's least unit (see `Reference`), by numerics, for algorithms that compute unneeded products.

    Such products, due to strides, padding or a tile's edges, cancel in the output, but their rounding errors do not.
    FFTs spread the errors over the whole plane: the least unit is the rms of the plane's units, from the operands'
    norms by Parseval's theorem. Winograd's algorithm spreads the errors only over a tile: the least unit is computed as
    if one tile contained the largest values of both operands.
    """
    point = msgspec.structs.replace(problem, h=1, w=1, r=1, s=1, pad=0, stride=1, dilation=1)

    def met(values: Arrays) -> Array:
        units: Array = np.sqrt(convolve(point, values) * (9 / problem.reduction))
        return units

    norms = {name: array.sum(axis=(2, 3), keepdims=True) for name, array in squares.items()}
    largest = {name: array.max(axis=(2, 3), keepdims=True) for name, array in squares.items()}
    tile = met({name: np.where(array > SPECIALS**2, array, 1) for name, array in largest.items()})
    return {"fft": met(norms) / math.sqrt(problem.h * problem.w), **dict.fromkeys(WINOGRAD, tile)}


def bounding(problem: ConvSizes, weights: Array, squares: Array, least: Array | None) -> tuple[Array, Array, Array]:
    """Return three arrays for bounds on weighted sums: squared units, rounding errors, and sums of squared weights.

    least: the least units if the algorithm spreads errors of large products, otherwise None. With `least`, all squared
    units of a plane become the largest of the plane, or that of `least` or of uniform operands if that is larger.
    """
    uniform = (weights**2).sum(axis=-1).T.reshape(-1, *[1] * (3 if problem.direction == "wgrad" else 2))
    if least is not None:
        floor = uniform * max(1.0, float(least.max()) ** 2)
        squares = np.maximum(squares.max(axis=(-2, -1), keepdims=True), floor)
    additions = weights.shape[-1] + problem.reduction
    return squares, DTYPES["f64"].roundoff * additions * np.sqrt(squares * (problem.reduction / 9)), uniform


def _sum_of_filters(array: Array, weights: Array, squared: bool = False) -> Array:
    """Return each group's weighted sums over axis 0, of elements or of their squares: `len(weights)` sums a group."""
    values = array.astype(np.float64)
    if squared:
        np.square(values, out=values)
    count, groups, length = weights.shape
    sums = weights.transpose(1, 0, 2) @ values.reshape(groups, length, -1)
    return sums.reshape(groups * count, *array.shape[1:])


def _sums_of_channels(array: Array, weights: Array, squared: bool = False) -> Array:
    """Return each group's weighted sums over axis 1, of elements or of their squares: `len(weights)` sums a group."""
    return np.stack([_sum_of_filters(image, weights, squared) for image in array])


def _sampled(problem: ConvSizes, reached: tuple[Array, Array], rng: "np.random.Generator") -> tuple[Array, ...]:
    """Return the index of a random sample of output elements that have products, including the first and the last."""
    shape = problem.shapes()[problem.output]
    axes = [*map(np.arange, shape[:2]), *map(np.flatnonzero, reached)]
    if not all(map(len, axes)):  # padding or strides keep every product from the output
        return tuple(np.empty(0, int) for _ in axes)
    return tuple(_places(axis, rng) for axis in axes)


def _elements(problem: ConvSizes, arrays: Arrays, index: tuple[Array, ...]) -> Array:
    """Return the elements of the output at `index`, as plain sums."""
    element = {"fprop": _output_element, "dgrad": _input_element, "wgrad": _filter_element}[problem.direction]
    places = zip(*(axis.tolist() for axis in index), strict=True)
    return np.array([element(problem, arrays, *place) for place in places])


def _places(axis: Array, rng: "np.random.Generator") -> Array:
    """Return places on an axis: both ends, then random places (a quarter are ends, a quarter borders of tiles)."""
    ends, borders = axis[[0, -1]], axis[rng.integers(len(axis), size=SAMPLED - 2) // 8 * 8]
    drawn = np.stack([rng.choice(ends, SAMPLED - 2), borders, *rng.choice(axis, (2, SAMPLED - 2))])
    return np.concatenate([ends, drawn[rng.integers(4, size=SAMPLED - 2), np.arange(SAMPLED - 2)]])


def _output_element(problem: ConvSizes, arrays: Arrays, n: int, k: int, i: int, j: int) -> float:
    depth, first = _channels(problem, k, problem.k, problem.c)
    rows = i * problem.stride_h + np.arange(problem.r) * problem.dilation_h - problem.pad_h.before
    columns = j * problem.stride_w + np.arange(problem.s) * problem.dilation_w - problem.pad_w.before
    return _dot(arrays["w"][k], _patch(arrays["x"][n, first : first + depth], rows, columns))


def _input_element(problem: ConvSizes, arrays: Arrays, n: int, c: int, h: int, w: int) -> float:
    count, first = _channels(problem, c, problem.c, problem.k)
    rows = _quotients(h + problem.pad_h.before - np.arange(problem.r) * problem.dilation_h, problem.stride_h)
    columns = _quotients(w + problem.pad_w.before - np.arange(problem.s) * problem.dilation_w, problem.stride_w)
    filters = arrays["w"][first : first + count, c % (problem.c // problem.groups)]
    return _dot(filters, _patch(arrays["y"][n, first : first + count], rows, columns))


def _filter_element(problem: ConvSizes, arrays: Arrays, k: int, c: int, a: int, b: int) -> float:
    _, first = _channels(problem, k, problem.k, problem.c)
    rows = np.arange(problem.p) * problem.stride_h + a * problem.dilation_h - problem.pad_h.before
    columns = np.arange(problem.q) * problem.stride_w + b * problem.dilation_w - problem.pad_w.before
    images = zip(arrays["x"], arrays["y"], strict=True)
    return math.fsum(_dot(y[k], _patch(x[first + c][None], rows, columns)[0]) for x, y in images)


def _channels(problem: ConvSizes, channel: int, channels: int, others: int) -> tuple[int, int]:
    """Return how many of the other operand's channels are in this channel's group, and the first of them."""
    count = others // problem.groups
    return count, channel // (channels // problem.groups) * count


def _quotients(values: Array, divisor: int) -> Array:
    """Return the quotients, or -1 (not a valid index) if the division leaves a remainder."""
    return np.where(values % divisor == 0, values // divisor, -1)


def _patch(image: Array, rows: Array, columns: Array) -> Array:
    """Return the channels of an image at these rows and columns, zero outside."""
    height, width = image.shape[-2:]
    inside = ((rows >= 0) & (rows < height))[:, None] & ((columns >= 0) & (columns < width))
    pixels = image[:, rows.clip(0, height - 1)][:, :, columns.clip(0, width - 1)]
    return np.where(inside, pixels.astype(np.float64), 0.0)


def _dot(a: Array, b: Array) -> float:
    return float(np.vdot(a.astype(np.float64), b))
