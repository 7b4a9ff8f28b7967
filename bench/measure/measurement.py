"""What a worker says of one contender: data that crosses to whoever records it."""

import msgspec

from bench.measure.stats import Interval, Ratio


class Roofline(msgspec.Struct, frozen=True):
    """A time under its ceilings: per cent of what the nearer one (`compute` or `memory`) allows, and both rates."""

    pct: float
    bound_by: str
    gflop_per_s: float | None
    gbyte_per_s: float | None


class Measurement(msgspec.Struct, kw_only=True):
    """What the worker says of one contender. Times in seconds a call; no samples unless status is `ok`.

    setup_s: what set-up took: compiling, planning. executed_flop: of its algorithm; None
    where the operation has none.
    state: readings of the device after the last sample, by column (`clock_mhz`, `temperature_c`, `power_w`).
    """

    kernel: str
    status: str = "ok"
    reason: str = ""
    device_name: str = ""
    numerics: str = ""
    threads: int = 1
    samples: list[float] = []
    interval: Interval | None = None
    ratio: Ratio | None = None
    roofline: Roofline | None = None
    stopped_by: str = ""
    disturbed: str = ""
    call_overhead_s: float | None = None
    setup_s: float | None = None
    executed_flop: int | None = None
    max_error: float | None = None
    error_bound: float | None = None
    scratch_bytes: int | None = None
    versions: str = ""
    tunables: str = ""
    started_at: str = ""
    state: dict[str, float] = {}

    def mistrust(self, reason: str) -> None:
        """Take the time back: it cannot be what it seems."""
        self.status, self.reason = "mistrusted", reason
        self.samples, self.interval, self.ratio = [], None, None
