"""Define all columns of a row, and make rows; measure/measurement.py declares the columns that a worker measures."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from kernelmark.bench.measure.measurement import Measured, Measurement
from kernelmark.bench.measure.ratio import BaselineRatio
from kernelmark.bench.measure.stats import Interval, outliers
from kernelmark.bench.plan.case import PlannedJob, case_key
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import Kernel
from kernelmark.bench.plan.numbers import Finite, NotNegative, finite
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.text import one_line

SCHEMA = 1
_SHORT = msgspec.Meta(max_length=10**6)
#: A text in a store, with a bounded length since the store may come from another user.
ShortText = Annotated[str, _SHORT]


class Result(Measured, kw_only=True):
    """A case's row in the store and in CSV. The fields are the columns; None becomes an empty cell."""

    schema: int = SCHEMA
    run_id: str
    suite: str
    op: str
    problem: str
    kernel: str
    provider: str
    device: str
    device_name: str
    mode: str
    dtype: str
    numerics: str
    layout: str
    threads: int
    status: str
    reason: str
    samples: int = 0
    time_s_median: NotNegative | None = None
    time_s_min: NotNegative | None = None
    time_s_mean: NotNegative | None = None
    time_s_std: NotNegative | None = None
    time_s_ci95_low: NotNegative | None = None
    time_s_ci95_high: NotNegative | None = None
    gflop_per_s: NotNegative | None = None
    gbyte_per_s: NotNegative | None = None
    roofline_pct: NotNegative | None = None
    baseline: str = ""
    speedup: NotNegative | None = None
    speedup_ci95_low: NotNegative | None = None
    speedup_ci95_high: NotNegative | None = None
    seed: int = 0
    clock_mhz: NotNegative | None = None
    temperature_c: Finite | None = None
    power_w: Finite | None = None
    energy_j: Finite | None = None
    git_commit: str = ""
    processes: int = 1
    isa: str = ""
    count: int = 1
    bound_by: str = ""
    ceiling_gflop_per_s: NotNegative | None = None
    ceiling_gbyte_per_s: NotNegative | None = None
    interval: str = ""
    outliers: int | None = None
    speedup_of_minima: NotNegative | None = None
    load: NotNegative | None = None
    steal_pct: NotNegative | None = None
    roofline_pct_cycles: NotNegative | None = None
    bus_gbyte_per_s: NotNegative | None = None
    against: str = ""
    ratio: NotNegative | None = None
    ratio_ci95_low: NotNegative | None = None
    ratio_ci95_high: NotNegative | None = None

    @property
    def case(self) -> str:
        """Return the key that identifies the row within its run."""
        return case_key(self.kernel, self.problem, self.mode, self.threads, self.isa)


#: The order of the columns. New fields are appended automatically.
_ORDER = (
    "schema", "run_id", "suite", "op", "problem", "kernel", "provider", "device", "device_name", "mode", "dtype",
    "numerics", "layout", "threads", "status", "reason", "samples", "time_s_median", "time_s_min", "time_s_mean",
    "time_s_std", "time_s_ci95_low", "time_s_ci95_high", "call_overhead_s", "gflop_per_s", "gbyte_per_s",
    "roofline_pct", "baseline", "speedup", "speedup_ci95_low", "speedup_ci95_high", "max_error", "error_bound",
    "scratch_bytes", "seed", "clock_mhz", "temperature_c", "power_w", "energy_j", "versions", "git_commit",
    "started_at", "processes", "isa", "stopped_by", "disturbed", "tunables", "count", "bound_by",
    "ceiling_gflop_per_s", "ceiling_gbyte_per_s", "executed_flop", "setup_s", "interval", "outliers",
    "speedup_of_minima", "attempt", "repeated", "threads_used", "affinity", "load", "steal_pct",
    "roofline_pct_cycles", "spread_s", "job", "tuned", "host", "device_uuid", "wire_bytes", "bus_gbyte_per_s",
    "compression_error", "launched", "entropy", "llc_bytes", "judged_by", "against", "ratio",
    "ratio_ci95_low", "ratio_ci95_high",
)  # fmt: skip
_FIELDS = {field.name: field for field in msgspec.structs.fields(Result)}
COLUMNS = tuple(dict.fromkeys((*_ORDER, *_FIELDS)))
#: The columns that every row of kernelmark has, besides the run's id, which the store sets.
REQUIRED = ("schema", *(name for name in COLUMNS if _FIELDS[name].required and name != "run_id"))
DEFAULTS = {name: None if field.required else field.default for name, field in _FIELDS.items()}


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


