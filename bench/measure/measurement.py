"""The columns that a worker measures, in its report on one contender; record/columns.py adds the others."""

import hashlib
import math
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from socket import gethostname
from statistics import fmean
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from kernelmark.bench.measure.ratio import BaselineRatio
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.case import Entrant
from kernelmark.bench.plan.numbers import Entropy, Finite, NotNegative
from kernelmark.bench.plan.status import Status

#: The scope of an interval: it covers only the measured process, or the next process as well.
WITHIN, BETWEEN = "within-process", "between-processes"
#: The kinds of bandwidth ceilings: memory counts reads and writes; a link counts each byte once.
MOVES = ("memory", "link")


class Need(NamedTuple):
    """A roofline ceiling to measure for a row. kind: `memory`, `link` for transfers, or arithmetic such as `fp32`."""

    device: str
    threads: int
    kind: str
    problem: str

    @property
    def moves(self) -> bool:
        """Return whether the ceiling bounds bytes rather than arithmetic."""
        return self.kind in MOVES

    @property
    def bounds(self) -> str:
        """Return the value of the column `bound_by` in a row that this ceiling limits."""
        return self.kind if self.moves else "compute"


class Ceiling(msgspec.Struct, frozen=True):
    """The rate of the fastest tenth of samples, in flop/s or bytes/s, its interval, and the `best` sample's rate."""

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
        """Return the need that this ceiling meets. A row with an equal need is compared with this ceiling."""
        return Need(self.device, self.threads, self.kind, self.problem)

    @property
    def rate_unit(self) -> str:
        """Return the unit in which rates are shown: 10^9 units of work per second."""
        return "GB/s" if self.need.moves else "GFLOP/s"

    def __str__(self) -> str:
        """Return `101 GFLOP/s by fma/numba.fma on fma/n98304k512/f32`."""
        by = f"by {self.kernel} on {self.problem}" if self.problem else self.kernel
        return f"{self.rate * 1e-9:.4g} {self.rate_unit} {by}"


class Excess(msgspec.Struct, frozen=True):
    """A row's impossible rate: its `declared` flop or bytes over its time exceed `times` x the ceiling's best rate."""

    ceiling: Ceiling
    declared: int
    rate: float
    times: float = 1.0

    @property
    def reason(self) -> str:
        """Return `120 GFLOP/s exceed the ceiling, 101 GFLOP/s by fma/numba.fma on fma/n98304k512/f32`."""
        twice = "twice " * (self.times >= 2)
        return f"{self.rate * 1e-9:.4g} {self.ceiling.rate_unit} exceed {twice}the ceiling, {self.ceiling}"


class Roofline(msgspec.Struct, frozen=True):
    """The roofline columns of a row: its percentage of the ceiling that limits it (`bound_by`), and both ceilings.

    roofline_pct_cycles: the percentage computed from rates per clock cycle, so that a different clock has no effect;
    None unless the clock was read for both the row and the ceiling.
    """

    roofline_pct: float
    bound_by: str
    ceiling_gflop_per_s: float | None
    ceiling_gbyte_per_s: float | None
    roofline_pct_cycles: float | None = None


class ProcessPart(msgspec.Struct, frozen=True):
    """The samples that one process contributed to a row: their number, and their median in seconds."""

    samples: int
    median_s: float


class VariantRatio(msgspec.Struct, frozen=True):
    """The speed of a row over the speed on a variant of its problem; both were sampled in turn in one job.

    against: the variant's problem, followed by `by KERNEL` if another kernel ran it.
    """

    against: str
    ratio: BaselineRatio


class Evidence(msgspec.Struct, frozen=True):
    """The evidence against a mistrusted kernel: its samples, and the ceiling that they exceed, if any.

    interval: None if the samples were too few for one.
    """

    samples: list[float]
    interval: Interval | None
    excess: Excess | None = None


def _alike(values: Sequence[Any]) -> Any:
    """Return the value that all processes have in common. Raises ValueError if they differ."""
    if any(value != values[0] for value in values):
        raise ValueError(f"processes of one case differ in a value that must be equal: {values}")
    return values[0]


def _nothing(values: Sequence[Any]) -> None:
    """Return None for a field that is set only after the processes have been merged."""


