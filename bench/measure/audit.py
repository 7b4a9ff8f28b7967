"""Whether a right kernel's samples can be trusted: it may spare itself work that it knows, or write its output late.

Each audit returns why a kernel is mistrusted, or None.
"""

from statistics import median

from kernelmark.bench.measure.sample import Series
from kernelmark.bench.measure.stats import median_interval

#: Pairs of calls, on changed operands and on the same, in a round; rounds at most while noise leaves the verdict open.
AUDITS, ROUNDS = 9, 4
#: How much longer a call on operands of which a few elements have changed may take.
SPARED_RATIO, SPARED_S = 2.0, 10e-6
#: How much longer a call on fresh operands may take: they may be in no cache, and threads that have slept for a while
#: were seen to cost an honest kernel 5 ms on a busy machine. Shorter calls are therefore not suspected at all.
FRESH_RATIO, FRESH_SLACK_S, FRESH_BYTES_PER_S = 2.0, 0.1, 2e9


def spared_work(series: Series) -> str | None:
    """Compare calls on changed operands with calls on the same: in a batch, all calls but the first find the same."""
    if series.batch == 1:
        return None
    pairs: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        pairs += [(_single(series, changed=False), _single(series, changed=True)) for _ in range(AUDITS)]
        ratio = median_interval([changed / same for same, changed in pairs])
        if not ratio.low < SPARED_RATIO <= ratio.high:
            break
    same, changed = (median(times) for times in zip(*pairs, strict=True))
    if ratio.low < SPARED_RATIO or changed - same < SPARED_S:
        return None
    return f"spares itself the work: {changed:.2g} s a call when its operands have changed, {same:.2g} s when not"


def _single(series: Series, changed: bool) -> float:
    """Time one call after an untimed one, so that threads and vector units are awake in either case."""
    if changed:
        series.call()
        series.sets[0].refresh(series.draw)
    else:
        series.sets[0].refresh(series.draw)
        series.call()
    return series.time_alone()


def early_return(series: Series) -> str | None:
    """Look at elements of the outputs as soon as a call has returned; one look may come too late."""
    for _ in range(1 if series.is_long else AUDITS):
        spots = series.sets[0].spots(series.draw)
        for spot in spots:
            spot.poison()
        series.call()
        if late := next((spot.operand for spot in spots if not spot.written().all()), None):
            return f"returned before {late} was written"
    return None


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
