"""The samples of one contender, and contenders measured in turn."""

from collections.abc import Callable
from itertools import cycle

from bench.measure.device import Device
from bench.measure.operands import Draw, OperandSet
from bench.measure.stats import MIN_SAMPLES, Looks, median_interval
from bench.measure.timing import Clock, now, settle
from bench.plan.case import Budget
from bench.plan.kernel import Launch

#: A sample lasts at least this long, thousands of ticks of the clock; shorter calls are batched up to it.
SAMPLE_S = 200e-6
#: Calls longer than this are not repeated just to wake threads and caches: both are a small part of them.
LONG_CALL_S = 10e-3
WARM_UP_S = 10e-3
#: Samples are spread over at least this long where the limit allows, since a shorter look may lie in one slow burst.
SPREAD_S = 1.0


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
        began, fastest = now(), float("inf")
        for launch in cycle(self._launches):
            fastest = min(fastest, self.clock.time([launch]))
            if now() - began > WARM_UP_S:
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
    pause: bool,
    on_error: Callable[[str, Exception], None],
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
            began = now()
            if pause and len(active) > 1:
                settle()
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