def _largest(values: Sequence[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _total(values: Sequence[Any]) -> Any:
    return sum(value for value in values if value is not None)


def _concatenated(values: Sequence[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(values))


def _each_once(values: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, values)))


def _means(values: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return each reading's mean over the processes; readings that the first process lacks are left out."""
    return {name: fmean(readings[name] for readings in values if name in readings) for name in values[0]}


def _time_first(values: Sequence[str]) -> str:
    return "time" if "time" in values else "interval"


def _in_a_line(values: Sequence[str]) -> str:
    return " ".join(filter(None, values))


def _joint_id(jobs: Sequence[str]) -> str:
    """Return an id that two kernels share only if they were in the same job in every process."""
    return hashlib.sha256(" ".join(jobs).encode()).hexdigest()[:12]


class Measured(msgspec.Struct, kw_only=True):
    """The columns that a worker measures: fields shared by `Measurement` and by a row (`record/columns.py`).

    A field's annotation holds the function that merges the values of several processes into one; without it, the first
    process's value is used. docs/columns.md describes the columns.
    """

    call_overhead_s: Finite | None = None
    max_error: NotNegative | None = None
    error_bound: NotNegative | None = None
    scratch_bytes: Annotated[int | None, _largest] = None
    versions: str = ""
    started_at: str = ""
    stopped_by: Annotated[str, _time_first] = ""
    disturbed: Annotated[str, _each_once] = ""
    tunables: str = ""
    executed_flop: int | None = None
    setup_s: NotNegative | None = None
    attempt: Annotated[int, _largest] = 1
    repeated: Annotated[int | None, _total] = None
    threads_used: int | None = None
    affinity: str = ""
    spread_s: Annotated[NotNegative | None, _nothing] = None
    job: Annotated[str, _joint_id] = ""
    tuned: Annotated[str, _alike] = ""
    host: Annotated[str, _alike] = ""
    device_uuid: Annotated[str, _alike] = ""
    wire_bytes: Annotated[int | None, _alike] = None
    compression_error: Annotated[Finite | None, _largest] = None
    launched: str = ""
    entropy: Annotated[Entropy, _in_a_line] = ""
    llc_bytes: int | None = None
    judged_by: str = ""


class Measurement(Measured, kw_only=True):
    """A worker's report on one contender. Times are in seconds per call; samples are empty unless status is `ok`.

    parts: the processes that the samples come from, in order. interval_scope: `between-processes`, or `within-process`
    for a single process; that interval leaves out variation between processes. state: readings of the machine during
    sampling, by column (`clock_mhz`, `load`). evidence: the evidence against the kernel if status is `mistrusted`.
    """

    kernel: Annotated[str, _alike]
    problem: Annotated[str, _alike] = ""
    status: Annotated[str, _alike] = Status.OK
    reason: Annotated[str, _alike] = ""
    device_name: Annotated[str, _alike] = ""
    host: Annotated[str, _alike] = msgspec.field(default_factory=gethostname)
    numerics: Annotated[str, _alike] = ""
    threads: Annotated[int, _alike] = 1
    samples: Annotated[list[float], _concatenated] = []
    interval: Annotated[Interval | None, _nothing] = None
    over_baseline: Annotated[BaselineRatio | None, _nothing] = None
    over_variant: Annotated[VariantRatio | None, _nothing] = None
    roofline: Annotated[Roofline | None, _nothing] = None
    parts: Annotated[list[ProcessPart], _concatenated] = []
    interval_scope: Annotated[str, _nothing] = ""
    state: Annotated[dict[str, float], _means] = {}
    evidence: Annotated[Evidence | None, _nothing] = None

    @property
    def entrant(self) -> Entrant:
        """Return the contender that the report is about, as an entrant of its job."""
        return Entrant(self.problem, self.kernel)

    def note(self, text: str) -> None:
        """Add a note to the disturbances."""
        self.disturbed = "; ".join(filter(None, (self.disturbed, text)))

    def mistrust(self, reason: str, excess: Excess | None = None) -> None:
        """Mark the row as mistrusted. It loses its time, which cannot be right; its samples are kept as evidence."""
        known = self.interval if self.interval and math.isfinite(self.interval.low) else None
        self.evidence = Evidence(self.samples, known, excess)
        self.status, self.reason = Status.MISTRUSTED, reason
        self.samples, self.parts, self.interval, self.over_baseline = [], [], None, None
        self.interval_scope, self.stopped_by, self.disturbed, self.repeated = "", "", "", None


#: The function that merges several processes' values of a field, from the field's annotation.
RULES = {
    name: next((each for each in getattr(hint, "__metadata__", ()) if callable(each)), itemgetter(0))
    for name, hint in get_type_hints(Measurement, include_extras=True).items()
}
