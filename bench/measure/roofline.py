"""Compare a row's time with the ceilings that bound it; run/ceilings.py measures them.

Roofline model: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009. A
ceiling is the best rate that kernelmark's microbenchmarks reach on this machine (operations `fma`, `copy` and, over a
link, `transfer`). If no ceiling can be used to check a row, the nominal peak is used (`nominal_peak.py`).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure.measurement import Ceiling, Excess, Measurement, Need, Roofline
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status

#: The factor by which a rate may exceed a ceiling before the rate or the ceiling is doubted.
SLACK = 1.02
#: A rate that exceeds the highest ceiling ever measured by this factor is wrong, even if ceilings are in doubt: load
#: that shares the units of a core, or slows its clock, lowers a ceiling by no more than this factor.
FAR = 2.0
#: A ceiling is the rate reached by this share of the samples, the fastest ones, since load only slows samples down.
FASTEST = 0.1
#: The time slice of a process on a shared CPU; a shorter call is often undisturbed.
SLICE_S = 2e-3
#: The microbenchmark of each numerics, by device; on a CPU its lanes grow with the threads, and a call takes about half
#: a millisecond.
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
#: The microbenchmark for the operations in PRODUCTS. Their kernels load the factors from shared memory, and these loads
#: take issue slots.
FED = {("cuda", "fp32"): "fma/n8650752k32768/f32/fed"}
PRODUCTS = ("gemm", "conv")
#: The kernels that measure a link's ceiling; within the host, they copy with the row's thread count. A link's ceiling
#: counts each byte once, as rows of `transfer` do; the memory ceiling counts reads and writes.
LINKS = {f"transfer/{name}" for name in ("numpy.copyto", "numba.streaming", "cuda.pinned", "cuda.device", "cuda.peer")}
#: Numerics that use the arithmetic units of another numerics.
UNITS = {"3xtf32": "tf32", "strassen64": "fp64", "dft64": "fp64"}
UNITS |= dict.fromkeys(("winograd", "winograd4", "fft", "dft", "strassen", "onebit", "int8"), "fp32")
_ROW_BYTES = 4 * 1024  # of the matrices that bandwidth is measured with
_SMALLEST = 2**16
_THREAD_LANES = 98304
#: Bytes per thread of the copy that measures the bandwidth of caches.
_CACHED_BYTES = 2**20


class Judge(NamedTuple):
    """A ceiling and a factor: a row is mistrusted if its rate exceeds the factor times the ceiling's best sample."""

    ceiling: Ceiling
    times: float

    def __str__(self) -> str:
        return f"{'twice ' * (self.times >= FAR)}{self.ceiling}"


def needs(problem: Problem, device: str, threads: int, numerics: str, mode: Mode, llc_bytes: int) -> Iterator[Need]:
    """Yield the ceilings that bound a kernel's rate: arithmetic, if any, then the link or the memory."""
    kind = UNITS.get(numerics, numerics)
    if problem.flop and (micro := microbenchmark(problem.op, device, numerics, threads)):
        yield Need(device, threads, kind, micro)
    nbytes = level_bytes(problem.touched_bytes, mode, llc_bytes)
    if transfer := problem.link(nbytes):
        yield Need(device, threads, "link", transfer)
    else:
        yield Need(device, threads, "memory", _copy_of(nbytes))


def judges(
    problem: Problem, device: str, threads: int, numerics: str, mode: Mode, llc_bytes: int
) -> Iterator[tuple[Need, float]]:
    """Yield the ceilings to check a kernel against, each with the factor by which a rate may exceed it.

    If a call touches fewer bytes than four last-level caches hold, part of the stores stay in the cache. On a CPU, the
    limit is then twice the rate of a copy within a cache. This copy has the touched size, except in cold mode and for
    calls that touch more bytes than two caches hold: then each thread copies a small block.
    """
    touched = problem.touched_bytes
    for need in needs(problem, device, threads, numerics, mode, llc_bytes):
        if not need.moves or touched >= 4 * llc_bytes:
            yield need, SLACK
        elif device == "cpu" and (mode.does.from_memory or touched >= _SMALLEST):
            cold = mode.does.from_memory or touched > 2 * llc_bytes
            nbytes = threads * _CACHED_BYTES if cold else level_bytes(touched, mode, llc_bytes)
            yield Need(device, threads, "memory", _copy_of(nbytes)), FAR


def microbenchmark(op: str, device: str, numerics: str, threads: int) -> str | None:
    """Return the id of the problem that measures an operation's arithmetic ceiling, or None if there is none."""
    kind = UNITS.get(numerics, numerics)
    fed = FED.get((device, kind)) if op in PRODUCTS and numerics == kind else None
    microbenchmark_id = fed or COMPUTE.get(device, {}).get(kind)
    return microbenchmark_id and microbenchmark_id.format(lanes=_THREAD_LANES * threads)


