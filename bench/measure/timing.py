"""The only place that reads a clock: timed batches, warm-up, and contenders measured in turn."""

import gc
import threading
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Protocol

import numpy as np

from bench import SPIN_TIMEOUT_SET
from bench.measure.device import Device
from bench.measure.operands import Draw, OperandSet
from bench.measure.stats import MIN_SAMPLES, Looks, median_interval
from bench.plan.case import Budget
from bench.plan.registry import Launch

#: A sample lasts at least this long, thousands of ticks of the clock; shorter calls are batched up to it.
SAMPLE_S = 200e-6
#: Calls longer than this are not repeated just to wake threads and caches: both are a small part of them.
LONG_CALL_S = 10e-3
WARM_UP_S = 10e-3
#: Samples are spread over at least this long where the limit allows, since a shorter look may lie in one slow burst.
SPREAD_S = 1.0
#: Time for another contender's idle threads to stop spinning (see bench/__init__.py), or 2^28 ticks if they do not.
SETTLE_S = 0.002 if SPIN_TIMEOUT_SET else 0.15


def now() -> float:
    """Seconds on the monotonic clock."""
    return time.perf_counter()


def resolution() -> float:
    """The smallest step of the clock that was seen, in seconds."""
    steps = []
    for _ in range(100):
        start = stop = now()
        while stop == start:
            stop = now()
        steps.append(stop - start)
    return min(steps)


class Clock(Protocol):
    """Times a batch of calls on one device."""

    max_batch: int

    def time(self, calls: Sequence[Launch]) -> float: ...


