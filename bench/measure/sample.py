"""Take the samples of a kernel: prepare operands, time a batch of calls, store the time, until samples suffice.

`Series.sample` is the measurement: it times a batch of calls in one or more stretches (calls timed together). A sample
is the time of the batch, divided by its calls. `turns.py` samples the kernels of a job in turn (ABBA), reads the
machine's state between windows of samples, and calls `Series.decide` after a window that is kept. Observers measure
other metrics (`observers.py`); `verify.py` and `audit.py` catch kernels that deceive the sampling.
"""

import math
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import NamedTuple

from kernelmark.bench.measure.device import Clock, Device, Monitor, Window
from kernelmark.bench.measure.draw import Change, Draw
from kernelmark.bench.measure.monitor import Unwatched
from kernelmark.bench.measure.operands import OperandSet, Spots
from kernelmark.bench.measure.stats import MIN_SAMPLES, Looks, median_interval
from kernelmark.bench.measure.timing import now, undisturbed
from kernelmark.bench.plan.case import Budget
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import Launch

#: Shorter calls are batched, so that a batch lasts about this long: thousands of steps of a CPU's clock, 400 steps of a
#: GPU's. It is shorter if the number of calls in a batch is limited.
SAMPLE_S = 200e-6
#: The most calls in a batch of a kernel that works in place, whose operand is restored before each call.
MAX_RESTORED = 32
#: The minimum duration of a batch, in clock steps.
MIN_STEPS = 20
#: A call longer than LONG_CALL_S hardly needs a waking call before it. Only one of the first MIN_SAMPLES samples and
#: one in LONG_WAKING get one, so that its output is read early (`Spots.early_reads`), as outputs of samples are not.
#: In hot mode, a sample after a check gets one, too.
LONG_CALL_S, LONG_WAKING = 10e-3, 16
#: Warming up repeats blocks of this length until neither the fastest call nor the clock rate changes by SETTLED.
BLOCK_S = 10e-3
SETTLED = 0.02
#: The share of a contender's time limit that warming up may use.
WARM_UP_SHARE = 0.25
#: The numbers of waking calls before a sample, drawn at random so that no kernel can predict which calls are timed.
WAKING = (1, 1, 1, 2, 2, 2, 3)
#: One preparation in PAUSED is followed by a random pause, log-uniform from SHORTEST_PAUSE_S to LONGEST_PAUSE_S, too
#: short for waiting threads to go to sleep. Long calls need no pause, since the time to prepare them varies by as much.
PAUSED, SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 4, 1e-6, 0.2e-3
#: Before a stretch, only the last FRESHENED of its operand sets get new values.
FRESHENED = 16
#: One sample in APART_EVERY is followed by a batch of at most APART calls that is timed call by call.
APART, APART_EVERY = 32, 4
#: The share of the samples' time that checks of whole outputs may take on average, not counting those in `take_apart`.
#: Checks are made at random, with a probability that keeps to this share. The first check, which shows how long checks
#: take, is always made, unless it is expected to take longer than LONG_CHECK_S.
CHECKED_SHARE, LONG_CHECK_S = 0.05, 0.1
#: Samples are spread over at least this time if the limit allows, since a shorter span may lie in one burst of load.
LEAST_SPAN_S = 1.0

#: Returns a context that records the stage in which the contender is called; `nullcontext` records nothing.
Called = Callable[[str], AbstractContextManager[object]]


class Mark(NamedTuple):
    """A state of a series: the number of samples, and the seconds spent."""

    samples: int
    spent_s: float


@dataclass
class _Stretch:
    """Calls that are timed together. sets: for each call, the number of its operand set.

    known: the last set keeps the values of its previous call. is_sample: the time is kept. judged_on: the change to the
    operands, as an index in `Series.shared`, if the output will be compared with a reference; otherwise None. spots:
    output elements that are read as soon as the calls return.
    """

    sets: list[int]
    known: bool = False
    is_sample: bool = False
    judged_on: int | None = None
    spots: list[Spots] = field(default_factory=list)

    @property
    def is_single(self) -> bool:
        """Return whether the stretch is a single call."""
        return len(self.sets) == 1


