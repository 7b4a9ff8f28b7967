"""The samples of one contender, and contenders measured in turn."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import cycle
from statistics import median

from bench.measure.device import Device
from bench.measure.operands import Draw, OperandSet
from bench.measure.stats import MIN_SAMPLES, Looks, median_interval
from bench.measure.timing import Clock, settle
from bench.plan.case import Budget
from bench.plan.errors import Unsupported
from bench.plan.kernel import Launch

#: A sample lasts at least this long, thousands of ticks of the clock; shorter calls are batched up to it.
SAMPLE_S = 200e-6
#: A batch that lasts fewer steps of the clock than this says nothing: half a per cent is what a step may cost.
MIN_STEPS = 20
#: Calls longer than this are not repeated just to wake threads and caches: both are a small part of them.
LONG_CALL_S = 10e-3
WARM_UP_S = 10e-3
#: Samples are spread over at least this long where the limit allows, since a shorter look may lie in one slow burst.
SPREAD_S = 1.0
#: How often a call on changed operands is set against one on the same, and what difference is beyond doubt.
AUDITS = 9
SPARED_RATIO = 2.0
SPARED_S = 10e-6

#: Tells, while it lasts, what the contender is being called for.
Called = Callable[[str], AbstractContextManager[None]]


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
        self._device, self.clock, self._cold = device, clock, cold
        self._called = called
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

    def warm_up(self, overhead_s: float) -> None:
        """Run untimed until caches, threads and branch predictors know the code, and choose the batch.

        Raises Unsupported for a call that is too short to be told from an empty one, of `overhead_s`.
        """
        began, fastest = self.clock.now(), float("inf")
        for launch in cycle(self._launches):
            fastest = min(fastest, self._time([launch], "warm-up"))
            if self.clock.now() - began > WARM_UP_S:
                break
        self._call_s = fastest
        wanted = max(1, round(SAMPLE_S / max(fastest, 1e-9)))
        # An evicted or restored set is good for one call, and in cold mode one set is spent on waking the threads.
        limit = len(self._sets) - 1 if self._evict else self.clock.max_batch
        self.batch = max(1, min(wanted, limit, self.clock.max_batch))
        self._refuse_what_is_too_short(overhead_s)
        self._started = self.clock.now()

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
        wake, timed = self._turn % count, [(self._turn + 1 + i) % count for i in range(self.batch)]
        self._turn += 1 + self.batch
        if self._cold:
            self._sets[timed[0]].refresh(self._draw)
            if self._restores:
                self._restore(timed)
            if self._evict:
                self._device.evict()
            self._wake(wake)
        else:  # the set that is woken on is the one that is timed, so its operands change in between
            self._wake(wake)
            self._sets[timed[0]].refresh(self._draw)
            if self._restores:
                self._restore(timed)
        self.samples.append(self._time([self._launches[i] for i in timed], "sampling"))

    def _restore(self, timed: list[int]) -> None:
        for i in set(timed):
            self._sets[i].restore(self._draw)

    def spared_work(self) -> str | None:
        """Why the samples cannot be trusted: in a batch all calls but the first find the operands that they know.

        A call on operands that have just changed is set against one on the same as before, in turn.
        """
        if self.batch == 1:
            return None  # every timed call has seen operands that had changed
        pairs = [(self._single(changed=False), self._single(changed=True)) for _ in range(AUDITS)]
        ratio = median_interval([changed / same for same, changed in pairs]).low
        same, changed = (median(times) for times in zip(*pairs, strict=True))
        if ratio < SPARED_RATIO or changed - same < SPARED_S:
            return None
        return f"spares itself the work: {changed:.2g} s a call when its operands have changed, {same:.2g} s when not"

    def _single(self, changed: bool) -> float:
        operands, launch = self._sets[0], self._launches[0]
        operands.refresh(self._draw)
        if not changed:
            launch()
        return self._time([launch], "sampling")

    def decide(self, budget: Budget) -> None:
        """Stop when the interval is narrow enough, or when the time is spent; never below six samples."""
        if len(self.samples) < MIN_SAMPLES:
            return
        spread = min(SPREAD_S, budget.max_time_s)
        may_look = self.clock.now() - self._started >= spread and self._looks.due(len(self.samples))
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
    pause: bool,
    on_error: Callable[[str, BaseException], None],
) -> None:
    """Take samples in turn, forward and backward (ABBA), until every contender has enough.

    The baseline goes on as long as anybody does, so that each has its counterpart in the same round. `pause` lets
    the threads of the last one settle, untimed.
    """
    active = list(series)
    forward = True
    while active:
        order = active if forward else active[::-1]
        forward = not forward
        for name in order:
            began = series[name].clock.now()
            if pause and len(active) > 1:
                settle()
            try:
                series[name].sample()
                series[name].spent_s += series[name].clock.now() - began
            except (Exception, SystemExit) as error:
                on_error(name, error)
                active = [other for other in active if other != name]
        for name in active:
            if series[name].stopped_by is None:
                series[name].decide(budget)
        running = [name for name in active if series[name].stopped_by is None]
        active = [name for name in active if name in running or (name == baseline and running)]
