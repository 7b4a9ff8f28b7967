"""A row: the columns of the contract, made from a measurement."""

import math
from typing import Any

import msgspec

from bench.measure.measurement import Measurement
from bench.measure.stats import Interval, outliers
from bench.plan.case import PlannedJob, case_key
from bench.plan.kernel import Kernel
from bench.plan.operation import Problem
from bench.plan.status import Status

SCHEMA = 1


class Result(msgspec.Struct, kw_only=True):
    """One case, as it stands in the store and in CSV; the fields are the columns, in their order. None is empty."""

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
    time_s_median: float | None = None
    time_s_min: float | None = None
    time_s_mean: float | None = None
    time_s_std: float | None = None
    time_s_ci95_low: float | None = None
    time_s_ci95_high: float | None = None
    call_overhead_s: float | None = None
    gflop_per_s: float | None = None
    gbyte_per_s: float | None = None
    roofline_pct: float | None = None
    baseline: str = ""
    speedup: float | None = None
    speedup_ci95_low: float | None = None
    speedup_ci95_high: float | None = None
    max_error: float | None = None
    error_bound: float | None = None
    scratch_bytes: int | None = None
    seed: int = 0
    clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    versions: str = ""
    git_commit: str = ""
    started_at: str = ""
    processes: int = 1
    isa: str = ""
    stopped_by: str = ""
    disturbed: str = ""
    tunables: str = ""
    count: int = 1
    bound_by: str = ""
    ceiling_gflop_per_s: float | None = None
    ceiling_gbyte_per_s: float | None = None
    executed_flop: int | None = None
    setup_s: float | None = None
    interval: str = ""
    outliers: int | None = None
    speedup_of_minima: float | None = None
    attempt: int = 1
    repeated: int | None = None
    threads_used: int | None = None
    affinity: str = ""
    load: float | None = None
    steal_pct: float | None = None
    roofline_pct_cycles: float | None = None
    spread_s: float | None = None
    job: str = ""
    tuned: str = ""
    host: str = ""
    device_uuid: str = ""
    wire_bytes: int | None = None
    bus_gbyte_per_s: float | None = None
    compression_error: float | None = None

    @property
    def case(self) -> str:
        """The identity of the row within its run."""
        return case_key(self.kernel, self.problem, self.mode, self.threads, self.isa)


#: The contract's columns, in their order.
COLUMNS = tuple(field.name for field in msgspec.structs.fields(Result))


def make_result(
    measured: Measurement, kernel: Kernel, problem: Problem, planned: PlannedJob, run_id: str, git_commit: str
) -> Result:
    """The row of a measurement. A result that is not `ok` gets no times, no rate and no speedup."""
    result = Result(
        run_id=run_id,
        suite=planned.suite,
        op=problem.op,
        problem=problem.id,
        kernel=kernel.id,
        provider=kernel.provider,
        device=kernel.device,
        device_name=measured.device_name,
        mode=planned.job.mode,
        dtype=problem.dtype,
        numerics=measured.numerics,
        layout=getattr(problem, "layout", ""),
        threads=measured.threads,
        status=measured.status,
        reason=measured.reason,
        baseline=planned.job.baseline or "",
        max_error=finite(measured.max_error),
        error_bound=finite(measured.error_bound),
        scratch_bytes=measured.scratch_bytes,
        seed=planned.job.seed,
        call_overhead_s=measured.call_overhead_s,
        versions=measured.versions,
        git_commit=git_commit,
        started_at=measured.started_at,
        tunables=measured.tunables,
        executed_flop=measured.executed_flop,
        setup_s=measured.setup_s,
        count=planned.count,
        isa=planned.job.isa,
        attempt=measured.attempt,
        threads_used=measured.threads_used,
        spread_s=measured.spread_s,
        affinity=measured.affinity,
        job=measured.job,
        clock_mhz=measured.state.get("clock_mhz"),
        temperature_c=measured.state.get("temperature_c"),
        power_w=measured.state.get("power_w"),
        energy_j=measured.state.get("energy_j"),
        load=measured.state.get("load"),
        steal_pct=measured.state.get("steal_pct"),
    )
    if measured.status == Status.OK and measured.interval is not None:
        _add_times(result, measured, problem, measured.interval)
    return result


def _add_times(result: Result, measured: Measurement, problem: Problem, interval: Interval) -> None:
    times = measured.samples
    mean = math.fsum(times) / len(times)
    result.samples, result.stopped_by, result.disturbed = len(times), measured.stopped_by, measured.disturbed
    result.time_s_median, result.time_s_min, result.time_s_mean = interval.median, min(times), mean
    if len(times) > 1:
        result.time_s_std = math.sqrt(math.fsum((t - mean) ** 2 for t in times) / (len(times) - 1))
    result.time_s_ci95_low, result.time_s_ci95_high = finite(interval.low), finite(interval.high)
    result.processes, result.interval = max(1, len(measured.parts)), measured.interval_scope
    result.outliers, result.repeated = outliers(times), measured.repeated
    result.gflop_per_s = problem.flop / interval.median * 1e-9 if problem.flop else None
    result.gbyte_per_s = problem.traffic_bytes / interval.median * 1e-9
    if roofline := measured.roofline:
        result.roofline_pct, result.bound_by = roofline.pct, roofline.bound_by
        result.ceiling_gflop_per_s, result.ceiling_gbyte_per_s = roofline.gflop_per_s, roofline.gbyte_per_s
        result.roofline_pct_cycles = roofline.pct_cycles
    if ratio := measured.ratio:
        result.speedup, result.speedup_ci95_low = ratio.median, finite(ratio.low)
        result.speedup_ci95_high, result.speedup_of_minima = finite(ratio.high), ratio.minima


def finite(value: float | None) -> float | None:
    """None in the place of NaN and infinity: an unknown is empty, never a number."""
    return value if value is not None and math.isfinite(value) else None


def row(result: Result, dims: dict[str, Any]) -> dict[str, Any]:
    """The columns by name, then the problem's own dimensions."""
    return {**{name: getattr(result, name) for name in COLUMNS}, **dims}
