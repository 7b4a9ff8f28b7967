"""The helper process of a transfer between two processes, which maps memory files and sends their data on request.

This file is run as a script with two descriptors: a socket for requests and the writing end of a pipe. It imports only
the standard library, so that it starts quickly. It ends when the socket closes, which happens if the worker is killed.
"""

import ctypes
import mmap
import os
import signal
import socket
import struct
import sys

#: A request: the action and three numbers. MAP is answered by an address, RING by DONE for each slot.
REQUEST, ADDRESS = struct.Struct("<cqqq"), struct.Struct("<q")
MAP, UNMAP, RING, PIPE = b"m", b"u", b"r", b"p"
#: A transfer with two copies goes through slots of shared memory, which are filled and emptied in turn.
SLOTS, SLOT_BYTES = 4, 2**18
DONE = b"."


class Mapped:
    """A file that is mapped as a whole; all of its pages are in this process's page tables."""

    def __init__(self, fd: int, nbytes: int) -> None:
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self._map = mmap.mmap(fd, nbytes, flags=flags)
        os.close(fd)
        self._first = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._first)

    def bytes(self, start: int, nbytes: int) -> memoryview:
        """Return a part of the file, without a copy."""
        return memoryview(self._map)[start : start + nbytes]


def main(requests_fd: int, pipe_fd: int) -> None:
    """Answer requests until the socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides what an interrupt does
    requests = socket.socket(fileno=requests_fd)
    known: dict[int, Mapped] = {}
    try:
        while True:
            data, fds, _, _ = socket.recv_fds(requests, REQUEST.size, 1, socket.MSG_WAITALL)
            if len(data) < REQUEST.size:
                return
            _answer(REQUEST.unpack(data), fds, known, requests, pipe_fd)
    except (BrokenPipeError, ConnectionResetError):
        return


def _answer(
    request: tuple[bytes, int, int, int], fds: list[int], known: dict[int, Mapped], requests: socket.socket, pipe: int
) -> None:
    what, handle, start, nbytes = request
    if what == MAP:
        known[handle] = Mapped(fds[0], nbytes)
        requests.sendall(ADDRESS.pack(known[handle].address))
    elif what == UNMAP:
        known.pop(handle, None)
    elif what == RING:
        _through_the_ring(known[handle], known[0], start, nbytes, requests)
    elif what == PIPE:
        part = known[handle].bytes(start, nbytes)
        while part:
            part = part[os.write(pipe, part) :]


def _through_the_ring(source: Mapped, ring: Mapped, start: int, nbytes: int, requests: socket.socket) -> None:
    """Copy bytes of a file into slot after slot, and wait for each slot that is still full."""
    for number, first in enumerate(range(0, nbytes, SLOT_BYTES)):
        if number >= SLOTS and not requests.recv(1):
            raise BrokenPipeError
        slot = ring.address + number % SLOTS * SLOT_BYTES
        ctypes.memmove(slot, source.address + start + first, min(SLOT_BYTES, nbytes - first))
        requests.sendall(DONE)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
