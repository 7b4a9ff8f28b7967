"""Whether a right kernel's samples can be trusted: it may spare itself work that it knows, or write its output late.

Each audit returns why a kernel is mistrusted, or None.
"""

from statistics import median

from kernelmark.bench.measure.sample import Series
from kernelmark.bench.measure.stats import MIN_SAMPLES, median_interval

#: How much longer a call on new values may take than one on values that it knows; calls and samples to find out.
SPARED_RATIO, LEAST_ALONE, MOST_SAMPLES = 2.0, 12, 64
#: How much faster a sample may be after one waking call than after two, or the other way round.
AHEAD_RATIO = 1.5
#: How much longer a call on fresh operands may take: they may be in no cache, and threads that have slept for a while
#: were seen to cost an honest kernel 5 ms on a busy machine. Shorter calls are therefore not suspected at all.
FRESH_RATIO, FRESH_SLACK_S, FRESH_BYTES_PER_S = 2.0, 0.1, 2e9


def complaint(series: Series) -> str | None:
    """Return why the samples of a series cannot be trusted."""
    if series.unwritten:
        return f"returned before {series.unwritten} was written"
    return _spared_work(series) or _worked_ahead(series)


def _spared_work(series: Series) -> str | None:
    """Compare windows of one call with those of several, where all calls but the first may know their operands."""
    if series.batch == 1 or not series.cuts:
        return None
    kept = series.mark()
    for _ in range(MOST_SAMPLES):
        if len(series.alone_s) >= LEAST_ALONE and series.batched_s:
            break
        series.sample()
    series.forget(kept)
    overhead_s = median(series.clock.time([lambda: None]) for _ in range(MIN_SAMPLES))
    known_s = median(series.batched_s)
    ratio = median_interval([(alone_s - overhead_s) / known_s for alone_s in series.alone_s])
    if ratio.low < SPARED_RATIO:
        return None
    new_s = median(series.alone_s)
    return f"spares itself the work: {new_s:.2g} s a call when its operands have changed, {known_s:.2g} s when not"


def _worked_ahead(series: Series) -> str | None:
    """Compare samples after one waking call with samples after two: what a call does for the next, it does for both."""
    groups = [[s for s, woken in zip(series.samples, series.woken, strict=True) if woken == n] for n in (1, 2)]
    if any(len(group) < MIN_SAMPLES for group in groups):
        return None
    once, twice = map(median_interval, groups)
    if max(once.low / twice.high, twice.low / once.high) < AHEAD_RATIO:
        return None
    return f"works ahead: {once.median:.2g} s a call after one other call, {twice.median:.2g} s after two"


class Freshness:
    """Calls of one kernel on fresh operands, each with a second call on the same ones, which are then known."""

    def __init__(self, footprint_bytes: int) -> None:
        self._slack_s = FRESH_SLACK_S + footprint_bytes / FRESH_BYTES_PER_S
        self._pairs: list[tuple[float, float]] = []
        self.suspicious = False

    def is_long(self, fresh_s: float, known_s: float) -> bool:
        """Return whether a call is longer than another by more than what a first call may cost."""
        return fresh_s > max(FRESH_RATIO * known_s, known_s + self._slack_s)

    def add(self, fresh_s: float, known_s: float) -> None:
        """Keep one pair of calls."""
        self._pairs.append((fresh_s, known_s))

    def complaint(self) -> str | None:
        """Return what all pairs show: the shortest call on fresh operands is longer than the longest on known ones."""
        fresh, known = zip(*self._pairs, strict=True)
        if not self.is_long(min(fresh), max(known)):
            return None
        return f"spares itself the work: {min(fresh):.2g} s a call on fresh operands, {max(known):.2g} s on known ones"
