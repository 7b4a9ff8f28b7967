"""Audit the samples of a kernel whose results are right: a call may reuse old results or write its output late.

Each audit returns the reason to mistrust a kernel, or None.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import SystemRandom
from statistics import median

from kernelmark.bench.measure.monitor import OTHERS_CPUS, means
from kernelmark.bench.measure.roofline import SLICE_S
from kernelmark.bench.measure.sample import APART, Series
from kernelmark.bench.measure.stats import MIN_SAMPLES
from kernelmark.bench.measure.timing import settle
from kernelmark.bench.measure.turns import WINDOW_S

#: The accepted ratio of a call's time to that of a call that can spare work. SEEN_RATIO: of single calls on new values
#: to those on values seen before, which are prepared alike. Next, the fewest batches timed call by call, and the most
#: samples taken to get single calls on both kinds of values.
SPARED_RATIO, SEEN_RATIO, LEAST_ALONE, MOST_SAMPLES = 2.0, 1.25, 12, 400
#: For an honest kernel, chance decides which call of a pair is faster, so the second is slower by SPARED_RATIO in at
#: most HONEST_SHARE of pairs. Next, the probability of accusing an honest kernel, and of missing one that spares work.
HONEST_SHARE, FALSE_ALARM, MISS = 0.5, 1e-5, 0.01
#: The share of pairs of single calls in which a kernel that spares work is slower, and the most pairs taken.
RENEWED_SHARE, MOST_RENEWED = 0.85, 100
#: The same for pairs of a sample and a batch timed call by call, since a kernel that spares work in half of its samples
#: halves their median. APART_HONEST: the largest such share of an honest kernel, which is then faster as often.
APART_SHARE, APART_HONEST, MOST_APART = 0.5, 0.3, 400
#: A kernel is accused if samples after all checks are slower in QUIET_WINDOWS windows without unusual load, of at most
#: MOST_WINDOWS; each has at least LEAST_AGAIN samples. Unusual load exceeds UNUSUAL_LOAD times earlier windows' median.
QUIET_WINDOWS, MOST_WINDOWS, LEAST_AGAIN, UNUSUAL_LOAD = 10, 300, 4, 1.1
#: The accepted share of an output's pages that a call has left unmapped, in the median of at least LEAST_MADE calls.
MADE_SHARE, LEAST_MADE = 0.5, 3
#: The fewest whole outputs that are checked, unless checking takes more than CHECKING_S after sampling.
LEAST_CHECKS, CHECKING_S = 24, 0.06
#: The accepted ratio of a sample's time after two waking calls to its time after one. An honest kernel is no slower
#: after two, which wake its threads better.
AHEAD_RATIO = 1.5


def check_more(series: Series) -> None:
    """Check outputs of more calls until LEAST_CHECKS have been checked, to find rare errors."""
    began_s = series.clock.now()
    while series.check_output and not series.wrong and series.checks < LEAST_CHECKS:
        if series.clock.now() - began_s + series.check_s + median(series.samples) > CHECKING_S:
            return
        series.take_checked()


def complaint(series: Series) -> str | None:
    """Return why the samples of a series cannot be trusted, or None."""
    reason = _spared_work(series) or _skipped(series) or _worked_ahead(series)
    if series.unwritten:  # found in a sample, or in one of these comparisons
        return f"returned before {series.unwritten} was written"
    if series.clock.left_signals:
        return "returned before its work was done: a signal that it had sent was still pending"
    if series.clock.traced:
        return "sets a trace, profile or monitoring function, which Python also calls between timed calls"
    return reason or _moved_nothing(series)


def _moved_nothing(series: Series) -> str | None:
    """Return a complaint if the kernel maps the pages of its output from elsewhere instead of writing them, or None."""
    mark = series.mark()
    while series.sets[0].has_pages and len(series.made) < LEAST_MADE:
        series.sample()
    series.forget(mark)
    if len(series.made) < LEAST_MADE or (made := median(series.made)) <= MADE_SHARE:
        return None
    return f"moves no bytes: {made:.0%} of its output's pages did not exist until the harness wrote them after a call"


def _spared_work(series: Series) -> str | None:
    """Return a complaint if single calls are far slower on new than on unchanged values, or None."""
    if not series.meets_known:
        return None
    mark = series.mark()
    pairs = _pairs(series.known_s, series.new_s, series.sample if series.cuts else series.take_pair)
    spares = _spares(pairs, ratio=SEEN_RATIO)
    series.forget(mark)
    if not spares:
        return None
    new_s, known_s = median(series.new_s), median(series.known_s)
    return f"skips work: {new_s:.2g} s per call when operands have changed, {known_s:.2g} s when they have not"


def _pairs(first: list[float], second: list[float], take: Callable[[], object]) -> Iterator[tuple[float, float]]:
    """Yield random pairs of times from the two lists, then the pairs that up to MOST_SAMPLES calls of `take` append."""
    count = min(len(first), len(second))
    yield from zip(*(SystemRandom().sample(times[:count], count) for times in (first, second)), strict=True)
    for _ in range(MOST_SAMPLES):
        take()
        yield from zip(first[count:], second[count:], strict=False)
        count = min(len(first), len(second))


def _spares(
    pairs: Iterable[tuple[float, float]],
    share: float = RENEWED_SHARE,
    honest: float = HONEST_SHARE,
    ratio: float = SPARED_RATIO,
) -> bool:
    """Return True if the second time is `ratio` times the first in `share` of the pairs, False if only in `honest`.

    Also, of the pairs whose times differ by `ratio`, the second time must be the longer one in RENEWED_SHARE rather
    than in HONEST_SHARE. Both are Wald's sequential probability ratio tests, which take pairs until one of the shares
    is improbable.
    """
    evidence = direction = 0.0
    for first_s, second_s in pairs:
        slower, faster = second_s >= ratio * first_s, first_s >= ratio * second_s
        evidence += math.log(share / honest if slower else (1 - share) / (1 - honest))
        if slower or faster:
            direction += math.log((RENEWED_SHARE if slower else 1 - RENEWED_SHARE) / HONEST_SHARE)
        if not math.log(MISS) < min(evidence, direction) < -math.log(FALSE_ALARM):
            break
    return min(evidence, direction) >= -math.log(FALSE_ALARM)


def _skipped(series: Series) -> str | None:
    """Compare samples with batches timed call by call, to catch a kernel that skips calls in a batch."""
    if not series.cuts:
        return None
    mark = series.mark()
    empty_s = median(series.clock.time_apart([lambda: None] * APART) for _ in range(LEAST_ALONE))
    pairs = ((together, apart - empty_s) for together, apart in _pairs_apart(series))
    spares = _spares(pairs, APART_SHARE, APART_HONEST)
    series.forget(mark)
    if not spares:
        return None
    together, apart = map(median, zip(*series.apart, strict=True))
    return f"skips work: {apart:.2g} s per call after a pause, {together:.2g} s in a batch"


def _pairs_apart(series: Series) -> Iterator[tuple[float, float]]:
    """Yield pairs of a sample and a batch timed call by call: at least LEAST_ALONE in random order, then new pairs."""
    while len(series.apart) < LEAST_ALONE:
        series.sample()
    yield from SystemRandom().sample(series.apart, len(series.apart))
    while (taken := len(series.apart)) < MOST_APART:
        series.sample()
        yield from series.apart[taken:]


def _worked_ahead(series: Series) -> str | None:
    """Compare samples after one untimed call with samples after two, to catch calls that do the work of later calls."""
    taken = list(zip(series.woken, series.samples, strict=True))
    once, twice = ([sample for woken, sample in taken if woken == number] for number in (1, 2))
    if min(len(once), len(twice)) < MIN_SAMPLES:
        return None

    def take() -> None:
        mark = series.mark()
        series.sample()
        if series.woken[-1] <= 2:
            (once if series.woken[-1] == 1 else twice).append(series.samples[-1])
        series.forget(mark)

    if not _spares(_pairs(once, twice, take), ratio=AHEAD_RATIO):
        return None
    return f"works ahead: {median(once):.2g} s per call if one call precedes it, {median(twice):.2g} s if two do"


def spared_when_renewed(series: Series) -> str | None:
    """Return a complaint if calls are far slower after all elements have changed than after a few have, or None.

    Each timed call follows one other call and the same number of writes, so start-up costs are equal in both cases.
    """
    pairs: list[tuple[float, float]] = []

    def taken() -> Iterator[tuple[float, float]]:
        while len(pairs) < MOST_RENEWED:
            pairs.append(series.take_renewed())
            yield pairs[-1]

    if not _spares(taken()):
        return None
    changed_s, renewed_s = map(median, zip(*pairs, strict=True))
    times = f"{renewed_s:.2g} s per call when all operands have changed, {changed_s:.2g} s when a few elements have"
    return f"skips work: {times}"


def _slowed(state: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Return the factor by which a lower clock rate slows calls; infinity if other load has begun on any CPU."""
    if state.get("load", 0.0) > UNUSUAL_LOAD * before.get("load", 0.0) + OTHERS_CPUS:
        return math.inf
    mhz = state.get("clock_mhz", 0.0)
    return max(1.0, before.get("clock_mhz", mhz) / mhz) if mhz else 1.0


