"""Check the harness's times of kernels of known duration, on a quiet core and on a core with a busy process."""

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
#: The cost of a call is measured for about ALONE_S per duration, by at least FEWEST and at most MOST calls.
ALONE_S, FEWEST, MOST = 0.2, 50, 2000
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
        empty_s = rows[0].interval.median if rows[0].interval else 0.0
        yield from judge(rows, dict.fromkeys(DURATIONS_US, empty_s), "GPU")
        tick()


def _on_cpu(tick: Tick) -> Iterator[Finding]:
    if reason := counter_missing():
        yield Finding("durations", "not testable here", reason, None)
        return
    before_s, quiet, between_s = call_costs_s(), _measure("cpu"), call_costs_s()
    tick()
    yield cost_of_a_call(quiet[0])
    yield from judge(quiet, _larger(before_s, between_s), "quiet")
    with Neighbour() as neighbour:
        disturbed = _measure("cpu")
    tick()
    figure, bound = f"busy {100 * neighbour.share:.1f} % of the time", f"at least {100 * LEAST_SHARE:.0f} %"
    yield Finding("durations: neighbour on the same core", figure, bound, neighbour.share >= LEAST_SHARE)
    yield from judge(disturbed, _larger(between_s, call_costs_s()), "neighbour")


def _measure(device: str) -> list[Measurement]:
    provider = "cuda" if device == "cuda" else "selftest"
    kernels = [f"copy/{provider}.{spin_name(duration)}" for duration in DURATIONS_US]
    return measured(("copy/m4n8/f32",), kernels, "timed", budget=BUDGET, device=device)


def call_costs_s() -> dict[int, float]:
    """For each duration in us, return the cost of a call: the 90th percentile of (time - duration) in a plain loop.

    The longer a kernel spins, the more of the code that calls it has left the caches when it returns.
    """
    from kernelmark.bench.selftest._spin import spinner

    source = np.zeros(32, np.float32)
    target = np.empty_like(source)
    clock, costs_s = CpuClock(), {}
    for duration_us in DURATIONS_US[1:]:
        duration_s = duration_us * 1e-6
        call = spinner(target.ctypes.data, source.ctypes.data, source.nbytes, duration_s)
        count = max(FEWEST, min(round(ALONE_S / duration_s), MOST))
        costs_s[duration_us] = float(np.quantile([clock.time([call]) for _ in range(count)], 0.9)) - duration_s
    return costs_s


def _larger(first_s: dict[int, float], second_s: dict[int, float]) -> dict[int, float]:
    return {duration: max(cost_s, second_s[duration]) for duration, cost_s in first_s.items()}


def cost_of_a_call(empty: Measurement) -> Finding:
    """Report the time of an empty compiled call in a batch, and `call_overhead_s`. There is no bound."""
    parts = []
    if empty.interval:
        parts.append(f"{1e9 * empty.interval.median:.0f} ns in a batch")
    if empty.call_overhead_s:
        parts.append(f"call_overhead_s {1e9 * empty.call_overhead_s:.0f} ns")
    return Finding("durations: a call that does nothing", ", ".join(parts), "", None)


def judge(rows: list[Measurement], costs_s: dict[int, float], where: str) -> Iterator[Finding]:
    """Compare measured times with known durations, except in the first row (an empty kernel).

    A time may be shorter than its duration by RELATIVE, or longer by the larger of RELATIVE and the cost of a call.
    """
    for row, duration_us in list(zip(rows, DURATIONS_US, strict=True))[1:]:
        name = f"durations: {duration_us} us, {where}"
        if row.interval is None:
            yield Finding(name, f"{row.status}: {row.reason}", "a time", False)
            continue
        found_s, duration_s, cost_s = row.interval.median, duration_us * 1e-6, max(0.0, costs_s[duration_us])
        off_s, relative_s = found_s - duration_s, RELATIVE * duration_s
        figure = f"{1e6 * found_s:.6g} us ({100 * off_s / duration_s:+.2f} %, {1e9 * off_s:+.0f} ns)"
        bound = f"{100 * RELATIVE:g} %" if relative_s >= cost_s else f"{1e9 * cost_s:.0f} ns (cost of a call)"
        yield Finding(name, figure, bound, -relative_s <= off_s <= max(relative_s, cost_s))
