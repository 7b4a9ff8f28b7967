"""Serial operations on the elements start:stop of arrays of equal length, which release the GIL.

`rows` and `replicas` are tuples of arrays; the number of arrays is a constant of the compiled function.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernelmark.kernels._host import LINE_BYTES
from kernelmark.kernels._numba import fence, jit
from kernelmark.kernels.aggregate._lines import sum_line, sum_line_past

PIECE = 2048  # elements of a buffer, which stays in the first-level cache


@jit
def few(target, rows, start, stop):
    """Store the sum of rows in target, element by element."""
    for j in range(start, stop):
        total = 0.0
        for row in rows:
            total += row[j]
        target[j] = total


@jit
def total(target, rows, start, stop):
    """Store the sum of rows in target by ordinary stores, which leave it in the cache."""
    line = LINE_BYTES // target.itemsize
    last = start + (stop - start) // line * line
    for j in range(start, last, line):
        sum_line(target, j, rows, j)
    few(target, rows, last, stop)


@jit
def total_past(target, rows, start, stop):
    """Store the sum of rows in target by streaming stores, which do not read lines of target first."""
    line = LINE_BYTES // target.itemsize
    ahead = -(target.ctypes.data // target.itemsize + start) % line
    first = min(stop, start + ahead)
    last = first + (stop - first) // line * line
    few(target, rows, start, first)
    for j in range(first, last, line):
        sum_line_past(target, j, rows, j)
    few(target, rows, last, stop)
    fence()  # type: ignore[call-arg]


@jit
def step(weights, replicas, rows, lr, start, stop):
    """Subtract lr times the sum of rows from the weights, and copy the new weights to each replica."""
    piece = np.empty(PIECE, weights.dtype)
    for first in range(start, stop, PIECE):
        last = min(stop, first + PIECE)
        part = weights[first:last]
        piece[:] = 0
        for row in rows:
            addend = row[first:last]
            for j in range(len(addend)):
                piece[j] += addend[j]
        for j in range(len(part)):
            part[j] -= lr * piece[j]
        for replica in replicas:
            total_past(replica, (weights,), first, last)


@jit
def to_bf16(sent, row, start, stop):
    """Convert a row to BF16 in `sent`, rounded to nearest, ties to even; NaN stays NaN."""
    to, bits = sent[start:stop], row[start:stop].view(np.uint32)
    for j in range(len(to)):
        rounded = bits[j] + np.uint32(0x7FFF) + ((bits[j] >> np.uint32(16)) & np.uint32(1))
        is_nan = bits[j] & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000)  # rounding could turn a NaN into a number
        to[j] = (np.uint32(0x7FC00000) if is_nan else rounded) >> np.uint32(16)


@jit
def from_bf16(target, message, start, stop):
    """Convert a BF16 message to FP32 in target."""
    bits, words = target[start:stop].view(np.uint32), message[start:stop]
    for j in range(len(words)):
        bits[j] = np.uint32(words[j]) << np.uint32(16)


@jit
def sum_bf16(message, sent, start, stop):
    """Store the sum of BF16 messages, added in FP32 and rounded to BF16, in message."""
    piece, addend = np.empty(PIECE, np.float32), np.empty(PIECE, np.float32)
    for first in range(start, stop, PIECE):
        length = min(stop - first, PIECE)
        piece[:] = 0
        for row in sent:
            from_bf16(addend, row[first : first + length], 0, length)
            for j in range(length):
                piece[j] += addend[j]
        to_bf16(message[first : first + length], piece, 0, length)
