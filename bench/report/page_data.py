"""Encode the rows of a run for the page: columns, each as a constant, a dictionary with codes, or floats."""

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from kernelmark.bench.measure.disturbance import low_ceilings
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.numbers import finite
from kernelmark.bench.record.table import Coded, Floats
from kernelmark.bench.report.anonymity import hidden
from kernelmark.bench.report.contest import grouped
from kernelmark.bench.report.noise import is_noisy
from kernelmark.bench.report.run_data import RunData

#: The most rows and samples for a page that holds all samples; the page of a larger run holds quantiles instead.
MOST_ROWS, MOST_SAMPLES = 10_000, 1_500_000
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
#: Columns with one value in all rows of a page, or that can be computed from the samples.
_LEFT_OUT = frozenset({"schema", "run_id", "time_s_min", "time_s_mean", "time_s_std"})
_MINUTE = len("2026-01-01T00:00")
#: The number of rows whose quantiles are computed at once, and the most values of a column stored as a dictionary.
_AT_ONCE, _FEW = 4096, 256


def page_columns(data: RunData) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the values of each column of the rows."""
    for name, stored in data.table.columns.items():
        if name not in _LEFT_OUT:
            yield name, _stored(name, stored)


def page_data(data: RunData) -> dict[str, Any]:
    """Return the page's data without the columns, for JSON; samples are consecutive 32-bit floats."""
    rows = data.rows
    whole = len(rows) <= MOST_ROWS and sum(r.samples for r in rows) <= MOST_SAMPLES
    if whole:
        taken = [np.frombuffer(blob) for blob in data.store.sample_blobs(data.run_id)]
        lengths, samples = list(map(len, taken)), np.concatenate([*taken, np.empty(0)])
    else:
        lengths, samples = _quantiles(data.store.sample_blobs(data.run_id))
    plan = data.run.plan
    return {
        "count": len(rows),
        "noisy": column([is_noisy(r) + 2 * bool(low_ceilings(r.disturbed)) for r in rows]),
        "levels": None if whole else LEVELS,
        "lengths": column(lengths),
        "samples": _text(samples.astype("<f4")),
        "options": _options(plan) if plan else None,
    }


def _quantiles(blobs: Iterable[bytes]) -> tuple[list[int], Array]:
    """Return the number of quantiles of each row, and all quantiles; many rows are computed at once."""
    lengths, quantiles, left = list[int](), [np.empty((0, len(LEVELS)))], iter(blobs)
    while some := list(islice(left, _AT_ONCE)):
        levels = _levels(some)
        known = ~np.isnan(levels[:, 0])
        lengths += (known * len(LEVELS)).tolist()
        quantiles.append(levels[known])
    return lengths, np.concatenate(quantiles).ravel()


def _levels(blobs: Sequence[bytes]) -> Array:
    """Return the quantiles of each row; NaN for a row without samples."""
    quantiles: Array = np.full((len(blobs), len(LEVELS)), math.nan)
    for size, indices in grouped(range(len(blobs)), lambda at: len(blobs[at])).items():
        if size:
            samples = np.frombuffer(b"".join(blobs[at] for at in indices)).reshape(len(indices), -1)
            quantiles[indices] = np.quantile(samples, LEVELS, axis=1).T
    return quantiles


def _stored(name: str, stored: Coded | Floats) -> dict[str, Any]:
    """Return a column of the table, encoded without iterating over its rows if values need no conversion."""
    if isinstance(stored, Coded):
        codes = np.asarray(stored.codes)
        values = [hidden(name, value) for value in stored.values]
        return _minutes(values, codes) if name == "started_at" else _coded(values, codes)
    if len({number for number in stored.numbers[: 4 * _FEW] if number == number}) > _FEW:
        return _floats(stored.numbers)
    return column(list(stored))


def _minutes(values: list[Any], codes: Array) -> dict[str, Any]:
    texts = [str(value)[:_MINUTE] for value in values]
    places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return _coded(list(places), np.array([places[text] for text in texts], _kind(len(places)))[codes])


def column(values: Sequence[Any]) -> dict[str, Any]:
    """Encode a column: few distinct values as a dictionary (in order of appearance), many numbers as 32-bit floats."""
    values = [finite(value) if isinstance(value, float) else value for value in values]
    known = {value: i for i, value in enumerate(dict.fromkeys(values))}
    if len(known) > _FEW and all(value is None or isinstance(value, float) for value in known):
        return _floats([math.nan if value is None else value for value in values])
    return _coded(list(known), np.fromiter((known[value] for value in values), _kind(len(known)), len(values)))


def _kind(count: int) -> str:
    return next(kind for kind in ("u1", "<u2", "<u4") if count <= np.iinfo(kind).max + 1)


def _coded(values: list[Any], codes: Array) -> dict[str, Any]:
    if len(values) <= 1:
        return {"constant": next(iter(values), None)}
    return {"values": values, "bytes": codes.dtype.itemsize, "codes": _text(codes)}


def _floats(values: Sequence[float] | Array) -> dict[str, Any]:
    return {"floats": _text(np.asarray(values, "<f4"))}


def _text(values: Array) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _options(plan: dict[str, Any]) -> str:
    """Return as text the options of `run` in the plan that affect results but have no column in the rows."""
    import shlex

    words: list[str] = []
    for key, option, default in (("max_time_s", "--max-time", None), ("rel_ci", "--rel-ci", 0.01)):
        if plan.get(key) not in (None, default):
            words += [option, f"{plan[key]:g}"]
    if plan.get("processes", 1) > 1:
        words += ["--processes", str(plan["processes"])]
    for plugin in plan.get("plugins", ()):
        words += ["--plugin", plugin]
    return shlex.join(words)