def level_bytes(touched: int, mode: Mode, llc_bytes: int) -> int:
    """Return the size in bytes of the copy whose rate bounds a row.

    If operands come from memory, the size is four last-level caches. Otherwise it is the operands' size, rounded down
    to a power of four, so that the copy does not lie in a slower cache than the operands.
    """
    if mode.does.from_memory or touched > 2 * llc_bytes:
        return 4 * llc_bytes
    return max(_SMALLEST, 1 << ((touched.bit_length() - 1) // 2 * 2))


def _copy_of(nbytes: int) -> str:
    return f"copy/m{max(1, nbytes // (2 * _ROW_BYTES))}n{_ROW_BYTES // 4}/f32"


def fastest(rows: list[Measurement]) -> Measurement | None:
    """Return the row with the fastest samples, or None if no row has the status `ok`."""
    good = [row for row in rows if row.status == Status.OK and row.samples]
    return min(good, key=lambda row: fastest_tenth(row.samples), default=None)


def ceiling(need: Need, row: Measurement, problem: Problem, measured_at: str) -> Ceiling:
    """Return a microbenchmark's ceiling: work divided by the tenth percentile of its samples, with an interval."""
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


def fastest_tenth(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the tenth percentile of the samples, and the order statistics that form its 95 % interval."""
    ranked, mean = sorted(samples), FASTEST * len(samples)
    off = 1.96 * math.sqrt(mean * (1 - FASTEST))
    places = (math.floor(mean), math.floor(mean - off), math.ceil(mean + off))
    middle, low, high = (ranked[min(max(place, 0), len(ranked) - 1)] for place in places)
    return middle, low, high


#: The doubt about a ceiling begins with these words if it was measured during other load, in short samples.
BESIDE = "measured while "


def highest(ceilings: Iterable[tuple[Ceiling, str]]) -> tuple[Ceiling, str] | None:
    """Return the ceiling to use among several of one kind, with the highest `best` of all, and the reason to doubt it.

    Ceilings without doubt are preferred, then ceilings measured during other load; among equals the highest is used.
    """
    every = list(ceilings)
    if not every:
        return None
    chosen, doubt = max(every, key=certainty)
    return msgspec.structs.replace(chosen, best=max(known.best for known, _ in every)), doubt


def in_force(ceilings: Iterable[tuple[Ceiling, str]]) -> list[tuple[Ceiling, str]]:
    """Return, for each kind of ceiling, the one that a run's rows use, with the reason to doubt it or ""."""
    by_need: dict[Need, list[tuple[Ceiling, str]]] = {}
    for pair in ceilings:
        by_need.setdefault(pair[0].need, []).append(pair)
    return [max(group, key=certainty) for group in by_need.values()]


def certainty(candidate: tuple[Ceiling, str]) -> tuple[bool, bool, float]:
    """Return the sort key of a ceiling. Of all ceilings of one kind, the one with the largest key is used."""
    return not candidate[1], candidate[1].startswith(BESIDE), candidate[0].rate


def place(measured: Measurement, problem: Problem, compute: Ceiling | None, memory: Ceiling | None) -> Roofline | None:
    """Return a row's roofline columns from the known ceilings; None if none is known or the row has no time."""
    if measured.interval is None or not (compute or memory):
        return None
    least_s: dict[str, float] = {"compute": _executed(measured, problem) / compute.rate} if compute else {}
    if memory:
        least_s[memory.kind] = problem.traffic_bytes / memory.rate
    shares = {name: seconds / measured.interval.median for name, seconds in least_s.items()}
    bound_by = max(shares, key=lambda name: shares[name])
    return Roofline(
        roofline_pct=100 * shares[bound_by],
        bound_by=bound_by,
        ceiling_gflop_per_s=compute.rate * 1e-9 if compute else None,
        ceiling_gbyte_per_s=memory.rate * 1e-9 if memory else None,
        roofline_pct_cycles=_pct_cycles(measured, compute, shares["compute"]) if bound_by == "compute" else None,
    )


def _pct_cycles(measured: Measurement, limit: Ceiling | None, share: float) -> float | None:
    """Return work per cycle as a percentage of the ceiling's work per cycle; None if a clock rate is unknown.

    Changes of the core's clock cancel in this ratio. It is for arithmetic only, since the memory has its own clock.
    """
    mhz = measured.state.get("clock_mhz")
    return 100 * share * limit.clock_mhz / mhz if limit and limit.clock_mhz and mhz else None


def _executed(measured: Measurement, problem: Problem) -> int:
    return problem.flop if measured.executed_flop is None else measured.executed_flop


def exceeded(measured: Measurement, problem: Problem, judge: Judge) -> Excess | None:
    """Return an Excess if a row's rate, at the slow end of its interval, is above the limit of `judge`, or None."""
    if measured.interval is None:
        return None
    declared = problem.traffic_bytes if judge.ceiling.need.moves else _executed(measured, problem)
    rate = declared / measured.interval.high
    return Excess(judge.ceiling, declared, rate, judge.times) if rate > judge.times * judge.ceiling.best else None
