"""Steps of workers and owners of stripes on compressed blocks: bits (16 a word) with two means, or bytes with a scale.

The element type of a message (`sent`) determines the format. A step processes the elements start:stop; a block begins
at `start`. Messages have room for whole blocks; a short block is padded with zeros. Gradients and residuals pass
through memory once, and a block of them stays in the first-level cache meanwhile.

Loops over whole blocks create no slices or tuples and make no calls: for each of these Numba counts references by
locked instructions, which took three times as long as the work on a block.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np
from numba.extending import register_jitable

from kernelmark.kernels._numba import jit
from kernelmark.kernels.aggregate._formats import FORMATS
from kernelmark.kernels.aggregate._lines import sum_line
from kernelmark.kernels.aggregate._messages import LANES, add_line, largest, less_line, signs, to_bytes
from kernelmark.kernels.aggregate._numba import total_past

BIT_BLOCK, BYTE_BLOCK = FORMATS["onebit"].block, FORMATS["int8"].block
#: The number of elements that are decoded before they are stored past the caches, a multiple of both formats' blocks. A
#: fence waits for these stores once per piece.
PIECE = 4096
inlined = register_jitable(inline="always")


@jit
def send(gradient, left, sent, scales, start, stop):
    """Encode gradient + left as a message, and store the unsent part in `left`."""
    block = _length(sent)
    last = start + (stop - start) // block * block
    _send(gradient, left, sent, scales, start, last, 0)
    if last < stop:
        rest = _filled(left, last, stop, block)
        words, numbers = _from(sent, scales, last)
        _send(_filled(gradient, last, stop, block), rest, words, numbers, 0, block, last + block - stop)
        left[last:stop] = rest[: stop - last]


@jit
def own(left, sent, scales, message, message_scales, start, stop):
    """Add the workers' messages and the unsent part of the last sum, and encode the sum as a message to all."""
    block = _length(message)
    last = start + (stop - start) // block * block
    _own(left, sent, scales, 0, message, message_scales, start, last, 0)
    if last < stop:
        rest = _filled(left, last, stop, block)
        words, numbers = _from(message, message_scales, last)
        _own(rest, sent, scales, last, words, numbers, 0, block, last + block - stop)
        left[last:stop] = rest[: stop - last]


@jit
def _send(gradient, left, sent, scales, start, stop, missing):
    """Encode whole blocks of gradient + left; the last one is padded with `missing` zeros."""
    block = _length(sent)
    x, sums = np.empty(block, np.float32), np.empty(2, np.float32)
    rows, message = (gradient, left), ((sent,), (scales,))
    for first in range(start, stop, block):
        for j in range(0, block, LANES):
            sum_line(x, j, rows, first + j)
        _quantise(x, sent, scales, sums, first, missing)
        _keep(left, x, message, first)


@jit
def _own(left, sent, scales, ahead, message, message_scales, start, stop, missing):
    """Encode whole blocks of `left` plus the messages' sum; element i of `left` is element i + `ahead` of a message."""
    block = _length(message)
    x, sums = np.empty(block, np.float32), np.empty(2, np.float32)
    own_message = (message,), (message_scales,)
    for first in range(start, stop, block):
        line, number = (ahead + first) // LANES, (ahead + first) // block
        for i in range(block // LANES):
            add_line(x, LANES * i, left, first + LANES * i, sent, scales, line + i, number)
        for j in range(block - missing, block):
            x[j] = 0
        _quantise(x, message, message_scales, sums, first, missing)
        _keep(left, x, own_message, first)


@jit
def receive(target, sent, scales, start, stop):
    """Decode a message to the target."""
    x, zeros, message = np.empty(PIECE, np.float32), np.zeros(LANES, np.float32), ((sent,), (scales,))
    for first in range(start, stop, PIECE):
        length = min(PIECE, stop - first)
        _read(x, zeros, message, first, length)
        total_past(target[first : first + length], (x,), 0, length)


@jit
def receive_step(weights, replicas, sent, scales, lr, start, stop):
    """Subtract lr times a message from the weights, and copy the new weights to each replica."""
    x, zeros, message = np.empty(PIECE, np.float32), np.zeros(LANES, np.float32), ((sent,), (scales,))
    for first in range(start, stop, PIECE):
        length = min(PIECE, stop - first)
        _read(x, zeros, message, first, length)
        part = weights[first : first + length]
        for j in range(length):
            part[j] -= lr * x[j]
        for replica in replicas:
            total_past(replica, (weights,), first, first + length)


@inlined
def _length(sent):
    return BIT_BLOCK if sent.itemsize == 2 else BYTE_BLOCK


@jit
def _filled(row, start, stop, length):
    """Return a copy of the elements start:stop, padded with zeros to `length`."""
    block = np.zeros(length, np.float32)
    block[: stop - start] = row[start:stop]
    return block


@jit
def _from(sent, scales, first):
    """Return the part of a message and of its scales that begins with the block at element `first`."""
    if sent.itemsize == 2:
        return sent[first // LANES :], scales[2 * (first // BIT_BLOCK) :]
    return sent[first:], scales[first // BYTE_BLOCK :]


@inlined
def _read(x, zeros, message, first, length):
    """Decode the `length` elements of a message that begin with the block at `first`, and store them in x."""
    sent, scales = message
    block = _length(sent[0])
    for begin in range(0, length, block):
        line, number = (first + begin) // LANES, (first + begin) // block
        for i in range(block // LANES):
            add_line(x, begin + LANES * i, zeros, 0, sent, scales, line + i, number)


@inlined
def _keep(left, x, message, first):
    """Store the unsent part of block x in `left`."""
    sent, scales = message
    line, number = first // LANES, first // len(x)
    for i in range(len(x) // LANES):
        less_line(left, first + LANES * i, x, LANES * i, sent, scales, line + i, number)


@inlined
def _quantise(x, sent, scales, sums, first, missing):
    """Encode the block x, which begins at element `first`; sums: scratch for two sums."""
    if sent.itemsize == 2:
        _to_bits(x, sent, scales, sums, first, missing)
    else:
        _to_bytes(x, sent, scales, first)


@inlined
def _to_bits(x, sent, means, sums, first, missing):
    """Encode a block as bits and two means."""
    ones, number = signs(sent, x, first // LANES, sums), 2 * (first // BIT_BLOCK)
    means[number] = sums[0] / np.float32(max(ones - missing, 1))  # `ones` includes the zeros of the padding
    means[number + 1] = sums[1] / np.float32(max(BIT_BLOCK - ones, 1))


@inlined
def _to_bytes(x, sent, scales, first):
    """Encode a block as multiples of a scale."""
    scale = largest(x) / np.float32(127)
    scales[first // BYTE_BLOCK] = scale
    times = np.float32(1) / scale if scale > 0 else np.float32(0)
    for j in range(0, BYTE_BLOCK, LANES):
        to_bytes(sent, x, first, j, times)
