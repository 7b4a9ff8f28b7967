"""Numba functions that move the elements of flat arrays of unsigned integers; each is serial and releases the GIL.

`side` is the width of the block that is transposed in registers (`_blocks.width`); `start:stop` is a thread's share.
"""

import numpy as np

from kernelmark.kernels._host import LINE_BYTES
from kernelmark.kernels._numba import fence, jit, move
from kernelmark.kernels.transpose._blocks import AHEAD, block, block_streaming, blocks_streaming, fetch

PIECE = 2048  # elements moved at a time through a buffer in the first-level cache


@jit
def transpose(b, a, m, n, side, skip, streaming, run, down, start, stop):  # type: ignore[no-untyped-def]
    """Write rows start:stop of b (n x m) = a^T for a (m x n); the first `skip` elements of each row are set singly.

    Blocks are transposed part by part; each part of `a` has `down` rows of `run` elements. If streaming, lines of b are
    written past the caches in pairs, which is faster than one by one. Each block also prefetches several lines of a few
    rows of a, which is faster than one line of each row.
    """
    ahead = AHEAD // a.itemsize
    tall = LINE_BYTES // a.itemsize if streaming else side
    deep = 2 * tall if streaming else side
    end, last = skip + (m - skip) // tall * tall, start + (stop - start) // side * side
    for ii in range(skip, end, down):
        for jj in range(start, last, run):
            for i in range(ii, min(end, ii + down), deep):
                for j in range(jj, min(last, jj + run), side):
                    if not streaming:
                        block(b, j * m + i, m, a, i * n + j, n)
                    elif i + deep <= end:
                        turn = (j - jj) % ahead
                        fetch(a, (i + turn * deep // ahead) * n + j - turn + ahead, n)
                        blocks_streaming(b, j * m + i, m, a, i * n + j, n)
                    else:
                        block_streaming(b, j * m + i, m, a, i * n + j, n)
    for j in range(start, last):
        for i in range(skip):
            b[j * m + i] = a[i * n + j]
        for i in range(end, m):
            b[j * m + i] = a[i * n + j]
    for j in range(last, stop):
        for i in range(m):
            b[j * m + i] = a[i * n + j]
    if streaming:
        fence()  # type: ignore[call-arg]


@jit
def transpose_each(b, a, m, n, side, skip, streaming, run, down, start, stop):  # type: ignore[no-untyped-def]
    """Write rows start:stop of all matrices in b (each n x m), one matrix after another, as `transpose` does."""
    for g in range(start // n, -(-stop // n)):
        first, last, o = max(start - g * n, 0), min(stop - g * n, n), g * m * n
        transpose(b[o : o + m * n], a[o : o + m * n], m, n, side, skip, streaming, run, down, first, last)  # type: ignore[no-untyped-call]


@jit
def swap(x, s, n, side, first, step):  # type: ignore[no-untyped-def]
    """Transpose the n x n matrix x in place by swaps across the diagonal, for block rows first, first + step, ..."""
    whole = n // side * side
    for i in range(first * side, whole, step * side):
        for j in range(i, whole, side):
            block(s, 0, side, x, i * n + j, n)
            if i != j:
                block(x, i * n + j, n, x, j * n + i, n)
            for k in range(side):
                for q in range(side):
                    x[(j + k) * n + i + q] = s[k * side + q]
    for j in range(whole + first, n, step):
        for i in range(j):
            x[i * n + j], x[j * n + i] = x[j * n + i], x[i * n + j]


@jit
def quarter(b, d, ldb, a, s, lda, m, n, side):  # type: ignore[no-untyped-def]
    """Transpose the whole blocks of an m x n part of `a`, which starts at element s, into `b` at element d."""
    for j in range(0, n, side):
        for i in range(0, m, side):
            block(b, d + j * ldb + i, ldb, a, s + i * lda + j, lda)


@jit
def bands(x, s, m, n, side, start, stop):  # type: ignore[no-untyped-def]
    """Transpose each of the consecutive m x n matrices start:stop in x, through the scratch s.

    A matrix is copied into s and transposed from there, since a copy reads memory faster than blocks do. If a matrix
    has four quarters of whole blocks, the lower right one is copied only after the left half is written, so that s
    stays smaller: a matrix and a whole copy of it would fill the second-level cache.
    """
    h, w = m // 2, n // 2
    for o in range(start * m * n, stop * m * n, m * n):
        if m % (2 * side) == 0 and n % (2 * side) == 0:
            move(s, 0, x, o, h * n)
            quarter(x, o, m, s, 0, n, h, w, side)  # type: ignore[no-untyped-call]
            quarter(x, o + h, m, x, o + h * n, n, h, w, side)  # type: ignore[no-untyped-call]
            for i in range(h):
                move(s, h * n + i * w, x, o + (h + i) * n + w, w)
            quarter(x, o + w * m, m, s, w, n, h, w, side)  # type: ignore[no-untyped-call]
            quarter(x, o + w * m + h, m, s, h * n, w, h, w, side)  # type: ignore[no-untyped-call]
        else:
            move(s, 0, x, o, m * n)
            transpose(x[o : o + m * n], s, m, n, side, 0, False, side, m, 0, n)  # type: ignore[no-untyped-call]


@jit
def cycles(rows, columns, longest):  # type: ignore[no-untyped-def]
    """Return the permutation that transposes a grid of chunks, as segments of its cycles, at most `longest` moves each.

    Place q of the result receives the chunk at place q % rows * columns + q // rows. The arrays are starts, moves, ends
    and saved. A segment begins at place starts[e], makes moves[e] moves, and ends with saved chunk number ends[e]. If
    ends[e] is -1, the segment is a whole cycle and ends with its first chunk. saved: the places of the chunks that must
    be saved before any segment begins.
    """
    seen = np.zeros(rows * columns, np.bool_)
    starts, moves, ends, saved = [0][:0], [0][:0], [0][:0], [0][:0]
    for leader in range(rows * columns):
        length, q = 0, leader
        while not seen[q]:
            seen[q] = True
            length, q = length + 1, q % rows * columns + q // rows
        first, left = len(saved), length
        while left > 0 and length > 1:
            count = min(longest, left)
            starts.append(q)
            moves.append(count - 1)
            if length > longest:
                saved.append(q)
            for _ in range(count):
                q = q % rows * columns + q // rows
            left -= count
            ends.append(-1 if length <= longest else len(saved) if left > 0 else first)
    return np.array(starts), np.array(moves), np.array(ends), np.array(saved)


@jit
def save(x, copies, saved, chunk, start, stop):  # type: ignore[no-untyped-def]
    """Save the chunks that one segment overwrites although another segment still needs them."""
    for e in range(start, stop):
        move(copies, e * chunk, x, saved[e] * chunk, chunk)


@jit
def follow(x, s, copies, starts, moves, ends, rows, columns, chunk, start, stop):  # type: ignore[no-untyped-def]
    """Follow segments start:stop of the cycles of a rows x columns grid of chunks."""
    for e in range(start, stop):
        q = starts[e]
        if ends[e] < 0:
            move(s, 0, x, q * chunk, chunk)
        for _ in range(moves[e]):
            p = q % rows * columns + q // rows
            move(x, q * chunk, x, p * chunk, chunk)
            q = p
        if ends[e] < 0:
            move(x, q * chunk, s, 0, chunk)
        else:
            move(x, q * chunk, copies, ends[e] * chunk, chunk)


@jit
def cut(x, border, piece, m, n, rest):  # type: ignore[no-untyped-def]
    """Move the last `rest` columns of x (m x n) into border (rest x m), and make the other columns contiguous."""
    for i in range(m):
        for k in range(rest):
            border[k * m + i] = x[(i + 1) * n - rest + k]
        for k in range(0, n - rest, len(piece)):
            count = min(len(piece), n - rest - k)
            move(piece, 0, x, i * n + k, count)
            move(x, i * (n - rest) + k, piece, 0, count)


@jit
def append(x, border):  # type: ignore[no-untyped-def]
    """Copy the border to the end of x, after the other columns, which `cut` made contiguous."""
    move(x, x.size - border.size, border, 0, border.size)


@jit
def widen(x, border, piece, m, n, rest):  # type: ignore[no-untyped-def]
    """Undo `cut`: move the rows of x (m x (n - rest)) apart, and append to each its row of border (m x rest)."""
    for i in range(m - 1, -1, -1):
        end = n - rest
        while end > 0:
            count = min(len(piece), end)
            end -= count
            move(piece, 0, x, i * (n - rest) + end, count)
            move(x, i * n + end, piece, 0, count)
        for k in range(rest):
            x[(i + 1) * n - rest + k] = border[i * rest + k]
