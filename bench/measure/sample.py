"""How a number is made: one contender's samples, each prepared, timed and kept, until they suffice.

`Series.sample` is the measurement. `turns.py` calls it for each contender of a job in turn, looks at the machine
between windows of samples, and calls `Series.decide` for those that it keeps. What else is found out about a contender
is an observer's (`observers.py`); who would deceive this file is caught in `verify.py` and `audit.py`.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import cycle, islice
from typing import NamedTuple

from kernelmark.bench.measure.device import Clock, Device, Monitor, Window
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.monitor import Unwatched
from kernelmark.bench.measure.operands import OperandSet
from kernelmark.bench.measure.stats import MIN_SAMPLES, Looks, median_interval
from kernelmark.bench.plan.case import Budget
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import Launch

#: A sample lasts at least this long, thousands of ticks of the clock; shorter calls are batched up to it.
SAMPLE_S = 200e-6
#: A batch that lasts fewer steps of the clock than this is of no use: half a per cent is what a step may cost.
MIN_STEPS = 20
#: Calls longer than this are not repeated just to wake threads and caches: both are a small part of them.
LONG_CALL_S = 10e-3
#: Warming up goes by blocks of this length, until one is hardly faster than the one before: calls and clock alike.
BLOCK_S = 10e-3
SETTLED = 0.02
#: The share of the time limit that warming up may take.
WARM_UP_SHARE = 0.25
#: Samples are spread over at least this long where the limit allows, since a shorter look may lie in one slow burst.
SPREAD_S = 1.0

#: Records, while it lasts, what the contender is being called for.
Called = Callable[[str], AbstractContextManager[None]]


class Mark(NamedTuple):
    """Where a series stood at one moment."""

    samples: int
    spent_s: float


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
        called: Called,
    ) -> None:
        self._launches, self.sets, self.draw = launches, sets, draw
        self.device, self.clock = device, clock
        self._called = called
        self._restores = any(spec.role == "inout" for spec in sets[0].specs.values())
        # Restoring brings operands into the cache, so a cold sample that restores must evict afterwards.
        self._evict = cold and (evict or self._restores)
        self.cold_by_eviction = cold and evict
        self._turn = 0
        self._looks = Looks()
        self._started = self._call_s = 0.0
        self.batch = 1
        self.samples: list[float] = []
        self.repeated = 0
        self.windows: list[Window] = []
        self.spent_s = 0.0
        self.stopped_by: str | None = None

    def sample(self) -> None:
        """Take one sample: prepare its operands, evict, wake, time a batch, keep the seconds a call."""
        wake, timed = self._next_sets()
        if wake == timed[0]:  # the operands change after the waking call, which can do none of the work
            self._wake(wake)
        self.sets[timed[0]].refresh(self.draw)
        self._restore(timed)
        if self._evict:
            self.device.evict()
        if wake != timed[0]:
            self._wake(wake)
        seconds = self._time([self._launches[which] for which in timed], "sampling")
        self.samples.append(seconds)

    def _next_sets(self) -> tuple[int, list[int]]:
        """Return the set to wake on, and the set of each call of the batch: they rotate over all."""
        count = len(self.sets)
        wake, first = self._turn % count, self._turn + 1
        self._turn += 1 + self.batch
        return wake, [which % count for which in range(first, first + self.batch)]

    def warm_up(self, overhead_s: float, max_time_s: float = math.inf, monitor: Monitor | None = None) -> None:
        """Run untimed until caches, threads and branch predictors know the code, and choose the batch.

        Raises Unsupported for a call that is too short to be distinguished from an empty one, of `overhead_s`.
        """
        fastest = self._until_settled(min(self.device.warm_up_s, WARM_UP_SHARE * max_time_s), monitor or Unwatched())
        self._call_s = fastest
        wanted = max(1, round(SAMPLE_S / max(fastest, 1e-9)))
        # An evicted or restored set is good for one call, and in cold mode one set is spent on waking the threads.
        limit = len(self.sets) - 1 if self._evict else self.clock.max_batch
        self.batch = max(1, min(wanted, limit, self.clock.max_batch))
        self._refuse_what_is_too_short(overhead_s)
        self._started = self.clock.now()

    def _until_settled(self, limit_s: float, monitor: Monitor) -> float:
        """Blocks of calls until neither the fastest call nor the clock has gained since the last, or the limit is up.

        Returns the fastest call of all.
        """
        began, launches, block_s = self.clock.now(), cycle(self._launches), min(BLOCK_S, limit_s)
        fastest, mhz = self._block(launches, block_s), monitor.clock_mhz()
        while self.clock.now() - began < limit_s:
            block, mhz_before, mhz = self._block(launches, block_s), mhz, monitor.clock_mhz()
            settled = block >= (1 - SETTLED) * fastest and _steady(mhz_before, mhz)
            fastest = min(fastest, block)
            if settled:
                break
        return fastest

    def _block(self, launches: Iterator[Launch], seconds: float) -> float:
        """The fastest of the calls within a block of this length; there is at least one."""
        began, fastest = self.clock.now(), math.inf
        for launch in launches:
            fastest = min(fastest, self._time([launch], "warm-up"))
            if self.clock.now() - began >= seconds:
                break
        return fastest

    def _refuse_what_is_too_short(self, overhead_s: float) -> None:
        """A batch must last many steps of the clock, and a call longer than one that does nothing."""
        least = MIN_STEPS * self.clock.resolution_s
        if self.batch * self._call_s < least:
            found = f"{self.batch} calls take {self.batch * self._call_s:.2g} s"
            raise Unsupported(f"too short to be timed: {found}, the clock needs {least:.2g} s; take a larger problem")
        if self._call_s <= overhead_s:
            found = f"a call takes {self._call_s:.2g} s, an empty one {overhead_s:.2g} s"
            raise Unsupported(f"too short to be timed: {found}; take a larger problem")

    def _time(self, calls: list[Launch], stage: str) -> float:
        with self._called(stage):
            return self.clock.time(calls)

    def _wake(self, which: int) -> None:
        """Make one untimed call to wake threads and warm caches."""
        if not self.is_long:
            self.call(which)

    def call(self, which: int = 0) -> None:
        """Call once on one set, untimed."""
        with self._called("sampling"):
            self._launches[which]()

    def time_alone(self, which: int = 0) -> float:
        """Time one call on one set as it is; its outputs are left standing."""
        self._restore([which])
        return self._time([self._launches[which]], "sampling")

    def _restore(self, timed: Iterable[int]) -> None:
        for which in dict.fromkeys(timed) if self._restores else ():
            self.sets[which].restore(self.draw)

    @property
    def is_long(self) -> bool:
        """Return whether a call is so long that waking threads and caches is a small part of it."""
        return self._call_s >= LONG_CALL_S

    def mark(self) -> Mark:
        """Where it stands, to go back to."""
        return Mark(len(self.samples), self.spent_s)

    def set_aside(self, mark: Mark, seconds: float) -> None:
        """Forget the samples since a mark, which took so long, and their time: they are to be taken again."""
        self.repeated += len(self.samples) - mark.samples
        del self.samples[mark.samples :]
        self.spent_s = mark.spent_s
        self._started += seconds

    def out_of_time(self, budget: Budget, others: bool = False) -> bool:
        """Return whether it has all samples that its time allows, or that of others."""
        return len(self.samples) >= MIN_SAMPLES and (others or self.spent_s >= budget.max_time_s)

    def decide(self, budget: Budget, others: bool = False) -> None:
        """Stop when the interval is narrow enough, or its time or that of others is spent; never below six samples."""
        if len(self.samples) < MIN_SAMPLES:
            return
        spread = min(SPREAD_S, budget.max_time_s)
        may_look = self.clock.now() - self._started >= spread and self._looks.due(len(self.samples))
        if may_look and median_interval(self.samples, self._looks.alpha).relative_width <= budget.rel_ci:
            self.stopped_by = "interval"
        elif self.out_of_time(budget, others):
            self.stopped_by = "time"

    @property
    def alpha(self) -> float:
        """The error probability that the final interval may use."""
        return self._looks.alpha

    def longest_s(self, mark: Mark) -> float:
        """Return what the longest sample since a mark took."""
        return max(self.samples[mark.samples :], default=0.0) * self.batch

    def burst(self, seconds: float) -> int:
        """Calls back to back, neither prepared nor timed, for about so long; their number."""
        count = max(1, min(round(seconds / max(self._call_s, 1e-9)), self.clock.max_batch))
        first = self._turn % len(self._launches)
        launches = islice(cycle(self._launches), first, first + count)
        self._turn = first + count
        with self._called("sampling"):
            for launch in launches:
                launch()
            self.device.synchronize()
        return count


def _steady(mhz_before: float | None, mhz: float | None) -> bool:
    """Return whether the clock has hardly moved; an unknown one counts as steady."""
    return mhz is None or mhz_before is None or abs(mhz - mhz_before) <= SETTLED * mhz_before
