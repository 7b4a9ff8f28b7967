"""Check that the harness times kernels of known duration right, on a quiet core and on one with a busy process."""

from collections.abc import Iterator

import numpy as np

from kernelmark.bench.measure.devices import devices_present
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.timing import CpuClock
from kernelmark.bench.plan.case import Budget
from kernelmark.bench.selftest.finding import Finding, Tick, measured
from kernelmark.bench.selftest.known import DURATIONS_US, counter_missing, spin_name
from kernelmark.bench.selftest.neighbour import SHARE, Neighbour, pinned

#: The accepted relative error of a time; an error up to the cost of a call is accepted as well.
RELATIVE = 0.005
BUDGET = Budget()
BARE_CALLS = 2000
WORK_S = 20e-6
#: The least CPU share that the neighbour must have used; with less, the check shows nothing.
LEAST_SHARE = 0.8 * SHARE


def jobs() -> int:
    """Return the number of jobs."""
    return 1 + len(devices_present())


def check(tick: Tick) -> Iterator[Finding]:
    """Check each known duration on a quiet core, next to a busy process and, if there is a GPU, on the GPU."""
    with pinned():
        yield from _on_cpu(tick)
    if "cuda" in devices_present():
        rows = _measure("cuda")
        yield from judge(rows, rows[0].interval.median if rows[0].interval else 0.0, "GPU", "an empty launch")
        tick()


def _on_cpu(tick: Tick) -> Iterator[Finding]:
    if reason := counter_missing():
        yield Finding("durations", "not testable here", reason, None)
        return
    bare_s, quiet = bare_call_s(), _measure("cpu")
    tick()
    yield cost_of_a_call(bare_s, quiet[0])
    yield from judge(quiet, bare_s, "quiet")
    with Neighbour() as neighbour:
        disturbed = _measure("cpu")
    tick()
    figure, bound = f"busy {100 * neighbour.share:.1f} % of the time", f"at least {100 * LEAST_SHARE:.0f} %"
    yield Finding("durations: neighbour on the same core", figure, bound, neighbour.share >= LEAST_SHARE)
    yield from judge(disturbed, bare_s, "neighbour")


def _measure(device: str) -> list[Measurement]:
    provider = "cuda" if device == "cuda" else "selftest"
    kernels = [f"copy/{provider}.{spin_name(duration)}" for duration in DURATIONS_US]
    return measured(("copy/m4n8/f32",), kernels, "timed", budget=BUDGET, device=device)


def bare_call_s() -> float:
    """Return the time that the harness measures for an empty compiled call: the 90th percentile of many calls.

    Each call is timed alone, after 20 us of other work. In a batch, an empty call takes a fraction of this time,
    because caches and branch predictors still hold the state of the previous call.
    """
    from kernelmark.bench.selftest._spin import spinner

    source = np.zeros(32, np.float32)
    target = np.empty_like(source)
    addresses = target.ctypes.data, source.ctypes.data, source.nbytes
    clock, empty, work, times_s = CpuClock(), spinner(*addresses, 0), spinner(*addresses, WORK_S), []
    for _ in range(BARE_CALLS):
        work()
        times_s.append(clock.time([empty]))
    return float(np.quantile(times_s, 0.9))


def cost_of_a_call(bare_s: float, empty: Measurement) -> Finding:
    """Report the time of an empty compiled call, alone and in a batch, and `call_overhead_s`. There is no bound."""
    parts = [f"{1e9 * bare_s:.0f} ns alone"]
    if empty.interval:
        parts.append(f"{1e9 * empty.interval.median:.0f} ns in a batch")
    if empty.call_overhead_s:
        parts.append(f"call_overhead_s {1e9 * empty.call_overhead_s:.0f} ns")
    return Finding("durations: a call that does nothing", ", ".join(parts), "", None)


def judge(rows: list[Measurement], call_s: float, where: str, call: str = "a call timed alone") -> Iterator[Finding]:
    """Compare measured times with known durations, except in the first row (an empty kernel). call_s: a call's cost."""
    for row, duration_us in list(zip(rows, DURATIONS_US, strict=True))[1:]:
        name = f"durations: {duration_us} us, {where}"
        if row.interval is None:
            yield Finding(name, f"{row.status}: {row.reason}", "a time", False)
            continue
        found_s, duration_s = row.interval.median, duration_us * 1e-6
        off_s, relative_s = found_s - duration_s, RELATIVE * duration_s
        figure = f"{1e6 * found_s:.6g} us ({100 * off_s / duration_s:+.2f} %, {1e9 * off_s:+.0f} ns)"
        bound = f"{100 * RELATIVE:g} %" if relative_s >= call_s else f"{1e9 * call_s:.0f} ns, {call}"
        yield Finding(name, figure, bound, abs(off_s) <= max(relative_s, call_s))
