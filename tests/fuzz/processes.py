"""What each process of a campaign does; the parent calls these functions in it."""

import signal
from collections import Counter
from pathlib import Path

from fuzz.campaign import Fault, Lane, Report
from fuzz.inputs import read

_lanes: list[Lane] = []


def begin(samples: Path, place: Path, limit_s: float, only: str) -> None:
    """Give this process a lane of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the campaign
    _lanes.append(Lane(samples, place, limit_s, only=only))


def batch(seed: int, most: int) -> Report:
    """Draw inputs from a seed, and perform them."""
    return _lanes[0].batch(seed, most)


def smallest(fault: Fault) -> Fault:
    """Return a smaller input with a fault of the same kind."""
    return _lanes[0].smallest(fault)


def replay(path: Path) -> Report:
    """Perform the input of a file."""
    report, entry = Report([], Counter(), Counter()), read(path)
    report.faults.extend(_lanes[0].tried(entry.input, 0, report))
    return report