class Series:
    """One kernel's samples, its launches on several copies of the operands, and the rule that stops sampling.

    cold: operands come from memory, since each copy has left the cache before it is used again. evict: caches are
    evicted, since there are too few copies for that. shared: changes of the operands, the same for all kernels of the
    problem; outputs after these changes are compared with a reference. check_output: a function that checks all outputs
    in an OperandSet, in about `check_s` seconds. by_last_use: the numbers of the sets, the least recently used first;
    all series that use these sets share the list.
    """

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
        shared: Sequence[Change] = (),
        check_output: Callable[[OperandSet], str | None] | None = None,
        check_s: float = 0.0,
        by_last_use: list[int] | None = None,
    ) -> None:
        self._launches, self.sets, self.draw = launches, sets, draw
        self.device, self.clock = device, clock
        self._cold, self._called, self.shared = cold, called, shared
        #: The outputs of timed calls, by the number of the shared change in their operands.
        self.snapshots: dict[int, dict[str, Array]] = {}
        self.check_output, self.check_s, self._rations_checks = check_output, check_s, check_s > LONG_CHECK_S
        #: The name of an output that was not written when a timed call returned, and a complaint about memory that a
        #: call must not write; "" if there is none.
        self.unwritten = self.damage = ""
        #: For randomly drawn calls, the share of the output's pages that did not exist until the harness wrote them.
        self.made: list[float] = []
        #: The number of checks of whole outputs; why one of them failed, or "".
        self.checks, self.wrong = 0, ""
        self._restores = sets[0].is_restored
        # Restoring brings operands into the cache, so a cold sample that restores must evict afterwards.
        self._evict = cold and (evict or self._restores)
        self.cold_by_eviction = cold and evict
        self._random = random.Random(secrets.randbits(128))
        self._by_last_use = [*range(len(sets))] if by_last_use is None else by_last_use
        #: The numbers of the sets of the timed calls.
        self._timed_sets: list[int] = []
        self._offered, self._first_waking = 0, self._random.randrange(MIN_SAMPLES)
        self._looks = Looks()
        self._started, self._call_s = math.inf, 0.0
        self.batch = 1
        self.samples: list[float] = []
        #: The number of waking calls before each sample; seconds of single-call stretches on new and on known values.
        self.woken: list[int] = []
        self.new_s: list[float] = []
        self.known_s: list[float] = []
        #: Seconds per call of a sample, and of the batch after it that was timed call by call.
        self.apart: list[tuple[float, float]] = []
        self.repeated = 0
        self.windows: list[Window] = []
        self.spent_s = 0.0
        self.stopped_by: str | None = None

    def warm_up(self, overhead_s: float, max_time_s: float = math.inf, monitor: Monitor | None = None) -> None:
        """Make calls until caches, threads and branch predictors are warm, and choose the number of calls in a batch.

        Raises Unsupported if a call cannot be distinguished from an empty call, which takes `overhead_s`.
        """
        fastest = self._until_settled(min(self.device.warm_up_s, WARM_UP_SHARE * max_time_s), monitor or Unwatched())
        self._call_s = fastest
        wanted = max(1, round(SAMPLE_S / max(fastest, 1e-9)))
        # An evicted set serves one call; half of the sets are left for waking calls.
        limit = len(self.sets) // 2 if self._evict else self.clock.max_batch
        self.batch = max(1, min(wanted, limit, MAX_RESTORED if self._restores else wanted, self.clock.max_batch))
        self._refuse_what_is_too_short(overhead_s)

    def _until_settled(self, limit_s: float, monitor: Monitor) -> float:
        """Make calls until the fastest time and the clock rate have settled or time is up; return the fastest time."""
        began, block_s = self.clock.now(), min(BLOCK_S, limit_s)
        fastest, mhz = self._block(block_s), monitor.clock_mhz()
        while self.clock.now() - began < limit_s:
            block, mhz_before, mhz = self._block(block_s), mhz, monitor.clock_mhz()
            settled = block >= (1 - SETTLED) * fastest and _steady(mhz_before, mhz)
            fastest = min(fastest, block)
            if settled:
                break
        return fastest

    def _block(self, seconds: float) -> float:
        """Make calls for `seconds`, but at least one call, and return the time of the fastest."""
        began, fastest = self.clock.now(), math.inf
        while True:
            fastest = min(fastest, self._time([self._launches[self._use(0)]], "warm-up"))
            if self.clock.now() - began >= seconds:
                return fastest

    def _use(self, place: int) -> int:
        """Return the number of the set at a place in the order of last use, and move it to the end of this order."""
        which = self._by_last_use.pop(place)
        self._by_last_use.append(which)
        return which

    def _refuse_what_is_too_short(self, overhead_s: float) -> None:
        """Raise Unsupported unless a batch lasts MIN_STEPS clock steps, and a call longer than an empty call."""
        least = MIN_STEPS * self.clock.resolution_s
        if self.batch * self._call_s < least:
            span = f"{self.batch} calls take {self.batch * self._call_s:.2g} s"
            raise Unsupported(f"too short to be timed: {span}, the clock needs {least:.2g} s; use a larger problem")
        if self._call_s <= overhead_s:
            span = f"a call takes {self._call_s:.2g} s, an empty one {overhead_s:.2g} s"
            raise Unsupported(f"too short to be timed: {span}; use a larger problem")

    def sample(self) -> None:
        """Take one sample: make calls that wake threads and warm caches, time a batch, and store its seconds per call.

        A batch is timed in stretches of one or more calls. Waking calls are prepared, too; their times are discarded.
        """
        self._started = min(self._started, self.clock.now())
        if self.is_long:
            waking = int(len(self.samples) == self._first_waking or not self._random.randrange(LONG_WAKING))
        else:
            waking = self._random.choice(WAKING)
        stretches = [self._next_stretch(calls) for calls in (*[1] * waking, *self._split())]
        for stretch in stretches[waking:]:
            stretch.is_sample = True
            stretch.known = self.cuts and stretch.is_single and self._random.random() < 0.5
        seconds = self._take(stretches)[waking:]
        self.samples.append(math.fsum(seconds) / self.batch)
        self.woken.append(waking)
        for stretch, took in zip(stretches[waking:], seconds, strict=True):
            if self.cuts and stretch.is_single:
                (self.known_s if stretch.known else self.new_s).append(took)
        if self.cuts and not self._random.randrange(APART_EVERY):  # between samples, so that no kernel can expect it
            self.take_apart()

    @property
    def cuts(self) -> bool:
        """Return whether batches are divided into stretches, some of which repeat the values of an earlier call."""
        return self.batch > 1 and not self._restores and not self._cold

    def _take(self, stretches: list[_Stretch]) -> list[float]:
        """Prepare and time stretches of calls; return the seconds of each.

        Without eviction, each stretch is prepared just before it is timed. With eviction, all stretches are prepared,
        caches are evicted once, and all are timed; if two use the same set, this is done for each stretch separately.
        """
        used = [which for stretch in stretches for which in stretch.sets]
        together = self._evict and len(set(used)) == len(used)
        seconds: list[float] = []
        for group in [stretches] if together else [[stretch] for stretch in stretches]:
            began = self.clock.now()
            for stretch in group:
                self._prepare(stretch)
            if self._evict:
                self.device.evict()
            self._pause_sometimes()
            seconds += map(self._time_stretch, group)
            is_last, took_s = group[-1] is stretches[-1], self.clock.now() - began
            if self._check_if_affordable(group, took_s) and ((self.is_long and not self._cold) or not is_last):
                self._take([self._next_stretch(1)])  # checking an output leaves caches cold
        return seconds

    def _pause_sometimes(self) -> None:
        """Sometimes wait for a moment, so that a kernel learns nothing from the time since its last call."""
        if self.is_long or self._random.randrange(PAUSED):
            return
        pause_s = SHORTEST_PAUSE_S * (LONGEST_PAUSE_S / SHORTEST_PAUSE_S) ** self._random.random()
        until_s = now() + pause_s  # the machine's clock, since a test's clock may stand still
        while now() < until_s:
            pass

    def _check_if_affordable(self, group: list[_Stretch], took_s: float) -> bool:
        """Check an output of a timed stretch if CHECKED_SHARE of the time allows it; return whether it was checked."""
        sampled = [stretch for stretch in group if stretch.is_sample]
        if not self.check_output or not sampled:
            return False
        cost_s = self.check_s + self._call_s * (self.is_long and not self._cold)  # and the waking call after it
        if self._rations_checks and cost_s * self._random.random() >= CHECKED_SHARE * took_s:
            return False
        began, self._rations_checks = self.clock.now(), True
        self._check(self.sets[self._random.choice(self._random.choice(sampled).sets)])
        self.check_s = min(self.check_s, self.clock.now() - began)  # a longer check may have been interrupted
        return True

    def _check(self, operands: OperandSet) -> None:
        if self.check_output and not self.wrong:
            self.checks += 1
            with self._called("check"):
                self.wrong = self.check_output(operands) or ""

    def _split(self) -> list[int]:
        """Return the number of calls in each stretch of a batch. Half of the batches are cut in two.

        In half of the cut batches, one stretch is a single call. If an operand is both read and written, each call is a
        stretch, since the operand is restored before it.
        """
        if self._restores:
            return [1] * self.batch
        if not self.cuts or self._random.random() < 0.5:
            return [self.batch]
        first = 1 if self._random.random() < 0.5 else self._random.randrange(1, self.batch)
        return self._random.sample([first, self.batch - first], 2)

    def _next_stretch(self, calls: int) -> _Stretch:
        """Return a stretch. Each call's operand set is drawn at random from the least recently used quarter."""
        among = max(1, min(len(self._by_last_use) - 1, max(2, len(self._by_last_use) // 4)))
        return _Stretch([self._use(self._random.randrange(among) if among > 1 else 0) for _ in range(calls)])

    def _time(self, calls: list[Launch], stage: str) -> float:
        with self._called(stage):
            return self.clock.time(calls)

    def _prepare(self, stretch: _Stretch) -> None:
        """Give a stretch's sets new values. If it is `known`, write equally many values that the sets already have.

        Every stretch with new values is equally likely to have its output judged.
        """
        *others, last = list(dict.fromkeys(reversed(stretch.sets)))[FRESHENED - 1 :: -1]
        for which in others:
            self.sets[which].freshen(self.draw, self.draw.change())
        operands = self.sets[last]
        if stretch.known and operands.change:
            operands.freshen(self.draw, operands.change)
        else:
            stretch.judged_on = self._drawn_to_be_judged()
            change = self.draw.change() if stretch.judged_on is None else self.shared[stretch.judged_on]
            operands.freshen(self.draw, change)
        operands.spoil(self.draw)  # whether judged or not, so that a kernel cannot tell
        for which in dict.fromkeys(stretch.sets) if self._restores else ():
            self.sets[which].restore(self.draw)
        for which in dict.fromkeys(stretch.sets) if self._evict else ():
            self.sets[which].hold_back(self.draw)
        must_look = self.is_long and not stretch.is_sample
        stretch.spots = operands.spots(self.draw) if must_look or self._random.random() < 0.5 else []
        for spot in stretch.spots:
            spot.poison()

    def _drawn_to_be_judged(self) -> int | None:
        """Decide by reservoir sampling whether to judge a stretch; return the number of its shared change, or None."""
        self._offered += 1
        number = self._random.randrange(self._offered)
        if self._offered <= len(self.shared):
            return self._offered - 1
        return number if number < len(self.shared) else None

    def _time_stretch(self, stretch: _Stretch) -> float:
        """Time the calls of a stretch, and read the outputs as soon as the calls return.

        If the time is discarded, elements are read even before the clock stops. In cold caches this takes up to 0.1 ms.
        """
        calls, operands = [self._launches[which] for which in stretch.sets], self.sets[stretch.sets[-1]]
        self._timed_sets = stretch.sets
        for which in stretch.sets if self._evict else ():
            self.sets[which].complete()
        inplace = [spot for spot in stretch.spots if stretch.is_sample and spot.unwritten is None]
        for spot in () if stretch.is_sample else stretch.spots:
            calls += spot.early_reads()
        with undisturbed():
            seconds = self._time(calls, "sampling") * len(calls)
            for read in [read for spot in inplace for read in spot.early_reads()]:
                read()
            if stretch.judged_on is not None:
                self.snapshots[stretch.judged_on] = operands.snapshot(self.snapshots.get(stretch.judged_on))
            self._look_for_unwritten(stretch.spots)
        if stretch.judged_on is not None and operands.repaired(self.draw):
            # Another contender may have done the damage, so this one is blamed only if a second call does damage, too.
            self._time(calls, "sampling")
            self.damage = self.damage or operands.repaired(self.draw) or ""
        if stretch.spots and operands.has_pages:
            self.made.append(operands.touch())
        return seconds

    def restore(self) -> None:
        """Restore the operands of the timed calls, before these calls are repeated."""
        for which in self._timed_sets:
            self.sets[which].restore(self.draw)

    def _look_for_unwritten(self, spots: list[Spots]) -> None:
        late = next((spot.operand for spot in spots if spot.is_late()), "")
        self.unwritten = self.unwritten or late

    @property
    def is_long(self) -> bool:
        """Return whether a call, even the shortest known, takes far longer than waking threads and warming caches."""
        return min([self._call_s, *self.samples[-1:]]) >= LONG_CALL_S

    def mark(self) -> Mark:
        """Return the present state: `forget` discards later samples, and `set_aside` also the time that they took."""
        return Mark(len(self.samples), self.spent_s)

    @property
    def meets_known(self) -> bool:
        """Return whether some calls of a batch get the same values as an earlier call."""
        return self.cuts or (self._cold and self.batch > FRESHENED)

    def forget(self, mark: Mark) -> None:
        """Discard the samples since a mark, but keep other observations of their calls."""
        del self.samples[mark.samples :], self.woken[mark.samples :]

    def set_aside(self, mark: Mark, seconds: float) -> None:
        """Discard the samples since a mark and the time that they took, because they will be taken again."""
        self.repeated += len(self.samples) - mark.samples
        self.forget(mark)
        self.spent_s = mark.spent_s
        self._started += seconds

    def out_of_time(self, budget: Budget, others: bool = False) -> bool:
        """Return whether there are MIN_SAMPLES samples and time is up. others: it is up for a baseline, so for all."""
        return len(self.samples) >= MIN_SAMPLES and (others or self.spent_s >= budget.max_time_s)

    def decide(self, budget: Budget, others: bool = False) -> None:
        """Stop sampling if there are MIN_SAMPLES samples, and the interval is narrow enough or time is up."""
        if len(self.samples) < MIN_SAMPLES:
            return
        span_s = min(LEAST_SPAN_S, budget.max_time_s)
        may_look = self.clock.now() - self._started >= span_s and self._looks.due(len(self.samples))
        if may_look and median_interval(self.samples, self._looks.alpha).relative_width <= budget.rel_ci:
            self.stopped_by = "interval"
        elif self.out_of_time(budget, others):
            self.stopped_by = "time"

    @property
    def alpha(self) -> float:
        """Return the error probability that the final interval may use."""
        return self._looks.alpha

    def longest_s(self, mark: Mark) -> float:
        """Return the seconds of the longest batch since a mark."""
        return max(self.samples[mark.samples :], default=0.0) * self.batch

    def take_pair(self) -> None:
        """Time a call on new values and another on the same values; append the seconds to `new_s` and `known_s`."""
        stretches = [_Stretch([0], is_sample=True), _Stretch([0], known=True, is_sample=True)]
        for seconds, took in zip((self.new_s, self.known_s), self._take(stretches), strict=True):
            seconds.append(took)

    def take_renewed(self) -> tuple[float, float]:
        """Return the seconds of a call after a change of only a few elements, and of a call on entirely new values.

        On return, only the first OperandSet has the drawn values. Its outputs are those of the call on new values.
        """
        launch, operands, seconds = self._launches[0], self.sets[0], []
        self._timed_sets = [0]
        for renews in (False, True):
            before = {name: values.copy() for name, values in self.draw.flat.items()}
            self.draw.redraw()  # in both cases, since a helper process that has waited longer wakes more slowly
            for name, values in before.items() if not renews else ():
                self.draw.flat[name][:] = values
            if not self.is_long:
                self._time([launch], "sampling")
            operands.load(self.draw)
            operands.freshen(self.draw, self.draw.change())
            operands.restore(self.draw)
            operands.poison()
            if self._evict:
                self.device.evict()
            seconds.append(self._time([launch], "sampling"))
        changed_s, renewed_s = seconds
        return changed_s, renewed_s

    def take_again(self) -> float:
        """End all checks of outputs for good, take one more sample, discard it, and return its seconds per call."""
        self.shared, self.check_output = (), None
        mark = self.mark()
        self.sample()
        seconds = self.samples[-1]
        self.forget(mark)
        return seconds

    def take_apart(self) -> None:
        """Time a batch with input changes and pauses of microseconds between calls, to compare with the last sample.

        The outputs of the last call are checked completely in one of three such batches, however long that takes.
        """
        stretch = self._next_stretch(min(self.batch, APART) // 2 * 2)
        self._prepare(stretch)
        launches, operands = [self._launches[which] for which in stretch.sets], self.sets[stretch.sets[-1]]
        spots = operands.spots(self.draw)
        with self._called("sampling"), undisturbed():
            apart_s = self.clock.time_apart(launches, operands.stirring(self.draw, spots))
            self._look_for_unwritten(spots)
        self.apart.append((self.samples[-1], apart_s))
        if not self._random.randrange(3):
            self._check(operands)

    def take_checked(self) -> None:
        """Prepare and make one more call, and check its outputs completely, however long that takes."""
        stretch = self._next_stretch(1)
        self._prepare(stretch)
        self._time_stretch(stretch)
        self._check(self.sets[stretch.sets[0]])

    def burst(self, seconds: float) -> int:
        """Make back-to-back calls, untimed and on unprepared operands, for about this long; return their number."""
        count = max(1, min(round(seconds / max(self._call_s, 1e-9)), self.clock.max_batch))
        order, first = self._by_last_use, count % len(self._by_last_use)
        launches = islice(cycle([self._launches[which] for which in order]), count)
        order[:] = order[first:] + order[:first]
        with self._called("sampling"), undisturbed():
            for launch in launches:
                launch()
            self.device.synchronize()
        return count


def _steady(mhz_before: float | None, mhz: float | None) -> bool:
    """Return whether the clock rate has hardly changed; an unknown rate counts as steady."""
    return mhz is None or mhz_before is None or abs(mhz - mhz_before) <= SETTLED * mhz_before
