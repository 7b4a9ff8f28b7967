"""What measuring needs of a device: memory and transfers, a clock, and a monitor of its state."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.plan.case import Entrant
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.kernel import Launch


class DeviceLost(Exception):
    """A kernel has left a device in a state in which it no longer answers."""

    def __init__(self, entrant: Entrant, reason: str) -> None:
        super().__init__(f"{entrant.kernel}: {reason}")
        self.entrant, self.reason = entrant, reason


class Window(msgspec.Struct, frozen=True):
    """Readings of a device over some seconds: means by column, and the size of each disturbance."""

    seconds: float
    state: dict[str, float] = {}
    causes: dict[str, float] = {}


class Monitor(Protocol):
    """Watches one device. `energy_j` counts from an arbitrary zero, or is None without a sensor."""

    def look(self) -> Window: ...
    def clock_mhz(self) -> float | None: ...
    def energy_j(self) -> float | None: ...


class Clock(Protocol):
    """Times a batch of calls on one device."""

    max_batch: int
    left_signals: bool
    resolution_s: float

    def time(self, calls: Sequence[Launch]) -> float: ...
    def time_apart(self, calls: Sequence[Launch], between: Iterator[None] | None = None) -> float: ...
    def now(self) -> float: ...


class Memory(Protocol):
    """Memory for operands. Arrays are flat and typed by the device's own array library.

    holds: whether an input still has all the bits that were drawn for the operand of this name.
    """

    def bytes(self, nbytes: int) -> Any: ...
    def dtype(self, storage: str) -> Any: ...
    def upload(self, target: Any, source: Array) -> None: ...
    def scatter(self, target: Any, places: Array, values: Array) -> None: ...
    def download(self, source: Any) -> Array: ...
    def holds(self, found: Any, name: str, draw: Draw) -> bool: ...


class Device(Memory, Protocol):
    """A device, which is also its own memory. `host_memory` is of a kind of `HOST_MEMORY`.

    `peers` is the memory of these GPUs together; arrays begin and end with `edge` bytes besides their parts.

    warm_up_s: how long its clock may take to settle. device_uuid: of a GPU, `GPU-...`, which no renumbering changes.
    """

    name: str
    device_name: str
    device_uuid: str
    llc_bytes: int
    warm_up_s: float
    stream: Any

    def clock(self, hold: bool) -> Clock: ...
    def host_memory(self, kind: str) -> Memory: ...
    def peers(self, gpus: tuple[int, ...], edge: int = 0) -> Memory: ...
    def evict(self) -> None: ...
    def synchronize(self) -> None: ...
    def monitor(self) -> Monitor: ...
    def release(self) -> None: ...
    def broken(self) -> str | None: ...
    def strayed(self) -> str | None: ...
