"""One job measured in several fresh processes: their measurements become one a kernel."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from statistics import fmean

import msgspec

from bench.measure.measurement import BETWEEN, Measurement
from bench.measure.stats import pooled_interval, speedup
from bench.plan.status import Status


def merge(runs: Sequence[Sequence[Measurement]], baseline: str | None) -> list[Measurement]:
    """The processes' samples together, with intervals that hold for the next process. One process stays as it is.

    A kernel that failed in any process has failed. A ratio is formed only between kernels that were measured in turn in
    every process.
    """
    if len(runs) == 1:
        return list(runs[0])
    by_kernel = {m.kernel: [found for run in runs for found in run if found.kernel == m.kernel] for m in runs[0]}
    merged = {kernel: _merge(found, len(runs)) for kernel, found in by_kernel.items()}
    base = merged.get(baseline or "")
    if base is not None and base.interval:
        for kernel, found in merged.items():
            if kernel != baseline and found.interval and found.job == base.job:
                found.ratio = speedup(_groups(by_kernel[base.kernel]), _groups(by_kernel[kernel]))
    return list(merged.values())


def _groups(found: Sequence[Measurement]) -> list[list[float]]:
    return [one.samples for one in found]


def _merge(found: Sequence[Measurement], processes: int) -> Measurement:
    for number, one in enumerate(found, 1):
        if one.status != Status.OK:
            where = "" if number == 1 else f"in process {number} of {processes}: "
            return msgspec.structs.replace(one, reason=where + one.reason)
    first = found[0]
    if first.interval is None:
        return first
    return msgspec.structs.replace(
        first,
        job=_job(found),
        samples=[sample for one in found for sample in one.samples],
        parts=[part for one in found for part in one.parts],
        interval=pooled_interval(_groups(found)),
        interval_scope=BETWEEN,
        spread_s=(_start(found[-1]) - _start(first)).total_seconds(),
        ratio=None,
        stopped_by="time" if any(one.stopped_by == "time" for one in found) else "interval",
        disturbed="; ".join(dict.fromkeys(one.disturbed for one in found if one.disturbed)),
        max_error=max((one.max_error for one in found if one.max_error is not None), default=None),
        scratch_bytes=max((one.scratch_bytes for one in found if one.scratch_bytes is not None), default=None),
        attempt=max(one.attempt for one in found),
        repeated=sum(one.repeated for one in found),
        state={name: fmean(values) for name, values in _readings(found).items()},
    )


def _job(found: Sequence[Measurement]) -> str:
    """An id that two kernels share only if they were measured in turn in every process."""
    return hashlib.sha256(" ".join(one.job for one in found).encode()).hexdigest()[:12]


def _start(one: Measurement) -> datetime:
    return datetime.fromisoformat(one.started_at)


def _readings(found: Sequence[Measurement]) -> dict[str, list[float]]:
    return {name: [one.state[name] for one in found if name in one.state] for name in found[0].state}
