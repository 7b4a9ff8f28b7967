"""Bound a row by measured ceilings of arithmetic and of bandwidth, and place its time under them.

Roofline model: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
A ceiling is the best rate of our own microbenchmarks here (operations `fma`, `copy` and, over a link, `transfer`).
Only if none can accuse a row, the nominal peak does (`peak.py`).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure.measurement import Ceiling, Excess, Measurement, Need, Roofline
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status

#: How far beyond a ceiling a figure may lie before either of them is doubted.
SLACK = 1.02
#: How far beyond the highest ceiling ever measured it is the figure that is wrong, whatever else is in doubt. Load that
#: shares the units of a core, or slows its clock, takes no more from a ceiling.
FAR = 2.0
#: The share of samples that a ceiling is read from, the fastest: load makes samples slower and never faster.
FASTEST = 0.1
#: A system that shares a CPU lets a process work this long at a time, so a call that is shorter is often undisturbed.
SLICE_S = 2e-3
#: The microbenchmark of each arithmetic, by device; on a CPU with as many lanes for each thread, of half a millisecond.
COMPUTE = {
    "cpu": {"fp32": "fma/n{lanes}k512/f32", "fp64": "fma/n{lanes}k256/f64"},
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
_THREAD_LANES = 98304
#: The copy on each thread of a CPU that shows what caches allow.
_CACHED_BYTES = 2**20


class Judge(NamedTuple):
    """A ceiling that accuses a row beyond `times` its best sample."""

    ceiling: Ceiling
    times: float

    def __str__(self) -> str:
        return f"{'twice ' * (self.times >= FAR)}{self.ceiling}"


class Bounds(NamedTuple):
    """The ceilings of one row, as far as they are known."""

    compute: Ceiling | None
    memory: Ceiling | None


def needs(problem: Problem, device: str, threads: int, numerics: str, mode: Mode, llc_bytes: int) -> Iterator[Need]:
    """Return the ceilings of a kernel: of its arithmetic, if any, and of the memory or link that operands cross."""
    kind = UNITS.get(numerics, numerics)
    if problem.flop and (micro := microbenchmark(problem.op, device, numerics, threads)):
        yield Need(device, threads, kind, micro)
    nbytes = level_bytes(problem.footprint_bytes, mode, llc_bytes)
    if transfer := problem.link(nbytes):
        yield Need(device, threads, "link", transfer)
    else:
        yield Need(device, threads, "memory", _copy_of(nbytes))


def judges(
    problem: Problem, device: str, threads: int, numerics: str, mode: Mode, llc_bytes: int
) -> Iterator[tuple[Need, float]]:
    """Yield the ceilings that can accuse a kernel, each with the factor by which a rate may exceed it.

    Operands below four last-level caches leave part of their stores there. On a CPU they are compared with twice the
    rate of a copy within a cache: on each thread in cold mode, of the operands' size in others.
    """
    for need in needs(problem, device, threads, numerics, mode, llc_bytes):
        if not need.moves or problem.footprint_bytes >= 4 * llc_bytes:
            yield need, SLACK
        elif device == "cpu" and (mode.does.from_memory or problem.footprint_bytes >= _SMALLEST):
            cold = mode.does.from_memory or problem.footprint_bytes > 2 * llc_bytes
            nbytes = threads * _CACHED_BYTES if cold else level_bytes(problem.footprint_bytes, mode, llc_bytes)
            yield Need(device, threads, "memory", _copy_of(nbytes)), FAR


def microbenchmark(op: str, device: str, numerics: str, threads: int) -> str | None:
    """Return the problem whose rate bounds an operation's arithmetic, if any; on a CPU it grows with the threads."""
    kind = UNITS.get(numerics, numerics)
    fed = FED.get((device, kind)) if op in PRODUCTS and numerics == kind else None
    microbenchmark_id = fed or COMPUTE.get(device, {}).get(kind)
    return microbenchmark_id and microbenchmark_id.format(lanes=_THREAD_LANES * threads)


