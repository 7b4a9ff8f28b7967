"""A thread for each GPU of this machine, each with a station of its own."""

import queue
from concurrent.futures import Future, ThreadPoolExecutor

from kernelmark.bench.run.station import measure
from kernelmark.bench.run.task import Answer, failed


class GpuPool:
    """Gives a task to the next GPU that is free."""

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

    def answer(self, error: BaseException) -> Answer:
        """Return what an error of a task means."""
        return failed(error)

    def state(self) -> Answer:
        """Return how many GPUs there are."""
        return Answer(workers=self._count)

    def close(self) -> None:
        """Let the keeper end what is still being measured."""
        self._threads.shutdown(wait=False, cancel_futures=True)
