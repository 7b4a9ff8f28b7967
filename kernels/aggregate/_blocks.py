"""What one party does with compressed blocks: bits in 16-bit words and two means a block, or bytes and a scale.

Which of the two follows from the type of `sent`. Elements start:stop are done, and `start` begins a block.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import numpy as np

from kernels._numba import jit
from kernels.aggregate._formats import FORMATS
from kernels.aggregate._lines import LANES, add_chosen, less_chosen, ones, signs
from kernels.aggregate._numba import total_past

BIT_BLOCK, BYTE_BLOCK = FORMATS["onebit"].block, FORMATS["int8"].block


@jit
def send(gradient, left, sent, scales, start, stop):
    """Send gradient + left, and leave in `left` what was not sent."""
    x, sums = np.empty(BIT_BLOCK, np.float32), np.empty(2 * LANES, np.float32)
    block = _length(sent)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        g, rest = gradient[first:last], left[first:last]
        for j in range(last - first):
            x[j] = g[j] + rest[j]
        _quantise(x, rest, sent, scales, sums, first)


@jit
def own(left, sent, scales, message, message_scales, start, stop):
    """Add up what the workers sent and what was left of the sum before, and send that to all of them."""
    x, sums = np.empty(BIT_BLOCK, np.float32), np.empty(2 * LANES, np.float32)
    block = _length(message)
    for first in range(start, stop, block):
        rest = left[first : min(stop, first + block)]
        for j in range(len(rest)):
            x[j] = rest[j]
        for one, scale in zip(sent, scales):  # noqa: B905  # Numba's has no strict
            _add(x, one, scale, first, len(rest))
        _quantise(x, rest, message, message_scales, sums, first)


@jit
def receive(target, sent, scales, start, stop):
    """Target = what was sent."""
    x = np.empty(BIT_BLOCK, np.float32)
    block = _length(sent)
    for first in range(start, stop, block):
        part = target[first : min(stop, first + block)]
        x[:] = 0
        _add(x, sent, scales, first, len(part))
        total_past(part, (x,), 0, len(part))


@jit
def receive_step(weights, replicas, sent, scales, lr, start, stop):
    """Weights -= lr x what was sent; each replica is a copy of them."""
    x = np.empty(BIT_BLOCK, np.float32)
    block = _length(sent)
    for first in range(start, stop, block):
        last = min(stop, first + block)
        part = weights[first:last]
        x[:] = 0
        _add(x, sent, scales, first, len(part))
        for j in range(len(part)):
            part[j] -= lr * x[j]
        for replica in replicas:
            total_past(replica, (weights,), first, last)


@jit
def _length(sent):
    return BIT_BLOCK if sent.itemsize == 2 else BYTE_BLOCK


@jit
def _quantise(x, left, sent, scales, sums, start):
    """Send the block x, which begins at element `start`, and leave in `left` what was not sent."""
    if sent.itemsize == 2:
        words, numbers = BIT_BLOCK // LANES, 2 * (start // BIT_BLOCK)
        _to_bits(x, left, sent[start // LANES :][:words], scales[numbers : numbers + 2], sums)
    else:
        number = start // BYTE_BLOCK
        _to_bytes(x, left, sent[start:], scales[number : number + 1])


@jit
def _add(x, sent, scales, start, length):
    """Add to x what was sent of the block that begins at element `start`."""
    if sent.itemsize == 2:
        high, low = scales[2 * (start // BIT_BLOCK)], scales[2 * (start // BIT_BLOCK) + 1]
        words = sent[start // LANES :]
        for k in range(BIT_BLOCK // LANES):
            add_chosen(x, x, LANES * k, words[k], high, low)
    else:
        scale, multiples = scales[start // BYTE_BLOCK], sent[start:]
        for j in range(length):
            x[j] += np.float32(multiples[j]) * scale


@jit
def _to_bits(x, left, bits, means, sums):
    """Send a block as bits and two means; sums: room for partial sums."""
    length = len(left)
    x[length:] = 0
    sums[:] = 0
    count = length - BIT_BLOCK  # the zeros at the end have a bit each, and are no numbers
    for k in range(BIT_BLOCK // LANES):
        bits[k] = signs(x, LANES * k, sums)
        count += ones(bits[k])
    high = sums[:LANES].sum() / np.float32(max(count, 1))
    low = sums[LANES:].sum() / np.float32(max(length - count, 1))
    means[0], means[1] = high, low
    if length == BIT_BLOCK:
        for k in range(BIT_BLOCK // LANES):
            less_chosen(left, x, LANES * k, bits[k], high, low)
    else:
        for j in range(length):
            left[j] = x[j] - (high if x[j] >= 0 else low)


@jit
def _to_bytes(x, left, sent, scales):
    """Send a block as multiples of a scale."""
    largest = np.uint32(0)
    bits = x.view(np.uint32)
    for j in range(len(left)):
        largest = max(largest, bits[j] & np.uint32(0x7FFFFFFF))  # magnitudes are ordered as their bits are
    scales.view(np.uint32)[0] = largest
    scale = scales[0] / np.float32(127)
    scales[0] = scale
    times = np.float32(1) / scale if scale > 0 else np.float32(0)
    for j in range(len(left)):
        multiple = np.rint(x[j] * times)
        sent[j] = np.int8(multiple)
        left[j] = x[j] - multiple * scale
