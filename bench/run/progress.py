"""Notifications of a run in progress. A command that shows them subclasses `Progress`; nothing else depends on it."""

import msgspec

from kernelmark.bench.plan.case import Entrant, PlannedJob


class Glimpse(msgspec.Struct, frozen=True):
    """A contender's samples so far, before it has a row: their number, and their median in seconds per call."""

    entrant: Entrant
    samples: int
    median_s: float


class Progress:
    """Receives the notifications of a run and ignores them."""

    def begins(self, planned: PlannedJob, process: int) -> None:
        """A job begins in one of its processes."""

    def calls(self, entrant: Entrant, stage: str) -> None:
        """A contender is being called; reported a few times per second while the call lasts."""

    def glimpses(self, glimpses: list[Glimpse]) -> None:
        """Report the first samples of the contenders of a long job."""

    def ends(self, planned: PlannedJob, process: int) -> None:
        """A job has ended in one of its processes; once it has ended in the last, its rows are in the store."""

    def waits(self, left_s: float) -> None:
        """Nothing is measured for `left_s` seconds, to separate processes in time."""
