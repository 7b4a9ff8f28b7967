"""Checksums of a convolution: weighted sums over the channels of each pixel, which check the outputs of many calls.

The sums equal the output of a convolution with one output channel per group, so they take the time of one channel.
If a few elements of the operands change, the sums are corrected, not recomputed. Channels are the second axis, as in
the reference.
"""

from functools import partial

import numpy as np

from kernelmark import Array, Arrays, Bound, sum_weights, summed
from kernelmark.kernels.conv._convolve import convolve
from kernelmark.kernels.conv._reference import bounding, channel_sums, least_units, narrowed
from kernelmark.kernels.conv._sizes import ConvSizes

#: The index of an operand's changed elements, and their values now and before, in float64.
Changed = tuple[tuple[Array, ...], Array, Array]
#: The two operands that are read: first the one whose channels are summed, then the one that is left whole.
_READ = {"fprop": ("w", "x"), "dgrad": ("w", "y"), "wgrad": ("y", "x")}
ALL = slice(None)


class ChannelSums:
    """Weighted sums over each pixel's channels (wgrad: over the filters), and sums of squares to bound the errors."""

    def __init__(self, problem: ConvSizes, arrays: Arrays, rng: "np.random.Generator") -> None:
        self._narrow, self._whole = _READ[problem.direction]
        summed_over = problem.c if problem.direction == "dgrad" else problem.k
        self._weights = sum_weights(rng, (1, problem.groups, summed_over // problem.groups))
        squares = {name: np.square(array.astype(np.float32)) for name, array in arrays.items()}
        self._least = least_units(problem, squares)
        self._problem, operands = narrowed(problem, arrays, self._weights)
        _, squared = narrowed(problem, squares, self._weights**2)
        self._values, self._squares = convolve(self._problem, operands), convolve(self._problem, squared, np.float32)
        self._operand, self._squared = operands[self._narrow], squared[self._narrow]
        p = problem
        self._rows = _Axis(p.p, p.r, p.h, p.stride_h, p.dilation_h, p.pad_h.before)
        self._columns = _Axis(p.q, p.s, p.w, p.stride_w, p.dilation_w, p.pad_w.before)

    def wrong(self, output: Array, now: Arrays, changes: dict[str, Changed], bound: Bound, numerics: str) -> str | None:
        """Return why an output is wrong for the current operands, or None."""
        problem, weights, whole = self._problem, self._weights, now[self._whole]
        changed = {self._whole: changes[self._whole], self._narrow: self._narrowed(*changes[self._narrow])}
        want, got = self._values.copy(), channel_sums(problem, output, weights)
        self._correct(want, {name: (at, new - old) for name, (at, new, old) in changed.items()}, whole, self._operand)
        stored = partial(channel_sums, problem, output, weights**2, squared=True)

        def complaint(squares: Array) -> str | None:
            each = 9 / problem.reduction
            units, own_error, uniform = bounding(problem, weights, squares * each, self._least.get(numerics))
            name, length = f"checksum of {problem.output}", weights.shape[-1]
            return summed(name, got, want, bound, length, units, uniform, own_error, stored)

        if complaint(self._squares) is None:
            return None
        squares = self._squares.copy()  # keep squares of old values: the sums were rounded with them
        news = {name: (at, new**2) for name, (at, new, _) in changed.items()}
        self._correct(squares, news, np.square(whole.astype(np.float32)), self._squared)
        return complaint(squares)

    def _narrowed(self, index: tuple[Array, ...], new: Array, old: Array) -> Changed:
        """Return how an operand's channel sums change if its elements at `index` change from `old` to `new`."""
        problem = self._problem
        first, second, *rest = index
        if problem.direction == "dgrad":  # the channels of each filter
            group, channel = first // (problem.k // problem.groups), second
            at = (first, np.zeros_like(second), *rest)
        else:
            of, length = (first if self._narrow == "w" else second), self._weights.shape[-1]
            group, channel = np.divmod(of, length)
            at = (group, second, *rest) if self._narrow == "w" else (first, group, *rest)
        weights = self._weights[0, group, channel]
        return at, weights * new, weights * old

    def _correct(
        self, sums: Array, changed: dict[str, tuple[tuple[Array, ...], Array]], whole: Array, narrow: Array
    ) -> None:
        """Add to the sums the products of each operand's changes with the elements of the other operand."""
        for name, other, array in ((self._whole, self._narrow, narrow), (self._narrow, self._whole, whole)):
            index, changes = changed[name]
            for place, change in zip(np.stack(index, 1).tolist(), changes.tolist(), strict=True):
                met = self._met_by(name, *place)
                sums[met[self._problem.output]] += change * array[met[other]].astype(np.float64)

    def _met_by(self, name: str, first: int, second: int, row: int, column: int) -> dict[str, tuple[int | slice, ...]]:
        """For an element of operand `name`, return the matching indices of the other two operands in its products."""
        inputs, outputs = self._problem.c // self._problem.groups, self._problem.k // self._problem.groups
        channels: dict[str, tuple[int | slice, int | slice]]
        if name == "w":
            channels = {"x": (ALL, first // outputs * inputs + second), "y": (ALL, first)}
        elif name == "x":
            group, channel = divmod(second, inputs)
            of_group = slice(group * outputs, (group + 1) * outputs)
            channels = {"y": (first, of_group), "w": (of_group, channel)}
        else:
            group = second // outputs
            channels = {"x": (first, slice(group * inputs, (group + 1) * inputs)), "w": (second, ALL)}
        rows, columns = self._rows.met_by(name, row), self._columns.met_by(name, column)
        return {other: (*at, rows[other], columns[other]) for other, at in channels.items()}


class _Axis:
    """The triples (pixel of x, tap of w, pixel of y) of a convolution's products along one axis, ordered by y."""

    def __init__(self, outputs: int, taps: int, size: int, stride: int, dilation: int, pad: int) -> None:
        y, w = np.divmod(np.arange(outputs * taps), taps)
        x = y * stride + w * dilation - pad
        inside = (x >= 0) & (x < size)
        self._triples = {"x": x[inside], "w": w[inside], "y": y[inside]}
        self._known: dict[tuple[str, int], dict[str, slice]] = {}

    def met_by(self, name: str, at: int) -> dict[str, slice]:
        """Return, as slices, the indices in x, w and y of the products that have index `at` in operand `name`."""
        if (name, at) not in self._known:
            met = self._triples[name] == at
            self._known[name, at] = {other: _sliced(values[met].tolist()) for other, values in self._triples.items()}
        return self._known[name, at]


def _sliced(numbers: list[int]) -> slice:
    """Return the slice that yields these evenly spaced numbers."""
    if not numbers:
        return slice(0, 0)
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    end = numbers[-1] + (1 if step > 0 else -1)
    return slice(numbers[0], end if end >= 0 else None, step)
