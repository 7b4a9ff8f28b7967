"""Write and read the column `disturbed`, which describes the disturbances of a row in words."""

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kernelmark.bench.measure.device import Window

#: A row is noisy if its machine was disturbed during at least this share of its sampling, in per cent. A shorter
#: disturbance hardly moves a median, but is still recorded in the column `disturbed`.
LEAST_PCT = 10
_CAUSE = re.compile(r"(?P<cause>.+) during (?P<share>[0-9]{1,9}) % of the sampling")
#: Matches the present wording and the wording in older stores.
_LOW = re.compile(r"the \S+ ceiling (?:was|beside it is) disturbed")
#: The note for a row whose kernel also worked on CPUs outside its affinity.
_BEYOND = "ran on CPUs beyond its own"
#: The note for a row whose kernel used more threads than the row states.
_MORE = "ran on more threads than its own"


class Disturbance(NamedTuple):
    """A cause, with its mean size (`other processes used 0.35 CPUs`) and the affected percentage of sampling time."""

    cause: str
    share_pct: int


def disturbance(windows: Sequence[Window]) -> str:
    """Return the causes that disturbed kept samples: `other processes used 0.35 CPUs during 40 % of the sampling`."""
    whole = math.fsum(window.seconds for window in windows)
    parts = []
    for cause in dict.fromkeys(cause for window in windows for cause in window.causes):
        hit = [window for window in windows if cause in window.causes]
        seconds = math.fsum(window.seconds for window in hit)
        size = math.fsum(window.causes[cause] * window.seconds for window in hit) / seconds
        parts.append(f"{cause.format(size)} during {100 * seconds / whole:.0f} % of the sampling")
    return "; ".join(parts)


def low_ceiling(kind: str, doubt: str) -> str:
    """Return the note for a row whose roofline ceiling of this kind was measured too low because of other load."""
    return f"the {kind} ceiling was disturbed: {doubt}"


def disturbances(text: str) -> list[Disturbance]:
    """Return the disturbances in the text of the column `disturbed`, without its notes."""
    matches = map(_CAUSE.fullmatch, text.split("; "))
    return [Disturbance(m["cause"], int(m["share"])) for m in matches if m]


@lru_cache(maxsize=1024)
def low_ceilings(disturbed: str) -> tuple[str, ...]:
    """Return the notes on the ceiling of the row's roofline, from the text of the column `disturbed`."""
    return tuple(part for part in disturbed.split("; ") if _LOW.match(part))


@lru_cache(maxsize=1024)
def was_noisy(disturbed: str) -> bool:
    """Return whether a timed row with this text in the column `disturbed` is noisy: disturbed for long enough."""
    return any(disturbance.share_pct >= LEAST_PCT for disturbance in disturbances(disturbed))


def beyond(cpus: str) -> str:
    """Return the note for a row whose kernel worked on these CPUs, some of them outside the process's affinity."""
    return f"{_BEYOND}: {cpus}"


def more_threads(used: int, threads: int) -> str:
    """Return the note for a row whose kernel was given `threads` threads but used `used`, which is more."""
    remedy = "" if threads > 1 else "; a multithreaded kernel must declare threaded=True"
    return f"{_MORE}: {used} instead of {threads}{remedy}"


def ran_beyond(disturbed: str) -> bool:
    """Return whether a kernel exceeded its CPUs or threads, so that ratios at this thread count are invalid.

    This is read from the text of the column `disturbed`.
    """
    return _BEYOND in disturbed or _MORE in disturbed
