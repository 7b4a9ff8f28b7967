"""The broker hands tasks to an executor and gives back what comes of them, in a process of its own.

`python -m kernelmark.bench.run.broker ORDERS REPLIES CONFIG GPU...`: with a configuration, Parsl's executors;
otherwise a thread for each GPU. As its keeper ends whatever it has started, nothing on this host outlives the run,
however that ends; and an interrupt of the terminal does not reach an executor.
"""

import os
import queue
import select
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

import msgspec

from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.run.parsl_pool import ParslPool
from kernelmark.bench.run.station import measure
from kernelmark.bench.run.task import Order, TaskReply, failed
from kernelmark.bench.run.worker import receive, send

#: How often the state of the executors is reported.
TICK_S = 0.5


class Pool(Protocol):
    """An executor, whichever it is."""

    def submit(self, data: bytes) -> "Future[bytes]": ...
    def answer(self, error: BaseException) -> TaskReply: ...
    def state(self) -> TaskReply: ...
    def close(self) -> None: ...


class GpuPool:
    """A thread for each GPU of this machine, each with a station of its own: the next one that is free has a task."""

    def __init__(self, gpus: list[str]) -> None:
        """gpus: by their UUIDs."""
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for gpu in gpus:
            self._free.put(gpu)
        self._count, self._threads = len(gpus), ThreadPoolExecutor(len(gpus))

    def submit(self, data: bytes) -> "Future[bytes]":
        """Measure a task on one of the GPUs."""
        return self._threads.submit(self._measure, data)

    def _measure(self, data: bytes) -> bytes:
        gpu = self._free.get()
        try:
            return measure(data, gpu)
        finally:
            self._free.put(gpu)

    def answer(self, error: BaseException) -> TaskReply:
        """Return what an error of a task means."""
        return failed(error)

    def state(self) -> TaskReply:
        """Return how many GPUs there are."""
        return TaskReply(workers=self._count)

    def close(self) -> None:
        """Let the keeper end what is still being measured."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def main(orders: int, replies: int, config: str, gpus: list[str]) -> None:
    """Take orders until there are no more."""
    answers: queue.SimpleQueue[TaskReply | None] = queue.SimpleQueue()
    writer = threading.Thread(target=_write, args=(replies, answers))
    writer.start()  # a writer of its own, since a pipe that is full must keep no order waiting
    try:
        pool: Pool = ParslPool(config) if config else GpuPool(gpus)
    except UsageError as error:
        answers.put(TaskReply(ended=str(error)))
    else:
        _serve(pool, orders, answers.put)
        pool.close()
    answers.put(None)
    writer.join()
    os._exit(0)  # whatever is still being measured, for which a thread would be waited for


def _serve(pool: Pool, orders: int, put: Callable[[TaskReply], None]) -> None:
    due_s = 0.0
    while True:
        if now() >= due_s:
            put(pool.state())
            due_s = now() + TICK_S
        if not select.select([orders], [], [], max(0.0, due_s - now()))[0]:
            continue
        order = receive(orders, Order)
        if order is None:
            return
        try:
            pool.submit(order.data).add_done_callback(partial(_done, pool, order.number, put))
        except Exception as error:
            put(_numbered(pool.answer(error), order.number))


def _done(pool: Pool, number: int, put: Callable[[TaskReply], None], future: "Future[bytes]") -> None:
    error = future.exception()
    put(_numbered(pool.answer(error) if error else TaskReply(data=future.result()), number))


def _numbered(answer: TaskReply, number: int) -> TaskReply:
    return msgspec.structs.replace(answer, number=number)


def _write(fd: int, answers: "queue.SimpleQueue[TaskReply | None]") -> None:
    while (answer := answers.get()) is not None:
        try:
            send(fd, answer)
        except BrokenPipeError:  # whoever asked has ended
            os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
