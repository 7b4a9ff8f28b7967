"""What bounds a row: measured ceilings of arithmetic and of bandwidth, and what they say of a time.

Roofline model: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
Nothing is looked up: a ceiling is what the best of our own microbenchmarks (operations `fma`, `copy` and, over a link,
`transfer`) reached here.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kernelmark.bench.measure.measurement import Ceiling, Excess, Measurement, Need, Roofline
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status

#: How far beyond a ceiling a figure may lie before either of them is doubted.
SLACK = 1.02
#: How far beyond the highest ceiling ever measured it is the figure that is wrong, whatever else is in doubt.
FAR = 2.0
#: The microbenchmark of each arithmetic, by device; its sizes as in the suite `roofline`, on a CPU a quarter as long.
COMPUTE = {
    "cpu": {"fp32": "fma/n98304k8192/f32", "fp64": "fma/n98304k8192/f64"},
    "cuda": {
        "fp32": "fma/n8650752k32768/f32",
        "fp64": "fma/n8650752k32768/f64",
        "tf32": "fma/n34603008k65536/f32/mma",
        "f16": "fma/n34603008k65536/f16/mma",
        "bf16": "fma/n34603008k65536/bf16/mma",
    },
}
#: What bounds the same arithmetic of products, whose factors come from shared memory, which takes issue slots.
FED = {("cuda", "fp32"): "fma/n8650752k32768/f32/fed"}
PRODUCTS = ("gemm", "conv")
#: The transfers that a link's ceiling is measured with. Within the host they are copies at the same threads, so the
#: ceiling is what memory allows, counted once: a row of `transfer` cannot be held against reads and writes together.
LINKS = frozenset(
    {"transfer/numpy.copyto", "transfer/numba.streaming"}
    | {f"transfer/cuda.{name}" for name in ("pinned", "device", "peer")}
)
#: Numerics that compute on the units of another.
UNITS = {"3xtf32": "tf32", "strassen64": "fp64"}
UNITS |= dict.fromkeys(("winograd", "winograd4", "fft", "strassen", "onebit", "int8"), "fp32")
_ROW_BYTES = 4 * 1024  # of the matrices that bandwidth is measured with
_SMALLEST = 2**16


class Bounds(NamedTuple):
    """The ceilings of one row, where they are known."""

    compute: Ceiling | None
    memory: Ceiling | None


def needs(problem: Problem, device: str, threads: int, numerics: str, mode: Mode, llc_bytes: int) -> Iterator[Need]:
    """The ceilings of a kernel: of its arithmetic where there is any, and of the memory or link that operands cross."""
    kind = UNITS.get(numerics, numerics)
    if problem.flop and (micro := microbenchmark(problem.op, device, numerics)):
        yield Need(device, threads, kind, micro)
    nbytes = level_bytes(problem.footprint_bytes, mode, llc_bytes)
    if transfer := problem.link(nbytes):
        yield Need(device, threads, "link", transfer)
    else:
        yield Need(device, threads, "memory", _copy_of(nbytes))


def microbenchmark(op: str, device: str, numerics: str) -> str | None:
    """The problem whose rate bounds an operation's arithmetic, if there is one."""
    kind = UNITS.get(numerics, numerics)
    fed = FED.get((device, kind)) if op in PRODUCTS and numerics == kind else None
    return fed or COMPUTE.get(device, {}).get(kind)


def level_bytes(footprint: int, mode: Mode, llc_bytes: int) -> int:
    """The footprint of the copy that bounds a row: four last-level caches where operands come from memory.

    Otherwise they stay in a cache; which one follows from their size, so the copy is about as large: the next smaller
    power of four, that it may not lie in a slower cache than they do.
    """
    if mode.does.from_memory or footprint > 2 * llc_bytes:
        return 4 * llc_bytes
    return max(_SMALLEST, 1 << ((footprint.bit_length() - 1) // 2 * 2))


def _copy_of(nbytes: int) -> str:
    return f"copy/m{max(1, nbytes // (2 * _ROW_BYTES))}n{_ROW_BYTES // 4}/f32"


def ceiling(need: Need, rows: list[Measurement], problem: Problem, measured_at: str) -> Ceiling | None:
    """The best of the microbenchmarks that were measured, or None where none was right."""
    good = [row for row in rows if row.status == Status.OK and row.interval]
    if not good:
        return None
    best = min(good, key=lambda row: row.interval.median if row.interval else 0.0)
    assert best.interval is not None
    work = problem.traffic_bytes if need.moves else problem.flop
    return Ceiling(
        *need,
        kernel=best.kernel,
        device_name=best.device_name,
        rate=work / best.interval.median,
        low=work / best.interval.high,
        high=work / best.interval.low,
        best=work / min(best.samples),
        measured_at=measured_at,
        clock_mhz=best.state.get("clock_mhz"),
        host=best.host,
        device_uuid=best.device_uuid,
    )


def place(measured: Measurement, problem: Problem, bounds: Bounds) -> Roofline | None:
    """Where a time stands under its ceilings; None where none is known."""
    if measured.interval is None or not (bounds.compute or bounds.memory):
        return None
    shares = {name: share / measured.interval.median for name, share in _least_s(measured, problem, bounds).items()}
    bound_by = max(shares, key=lambda name: shares[name])
    return Roofline(
        roofline_pct=100 * shares[bound_by],
        bound_by=bound_by,
        ceiling_gflop_per_s=bounds.compute.rate * 1e-9 if bounds.compute else None,
        ceiling_gbyte_per_s=bounds.memory.rate * 1e-9 if bounds.memory else None,
        roofline_pct_cycles=_pct_cycles(measured, bounds.compute, shares["compute"]) if bound_by == "compute" else None,
    )


def _pct_cycles(measured: Measurement, limit: Ceiling | None, share: float) -> float | None:
    """Work per cycle over the ceiling's: what a clock that moved between the two took or gave is out of it.

    The figure is for arithmetic alone: the memory's clock does not move with the core's.
    """
    mhz = measured.state.get("clock_mhz")
    return 100 * share * limit.clock_mhz / mhz if limit and limit.clock_mhz and mhz else None


def _least_s(measured: Measurement, problem: Problem, bounds: Bounds) -> dict[str, float]:
    least = {}
    if bounds.compute:
        least["compute"] = _executed(measured, problem) / bounds.compute.rate
    if bounds.memory:
        least[bounds.memory.kind] = problem.traffic_bytes / bounds.memory.rate
    return least


def _executed(measured: Measurement, problem: Problem) -> int:
    return problem.flop if measured.executed_flop is None else measured.executed_flop


def exceeded(
    measured: Measurement, problem: Problem, bounds: Bounds, llc_bytes: int, slack: float = SLACK
) -> Excess | None:
    """Whether a row surpasses a ceiling by a factor: its slowest credible time against the ceiling's best sample.

    Bandwidth bounds only what is certain to come from memory: smaller operands leave part of their stores in a cache.
    """
    if measured.interval is None:
        return None
    slowest = measured.interval.high
    if bounds.compute and (rate := _executed(measured, problem) / slowest) > slack * bounds.compute.best:
        return Excess(bounds.compute, _executed(measured, problem), rate)
    if bounds.memory and problem.footprint_bytes >= 4 * llc_bytes:
        rate = problem.traffic_bytes / slowest
        if rate > slack * bounds.memory.best:
            return Excess(bounds.memory, problem.traffic_bytes, rate)
    return None
