"""Transfers within the host's memory from one process to another; the operands lie in memory that both can map."""

from collections.abc import Callable
from typing import Any

from kernelmark import Launch, kernel
from kernelmark.kernels._launches import in_bands
from kernelmark.kernels.transfer._pages import bind_to_node
from kernelmark.kernels.transfer._peer import Peer, Shared, peer
from kernelmark.kernels.transfer.host import H2H
from kernelmark.kernels.transfer.problem import TransferOperands, TransferProblem

PROCESS: dict[str, Any] = {**H2H, "provider": "process", "host_memory": "shared"}
#: Moves bytes from a place in `a`, which a helper process maps, to a place in `b`.
Move = Callable[[Peer, Shared, int, Any], None]


def _by(move: Move, problem: TransferProblem, x: TransferOperands, lanes: int) -> Launch:
    """Return a launch that moves bands of bytes, each band from its own helper process."""
    bind_to_node(x.a, problem.node)
    a, b = x.a.view("u1"), x.b.view("u1")
    numbers = iter(range(lanes))

    def band(start: int, stop: int) -> Launch:
        helper = peer(next(numbers))
        source, target = Shared(helper, a), b[start:stop]
        return lambda: move(helper, source, start, target)

    return in_bands(b.size, lanes, band)


def _pairs(threads: int) -> int:
    """Return the number of lanes; each occupies two threads, one in each process."""
    return max(1, threads // 2)


@kernel("transfer", **PROCESS)
def shared(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Two processes and two copies: one fills slots of shared memory, the other empties them."""

    def move(helper: Peer, source: Shared, start: int, target: Any) -> None:
        helper.ring(source.handle, source.start + start, target.nbytes, target.ctypes.data)

    return _by(move, problem, x, _pairs(x.threads))


@kernel("transfer", **PROCESS)
def readv(problem: TransferProblem, x: TransferOperands) -> Launch:
    """One copy by process_vm_readv from the memory of another process."""

    def move(helper: Peer, source: Shared, start: int, target: Any) -> None:
        helper.read(source.address + start, target.ctypes.data, target.nbytes)

    return _by(move, problem, x, x.threads)


@kernel("transfer", **PROCESS)
def pipe(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Two processes and a pipe: one writes, the other reads."""

    def move(helper: Peer, source: Shared, start: int, target: Any) -> None:
        helper.pipe(source.handle, source.start + start, memoryview(target))

    return _by(move, problem, x, _pairs(x.threads))
