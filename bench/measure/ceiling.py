"""A ceiling of a machine, and a rate that surpasses one: data, which roofline.py makes."""

from typing import NamedTuple

import msgspec

from kernelmark.bench.plan.numbers import NotNegative

#: The kinds of ceilings of bytes: to and from memory, or over a link, where each counts once.
MOVES = ("memory", "link")


class Need(NamedTuple):
    """A ceiling by what measures it: `kind` is a numerics, `memory`, or `link`, over which a transfer goes."""

    device: str
    threads: int
    kind: str
    problem: str

    @property
    def moves(self) -> bool:
        """Return whether it bounds bytes, not arithmetic."""
        return self.kind in MOVES

    @property
    def bounds(self) -> str:
        """Return what it is called in a row that it bounds."""
        return self.kind if self.moves else "compute"


class Ceiling(msgspec.Struct, frozen=True):
    """What a machine reached at one time: flop/s or bytes/s with the interval of the median, and in the best sample."""

    device: str
    threads: int
    kind: str
    problem: str
    kernel: str
    device_name: str
    rate: NotNegative
    low: float
    high: float
    best: NotNegative
    measured_at: str
    clock_mhz: NotNegative | None = None
    host: str = ""
    device_uuid: str = ""

    @property
    def need(self) -> Need:
        """The need that this ceiling answers."""
        return Need(self.device, self.threads, self.kind, self.problem)

    @property
    def work_unit(self) -> str:
        """The unit of what is counted: `bytes` or `flop`."""
        return "bytes" if self.need.moves else "flop"

    @property
    def rate_unit(self) -> str:
        """The unit of 10^9 of it a second."""
        return "GB/s" if self.need.moves else "GFLOP/s"


class Excess(msgspec.Struct, frozen=True):
    """A ceiling that a row surpasses: by the flop or bytes that it declares, at this rate a second."""

    ceiling: Ceiling
    declared: int
    rate: float

    @property
    def reason(self) -> str:
        """`120 GFLOP/s exceed the measured ceiling, 101 GFLOP/s by fma/numba.fma on fma/n4096k4096/f32`."""
        return f"{self.rate * 1e-9:.4g} {self.ceiling.rate_unit} exceed the measured ceiling, {self.limit}"

    @property
    def limit(self) -> str:
        """`101 GFLOP/s by fma/numba.fma on fma/n4096k4096/f32`, the best sample of the ceiling."""
        best = f"{self.ceiling.best * 1e-9:.4g} {self.ceiling.rate_unit}"
        return f"{best} by {self.ceiling.kernel} on {self.ceiling.problem}"
