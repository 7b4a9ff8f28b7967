"""Streams, events and copies for kernels on several GPUs."""

from typing import Any

from kernelmark import Launch


class Gpus:
    """A stream on each GPU. The first GPU's stream is timed: it starts the others, and waits for them at the end."""

    def __init__(self, count: int, timed: Any) -> None:
        import cupy

        self._cupy, self.streams = cupy, [timed]
        for gpu in range(1, count):
            with cupy.cuda.Device(gpu):
                self.streams.append(cupy.cuda.Stream(non_blocking=True))

    def after(self, first: int, *then: int) -> Launch:
        """Return a launch that makes the GPUs `then` wait for the work queued so far on the GPU `first`."""
        with self._cupy.cuda.Device(first):
            event = self._cupy.cuda.Event(disable_timing=True)
        begun, waiting = self.streams[first], [self.streams[gpu] for gpu in then]

        def wait() -> None:
            event.record(begun)
            for stream in waiting:
                stream.wait_event(event)

        return wait

    def around(self, steps: list[Launch]) -> list[Launch]:
        """Return the steps between waits: first, other streams wait for the timed one; last, it waits for them."""
        others = range(1, len(self.streams))
        return [self.after(0, *others), *steps, *(self.after(gpu, 0) for gpu in others)]

    def copy(self, to: int, target: Any, at: int, source: Any, on: int) -> Launch:
        """Return a launch that copies an array on GPU `at` to an array on GPU `to`, on the stream of GPU `on`."""
        return between(to, target, at, source, self.streams[on])


def between(to: int, target: Any, at: int, source: Any, stream: Any) -> Launch:
    """Return a launch in which the driver copies an array on GPU `at` to an array on GPU `to`, on a stream."""
    import cupy

    runtime, nbytes, on = cupy.cuda.runtime, source.nbytes, stream.ptr
    there, here = target.data.ptr, source.data.ptr
    return lambda: runtime.memcpyPeerAsync(there, to, here, at, nbytes, on)