def stopped_sparing(series: Series, threads: int) -> str | None:
    """Return a complaint if samples after all checks are far slower than before: the kernel skipped work until then.

    Each sample in QUIET_WINDOWS windows must take SPARED_RATIO times as long as the median of the earlier samples.
    A window does not count if load may have slowed all its samples, if a lower clock rate may explain the times, or if
    other CPUs, which share the memory, have more load than before. For short samples on one thread, as much load as
    in earlier windows is accepted, since such a sample is either undisturbed or longer by a time slice. Samples on a
    GPU are not compared, since its clock rate may have dropped while it waited.
    """
    if series.device.stream is not None:
        return None
    settle()
    causes = {cause for window in series.windows for cause in window.causes}
    if threads > 1 or median(series.samples) * series.batch > SLICE_S:
        causes = set()
    usual = {cause: median(window.causes.get(cause, 0.0) for window in series.windows) for cause in causes}
    state = means(series.windows)
    before_s, monitor, quiet, again = median(series.samples), series.device.monitor(), 0, list[float]()
    for _ in range(MOST_WINDOWS):
        monitor.look()
        began_s, taken = series.clock.now(), len(again)
        while len(again) < taken + LEAST_AGAIN or series.clock.now() < began_s + WINDOW_S:
            again.append(series.take_again())
            if again[-1] < SPARED_RATIO * before_s:
                return None
        window = monitor.look()
        is_usual = all(size <= UNUSUAL_LOAD * usual.get(cause, 0.0) for cause, size in window.causes.items())
        quiet += is_usual and _slowed(window.state, state) * SPARED_RATIO * before_s <= min(again[taken:])
        if quiet == QUIET_WINDOWS:
            before = f"{before_s:.2g} s per call in the median of the samples"
            return f"skips work: {before}, {min(again):.2g} s or more after all checks"
    return None
