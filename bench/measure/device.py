"""The interface of a device: memory and transfers, a clock, and a monitor of its state."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.plan.case import Entrant
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import Launch


class DeviceLost(Exception):
    """A kernel has left a device in a state in which it no longer responds."""

    def __init__(self, entrant: Entrant, reason: str) -> None:
        super().__init__(f"{entrant.kernel}: {reason}")
        self.entrant, self.reason = entrant, reason


class Window(msgspec.Struct, frozen=True):
    """A device's readings over a span of time: the mean of each column, and the size of each disturbance, by cause."""

    seconds: float
    state: dict[str, float] = {}
    causes: dict[str, float] = {}


class Monitor(Protocol):
    """A monitor of one device. `energy_j` counts from an arbitrary zero, or is None without a sensor."""

    def look(self) -> Window: ...
    def clock_mhz(self) -> float | None: ...
    def energy_j(self) -> float | None: ...


class Clock(Protocol):
    """Times a batch of calls on one device."""

    max_batch: int
    left_signals: bool
    traced: bool
    resolution_s: float

    def time(self, calls: Sequence[Launch]) -> float: ...
    def time_apart(self, calls: Sequence[Launch], between: Iterator[None] | None = None) -> float: ...
    def now(self) -> float: ...


class Memory(Protocol):
    """Memory for operands. Arrays are flat and have the types of the device's array library.

    holds: return whether an input still has exactly the bits that were drawn for the operand of this name.
    """

    def bytes(self, nbytes: int) -> Any: ...
    def dtype(self, storage: str) -> Any: ...
    def upload(self, target: Any, source: Array) -> None: ...
    def scatter(self, target: Any, places: Array, values: Array) -> None: ...
    def download(self, source: Any) -> Array: ...
    def holds(self, array: Any, name: str, draw: Draw) -> bool: ...


class Device(Memory, Protocol):
    """A device and its memory. `host_memory` returns memory of one of the kinds in `HOST_MEMORY`.

    `peers` returns the joint memory of several GPUs; its arrays have `edge` extra bytes at both ends. By default a
    device is like a CPU: it has no streams, calls return when they are done, and a fault ends the process. `broken`
    returns why the device no longer responds, and `strayed` a complaint if a kernel has changed the current stream.

    warm_up_s: how long the device's clock rate may take to settle. device_uuid: `GPU-...` for a GPU, which stays the
    same when GPUs are renumbered.
    """

    name: str
    device_name: str
    device_uuid: str = ""
    llc_bytes: int
    warm_up_s: float
    stream: Any = None

    def clock(self, hold: bool) -> Clock: ...
    def host_memory(self, kind: str) -> Memory: ...
    def evict(self) -> None: ...
    def monitor(self) -> Monitor: ...
    def synchronize(self) -> None: ...
    def release(self) -> None: ...

    def peers(self, gpus: tuple[int, ...], edge: int = 0) -> Memory:
        raise Unsupported("host memory cannot be spread over GPUs")

    def broken(self) -> str | None:
        return None

    def strayed(self) -> str | None:
        return None
