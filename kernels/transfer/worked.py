"""Transfers within the host's memory, with multiply-adds on each element after it has arrived.

Each lane moves a band of elements. `serial` copies and then works, `arrived` omits the copy, and `staged` has two
threads per lane, so that copy and work can overlap. The overlap is the time that this saves, divided by the time of the
copy or of the work, whichever is shorter.
"""

from functools import lru_cache, partial
from typing import Any

import numpy as np

from kernelmark import Launch, kernel
from kernelmark.kernels._host import registers
from kernelmark.kernels._launches import in_bands, in_turn
from kernelmark.kernels.transfer._pages import bind_to_node
from kernelmark.kernels.transfer.problem import MOST_WORK, SCALE, SHIFT, TransferOperands, TransferProblem

#: Bytes of a piece, and pieces by which the copy may be ahead of the work: these fit a cache that both threads share.
PIECE_BYTES, AHEAD = 2**18, 32
WORKED: dict[str, Any] = {
    "provider": "numba",
    "device": "cpu",
    "dtypes": ("f32", "f64"),
    "directions": ("h2h",),
    "modules": ("numba",),
    "threaded": True,
    "works": tuple(2**i for i in range(MOST_WORK.bit_length())),
}


def _work(problem: TransferProblem, target: Any, source: Any) -> Launch:
    """Return a launch of the multiply-adds: target = source after all of them."""
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels.transfer import _work as loops

    return bind(loops.work, target, source, *_constants(problem, source))


def _constants(problem: TransferProblem, source: Any) -> tuple[Any, ...]:
    """Return the loops' arguments after the arrays: scale, shift, steps, and the number of elements in registers."""
    return source.dtype.type(SCALE), source.dtype.type(SHIFT), problem.work, registers().group(source.itemsize)


def _lanes(threads: int) -> int:
    """Return the number of lanes, which have two threads each in `staged`."""
    return max(1, threads // 2)


@kernel("transfer", **WORKED)
def serial(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Copies everything, then works on it, on half of the threads."""
    bind_to_node(x.a, problem.node)

    def band(start: int, stop: int) -> Launch:
        part = x.b[start:stop]
        return in_turn(partial(np.copyto, part, x.a[start:stop]), _work(problem, part, part))

    return in_bands(problem.n, _lanes(x.threads), band)


@kernel("transfer", **WORKED)
def arrived(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Works on data that have arrived, without the copy, on half of the threads."""
    bind_to_node(x.a, problem.node)
    lanes = _lanes(x.threads)
    return in_bands(problem.n, lanes, lambda i, j: _work(problem, x.b[i:j], x.a[i:j]))


@lru_cache
def _stager(lane: int) -> Any:
    """Return the executor of a lane's copying thread, which lasts as long as the process."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, thread_name_prefix=f"kernelmark-stage{lane}")


@kernel("transfer", **WORKED)
def staged(problem: TransferProblem, x: TransferOperands) -> Launch:
    """A staging thread copies piece after piece while another works on pieces that have arrived."""
    bind_to_node(x.a, problem.node)
    lanes = iter(range(_lanes(x.threads)))
    return in_bands(problem.n, _lanes(x.threads), lambda i, j: _staged(problem, x.b[i:j], x.a[i:j], next(lanes)))


def _staged(problem: TransferProblem, target: Any, source: Any, lane: int) -> Launch:
    """Return a launch on two threads that share counts of pieces, so that neither needs the interpreter per piece."""
    from kernelmark.kernels._numba import bind
    from kernelmark.kernels.transfer import _work as loops

    constants, counts = _constants(problem, source), np.zeros(16, np.int64)
    step = PIECE_BYTES // source.itemsize // constants[-1] * constants[-1]  # whole groups, which are worked on at once
    copy = bind(loops.stage, target, source, step, counts, AHEAD)
    work = bind(loops.work_on_arrival, target, *constants, step, counts)
    stage = _stager(lane)

    def launch() -> None:
        counts[:] = 0
        copying = stage.submit(copy)
        work()
        copying.result()

    return launch