_HINTS = get_type_hints(Result, include_extras=True)
_PARTS = {name: list(_parts(_HINTS[name])) for name in COLUMNS}
KINDS = {name: next(kind for kind in (str, int, float) if kind in parts) for name, parts in _PARTS.items()}
#: The types of the columns for msgspec; texts have a bounded length.
HINTS = {name: Annotated[_HINTS[name], _SHORT] if KINDS[name] is str else _HINTS[name] for name in COLUMNS}
NOT_NEGATIVE = tuple(name for name, parts in _PARTS.items() if NotNegative in parts)


def make_result(
    measured: Measurement, kernel: Kernel, problem: Problem, planned: PlannedJob, run_id: str, git_commit: str
) -> Result:
    """Return the row for a measurement. A result that is not `ok` gets no times, rate or speedup.

    Each column's value is from the first of these objects that has an attribute with the column's name: measurement,
    job, planned job, problem, kernel.
    """
    values: dict[str, Any] = {"layout": ""}  # not every operation has a layout
    for source in (kernel, problem, planned, planned.job, measured):
        values |= {name: getattr(source, name) for name in _shared(type(source), source)}
    values |= {"run_id": run_id, "kernel": kernel.id, "problem": problem.id, "git_commit": git_commit}
    values["reason"] = one_line(measured.reason)
    if kernel.threaded:
        values["threads"] = planned.job.threads  # a lost worker did not report them
    with suppress(LookupError, UsageError):  # an undeclared storage type or selection, the cause of the lost worker
        values["numerics"] = measured.numerics or kernel.numerics_for(problem)
    values |= {"baseline": planned.job.baseline_of(problem.id) or "", "samples": 0, "interval": ""}
    if measured.status == Status.OK and measured.interval is not None:
        values |= _times(measured, problem, measured.interval)
    return Result(**{name: finite(value) for name, value in values.items()})


_known: dict[type, tuple[str, ...]] = {}


def _shared(kind: type, instance: Any) -> tuple[str, ...]:
    """Return the columns that a class has as attributes. Cached, since finding them takes longer than storing a row."""
    if kind not in _known:
        _known[kind] = tuple(name for name in COLUMNS if hasattr(instance, name))
    return _known[kind]


def sample_columns(times: Sequence[float], interval: Interval) -> dict[str, Any]:
    """Return the columns computed from samples in seconds per call and the interval of their median."""
    mean = math.fsum(times) / len(times)
    return {
        "samples": len(times),
        "outliers": outliers(times),
        "time_s_median": interval.median,
        "time_s_min": min(times),
        "time_s_mean": mean,
        "time_s_std": math.sqrt(math.fsum((t - mean) ** 2 for t in times) / (len(times) - 1)) if times[1:] else None,
        "time_s_ci95_low": interval.low,
        "time_s_ci95_high": interval.high,
    }


def _times(measured: Measurement, problem: Problem, interval: Interval) -> dict[str, Any]:
    speedup, variant = measured.over_baseline, measured.over_variant
    return {
        **sample_columns(measured.samples, interval),
        "processes": max(1, len(measured.parts)),
        "interval": measured.interval_scope,
        "gflop_per_s": problem.flop / interval.median * 1e-9 if problem.flop else None,
        "gbyte_per_s": problem.traffic_bytes / interval.median * 1e-9,
        "bus_gbyte_per_s": problem.bus_bytes / interval.median * 1e-9 if problem.bus_bytes else None,
        **measured.state,
        **(msgspec.structs.asdict(measured.roofline) if measured.roofline else {}),
        **({**_with_ends("speedup", speedup), "speedup_of_minima": speedup.minima} if speedup else {}),
        **({**_with_ends("ratio", variant.ratio), "against": variant.against} if variant else {}),
    }


def _with_ends(name: str, ratio: BaselineRatio) -> dict[str, float | None]:
    return {name: ratio.median, f"{name}_ci95_low": ratio.low, f"{name}_ci95_high": ratio.high}


def row(result: Result, dims: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row by name: first the columns, then the problem's dimensions."""
    return {**{name: getattr(result, name) for name in COLUMNS}, **dims}
