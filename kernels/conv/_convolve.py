"""Convolution and its gradients in FP64 or FP32: products over channels by BLAS, then shifted sums.

Channels are the second axis of all arrays here, whatever the problem's layout.
"""

import msgspec
import numpy as np

from kernelmark import Array, Arrays
from kernelmark.kernels.conv._sizes import ConvSizes

Real = type[np.float32] | type[np.float64]
_BLOCK_ELEMENTS = 2**22


def convolve(problem: ConvSizes, arrays: Arrays, kind: Real = np.float64) -> Array:
    """Return the whole output, computed in the type `kind`, image by image."""
    groups = problem.groups
    parts = [{name: _of_group(name, array, group, groups) for name, array in arrays.items()} for group in range(groups)]
    per_group = msgspec.structs.replace(problem, c=problem.c // groups, k=problem.k // groups, groups=1)
    if problem.direction == "wgrad":
        return np.concatenate([_filters(per_group, part["x"], part["y"], kind) for part in parts])
    run = _forward if problem.direction == "fprop" else _backward
    return np.concatenate([run(per_group, part, kind) for part in parts], axis=1)


def _of_group(name: str, array: Array, group: int, groups: int) -> Array:
    if name == "w":
        return array[group * len(array) // groups : (group + 1) * len(array) // groups]
    channels = array.shape[1] // groups
    return array[:, group * channels : (group + 1) * channels]


def _forward(problem: ConvSizes, arrays: Arrays, kind: Real) -> Array:
    w = arrays["w"].astype(kind).transpose(0, 2, 3, 1)  # k, r, s, c
    out = np.zeros((problem.n, problem.k, problem.p, problem.q), kind)
    step = _filters_at_once(problem, (problem.h + sum(problem.pad_h)) * (problem.w + sum(problem.pad_w)))
    for image, y in zip(arrays["x"], out, strict=True):
        padded = np.pad(image.astype(kind), ((0, 0), problem.pad_h, problem.pad_w))
        for first in range(0, problem.k, step):
            products = np.tensordot(w[first : first + step], padded, 1)  # k, r, s, rows, columns
            for a, b, rows, columns in _taps(problem):
                y[first : first + step] += products[:, a, b, rows, columns]
    return out


def _backward(problem: ConvSizes, arrays: Arrays, kind: Real) -> Array:
    w = arrays["w"].astype(kind).transpose(1, 2, 3, 0)  # c, r, s, k
    height, width = problem.h + sum(problem.pad_h), problem.w + sum(problem.pad_w)
    out = np.zeros((problem.n, problem.c, height, width), kind)
    step = _filters_at_once(problem, problem.p * problem.q)
    for y, image in zip(arrays["y"], out, strict=True):
        y = y.astype(kind)
        for first in range(0, problem.c, step):
            products = np.tensordot(w[first : first + step], y, 1)
            for a, b, rows, columns in _taps(problem):
                image[first : first + step, rows, columns] += products[:, a, b]
    top, left = problem.pad_h.before, problem.pad_w.before
    return out[:, :, top : top + problem.h, left : left + problem.w]


def _filters(problem: ConvSizes, x: Array, y: Array, kind: Real) -> Array:
    out = np.zeros((problem.k, problem.c, problem.r, problem.s), kind)
    for image, gradient in zip(x, y, strict=True):
        padded = np.pad(image.astype(kind), ((0, 0), problem.pad_h, problem.pad_w))
        flat = gradient.astype(kind).reshape(problem.k, -1)
        for a, b, rows, columns in _taps(problem):
            out[:, :, a, b] += flat @ padded[:, rows, columns].reshape(problem.c, -1).T
    return out


def _filters_at_once(problem: ConvSizes, places: int) -> int:
    return max(1, _BLOCK_ELEMENTS // (problem.r * problem.s * places))


def _taps(problem: ConvSizes) -> list[tuple[int, int, slice, slice]]:
    """Return each tap of the filter, with the rows and columns of the padded image that it is multiplied with."""

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
