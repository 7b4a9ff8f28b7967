"""Transfers by the driver's copies: between a GPU and each kind of host memory, within a GPU, between two GPUs."""

from typing import Any

from kernelmark import Launch, kernel
from kernelmark.kernels._gpus import between
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.transfer._pages import bind_to_node, require_node
from kernelmark.kernels.transfer._streams import Side, Slot, copied, piece_bytes, pieces, through
from kernelmark.kernels.transfer.problem import MOST_WORK, TransferOperands, TransferProblem

COPY: dict[str, Any] = {"provider": "cuda", "device": "cuda", "numerics": "exact", "modules": ("cupy",), "works": (0,)}
WORKED: dict[str, Any] = {
    "provider": "cuda",
    "device": "cuda",
    "modules": ("cupy",),
    "host_memory": "pinned",
    "dtypes": ("f32", "f64"),
    "directions": ("h2d",),
    "works": tuple(2**i for i in range(MOST_WORK.bit_length())),
}
BETWEEN = ("h2d", "d2h", "bidir")


def _from_host(problem: TransferProblem) -> str | None:
    """Return why a problem's source cannot lie on the NUMA node that the problem names, or None."""
    if problem.node is None or problem.direction != "d2h":
        return None
    return "a NUMA node was named for the source, which lies on the GPU"


def _driver_copies(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Return the launch of the driver's copy on the timed stream; `bidir` also copies back on a second stream."""
    if problem.direction != "bidir":
        return copied(problem.direction, x.b, x.a, x.stream)
    side = Side(x.stream)
    return in_turn(side.fork, copied("d2h", x.d, x.c, side.stream), copied("h2d", x.b, x.a, x.stream), side.join)


@kernel("transfer", directions=BETWEEN, synchronises=True, supports=_from_host, **COPY)
def pageable(problem: TransferProblem, x: TransferOperands) -> Launch:
    """The driver's copy from and to pageable memory, which the driver stages."""
    bind_to_node(x.a, problem.node)
    return _driver_copies(problem, x)


@kernel("transfer", directions=BETWEEN, host_memory="pinned", supports=_from_host, **COPY)
def pinned(problem: TransferProblem, x: TransferOperands) -> Launch:
    """The driver's copy from and to pinned memory."""
    require_node(problem.node)
    return _driver_copies(problem, x)


@kernel("transfer", directions=("h2d",), host_memory="write_combined", **COPY)
def write_combined(problem: TransferProblem, x: TransferOperands) -> Launch:
    """The driver's copy from pinned memory that the host writes past its caches and reads slowly."""
    require_node(problem.node)
    return _driver_copies(problem, x)


@kernel("transfer", directions=BETWEEN, host_memory="managed", supports=_from_host, **COPY)
def managed(problem: TransferProblem, x: TransferOperands) -> Launch:
    """The driver's copy from and to managed memory whose preferred location is the host."""
    require_node(problem.node)
    return _driver_copies(problem, x)


def _by_slots(count: int, problem: TransferProblem, x: TransferOperands) -> Launch:
    device, host = (x.b, x.a) if problem.direction == "h2d" else (x.a, x.b)
    if problem.direction == "h2d":
        bind_to_node(x.a, problem.node)
    return through([Slot(x.stream) for _ in range(count)], problem.direction, device, host)


SLOTS: dict[str, Any] = {"directions": ("h2d", "d2h"), "synchronises": True, "supports": _from_host, **COPY}


@kernel("transfer", library_scratch=lambda _: Slot.NBYTES, **SLOTS)
def staged(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Pageable memory, in pieces through one pinned buffer."""
    return _by_slots(1, problem, x)


@kernel("transfer", library_scratch=lambda _: 3 * Slot.NBYTES, **SLOTS)
def pipelined(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Pageable memory through three pinned buffers: the host copies a piece while another crosses the link."""
    return _by_slots(3, problem, x)


@kernel("transfer", directions=("d2d",), **COPY)
def device(problem: TransferProblem, x: TransferOperands) -> Launch:
    """The driver's copy within a GPU."""
    require_node(problem.node)
    return _driver_copies(problem, x)


@kernel("transfer", directions=("p2p",), spread=True, **COPY)
def peer(problem: TransferProblem, x: TransferOperands) -> Launch:
    """The driver's copy from one GPU into the memory of another."""
    require_node(problem.node)
    return between(1, x.b, 0, x.a, x.stream)


@kernel("transfer", **WORKED)
def serial(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Copies everything from pinned memory, then works on it."""
    require_node(problem.node)
    return in_turn(copied("h2d", x.b, x.a, x.stream), _arrived(problem, x, slice(None)))


@kernel("transfer", **WORKED)
def overlapped(problem: TransferProblem, x: TransferOperands) -> Launch:
    """Copies pieces from pinned memory on a second stream, and works on pieces that have arrived."""
    require_node(problem.node)
    side = Side(x.stream)
    steps: list[Launch] = [side.fork]
    for piece in pieces(problem.n, x.a.itemsize, piece_bytes(x.a.nbytes)):
        steps += [copied("h2d", x.b[piece], x.a[piece], side.stream), side.join, _arrived(problem, x, piece)]
    return in_turn(*steps)


def _arrived(problem: TransferProblem, x: TransferOperands, piece: slice) -> Launch:
    """Return the launch of the work on a piece that has arrived on the device."""
    part = x.b[piece]
    return x.launch(
        "transfer/cuda.arrived", f"transfer/n{part.size}/{problem.dtype}/d2d/work{problem.work}", a=part, b=part
    )
