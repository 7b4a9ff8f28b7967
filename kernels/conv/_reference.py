"""The truth of a convolution in float64: all of the output, or some elements and signed sums over the others.

Everything here has its channels in second place, whatever the problem's layout.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from kernelmark import DTYPES, Array, Arrays, Verdict, compare
from kernels.conv._sizes import ConvSizes, as_nchw

#: Problems of at most this many multiply-adds are computed in whole (about 20 ms of DGEMM).
WHOLE_REFERENCE_MACS = 2**29
SAMPLED = 128
_BLOCK_ELEMENTS = 2**22


class Reference(NamedTuple):
    """`values` of the whole output; or of its elements at `places`, with `checksum`: the output summed with `signs`.

    Freivalds: the sum runs over the output's channels (of w, over its filters) of one group at a time, and is the
    output of a convolution that has a single one, which is as many times cheaper.
    """

    problem: ConvSizes
    values: Array
    places: tuple[Array, ...] | None = None
    signs: Array | None = None
    checksum: Array | None = None

    def check(self, name: str, output: Array, bound: float) -> Verdict:
        """Compare an output, channels in second place. The checksum is bounded as in `GemmProblem.check`."""
        dtype = self.problem.dtype
        if self.places is None or self.signs is None or self.checksum is None:
            return compare(name, output, self.values, bound, dtype)
        sampled = output[self.places]
        verdict = compare(f"sampled {name}", sampled, self.values, bound, dtype)
        if verdict.reason:
            return verdict
        spread = math.sqrt(float(np.mean((sampled.astype(np.float64) - self.values) ** 2)))
        length = self.signs.shape[1]
        own = 0.3 * DTYPES["f64"].roundoff * (length + self.problem.reduction) * math.sqrt(self.problem.reduction)
        limit = 16.0 * (math.sqrt(length) * max(spread, bound / 256) + own)
        found = _signed_sum(output, self.signs) if name == "w" else _signed_sums(output, self.signs)
        checksum = compare(f"checksum of {name}", found, self.checksum, limit, "f64")
        return msgspec.structs.replace(verdict, reason=checksum.reason)


def reference(problem: ConvSizes, inputs: Arrays, rng: np.random.Generator) -> Reference:
    """The reference of an output from the inputs as they are stored."""
    arrays = {name: as_nchw(array, problem.layout) for name, array in inputs.items()}
    if problem.flop // 2 <= WHOLE_REFERENCE_MACS:
        return Reference(problem, convolve(problem, arrays))
    groups, summed = problem.groups, problem.c if problem.direction == "dgrad" else problem.k
    signs = rng.choice(np.array([-1.0, 1.0]), (groups, summed // groups))
    if problem.direction == "dgrad":
        w = arrays["w"].reshape(groups, -1, *arrays["w"].shape[1:])
        arrays_1 = arrays | {"w": np.einsum("gkcrs,gc->gkrs", w, signs).reshape(problem.k, 1, problem.r, problem.s)}
        one = msgspec.structs.replace(problem, c=groups)
    else:
        name, narrowed = ("w", _signed_sum) if problem.direction == "fprop" else ("y", _signed_sums)
        arrays_1 = arrays | {name: narrowed(arrays[name], signs)}
        one = msgspec.structs.replace(problem, k=groups)
    index, values = _sample(problem, arrays, rng)
    return Reference(problem, values, index, signs, convolve(one, arrays_1))


def _signed_sum(array: Array, signs: Array) -> Array:
    """Sums over the first axis, one for each group: (groups x L, ...) with signs (groups, L) to (groups, ...)."""
    grouped = array.reshape(*signs.shape, *array.shape[1:])
    return np.stack([np.tensordot(s, part.astype(np.float64), 1) for s, part in zip(signs, grouped, strict=True)])


def _signed_sums(array: Array, signs: Array) -> Array:
    """Sums over the second axis, one for each group."""
    return np.stack([_signed_sum(image, signs) for image in array])


def convolve(problem: ConvSizes, arrays: Arrays) -> Array:
    """The whole output in float64. Products over channels by BLAS, then shifted sums, one image at a time."""
    groups = problem.groups
    parts = [{name: _of_group(name, array, group, groups) for name, array in arrays.items()} for group in range(groups)]
    one = msgspec.structs.replace(problem, c=problem.c // groups, k=problem.k // groups, groups=1)
    if problem.direction == "wgrad":
        return np.concatenate([_filters(one, part["x"], part["y"]) for part in parts])
    run = _forward if problem.direction == "fprop" else _backward
    return np.concatenate([run(one, part) for part in parts], axis=1)


def _of_group(name: str, array: Array, group: int, groups: int) -> Array:
    if name == "w":
        return array[group * len(array) // groups : (group + 1) * len(array) // groups]
    channels = array.shape[1] // groups
    return array[:, group * channels : (group + 1) * channels]


def _forward(problem: ConvSizes, arrays: Arrays) -> Array:
    w = arrays["w"].astype(np.float64).transpose(0, 2, 3, 1)  # k, r, s, c
    out = np.zeros((problem.n, problem.k, problem.p, problem.q))
    step = _filters_at_once(problem, (problem.h + sum(problem.pad_h)) * (problem.w + sum(problem.pad_w)))
    for image, y in zip(arrays["x"], out, strict=True):
        padded = np.pad(image.astype(np.float64), ((0, 0), problem.pad_h, problem.pad_w))
        for first in range(0, problem.k, step):
            products = np.tensordot(w[first : first + step], padded, 1)  # k, r, s, rows, columns
            for a, b, rows, columns in _taps(problem):
                y[first : first + step] += products[:, a, b, rows, columns]
    return out


def _backward(problem: ConvSizes, arrays: Arrays) -> Array:
    w = arrays["w"].astype(np.float64).transpose(1, 2, 3, 0)  # c, r, s, k
    height, width = problem.h + sum(problem.pad_h), problem.w + sum(problem.pad_w)
    out = np.zeros((problem.n, problem.c, height, width))
    step = _filters_at_once(problem, problem.p * problem.q)
    for y, image in zip(arrays["y"], out, strict=True):
        y = y.astype(np.float64)
        for first in range(0, problem.c, step):
            products = np.tensordot(w[first : first + step], y, 1)
            for a, b, rows, columns in _taps(problem):
                image[first : first + step, rows, columns] += products[:, a, b]
    top, left = problem.pad_h.before, problem.pad_w.before
    return out[:, :, top : top + problem.h, left : left + problem.w]


def _filters(problem: ConvSizes, x: Array, y: Array) -> Array:
    out = np.zeros((problem.k, problem.c, problem.r, problem.s))
    for image, gradient in zip(x, y, strict=True):
        padded = np.pad(image.astype(np.float64), ((0, 0), problem.pad_h, problem.pad_w))
        flat = gradient.astype(np.float64).reshape(problem.k, -1)
        for a, b, rows, columns in _taps(problem):
            out[:, :, a, b] += flat @ padded[:, rows, columns].reshape(problem.c, -1).T
    return out


def _filters_at_once(problem: ConvSizes, places: int) -> int:
    return max(1, _BLOCK_ELEMENTS // (problem.r * problem.s * places))


def _taps(problem: ConvSizes) -> list[tuple[int, int, slice, slice]]:
    """Each tap of the filter, with the rows and columns of the padded image that it meets."""

    def met(tap: int, dilation: int, stride: int, count: int) -> slice:
        return slice(tap * dilation, tap * dilation + (count - 1) * stride + 1, stride)

    return [
        (
            a,
            b,
            met(a, problem.dilation_h, problem.stride_h, problem.p),
            met(b, problem.dilation_w, problem.stride_w, problem.q),
        )
        for a in range(problem.r)
        for b in range(problem.s)
    ]


def _sample(problem: ConvSizes, arrays: Arrays, rng: np.random.Generator) -> tuple[tuple[Array, ...], Array]:
    """Elements of the output, the first and the last among them: index, and values by plain sums of products."""
    shape = problem.shapes()[problem.output]
    index = tuple(np.concatenate([[0, size - 1], rng.integers(size, size=SAMPLED - 2)]) for size in shape)
    element = {"fprop": _output_element, "dgrad": _input_element, "wgrad": _filter_element}[problem.direction]
    places = zip(*(axis.tolist() for axis in index), strict=True)
    return index, np.array([element(problem, arrays, *place) for place in places])


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
    """How many of the `others` are in the group of this channel, and the first of them."""
    count = others // problem.groups
    return count, channel // (channels // problem.groups) * count


def _quotients(values: Array, divisor: int) -> Array:
    """-1, which is nowhere, in the place of what does not divide."""
    return np.where(values % divisor == 0, values // divisor, -1)


def _patch(image: Array, rows: Array, columns: Array) -> Array:
    """The channels of an image at these rows and columns, zero outside."""
    height, width = image.shape[-2:]
    inside = ((rows >= 0) & (rows < height))[:, None] & ((columns >= 0) & (columns < width))
    found = image[:, rows.clip(0, height - 1)][:, :, columns.clip(0, width - 1)]
    return np.where(inside, found.astype(np.float64), 0.0)


def _dot(a: Array, b: Array) -> float:
    return float(np.vdot(a.astype(np.float64), b))
