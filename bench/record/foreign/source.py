"""What a file holds: rows as the store keeps them, and what it records of its machine."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kernelmark.bench.measure.measurement import WITHIN, Part
from kernelmark.bench.measure.stats import median_interval, outliers
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.result import COLUMNS, Result, finite

#: The problem that a text is the id of, or None.
FindProblem = Callable[[str], Problem | None]


class Row(NamedTuple):
    """A result whose run is not known yet, its dimensions, and its samples (seconds a call) where the file has them."""

    result: Result
    dims: dict[str, Any]
    samples: Sequence[float] = ()

    @property
    def parts(self) -> list[Part]:
        """The one process that the samples come from."""
        return [Part(len(self.samples), median_interval(self.samples).median)] if self.samples else []


class Source(NamedTuple):
    """What becomes a run: which format the file has, and what it records of machine, libraries and commit."""

    kind: str
    machine: dict[str, Any]
    environment: dict[str, Any]
    git_commit: str
    rows: Sequence[Row]


def foreign(op: str, problem: Problem | None, text: str, kernel: str, **columns: Any) -> Result:
    """The row of a kernel that is not ours, with the columns that follow from the problem if that is one of ours.

    text: what identifies the problem otherwise. threads is 1, as for all that runs on no threads of ours.
    """
    known: dict[str, Any] = {"op": op, "problem": text, "dtype": "", "layout": ""}
    if problem is not None:
        known = {"op": problem.op, "problem": problem.id, "dtype": problem.dtype}
        known["layout"] = getattr(problem, "layout", "")
    known |= {"run_id": "", "numerics": "", "threads": 1, "status": Status.OK, "reason": ""}
    return Result(**{**known, "kernel": f"{known['op']}/{kernel}", "provider": kernel.partition(".")[0], **columns})


def add_samples(result: Result, samples: Sequence[float]) -> None:
    """The columns that follow from samples in seconds a call; the interval holds within the process."""
    interval = median_interval(samples)
    mean = math.fsum(samples) / len(samples)
    result.samples, result.outliers, result.interval = len(samples), outliers(samples), WITHIN
    result.time_s_median, result.time_s_min, result.time_s_mean = interval.median, min(samples), mean
    result.time_s_ci95_low, result.time_s_ci95_high = finite(interval.low), finite(interval.high)
    if len(samples) > 1:
        result.time_s_std = math.sqrt(math.fsum((t - mean) ** 2 for t in samples) / (len(samples) - 1))


def add_rates(result: Result, problem: Problem | None) -> None:
    """The rates of a problem of ours, from the median."""
    if problem is not None and result.time_s_median:
        result.gflop_per_s = problem.flop / result.time_s_median * 1e-9 if problem.flop else None
        result.gbyte_per_s = problem.traffic_bytes / result.time_s_median * 1e-9


def dimensions(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers and words by name; a name that a column has already gets `param_` before it."""
    kept: dict[str, Any] = {}
    for name, value in named.items():
        # The names of all dimensions cross the store in one string, parted by commas.
        safe = name.replace(",", " ")
        if (found := dimension(value)) is not None:
            kept[f"param_{safe}" if safe in COLUMNS else safe] = found
    return kept


def dimension(value: Any) -> int | float | str | None:
    """A number as the store and Parquet keep it, or else its text; None for what is neither."""
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) >= 2**63):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (int, float, str)) else None


def first_problem(texts: Iterable[str], find: FindProblem) -> Problem | None:
    """The problem that the first of these texts names which names one."""
    return next((problem for text in texts if (problem := find(text)) is not None), None)
