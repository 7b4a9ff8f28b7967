"""The rows of a run as the page carries them: columns, each as a constant, a dictionary with codes, or floats."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.plan.dtypes import Array
from bench.record.result import COLUMNS, Result, finite
from bench.report.noise import is_noisy
from bench.report.run_data import RunData

#: Above these the page carries quantiles of the samples in the place of the samples.
MOST_ROWS, MOST_SAMPLES = 10_000, 3_000_000
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
#: Columns that are the same in all rows of a page, or follow from the samples that it shows.
_LEFT_OUT = frozenset({"schema", "run_id", "time_s_min", "time_s_mean", "time_s_std"})
_MINUTE = len("2026-01-01T00:00")
_SCALE = 65535


def page_data(data: RunData) -> dict[str, Any]:
    """Return plain data for JSON; samples are codes of 16 bits between the fastest and the slowest of their row."""
    rows = data.rows
    whole = len(rows) <= MOST_ROWS and sum(r.samples for r in rows) <= MOST_SAMPLES
    taken = [np.asarray(data.samples(r)) if r.time_s_median else np.empty(0) for r in rows] if whole else None
    kept = taken if taken is not None else [_quantiles(data, r) for r in rows]
    plan = data.run.plan
    return {
        "count": len(rows),
        "columns": {name: column(name, [getattr(r, name) for r in rows]) for name in COLUMNS if name not in _LEFT_OUT},
        "noisy": column("noisy", [int(is_noisy(r)) for r in rows]),
        "levels": None if whole else LEVELS,
        "low": _floats([float(found.min()) if len(found) else math.nan for found in kept]),
        "high": _floats([float(found.max()) if len(found) else math.nan for found in kept]),
        "lengths": column("lengths", [len(found) for found in kept]),
        "samples": _text(np.concatenate([_codes(found) for found in kept] or [np.empty(0, np.uint16)])),
        "options": _options(plan) if plan else None,
    }


def _quantiles(data: RunData, r: Result) -> Array:
    samples = data.samples(r) if r.time_s_median else []
    found: Array = np.quantile(samples, LEVELS) if samples else np.empty(0)
    return found


def _codes(values: Array) -> Array:
    if not len(values) or values.max() == values.min():
        return np.zeros(len(values), np.uint16)
    codes: Array = np.round((values - values.min()) / (values.max() - values.min()) * _SCALE).astype("<u2")
    return codes


def column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return a column of few values as a dictionary (in the order of appearance), numbers as 32-bit floats."""
    if name == "started_at":
        values = [str(value)[:_MINUTE] for value in values]
    values = [finite(value) if isinstance(value, float) else value for value in values]
    known = {value: i for i, value in enumerate(dict.fromkeys(values))}
    if len(known) <= 1:
        return {"constant": next(iter(known), None)}
    if len(known) > 256 and all(value is None or isinstance(value, float) for value in known):
        return _floats([math.nan if value is None else value for value in values])
    kind = next(kind for kind in ("u1", "<u2", "<u4") if len(known) <= np.iinfo(kind).max + 1)
    codes = np.fromiter((known[value] for value in values), kind, len(values))
    return {"values": list(known), "bytes": codes.dtype.itemsize, "codes": _text(codes)}


def _floats(values: Sequence[float]) -> dict[str, Any]:
    return {"floats": _text(np.asarray(values, "<f4"))}


def _text(values: Array) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _options(plan: dict[str, Any]) -> str:
    """Return what the plan holds beyond a row and would change its result, as options of `run`."""
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
