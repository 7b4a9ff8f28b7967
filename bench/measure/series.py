"""The samples of one contender: warmed up, batched, prepared, and when they suffice."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import cycle, islice
from statistics import median
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
#: Pairs of calls, on changed operands and on the same, in a round; rounds at most while noise leaves the verdict open.
AUDITS, ROUNDS = 9, 4
SPARED_RATIO, SPARED_S = 2.0, 10e-6

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
        self._launches, self._sets, self._draw = launches, sets, draw
        self.device, self.clock, self._cold = device, clock, cold
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

    def warm_up(self, overhead_s: float, max_time_s: float = math.inf, monitor: Monitor | None = None) -> None:
        """Run untimed until caches, threads and branch predictors know the code, and choose the batch.

        Raises Unsupported for a call that is too short to be distinguished from an empty one, of `overhead_s`.
        """
        fastest = self._until_settled(min(self.device.warm_up_s, WARM_UP_SHARE * max_time_s), monitor or Unwatched())
        self._call_s = fastest
        wanted = max(1, round(SAMPLE_S / max(fastest, 1e-9)))
        # An evicted or restored set is good for one call, and in cold mode one set is spent on waking the threads.
        limit = len(self._sets) - 1 if self._evict else self.clock.max_batch
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
        """One untimed call, that threads and caches be as they are in the midst of work."""
        if self._call_s < LONG_CALL_S:
            with self._called("sampling"):
                self._launches[which]()

    def sample(self) -> None:
        """Prepare untimed, time one batch, keep the seconds a call."""
        count = len(self._sets)
        wake, first = self._turn % count, (self._turn + 1) % count
        self._turn += 1 + self.batch
        alone = count == 1 or not self._cold
        if alone:  # the set that is woken on is the one that is timed, so its operands change in between
            self._wake(wake)
        self._sets[first].refresh(self._draw)
        self._restore((first + i) % count for i in range(min(self.batch, count)))
        if self._evict:
            self.device.evict()
        if not alone:
            self._wake(wake)
        queue = self._launches * (self.batch // count + 2)
        self.samples.append(self._time(queue[first : first + self.batch], "sampling"))

    def stand(self, which: int) -> None:
        """Time one more call, on one set as it is; its outputs are left standing."""
        self._restore([which])
        self._time([self._launches[which]], "sampling")

    def _restore(self, timed: Iterable[int]) -> None:
        for i in timed if self._restores else ():
            self._sets[i].restore(self._draw)

    def spared_work(self) -> str | None:
        """Why the samples cannot be trusted: in a batch all calls but the first find the operands that they know.

        Calls on changed operands and on the same are taken in turn; in a batch of one all calls find changed ones.
        """
        if self.batch == 1:
            return None
        pairs: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            pairs += [(self._single(changed=False), self._single(changed=True)) for _ in range(AUDITS)]
            ratio = median_interval([changed / same for same, changed in pairs])
            if not ratio.low < SPARED_RATIO <= ratio.high:
                break
        same, changed = (median(times) for times in zip(*pairs, strict=True))
        if ratio.low < SPARED_RATIO or changed - same < SPARED_S:
            return None
        return f"spares itself the work: {changed:.2g} s a call when its operands have changed, {same:.2g} s when not"

    def early_return(self) -> str | None:
        """Return why the samples cannot be trusted: an output is written later. One look may come too late."""
        for _ in range(AUDITS if self._call_s < LONG_CALL_S else 1):
            spots = self._sets[0].spots(self._draw)
            for spot in spots:
                spot.poison()
            with self._called("sampling"):
                self._launches[0]()
            if late := next((spot.operand for spot in spots if not spot.written().all()), None):
                return f"returned before {late} was written"
        return None

    def _single(self, changed: bool) -> float:
        """Time one call after an untimed one, so that threads and vector units are awake in either case."""
        launch, refresh = self._launches[0], lambda: self._sets[0].refresh(self._draw)
        for step in (launch, refresh) if changed else (refresh, launch):
            step()
        return self._time([launch], "sampling")

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
