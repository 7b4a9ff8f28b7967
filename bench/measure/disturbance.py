"""What disturbed the samples of a row, in words: the column `disturbed` as it is written, and as reports read it."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from bench.measure.device import Window

_DURING = "{} during {:.0f} % of the sampling"
_CAUSE = re.compile(r"(?P<cause>.+) during (?P<share>\d+) % of the sampling")


class Disturbance(NamedTuple):
    """A cause with its mean size, `others took 0.35 CPUs`, and the percentage of the sampling that it lasted."""

    cause: str
    share_pct: int


def disturbance(windows: Sequence[Window]) -> str:
    """Return what disturbed the samples kept: `others took 0.35 CPUs during 40 % of the sampling`; else nothing."""
    whole = math.fsum(window.seconds for window in windows)
    parts = []
    for cause in dict.fromkeys(cause for window in windows for cause in window.causes):
        hit = [window for window in windows if cause in window.causes]
        seconds = math.fsum(window.seconds for window in hit)
        size = math.fsum(window.causes[cause] * window.seconds for window in hit) / seconds
        parts.append(_DURING.format(cause.format(size), 100 * seconds / whole))
    return "; ".join(parts)


def disturbances(text: str) -> list[Disturbance]:
    """Return the disturbances in a text of the column `disturbed`, without the notes that stand there too."""
    found = map(_CAUSE.fullmatch, text.split("; "))
    return [Disturbance(match["cause"], int(match["share"])) for match in found if match]