class CpuClock:
    """Wall-clock time of a batch on the calling thread."""

    max_batch = 10_000

    def time(self, calls: Sequence[Launch]) -> float:
        """Seconds a call."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            start = time.perf_counter()
            for call in calls:
                call()
            stop = time.perf_counter()
        finally:
            if collecting:
                gc.enable()
        return (stop - start) / len(calls)


class CudaClock:
    """Event time of a batch on one stream, which is held back until everything is queued.

    The stream waits for a word in pinned memory, so that the cost of launching on the host stays out of the span. A
    call that synchronises the host would wait for ever behind it: after `RELEASE_S` a watchdog lets the stream go,
    and from then on the contender is timed without holding.
    """

    #: The driver queues about a thousand launches before it blocks; a batch of multi-launch kernels must fit.
    max_batch = 128
    RELEASE_S = 2.0

    def __init__(self, device: Device, hold: bool) -> None:
        import cupy
        from cuda.bindings import driver

        self._device, self._driver, self._stream = device, driver, device.stream
        self._start, self._stop = cupy.cuda.Event(), cupy.cuda.Event()
        self._elapsed_ms: Callable[[Any, Any], float] = cupy.cuda.get_elapsed_time
        self._memory = cupy.cuda.alloc_pinned_memory(4)
        self._flag = np.frombuffer(self._memory, np.uint32, 1)
        self.held = hold
        self.unseen_s: list[float] = []

    def time(self, calls: Sequence[Launch]) -> float:
        """Seconds a call between two events; what the device still did afterwards goes to `unseen_s`."""
        self._device.synchronize()
        held = self.held and self._wait()
        watchdog = threading.Timer(self.RELEASE_S, self._release_late) if held else None
        if watchdog:
            watchdog.start()
        try:
            self._start.record(self._stream)
            for call in calls:
                call()
            self._stop.record(self._stream)
        finally:
            released = now()
            self._flag[0] = 1
            if watchdog:
                watchdog.cancel()
        self._stop.synchronize()
        self._device.synchronize()
        wall = now() - released
        span = self._elapsed_ms(self._start, self._stop) * 1e-3
        if held and not self.held:  # the watchdog had to act, so this span holds its two seconds
            return self.time(calls)
        self.unseen_s.append(max(0.0, wall - span) if held else 0.0)
        return span / len(calls)

    def _wait(self) -> bool:
        self._flag[0] = 0
        flags = self._driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        (status,) = self._driver.cuStreamWaitValue32(self._stream.ptr, self._memory.ptr, 1, flags)
        self.held = status == self._driver.CUresult.CUDA_SUCCESS
        return self.held

    def _release_late(self) -> None:
        self.held = False
        self._flag[0] = 1

    def hidden_work(self, samples: Sequence[float], batch: int) -> str | None:
        """Why the span cannot be trusted: the device went on working well after it, sample for sample."""
        if not self.unseen_s:
            return None
        unseen, span = median(self.unseen_s), median(samples) * batch
        if unseen > max(1e-3, 0.5 * span):
            return f"the device worked {unseen:.3g} s beyond the {span:.3g} s that the events span"
        return None


def call_overhead(clock: Clock) -> float:
    """Seconds that a call which does nothing costs in a batch of this clock."""
    calls = [lambda: None] * min(1000, clock.max_batch)
    return min(clock.time(calls) for _ in range(5))


class Series:
    """One contender's samples: its launches over the operand sets, how they are prepared, and when they suffice."""

    def __init__(
        self,
        launches: list[Launch],
        sets: list[OperandSet],
        draw: Draw,
        device: Device,
        clock: Clock,
        cold: bool,
        evict: bool,
    ) -> None:
        self._launches, self._sets, self._draw = launches, sets, draw
        self._device, self.clock, self._cold = device, clock, cold
        self._restores = any(spec.role == "inout" for spec in sets[0].specs.values())
        # Restoring brings operands into the cache, so a cold sample that restores must evict afterwards.
        self._evict = cold and (evict or self._restores)
        self._turn = 0
        self._looks = Looks()
        self._started = 0.0
        self._call_s = 0.0
        self.batch = 1
        self.samples: list[float] = []
        self.spent_s = 0.0
        self.stopped_by: str | None = None

    def warm_up(self) -> None:
        """Run untimed until caches, threads and branch predictors know the code, and choose the batch."""
        began, fastest, count = now(), float("inf"), 0
        while count < 2 or now() - began < WARM_UP_S:
            fastest = min(fastest, self.clock.time([self._launches[count % len(self._launches)]]))
            count += 1
            if now() - began > LONG_CALL_S and count >= 1:
                break
        self._call_s = fastest
        wanted = max(1, round(SAMPLE_S / max(fastest, 1e-9)))
        # An evicted or restored set is good for one call, and in cold mode one set is spent on waking the threads.
        limit = len(self._sets) - 1 if self._evict else self.clock.max_batch
        self.batch = max(1, min(wanted, limit, self.clock.max_batch))
        self._started = now()

    def sample(self) -> None:
        """Prepare untimed, time one batch, keep the seconds a call."""
        count = len(self._sets)
        wake, timed = self._turn % count, [(self._turn + 1 + i) % count for i in range(self.batch)]
        self._turn += 1 + self.batch
        self._sets[timed[0]].refresh(self._draw)
        if self._cold and self._restores:
            self._restore(timed)
        if self._evict:
            self._device.evict()
        if self._call_s < LONG_CALL_S:
            self._launches[wake]()
        if not self._cold and self._restores:
            self._restore(timed)
        self.samples.append(self.clock.time([self._launches[i] for i in timed]))

    def _restore(self, timed: list[int]) -> None:
        for i in set(timed):
            self._sets[i].restore(self._draw)

    def decide(self, budget: Budget) -> None:
        """Stop when the interval is narrow enough, or when the time is spent; never below six samples."""
        if len(self.samples) < MIN_SAMPLES:
            return
        spread = min(SPREAD_S, budget.max_time_s)
        may_look = now() - self._started >= spread and self._looks.due(len(self.samples))
        if may_look and median_interval(self.samples, self._looks.alpha).relative_width <= budget.rel_ci:
            self.stopped_by = "interval"
        elif self.spent_s >= budget.max_time_s:
            self.stopped_by = "time"

    @property
    def alpha(self) -> float:
        """The error probability that the final interval may use."""
        return self._looks.alpha


def interleave(
    series: dict[str, Series],
    budget: Budget,
    baseline: str | None,
    settle: bool,
    on_error: Callable[[str, Exception], None],
) -> None:
    """Take samples in turn, forward and backward (ABBA), until every contender has enough.

    The baseline goes on as long as anybody does, so that each has its counterpart in the same round. `settle` pauses
    between contenders, untimed, so that the threads of the last do not spin against the next.
    """
    active = list(series)
    forward = True
    while active:
        order = active if forward else active[::-1]
        forward = not forward
        for name in order:
            began = now()
            if settle and len(active) > 1:
                time.sleep(SETTLE_S)
            try:
                series[name].sample()
                series[name].spent_s += now() - began
            except Exception as error:
                on_error(name, error)
                active = [other for other in active if other != name]
        for name in active:
            if series[name].stopped_by is None:
                series[name].decide(budget)
        running = [name for name in active if series[name].stopped_by is None]
        active = [name for name in active if name in running or (name == baseline and running)]
