"""Check known ratios: a product in two layouts over several processes, and cold copies against hot ones."""

from collections.abc import Iterator, Sequence
from statistics import mean, stdev

from kernelmark.bench.measure.devices import devices_present
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.ratio import BaselineRatio, speedup
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.selftest.finding import Finding, Tick, failures, measured

PROCESSES = 20
LARGEST_SPREAD = 0.015
LAYOUTS, PRODUCT = ("gemm/m512n512k512/f32/NN", "gemm/m512n512k512/f32/NT"), "gemm/numpy.matmul"

#: Forward and backward, so that a drift of the machine affects both modes equally.
ORDER = (Mode.COLD, Mode.HOT, Mode.HOT, Mode.COLD)
LEAST_SLOWDOWN = 2.0
COPY = "copy/m512n512/f32"
#: On a GPU: a plain copy, a copy that asks to keep its input in L2, and the least ratio of their times when cold.
PERSISTING, LEAST = ("copy/cuda.vectorised", "copy/selftest.persists"), 0.95


def check_layouts(tick: Tick) -> Iterator[Finding]:
    """Time NT against NN in fresh processes, one after the other."""
    ratios = []
    for _ in range(PROCESSES):
        rows = measured(LAYOUTS, (PRODUCT,), baseline=PRODUCT)
        tick()
        if bad := failures("ratio", rows):
            yield from bad
            return
        ratio = speedup([rows[0].samples], [rows[1].samples])
        assert ratio is not None  # both rows are ok, so each has at least six samples
        ratios.append(ratio)
    yield spread_of(ratios)


def spread_of(ratios: Sequence[BaselineRatio]) -> Finding:
    """Return the finding on the spread of the processes' ratios: their standard deviation over their mean."""
    medians, minima = [ratio.median for ratio in ratios], [ratio.minima or 0.0 for ratio in ratios]
    spread, of_minima = (stdev(values) / mean(values) for values in (medians, minima))
    figure = f"sd {100 * spread:.2f} % over {len(ratios)} processes (of minima: {100 * of_minima:.2f} %)"
    figure, bound = f"{figure}; NN/NT {mean(medians):.4f}", f"{100 * LARGEST_SPREAD:g} %"
    return Finding("ratio: NT to NN at 512^3, one thread", figure, bound, spread <= LARGEST_SPREAD)


def cold_jobs() -> int:
    """Return the number of jobs of `check_cold` on this machine."""
    return len(ORDER) + ("cuda" in devices_present())


def check_cold(tick: Tick) -> Iterator[Finding]:
    """Compare a cold copy of 1 MB with a hot one; on a GPU, also cold copies with and without input kept in L2."""
    times: dict[Mode, list[float]] = {Mode.COLD: [], Mode.HOT: []}
    for mode in ORDER:
        rows = measured((COPY,), ("copy/numpy.copyto",), mode=mode)
        tick()
        if bad := failures("cold", rows):
            yield from bad
            return
        times[mode] += [row.interval.median for row in rows if row.interval]
    yield slower(times[Mode.COLD], times[Mode.HOT])
    if "cuda" in devices_present():
        rows = measured((COPY,), PERSISTING, "cheats", mode=Mode.COLD, device="cuda")
        tick()
        yield from failures("cold", rows) or [persisting(*rows)]


def slower(cold: list[float], hot: list[float]) -> Finding:
    """Return the finding on the ratio of the cold copy's time to the hot copy's time."""
    ratio = mean(cold) / mean(hot)
    figure = f"{ratio:.2f} times slower ({1e6 * mean(cold):.3g} us, hot {1e6 * mean(hot):.3g} us)"
    bound = f"at least {LEAST_SLOWDOWN:g}"
    return Finding("cold: a copy of 1 MB, cold against hot", figure, bound, ratio >= LEAST_SLOWDOWN)


def persisting(honest: Measurement, asking: Measurement) -> Finding:
    """Return the finding on a cold copy that asks to keep its input in L2: its time relative to a plain cold copy."""
    assert honest.interval
    assert asking.interval
    ratio = asking.interval.median / honest.interval.median
    figure = f"{ratio:.2f} of the time of a plain copy"
    return Finding("cold: a copy that asks to stay in L2", figure, f"at least {LEAST:g}", ratio >= LEAST)
