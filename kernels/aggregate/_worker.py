"""The main loop of a worker process, which maps arrays, compiles its steps and performs them on request."""

import mmap
import os
import pickle
import signal
import socket
from collections.abc import Sequence

import numpy as np

from kernelmark import Array, Launch
from kernelmark.kernels.aggregate._team import DESCRIPTORS, DONE, DROP, HEADER, TAKE, Mapped, Order
from kernelmark.kernels.aggregate._threads import call_of


def main(descriptor: int) -> None:
    """Serve requests on the socket until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides what an interrupt does
    plans: dict[int, list[Launch | None]] = {}
    with socket.socket(fileno=descriptor) as link:
        while True:
            header, files, *_ = socket.recv_fds(link, HEADER.size, DESCRIPTORS, socket.MSG_WAITALL)
            if len(header) < HEADER.size:
                return
            number, phase, length = HEADER.unpack(header)
            if phase == DROP:
                plans.pop(number, None)
                continue
            if phase == TAKE:
                plans[number] = _compiled(pickle.loads(_received(link, length)), files)
            elif call := plans[number][phase]:
                call()
            link.sendall(DONE)


def _received(link: socket.socket, length: int) -> bytes:
    message = bytearray()
    while len(message) < length:
        if not (more := link.recv(length - len(message))):
            raise EOFError("the process that started this one has ended")
        message += more
    return bytes(message)


def _compiled(order: Order, files: Sequence[int]) -> list[Launch | None]:
    """Return, for each phase, the call of this process's step, or None; the calls keep the files mapped."""
    maps = []
    for descriptor in files:
        maps.append(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
        os.close(descriptor)
    arrays = {name: _array(maps[mapped.file], mapped) for name, mapped in order.arrays.items()}
    return [step and call_of(step, arrays, step.start, step.stop) for step in order.steps]


def _array(pages: mmap.mmap, mapped: Mapped) -> Array:
    array: Array = np.ndarray(mapped.shape, mapped.dtype, pages, mapped.offset)
    return array
