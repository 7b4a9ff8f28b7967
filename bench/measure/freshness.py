"""Whether calls on operands that have all changed take longer than others: then most calls spare themselves work."""

#: How much longer a call on fresh operands may take: they may be in no cache, and threads that have slept for a while
#: were seen to cost an honest kernel 5 ms on a busy machine. Shorter calls are therefore not suspected at all.
RATIO, SLACK_S, BYTES_PER_S = 2.0, 0.1, 2e9


class Freshness:
    """Calls of one kernel on fresh operands, each with a second call on the same ones, which are then known."""

    def __init__(self, footprint_bytes: int) -> None:
        self._slack_s = SLACK_S + footprint_bytes / BYTES_PER_S
        self._fresh_s: list[float] = []
        self._known_s: list[float] = []
        self.suspicious = False

    def is_long(self, fresh_s: float, known_s: float) -> bool:
        """Return whether a call is longer than another by more than what a first call may cost."""
        return fresh_s > max(RATIO * known_s, known_s + self._slack_s)

    def add(self, fresh_s: float, known_s: float) -> None:
        """Keep one pair of calls."""
        self._fresh_s.append(fresh_s)
        self._known_s.append(known_s)

    def complaint(self) -> str | None:
        """Return what all pairs show: the shortest call on fresh operands is longer than the longest on known ones."""
        fresh_s, known_s = min(self._fresh_s), max(self._known_s)
        if not self.is_long(fresh_s, known_s):
            return None
        return f"spares itself the work: {fresh_s:.2g} s a call on fresh operands, {known_s:.2g} s on known ones"
