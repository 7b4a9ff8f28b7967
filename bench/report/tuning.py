"""A tuning at the head of a report: the verdict of its race, three numbers, and what was learned on the way."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.format import count, factor, interval, percent, short
from kernelmark.bench.report.raced import Raced, over_suite, overall_words, races, sentence
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.searched import NEAR, Searched, compiled_words, searches, space_words

#: Problems whose spaces are described in words; a suite may have hundreds.
MOST_DESCRIBED = 12


class Number(NamedTuple):
    """A number, what it is, and how sure."""

    value: str
    label: str
    note: str


class Learned(NamedTuple):
    """What the page shows of a tuning: for each problem its space in words, the outcome of the race, one tile for all.

    outcome: a table of HTML, or nothing without a race.
    """

    spaces: list[tuple[str, str]]
    more: int
    outcome: str
    overall: str
    runs: str


def verdict(data: RunData) -> str:
    """Return which tile to take, or of how many problems a tile is certainly faster, or that no race was run."""
    raced, searched = races(data.race), searches(data.search)
    if not raced:
        return _undecided(searched) if searched else "Nothing was tuned: the default has no time."
    if len(raced) == 1:
        return sentence(raced[0])
    kernel, certain = raced[0].tunes.kernel, sum(each.decision.best is not None for each in raced)
    if not certain:
        return f"{kernel}: the default stays: no tile is certainly faster on any of {len(raced)} problems"
    use = f"`kernelmark run SUITE --tuned {raced[0].tunes.where}` uses them"
    return f"{kernel}: a tile is certainly faster than the default on {certain} of {len(raced)} problems; {use}"


def _undecided(searched: Sequence[Searched]) -> str:
    found = searched[0]
    best = found.trials[0]
    more = f" and {count(len(searched) - 1, 'more problem')}" if len(searched) > 1 else ""
    first = f"{found.tunes.kernel} on {found.space.problem}{more}: undecided, since no race has ended"
    return f"{first}; in the search {best.text} was fastest, {best.ratio} the default, which luck is a part of"


def numbers(data: RunData) -> list[Number]:
    """Return the gain, how flat the top is, and how much of the space was measured."""
    searched, raced = searches(data.search), races(data.race)
    return [*_gain(raced), *([_flatness(searched), _extent(searched)] if searched else [])]


def _gain(raced: Sequence[Raced]) -> list[Number]:
    if len(raced) == 1:
        (found,) = raced
        if (tile := found.leader) is None:
            return []
        ratio = found.decision.ratios[tile]
        what = "speed of the adopted tile" if found.decision.best else "speed of the best tile raced"
        return [Number(factor(ratio.median), f"{what} over the default", _sure(ratio))]
    if not raced or not raced[0].tunes.overall:
        return []
    mean = math.exp(fmean(math.log(each.overall) for each in raced))
    most = f"at most {percent(max(each.regret for each in raced))} slower than a problem's best"
    return [Number(factor(mean), "speed of the one tile for all over the default (geometric mean)", most)]


def _sure(ratio: Ratio) -> str:
    return f"{interval(ratio.low, ratio.high, '{:.3g}'.format)}, {ratio.side}"


def _flatness(searched: Sequence[Searched]) -> Number:
    near, timed = sum(found.near for found in searched), sum(len(found.trials) for found in searched)
    return Number(
        f"{near} of {timed}", f"tiles within {percent(1 - NEAR)} of the best of their problem", "in the search"
    )


def _extent(searched: Sequence[Searched]) -> Number:
    measured, valid = sum(len(found.rows) for found in searched), sum(found.space.valid for found in searched)
    size = sum(found.space.size for found in searched)
    about = "" if all(found.space.exact for found in searched) else "about "
    compiled = compiled_words(searched[0]) if len(searched) == 1 else ""
    note = "; ".join(filter(None, (f"of {size} in the product", compiled)))
    return Number(f"{measured} of {about}{valid}", "valid tiles were measured", note)


def learned(data: RunData) -> Learned:
    """Return what the page shows below the numbers."""
    searched, raced = searches(data.search), races(data.race)
    stages = (("search", data.search), ("race", data.race))
    return Learned(
        [(found.space.problem, space_words(found)) for found in searched[:MOST_DESCRIBED]],
        max(0, len(searched) - MOST_DESCRIBED),
        over_suite(raced, "html"),
        overall_words(raced) if raced and raced[0].tunes.overall else "",
        ", ".join(f"{stage}: run {each.run_id}" for stage, each in stages if each),
    )


def title(data: RunData) -> str:
    """Return `Tuning of numba.blocked`."""
    assert data.tunes is not None
    return f"Tuning of {short(data.tunes.kernel)}"
