"""What a worker reports of one contender: data that crosses to whoever records it."""

import math
from socket import gethostname

import msgspec

from kernelmark.bench.measure.ceiling import Excess
from kernelmark.bench.measure.stats import BaselineRatio, Interval
from kernelmark.bench.plan.case import Entrant
from kernelmark.bench.plan.status import Status

#: What an interval holds for: the process that was asked, or the next one too.
WITHIN, BETWEEN = "within-process", "between-processes"


class Roofline(msgspec.Struct, frozen=True):
    """A time under its ceilings, by column: per cent of what the nearer one (`compute` or `memory`) allows, both rates.

    roofline_pct_cycles: the same in cycles, where the clock was read both times: free of what it moved between the two.
    """

    roofline_pct: float
    bound_by: str
    ceiling_gflop_per_s: float | None
    ceiling_gbyte_per_s: float | None
    roofline_pct_cycles: float | None = None


class ProcessPart(msgspec.Struct, frozen=True):
    """What one process contributed: how many of the samples, in their order, and their median in seconds."""

    samples: int
    median_s: float


class Evidence(msgspec.Struct, frozen=True):
    """What accuses a kernel that is mistrusted: the samples that it lost, and the ceiling that they surpass, if any.

    interval: None where the samples were too few for one.
    """

    samples: list[float]
    interval: Interval | None
    excess: Excess | None = None


class Measurement(msgspec.Struct, kw_only=True):
    """What the worker reports of one contender. Times in seconds a call; no samples unless status is `ok`.

    A field with the name of a column is that column of the row (bench/record/result.py); how the fields of several
    processes become one is declared in bench/run/passes.py, for each.

    setup_s: what set-up took: compiling, planning. executed_flop: of its algorithm; None
    where the operation has none.
    host: where the worker ran. device_uuid: of the GPU; "" where the device has none.
    job: the id of the execution that it was measured in, which contenders that were measured in turn share.
    parts: the processes that the samples come from. interval_scope: `between-processes`, or `within-process` where one
    process alone was asked, whose interval does not cover what the next one would find.
    spread_s: from the start of the first process to that of the last, where there are several.
    attempt: 2 and more where an earlier worker was lost. repeated: samples set aside, since the machine was disturbed,
    and taken again.
    state: readings of the machine during sampling, by column (`clock_mhz`, `temperature_c`, `power_w`, `energy_j`,
    `load`, `steal_pct`).
    evidence: what accuses it where status is `mistrusted`.
    launched: the GPU kernels that a call launches, with grids and blocks; "" where it cannot be captured.
    """

    kernel: str
    problem: str = ""
    job: str = ""
    status: str = Status.OK
    reason: str = ""
    device_name: str = ""
    host: str = msgspec.field(default_factory=gethostname)
    device_uuid: str = ""
    numerics: str = ""
    threads: int = 1
    samples: list[float] = []
    interval: Interval | None = None
    ratio: BaselineRatio | None = None
    roofline: Roofline | None = None
    stopped_by: str = ""
    disturbed: str = ""
    call_overhead_s: float | None = None
    setup_s: float | None = None
    executed_flop: int | None = None
    max_error: float | None = None
    error_bound: float | None = None
    scratch_bytes: int | None = None
    wire_bytes: int | None = None
    compression_error: float | None = None
    versions: str = ""
    tunables: str = ""
    tuned: str = ""
    started_at: str = ""
    parts: list[ProcessPart] = []
    interval_scope: str = ""
    attempt: int = 1
    spread_s: float | None = None
    threads_used: int | None = None
    affinity: str = ""
    repeated: int | None = None
    state: dict[str, float] = {}
    evidence: Evidence | None = None
    launched: str = ""

    @property
    def entrant(self) -> Entrant:
        """Return which contender of its job it is of."""
        return Entrant(self.problem, self.kernel)

    def note(self, text: str) -> None:
        """Add to what disturbed it."""
        self.disturbed = "; ".join(filter(None, (self.disturbed, text)))

    def mistrust(self, reason: str, excess: Excess | None = None) -> None:
        """Take the time back, which cannot be what it seems, and keep it as evidence."""
        known = self.interval if self.interval and math.isfinite(self.interval.low) else None
        self.evidence = Evidence(self.samples, known, excess)
        self.status, self.reason = Status.MISTRUSTED, reason
        self.samples, self.parts, self.interval, self.ratio = [], [], None, None
        self.interval_scope, self.stopped_by, self.disturbed, self.repeated = "", "", "", None
