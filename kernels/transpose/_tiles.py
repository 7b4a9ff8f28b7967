"""In-place transposition of a rectangle on the CPU, any m x n, in two passes over memory.

The longer dimension is cut into strips of T. With m <= n the matrix is an m x n/T grid of chunks of T elements. The
grid is transposed by following its cycles, which leaves n/T strips (m x T, contiguous) that are transposed one by one
in cache. With m > n the same is done backwards. If T does not divide the longer dimension, scratch holds the remainder,
and rows are moved together (or apart) to close (or open) the remainder's gaps. The stages come from Sung, Gomez-Luna
et al., "In-place transposition of rectangular matrices on accelerators", PPoPP 2014; chunks instead of tiles make the
third stage unnecessary. Cycles are cut into segments, so that threads share even a grid that is a single cycle.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

from kernelmark import Launch
from kernelmark.kernels._host import second_level_bytes
from kernelmark.kernels._launches import in_bands
from kernelmark.kernels._numba import bind
from kernelmark.kernels.transpose import _numba as moves
from kernelmark.kernels.transpose._blocks import width
from kernelmark.kernels.transpose._strips import strips
from kernelmark.kernels.transpose.problem import TransposeOperands, TransposeProblem

RUN_BYTES = 256  # bytes of the remainder that are moved at a time


def on_workers(length: int, workers: int, run: Callable[[int, int, int], Launch]) -> list[Launch]:
    """Return a list of one launch of `run(worker, start, stop)` on bands of `length`; an empty list if length is 0."""
    worker = count()
    return [in_bands(length, workers, lambda start, stop: run(next(worker), start, stop))] if length else []


def square(flat: Any, problem: TransposeProblem, x: TransposeOperands) -> list[Launch]:
    """Swap blocks across the diagonal; threads take rows of blocks in turn, since the rows get shorter."""
    n, side = problem.n, width(flat.itemsize)
    buffers = x.scratch((x.threads, side * side), problem.dtype).view(flat.dtype)

    def run(worker: int, start: int, stop: int) -> Launch:
        return bind(moves.swap, flat, buffers[worker], n, side, start, x.threads)

    return on_workers(x.threads, x.threads, run)


def rectangle(flat: Any, problem: TransposeProblem, x: TransposeOperands) -> list[Launch]:
    """Return the launches of the stages. All threads share each stage, except that only one thread moves whole rows."""
    m, n, shorter, kind = problem.m, problem.n, min(problem.m, problem.n), flat.dtype
    line_bytes, cache_bytes = shorter * flat.itemsize, second_level_bytes()
    size, workers, rest = strips(max(m, n), line_bytes, x.threads, cache_bytes, x.tile.STRIP)
    many = max(m, n) // size
    buffers = x.scratch((workers, size * shorter), problem.dtype).view(kind)
    border = x.scratch((rest * shorter,), problem.dtype).view(kind) if rest else None
    rows, columns = (m, many) if m <= n else (many, n)
    starts, lengths, ends, saved = moves.cycles(rows, columns, x.tile.SEGMENT)  # type: ignore[no-untyped-call]
    copies = x.scratch((max(1, len(saved)), size), problem.dtype).view(kind).reshape(-1)
    inner = (m, size) if m <= n else (size, n)
    side = width(flat.itemsize)

    def keep(_: int, start: int, stop: int) -> Launch:
        return bind(moves.save, flat, copies, saved, size, start, stop)

    def grid(worker: int, start: int, stop: int) -> Launch:
        table = (starts, lengths, ends, rows, columns, size)
        return bind(moves.follow, flat, buffers[worker], copies, *table, start, stop)

    def strip(worker: int, start: int, stop: int) -> Launch:
        return bind(moves.bands, flat, buffers[worker], *inner, side, start, stop)

    chunks = on_workers(len(saved), x.threads, keep) + on_workers(len(starts), workers, grid)
    whole = on_workers(many, workers, strip) if size > 1 else []
    if m <= n:
        return _cut(flat, border, buffers[0], m, n, rest) + chunks + whole + _append(flat, border)
    return _stash(flat, border, m, n, rest, side) + whole + chunks + _widen(flat, border, buffers[0], n, m, rest)


def _cut(flat: Any, border: Any, buffer: Any, m: int, n: int, rest: int) -> list[Launch]:
    return [bind(moves.cut, flat, border, buffer[: moves.PIECE], m, n, rest)] if rest else []


def _append(flat: Any, border: Any) -> list[Launch]:
    return [bind(moves.append, flat, border)] if border is not None else []


def _stash(flat: Any, border: Any, m: int, n: int, rest: int, side: int) -> list[Launch]:
    """Return the launch that transposes the last `rest` rows into `border`; these become the last columns."""
    tail = flat[(m - rest) * n :]
    run = RUN_BYTES // flat.itemsize
    return [bind(moves.transpose, border, tail, rest, n, side, 0, False, run, rest, 0, n)] if rest else []


def _widen(flat: Any, border: Any, buffer: Any, m: int, n: int, rest: int) -> list[Launch]:
    return [bind(moves.widen, flat, border, buffer[: moves.PIECE], m, n, rest)] if rest else []
