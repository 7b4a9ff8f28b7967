"""Helper processes, one per lane (a band of the data), that the worker starts and directs; they end with the worker."""

import ctypes
import fcntl
import itertools
import mmap
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelmark import Unsupported
from kernelmark.kernels.transfer._helper import ADDRESS, DONE, MAP, PIPE, REQUEST, RING, SLOT_BYTES, SLOTS, UNMAP

HELPER = Path(__file__).with_name("_helper.py")
RING_HANDLE = 0
#: The requested capacity of a pipe, the most that unprivileged users may request.
PIPE_BYTES = 2**20
_libc = ctypes.CDLL(None, use_errno=True)


class Vector(ctypes.Structure):
    """A range of a process's memory, as process_vm_readv expects it (struct iovec)."""

    _fields_ = (("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


class Peer:
    """A helper process in the worker's process group. It inherits only descriptors that the worker passes to it."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair()
        self._pipe, their_end = os.pipe()
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        fds = theirs.fileno(), their_end
        words = [sys.executable, "-I", "-S", str(HELPER), *map(str, fds)]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(words, pass_fds=fds, stdin=null, stdout=null, stderr=null)
        theirs.close()
        os.close(their_end)
        self._handles = itertools.count(RING_HANDLE)
        ring = os.memfd_create("kernelmark")
        os.ftruncate(ring, SLOTS * SLOT_BYTES)
        self._map = mmap.mmap(ring, SLOTS * SLOT_BYTES)
        self._ring = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.share(ring, SLOTS * SLOT_BYTES)
        os.close(ring)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def share(self, fd: int, nbytes: int) -> tuple[int, int]:
        """Map a file in the helper; return its number and address there. Raises RuntimeError if the helper ended."""
        handle = next(self._handles)
        with self._asking():
            socket.send_fds(self._requests, [REQUEST.pack(MAP, handle, 0, nbytes)], [fd])
            return handle, ADDRESS.unpack(self._receive(ADDRESS.size))[0]

    def forget(self, handle: int) -> None:
        """Let the helper unmap a file, if the helper still exists."""
        with suppress(OSError):
            self._requests.sendall(REQUEST.pack(UNMAP, handle, 0, 0))

    def ring(self, handle: int, start: int, nbytes: int, target: int) -> None:
        """Copy bytes of a file to an address through slots, which the helper fills and this process empties."""
        with self._asking():
            self._requests.sendall(REQUEST.pack(RING, handle, start, nbytes))
            for number, first in enumerate(range(0, nbytes, SLOT_BYTES)):
                self._receive(1)
                slot = self._ring + number % SLOTS * SLOT_BYTES
                ctypes.memmove(target + first, slot, min(SLOT_BYTES, nbytes - first))
                if first + SLOTS * SLOT_BYTES < nbytes:
                    self._requests.sendall(DONE)

    def pipe(self, handle: int, start: int, target: memoryview) -> None:
        """Read bytes of a file from a pipe, into which the helper writes them."""
        with self._asking():
            self._requests.sendall(REQUEST.pack(PIPE, handle, start, target.nbytes))
            while target:
                count = os.readv(self._pipe, [target])
                if not count:
                    raise BrokenPipeError
                target = target[count:]

    def read(self, address: int, target: int, nbytes: int) -> None:
        """Copy from the helper's memory to this process, in system calls of at most 2 GB each."""
        while nbytes:
            here, there = Vector(target, nbytes), Vector(address, nbytes)
            count = _libc.process_vm_readv(self.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
            if count <= 0:
                self._complain()
            address, target, nbytes = address + count, target + count, nbytes - count

    def _complain(self) -> None:
        """Raise Unsupported if the system forbids reading another process's memory, otherwise the system's error."""
        if not self.alive:
            raise RuntimeError(self._ended)
        number = ctypes.get_errno()
        if number in (1, 38):  # EPERM, ENOSYS
            raise Unsupported(f"process_vm_readv is not allowed here: {os.strerror(number)}")
        raise OSError(number, os.strerror(number))

    @property
    def _ended(self) -> str:
        return f"the helper process ended with exit status {self._process.wait()} during a transfer"

    def _receive(self, count: int) -> bytes:
        data = self._requests.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise BrokenPipeError
        return data

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """In this context, raise RuntimeError with the exit status if the helper process ends instead of answering."""
        try:
            yield
        except (BrokenPipeError, ConnectionResetError):
            raise RuntimeError(self._ended) from None


@lru_cache
def _spawned(lane: int, generation: int) -> Peer:
    return Peer()


def peer(lane: int) -> Peer:
    """Return the helper process of a lane; start a new one if the last ended. Raises Unsupported if not on Linux."""
    if not (hasattr(os, "memfd_create") and hasattr(_libc, "process_vm_readv")):
        raise Unsupported("sharing memory with another process by a file descriptor needs Linux")
    return next(helper for helper in (_spawned(lane, number) for number in itertools.count()) if helper.alive)


class Shared:
    """An operand's file, mapped in a helper process while this object lives, and the operand's `address` there."""

    def __init__(self, peer: Peer, array: Any) -> None:
        self.start = array.ctypes.data - array.file.base
        self.handle, base = peer.share(array.file.fd, array.file.nbytes)
        self.address = base + self.start
        weakref.finalize(self, peer.forget, self.handle)
