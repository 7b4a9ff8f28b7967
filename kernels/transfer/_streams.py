"""The driver's copies on streams: on a second stream, in pieces, and through pinned buffers."""

from typing import Any

import numpy as np

from kernelmark import Launch

#: The number of pieces of an overlapped transfer, large enough that the first and the last piece matter little.
#: Each piece takes four entries of a stream's queue, and a held stream has room for about a thousand.
PIECES = 32
LEAST_BYTES = 2**18


class Side:
    """A second stream, which is forked from the timed one and joined to it."""

    def __init__(self, timed: Any) -> None:
        import cupy

        self._timed, self.stream = timed, cupy.cuda.Stream(non_blocking=True)
        self._forked, self._joined = cupy.cuda.Event(disable_timing=True), cupy.cuda.Event(disable_timing=True)

    def fork(self) -> None:
        """Make later work on this stream wait for the work queued on the timed stream so far."""
        self._forked.record(self._timed)
        self.stream.wait_event(self._forked)

    def join(self) -> None:
        """Make later work on the timed stream wait for the work queued on this stream so far."""
        self._joined.record(self.stream)
        self._timed.wait_event(self._joined)


def copied(kind: str, target: Any, source: Any, stream: Any) -> Launch:
    """Return a launch of the driver's copy of a whole array on a stream; kind: h2d, d2h or d2d."""
    return _copy(kind, target.data.ptr, source.data.ptr, source.nbytes, stream)


def _copy(kind: str, target: int, source: int, nbytes: int, stream: Any) -> Launch:
    import cupy

    runtime = cupy.cuda.runtime
    kinds = {
        "h2d": runtime.memcpyHostToDevice,
        "d2h": runtime.memcpyDeviceToHost,
        "d2d": runtime.memcpyDeviceToDevice,
    }
    way, on = kinds[kind], stream.ptr
    return lambda: runtime.memcpyAsync(target, source, nbytes, way, on)


def pieces(elements: int, itemsize: int, nbytes: int) -> list[slice]:
    """Cut elements into pieces of `nbytes` bytes; all except the last are whole units of 16 bytes."""
    step = nbytes // itemsize
    return [slice(first, min(first + step, elements)) for first in range(0, elements, step)]


def piece_bytes(nbytes: int) -> int:
    """Return the bytes of each of PIECES pieces, in whole units of 256 bytes."""
    return max(LEAST_BYTES, -(-nbytes // PIECES // 256) * 256)


class Slot:
    """A pinned buffer that pieces of pageable memory go through, one after the other."""

    NBYTES = 4 * 2**20

    def __init__(self, stream: Any) -> None:
        import cupy

        self._stream, self._ended = stream, cupy.cuda.Event(disable_timing=True)
        self._memory = cupy.cuda.alloc_pinned_memory(self.NBYTES)
        self._bytes = np.frombuffer(self._memory, np.uint8, self.NBYTES)

    def between(self, kind: str, device: Any, host: Any) -> tuple[Launch, Launch]:
        """Return two functions: the first begins to move a piece once the slot is free again; the second ends the move.

        h2d: the first copies the piece into the buffer and queues the driver's copy; the second does nothing. d2h: the
        first queues the driver's copy; the second waits for it and copies the piece out of the buffer.
        """
        buffer = self._bytes[: host.nbytes].view(host.dtype)
        ends = (device.data.ptr, self._memory.ptr) if kind == "h2d" else (self._memory.ptr, device.data.ptr)
        copy = _copy(kind, *ends, host.nbytes, self._stream)

        def queue() -> None:
            copy()
            self._ended.record(self._stream)

        def fill() -> None:
            self._ended.synchronize()
            np.copyto(buffer, host)
            queue()

        def empty() -> None:
            self._ended.synchronize()
            np.copyto(host, buffer)

        return (fill, lambda: None) if kind == "h2d" else (queue, empty)


def through(slots: list[Slot], kind: str, device: Any, host: Any) -> Launch:
    """Return a launch that moves pieces between device and pageable memory, through the slots in turn."""
    count, every = len(slots), pieces(host.size, host.itemsize, Slot.NBYTES)
    moves = [slots[number % count].between(kind, device[piece], host[piece]) for number, piece in enumerate(every)]
    begun = [begin for begin, _ in moves] + [lambda: None] * count
    ended = [lambda: None] * count + [end for _, end in moves]
    steps = [step for pair in zip(ended, begun, strict=True) for step in pair]

    def launch() -> None:
        for step in steps:
            step()

    return launch