def level_bytes(footprint: int, mode: Mode, llc_bytes: int) -> int:
    """Return the footprint of the copy that bounds a row: four last-level caches if operands come from memory.

    Otherwise they stay in a cache, which follows from their size, so the copy is about as large: the next smaller power
    of four, so that it does not lie in a slower cache than they do.
    """
    if mode.does.from_memory or footprint > 2 * llc_bytes:
        return 4 * llc_bytes
    return max(_SMALLEST, 1 << ((footprint.bit_length() - 1) // 2 * 2))


def _copy_of(nbytes: int) -> str:
    return f"copy/m{max(1, nbytes // (2 * _ROW_BYTES))}n{_ROW_BYTES // 4}/f32"


def fastest(rows: list[Measurement]) -> Measurement | None:
    """Return the fastest microbenchmark, or None if none was right."""
    good = [row for row in rows if row.status == Status.OK and row.samples]
    return min(good, key=lambda row: fastest_tenth(row.samples), default=None)


def ceiling(need: Need, row: Measurement, problem: Problem, measured_at: str) -> Ceiling:
    """Return the rate that a tenth of the samples reach, and its interval."""
    work = problem.traffic_bytes if need.moves else problem.flop
    typical_s, low_s, high_s = fastest_tenth(row.samples)
    return Ceiling(
        *need,
        kernel=row.kernel,
        device_name=row.device_name,
        rate=work / typical_s,
        low=work / high_s,
        high=work / low_s,
        best=work / min(row.samples),
        measured_at=measured_at,
        clock_mhz=row.state.get("clock_mhz"),
        host=row.host,
        device_uuid=row.device_uuid,
    )


class Tenth(NamedTuple):
    """The time that a tenth of the samples do not exceed, and the order statistics that are its 95 % interval."""

    middle: float
    low: float
    high: float


def fastest_tenth(samples: Sequence[float]) -> Tenth:
    """Return the time of the fastest tenth of the samples."""
    ranked, mean = sorted(samples), FASTEST * len(samples)
    off = 1.96 * math.sqrt(mean * (1 - FASTEST))
    places = (math.floor(mean), math.floor(mean - off), math.ceil(mean + off))
    return Tenth(*(ranked[min(max(place, 0), len(ranked) - 1)] for place in places))


#: Begins the doubt about a ceiling of short samples that was measured beside other load.
BESIDE = "measured while "


def highest(found: Iterable[tuple[Ceiling, str]]) -> tuple[Ceiling, str] | None:
    """Return the highest of the least doubtful ceilings of a kind, the best sample of all, and the reason for doubt.

    A valid ceiling is the least doubtful, then one that was measured beside other load, then any other.
    """
    every = list(found)
    if not every:
        return None
    chosen, doubt = max(every, key=certainty)
    return msgspec.structs.replace(chosen, best=max(known.best for known, _ in every)), doubt


def in_force(found: Iterable[tuple[Ceiling, str]]) -> list[tuple[Ceiling, str]]:
    """Return the ceilings of a run's rows, one of each kind, with the doubts about them."""
    by_need: dict[Need, list[tuple[Ceiling, str]]] = {}
    for pair in found:
        by_need.setdefault(pair[0].need, []).append(pair)
    return [max(group, key=certainty) for group in by_need.values()]


def certainty(one: tuple[Ceiling, str]) -> tuple[bool, bool, float]:
    """Return the sort key of ceilings of a kind: the last of them is used in rows, tables and figures."""
    return not one[1], one[1].startswith(BESIDE), one[0].rate


def place(measured: Measurement, problem: Problem, bounds: Bounds) -> Roofline | None:
    """Place a time under its ceilings; None if no ceiling is known."""
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


def exceeded(measured: Measurement, problem: Problem, judge: Judge) -> Excess | None:
    """Return whether a row exceeds a ceiling: its slowest credible time against the ceiling's best sample."""
    if measured.interval is None:
        return None
    declared = problem.traffic_bytes if judge.ceiling.need.moves else _executed(measured, problem)
    rate = declared / measured.interval.high
    return Excess(judge.ceiling, declared, rate, judge.times) if rate > judge.times * judge.ceiling.best else None
