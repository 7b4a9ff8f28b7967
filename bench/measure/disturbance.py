"""What disturbed the samples of a row, in words: the column `disturbed` as it is written, and as reports read it."""

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kernelmark.bench.measure.device import Window

#: A row is noisy if its machine was disturbed during this share of its sampling, in per cent: less hardly moves a
#: median, and is recorded in the column `disturbed` all the same.
LEAST_PCT = 10
_DURING = "{} during {:.0f} % of the sampling"
_CAUSE = re.compile(r"(?P<cause>.+) during (?P<share>[0-9]{1,9}) % of the sampling")
_CEILING = "the {} ceiling was disturbed: {}"
#: The words of today, and those that older stores have.
_LOW = re.compile(r"the \S+ ceiling (?:was|beside it is) disturbed")
#: The remark on a row whose kernel also worked on CPUs that were not its own.
_BEYOND = "ran on CPUs beyond its own"


class Disturbance(NamedTuple):
    """A cause with its mean size, `other processes used 0.35 CPUs`, and for how many per cent of the sampling."""

    cause: str
    share_pct: int


def disturbance(windows: Sequence[Window]) -> str:
    """Return what disturbed the samples kept, `other processes used 0.35 CPUs during 40 % of the sampling`, if any."""
    whole = math.fsum(window.seconds for window in windows)
    parts = []
    for cause in dict.fromkeys(cause for window in windows for cause in window.causes):
        hit = [window for window in windows if cause in window.causes]
        seconds = math.fsum(window.seconds for window in hit)
        size = math.fsum(window.causes[cause] * window.seconds for window in hit) / seconds
        parts.append(_DURING.format(cause.format(size), 100 * seconds / whole))
    return "; ".join(parts)


def low_ceiling(kind: str, doubt: str) -> str:
    """Return the words for a row whose roofline stands on a ceiling that other load has lowered."""
    return _CEILING.format(kind, doubt)


def disturbances(text: str) -> list[Disturbance]:
    """Return the disturbances in a text of the column `disturbed`, without the notes that stand there too."""
    found = map(_CAUSE.fullmatch, text.split("; "))
    return [Disturbance(m["cause"], int(m["share"])) for m in found if m]


@lru_cache(maxsize=1024)
def low_ceilings(disturbed: str) -> tuple[str, ...]:
    """Return what a text of the column `disturbed` has on the ceiling that the row's roofline stands on."""
    return tuple(part for part in disturbed.split("; ") if _LOW.match(part))


@lru_cache(maxsize=1024)
def was_noisy(disturbed: str) -> bool:
    """Return whether a text of the column `disturbed` makes a timed row a noisy one."""
    return any(one.share_pct >= LEAST_PCT for one in disturbances(disturbed))


def beyond(cpus: str) -> str:
    """Return the remark on a row whose kernel has worked on these CPUs, of which some are not its process's."""
    return f"{_BEYOND}: {cpus}"


def ran_beyond(disturbed: str) -> bool:
    """Return whether a kernel had more CPUs than its threads, so that no ratio can be formed at their count."""
    return _BEYOND in disturbed
