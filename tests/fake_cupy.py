"""Stands for CuPy as far as streams go: which one is current, what `with` returns to, and where work was launched.

CuPy keeps a stack of the streams that `with` has entered. Leaving one makes the stream below it current; `use()` makes
a stream current without a place on the stack, so that the next `with` forgets it (cupy/cupy issue 8377).
"""

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class Device(SimpleNamespace):
    """The only GPU, which is current inside `with` and outside."""

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Stream:
    """A stream with a number, by which work is recorded."""

    def __init__(self, fake: "FakeCupy", ptr: int) -> None:
        self._fake, self.ptr = fake, ptr

    def __enter__(self) -> "Stream":
        self._fake.stack.append(self)
        self._fake.current = self
        return self

    def __exit__(self, *error: object) -> None:
        self._fake.stack.pop()
        self._fake.current = self._fake.stack[-1]

    def use(self) -> "Stream":
        self._fake.current = self
        return self

    def synchronize(self) -> None:
        pass


class Array(np.ndarray):
    """Host memory in the place of the device's; what CuPy would launch is recorded with its stream."""

    fake: "FakeCupy"

    def __array_finalize__(self, source: Any) -> None:
        self.fake = getattr(source, "fake", None)  # type: ignore[assignment]

    def set(self, values: Any, stream: Stream | None = None) -> None:
        self.fake.log.append(("set", (stream or self.fake.current).ptr))
        self[...] = values

    def get(self) -> Any:
        self.fake.launch("get")
        return np.array(self)

    def fill(self, value: Any) -> None:
        self.fake.launch("fill")
        super().fill(value)


class FakeCupy(ModuleType):
    """The module, with a log of what was launched on which stream."""

    def __init__(self) -> None:
        super().__init__("cupy")
        null = Stream(self, 0)
        self.stack, self.current = [null], null
        self.log: list[tuple[str, int]] = []
        self.uint8 = np.uint8
        self._count = 0
        properties = {"name": b"a fake", "l2CacheSize": 4096}
        runtime = SimpleNamespace(
            getDeviceProperties=lambda device: properties,
            memGetInfo=lambda: (2**30, 2**30),
            CUDARuntimeError=RuntimeError,
        )
        device = Device(use=lambda: None, synchronize=lambda: None, id=0, pci_bus_id="0000:00:00.0")
        self.cuda = SimpleNamespace(
            Device=lambda *number: device,
            Stream=self.stream_type(),
            get_current_stream=lambda: self.current,
            runtime=runtime,
        )

    def stream_type(self) -> Any:
        """What makes streams: called, or from another library's."""

        def make(non_blocking: bool = False) -> Stream:
            self._count += 1
            return Stream(self, 16 * self._count)

        make.from_external = lambda other: Stream(self, other.__cuda_stream__()[1])  # type: ignore[attr-defined]
        return make

    def empty(self, count: int, dtype: Any) -> Array:
        array = np.zeros(count, dtype).view(Array)
        array.fake = self
        return array

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=lambda: None)

    def array_equal(self, a: Array, b: Array) -> bool:
        self.launch("array_equal")
        return np.array_equal(a, b)

    def launch(self, name: str) -> None:
        """Do what CuPy's own functions, RawKernel and cuFFT do: launch on the current stream."""
        self.log.append((name, self.current.ptr))
