"""Find the rows that were measured on a noisy machine, and mark them in tables and pages."""

from collections.abc import Iterable
from typing import NamedTuple

from kernelmark.bench.measure.disturbance import disturbances, low_ceilings, was_noisy
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.format import count, digits

#: The mark before the time of a noisy row in tables and figures, and before a share of a disturbed ceiling.
MARK = "~"


class Noise(NamedTuple):
    """The numbers of noisy and of timed rows, and the cause of noise that lasted longest in any one row."""

    noisy: int
    timed: int
    cause: str

    @property
    def badge(self) -> str:
        """Return `noisy` if any row is noisy, otherwise `clean`."""
        return "noisy" if self.noisy else "clean"

    @property
    def sentence(self) -> str:
        """Return `NOISY: 45 of 45 cases were disturbed (other processes used 0.98 CPUs)`, or "" if none was."""
        if not self.noisy:
            return ""
        verb = "was" if self.noisy == 1 else "were"
        return f"NOISY: {self.noisy} of {count(self.timed, 'case')} {verb} disturbed ({self.cause})"


def is_noisy(r: Result) -> bool:
    """Return whether a timed row was disturbed during at least a tenth of its sampling."""
    return r.time_s_median is not None and was_noisy(r.disturbed)


def marked(time: str, r: Result) -> str:
    """Return the text of a row's time, preceded by the mark if the row is noisy."""
    return f"{MARK}{time}" if is_noisy(r) else time


def share(r: Result) -> str:
    """Return a row's percentage of the roofline, preceded by a mark if the ceiling was disturbed."""
    mark = MARK * (r.roofline_pct is not None and bool(low_ceilings(r.disturbed)))
    return mark + digits(r.roofline_pct)


def noise_of(rows: Iterable[Result]) -> Noise:
    """Return how noisy these rows are."""
    timed = [r for r in rows if r.time_s_median is not None]
    noisy = [r for r in timed if is_noisy(r)]
    causes = [cause for text in dict.fromkeys(r.disturbed for r in noisy) for cause in disturbances(text)]
    return Noise(len(noisy), len(timed), max(causes, key=lambda cause: cause.share_pct).cause if causes else "")
