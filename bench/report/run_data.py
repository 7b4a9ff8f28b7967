"""A run, read once, as the report needs it: facts, rows, ceilings, contests; samples when they are asked for."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from sys import intern
from typing import Any, NamedTuple

import msgspec

from bench.measure.stats import speedup
from bench.plan.dtypes import DTYPES, precision, split_dtype
from bench.record.result import Result
from bench.record.store import Store
from bench.report.standings import Ratio, Setting

Dims = dict[str, Any]
_TEXTS = tuple(f.name for f in msgspec.structs.fields(Result) if f.type is str and f.name != "started_at")


class Contest(NamedTuple):
    """The timed kernels of one problem in one setting (and instruction set), fastest first."""

    problem: str
    setting: Setting
    isa: str
    ranked: list[Result]

    @property
    def op(self) -> str:
        return self.problem.partition("/")[0]

    @property
    def title(self) -> str:
        """Device, threads, mode and precision, and the instruction set where one was asked for."""
        return f"{self.setting.title}, {self.isa}".strip(", ")


class RunData:
    """What a run left in its store."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self.run = store.run(run_id)
        self.run_id = self.run.run_id
        self.finished_at: str | None = store.find_run(self.run_id)["finished_at"]
        found = list(store.results(self.run_id))
        self.rows = [_interned(result) for result, _ in found]
        self.dims: list[Dims] = [dims for _, dims in found]
        self.all_ceilings = store.ceilings(self.run_id)

    @cached_property
    def timed(self) -> list[Result]:
        """The rows that have a time."""
        return [r for r in self.rows if 0 < (r.time_s_median or 0.0) < math.inf]

    @cached_property
    def dims_of(self) -> dict[str, Dims]:
        """The dimensions by problem."""
        return {r.problem: dims for r, dims in zip(self.rows, self.dims, strict=True)}

    @cached_property
    def contests(self) -> list[Contest]:
        """Each problem in each setting, in the order of the rows."""
        return contests(self.timed)

    def samples(self, r: Result) -> list[float]:
        """Seconds a call, in the order in which they were taken."""
        return self._store.samples(self.run_id, r.case)

    def by_process(self, r: Result) -> list[list[float]]:
        """The samples of each process."""
        return self._store.by_process(self.run_id, r.case)

    def faster(self, one: Result, other: Result) -> Ratio:
        """How many times faster `one` is, from the samples of the same rounds.

        Two problems are never measured in turn; the ends of their interval are those of the two times.
        """
        own, others = self.by_process(one), self.by_process(other)
        if one.problem == other.problem and len(own) == len(others) and (found := speedup(others, own)):
            return Ratio(found.median, found.low, found.high)
        assert one.time_s_median
        assert other.time_s_median
        ratio = other.time_s_median / one.time_s_median
        if not (one.time_s_ci95_low and one.time_s_ci95_high and other.time_s_ci95_low and other.time_s_ci95_high):
            return Ratio(ratio)
        return Ratio(ratio, other.time_s_ci95_low / one.time_s_ci95_high, other.time_s_ci95_high / one.time_s_ci95_low)

    @property
    def facts(self) -> dict[str, Any]:
        """What was asked for, where and with what; plain data."""
        found: dict[str, Any] = json.loads(msgspec.json.encode(self.run))
        return {**found, "finished_at": self.finished_at}


def _interned(result: Result) -> Result:
    """The same row, its texts shared with those of other rows: a hundred thousand of them repeat few."""
    for name in _TEXTS:
        setattr(result, name, intern(getattr(result, name)))
    return result


def contests(rows: Iterable[Result]) -> list[Contest]:
    """Rows with a time by problem and setting, with one time of each kernel."""
    grouped: dict[tuple[Any, ...], dict[str, dict[int, Result]]] = defaultdict(lambda: defaultdict(dict))
    for r in rows:
        grouped[r.problem, r.device, r.device_name, r.mode, comparable(r), r.isa][r.kernel][r.threads] = r
    found = []
    for (problem, device, name, mode, kind, isa), by_kernel in grouped.items():
        for threads in sorted(set.union(*map(set, by_kernel.values()))):
            own = [of for counts in by_kernel.values() if (of := _at(counts, threads))]
            if threads > 1 or all(1 in counts for counts in by_kernel.values()):
                ranked = sorted(own, key=lambda r: r.time_s_median or 0.0)
                found.append(Contest(problem, Setting(device, name, threads, mode, kind), isa, ranked))
    return found


def _at(counts: dict[int, Result], threads: int) -> Result | None:
    """A kernel's row at so many threads; of one that never has more than one, that row, since no more can be had."""
    return counts.get(threads) or (counts[1] if set(counts) == {1} else None)


def ends(middle: float, low: float | None, high: float | None) -> tuple[float, float]:
    """Of an interval, as bars can show them: around the middle, on it where they are not known."""
    return min(middle, low if low and low > 0 else middle), max(middle, high if high and high < math.inf else middle)


def comparable(r: Result) -> str:
    """The class in which a row can be compared; storage types that are not ours stand for themselves."""
    return precision(r.dtype, r.numerics) if split_dtype(r.dtype)[0] in DTYPES else r.dtype


def short(kernel: str) -> str:
    """A kernel's id without its operation."""
    return kernel.partition("/")[2] or kernel


def sizes(problem: str) -> str:
    """`m1024n2048k26752` of `gemm/m1024n2048k26752/f32/NT`."""
    return problem.split("/")[1] if "/" in problem else problem


def numbers(text: str) -> list[int]:
    """Those in an id, or in a part of it."""
    return [int(found) for found in re.findall(r"\d+", text)]


def variant(problem: str) -> str:
    """What an id says beside its sizes: `f32/NT`."""
    return "/".join(problem.split("/")[2:])


def flop_and_bytes(r: Result) -> tuple[float, float]:
    """Executed operations and compulsory traffic of a timed row; 0 where it has none."""
    median = r.time_s_median or 0.0
    nominal = (r.gflop_per_s or 0.0) * 1e9 * median
    return (nominal if r.executed_flop is None else r.executed_flop), (r.gbyte_per_s or 0.0) * 1e9 * median


def work(r: Result) -> float:
    """Nominal operations, or the bytes that are moved where there are none: the size of a problem."""
    rate = r.gflop_per_s or r.gbyte_per_s
    return (rate or 0.0) * 1e9 * (r.time_s_median or 0.0)


def geometric_mean(values: Sequence[float]) -> float:
    """Of values above 0."""
    from statistics import geometric_mean as mean

    return mean(values)
