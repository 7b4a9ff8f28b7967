"""Audit the samples of a right kernel: it may skip work that it knows, or write its output late.

Each audit returns why a kernel is mistrusted, or None.
"""

from statistics import median

from kernelmark.bench.measure.sample import APART, Series
from kernelmark.bench.measure.stats import MIN_SAMPLES, median_interval

#: How much longer a call on new values may take than one on values that it knows; calls of each, samples to find out.
SPARED_RATIO, LEAST_ALONE, MOST_SAMPLES = 2.0, 12, 64
#: The share of an output's pages that may be new after a call, in most of so many calls.
MADE_SHARE, LEAST_MADE = 0.5, 3
#: How much faster a sample may be after one waking call than after two, which wake threads all the better.
AHEAD_RATIO = 1.5


def complaint(series: Series) -> str | None:
    """Return why the samples of a series cannot be trusted."""
    reason = _spared_work(series) or _skipped(series) or _worked_ahead(series)
    if series.unwritten:  # by a sample, or by a call of these comparisons
        return f"returned before {series.unwritten} was written"
    if series.clock.left_signals:
        return "returned before its work was done: it left a signal to be handled"
    return reason or _moved_nothing(series)


def _moved_nothing(series: Series) -> str | None:
    """Look for outputs whose pages nobody has written, since they were mapped from elsewhere."""
    mark = series.mark()
    while 0 < len(series.made) < LEAST_MADE:
        series.sample()
    series.forget(mark)
    if len(series.made) < LEAST_MADE or (made := median(series.made)) <= MADE_SHARE:
        return None
    return f"moves no bytes: {made:.0%} of the pages of its output were created only by writes after a call"


def _spared_work(series: Series) -> str | None:
    """Compare calls alone in their stretches: some met new values, and some the values that the call before had met."""
    if not series.meets_known:
        return None
    mark = series.mark()
    for _ in range(MOST_SAMPLES):
        if min(len(series.new_s), len(series.known_s)) >= LEAST_ALONE:
            break
        if series.cuts:
            series.sample()
        else:
            series.take_pair()
    series.forget(mark)
    if min(len(series.new_s), len(series.known_s)) < MIN_SAMPLES:
        return None
    new, known = map(median_interval, (series.new_s, series.known_s))
    if new.low < SPARED_RATIO * known.high:
        return None
    times = f"{new.median:.2g} s a call when its operands have changed, {known.median:.2g} s when not"
    return f"spares itself the work: {times}"


def _skipped(series: Series) -> str | None:
    """Compare batches with batches whose calls are a few microseconds apart, where one may see that it is timed."""
    if not series.cuts:
        return None
    batches = [series.take_apart(is_checked=number % 3 == 2) for number in range(LEAST_ALONE)]
    together, apart = map(median_interval, zip(*batches, strict=True))
    empty_s = median(series.clock.time_apart([lambda: None] * APART) for _ in range(LEAST_ALONE))
    if apart.low - empty_s < SPARED_RATIO * together.high:
        return None
    times = f"{apart.median:.2g} s a call after a pause, {together.median:.2g} s in a batch"
    return f"spares itself the work: {times}"


def _worked_ahead(series: Series) -> str | None:
    """Compare samples after one waking call with samples after two: a call that works ahead does so for the next."""
    groups = [[s for s, woken in zip(series.samples, series.woken, strict=True) if woken == n] for n in (1, 2)]
    if any(len(group) < MIN_SAMPLES for group in groups):
        return None
    once, twice = map(median_interval, groups)
    if twice.low < AHEAD_RATIO * once.high:
        return None
    return f"works ahead: {once.median:.2g} s a call after one other call, {twice.median:.2g} s after two"


def spared_when_renewed(series: Series) -> str | None:
    """Compare calls after all operands have changed with calls after a few elements have, as in samples.

    Both follow another call and as many writes, so that starting up costs both the same.
    """
    pairs: list[tuple[float, float]] = []
    while len(pairs) < LEAST_ALONE:
        pairs.append(series.take_renewed())
        if sum(renewed_s < SPARED_RATIO * changed_s for renewed_s, changed_s in pairs) > LEAST_ALONE // 4:
            return None
    renewed, changed = map(median_interval, zip(*pairs, strict=True))
    if renewed.low < SPARED_RATIO * changed.high:
        return None
    all_s, few_s = f"{renewed.median:.2g} s", f"{changed.median:.2g} s"
    return f"spares itself the work: {all_s} a call when all operands have changed, {few_s} when a few elements have"
