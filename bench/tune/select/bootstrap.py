"""Intervals of means over shapes: families of shapes are drawn again and again (a bootstrap by clusters)."""

from typing import NamedTuple

import msgspec
import numpy as np

from kernelmark.bench.plan.dtypes import Array

DRAWS, SEED = 1000, 0


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A share of the oracle's speed, the geometric mean over problems. null: an end of an interval from one family."""

    mean: float
    low: float | None
    high: float | None


class Draws(NamedTuple):
    """Families drawn again: places: the problems of each; chosen: draws x families, how often each family was drawn."""

    places: list[Array]
    chosen: Array


def drawn(families: Array) -> Draws:
    """Return the draws of a bootstrap over families, the same ones every time."""
    places = [np.flatnonzero(families == name) for name in np.unique(families)]
    rng = np.random.default_rng(SEED)
    picks = rng.integers(0, len(places), (DRAWS, len(places)))
    return Draws(places, np.array([np.bincount(row, minlength=len(places)) for row in picks]))


def share(logs: Array, draws: Draws) -> Share:
    """Return the geometric mean of what these are the logarithms of, with its interval; NaN are left out."""
    found = _ratios(logs, np.ones_like(logs), draws)
    ends = None if len(draws.places) < 2 else np.exp(np.nanpercentile(found, (2.5, 97.5)))
    mean = float(np.exp(np.nanmean(logs)))
    return Share(mean, None, None) if ends is None else Share(mean, float(ends[0]), float(ends[1]))


def quotient(above: Array, below: Array, draws: Draws) -> Share:
    """Return the quotient of two sums with its interval."""
    low, high = np.nanpercentile(_ratios(above, below, draws), (2.5, 97.5))
    return Share(float(np.nansum(above) / np.nansum(below)), float(low), float(high))


def _ratios(above: Array, below: Array, draws: Draws) -> Array:
    """Return the quotient of both sums in each draw."""
    below = np.where(np.isnan(above), np.nan, below)
    sums = np.array([[np.nansum(values[places]) for places in draws.places] for values in (above, below)])
    drawn_above, drawn_below = draws.chosen @ sums[0], draws.chosen @ sums[1]
    found: Array = np.where(drawn_below == 0, np.nan, drawn_above / np.where(drawn_below == 0, 1, drawn_below))
    return found
