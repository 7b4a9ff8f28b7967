"""The statuses of a result: the meaning of each, and whether it counts as a failure."""

from enum import StrEnum
from typing import Self


class Status(StrEnum):
    """The outcome of a case. A result that is not `OK` has a reason and no rate.

    meaning: a sentence for documentation and legends. against: the outcome counts against the kernel, so a run with it
    ends with exit status 1 and a pytest item fails; any other outcome is a valid answer.
    """

    meaning: str
    against: bool

    def __new__(cls, word: str, meaning: str, against: bool) -> Self:
        status = str.__new__(cls, word)
        status._value_, status.meaning, status.against = word, meaning, against
        return status

    OK = "ok", "The result is right before and after timing.", False
    UNSUPPORTED = "unsupported", "The kernel, the device or the mode cannot take this problem.", False
    WRONG = (
        "wrong",
        "The result differs from the float64 reference by more than the bound, is NaN or was not written, or the "
        "kernel wrote elsewhere.",
        True,
    )
    OOM = "oom", "There was not enough memory, or the process was about to use all of it.", False
    TIMEOUT = "timeout", "A call, the set-up or the whole job took longer than its limit; see --timeout.", True
    CRASHED = "crashed", "The kernel's process ended; the reason names the signal and the stage.", True
    FAILED = "failed", "The kernel raised an exception.", True
    MISTRUSTED = (
        "mistrusted",
        "The kernel was faster than the measured limits of the machine, or was seen to skip work.",
        True,
    )


AGAINST = frozenset(status for status in Status if status.against)
