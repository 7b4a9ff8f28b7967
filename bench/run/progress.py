"""What a run reports of itself while it goes on. A command that shows it has a subclass; nothing else depends on it."""

import msgspec

from kernelmark.bench.plan.case import Entrant, PlannedJob


class Glimpse(msgspec.Struct, frozen=True):
    """What a contender has so far, long before its row: the samples, and their median in seconds a call."""

    entrant: Entrant
    samples: int
    median_s: float


class Progress:
    """Gets notice of what a run does while it goes on, and ignores it."""

    def begins(self, planned: PlannedJob, process: int) -> None:
        """A job begins, in one of its processes."""

    def calls(self, entrant: Entrant, stage: str) -> None:
        """A contender is being called; noticed a few times a second, for as long as it lasts."""

    def glimpses(self, found: list[Glimpse]) -> None:
        """The contenders of a long job have taken their first samples."""

    def ends(self, planned: PlannedJob, process: int) -> None:
        """A job has ended in this process; if that was the last one, its rows are in the store."""

    def waits(self, left_s: float) -> None:
        """Nothing is measured for so long, since processes lie apart."""
