"""The data of a run, read once for a report: facts, rows, ceilings and contests, and samples on demand."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from kernelmark.bench.plan.tuned import Tunes
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import (
    Contest,
    Ratio,
    contests,
    is_timed,
    know_leads,
    multithreaded,
    over_vendors,
    speedups_in_turn,
)

Dims = dict[str, Any]


class RunData:
    """The facts, rows and ceilings of a run in a store."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run = store.run(run_id)
        self.run_id = self.run.run_id
        self.table = store.table(self.run_id)
        self.all_ceilings = store.ceilings(self.run_id)

    @property
    def rows(self) -> Sequence[Result]:
        return self.table.rows

    @cached_property
    def timed(self) -> list[Result]:
        return [r for r in self.rows if is_timed(r)]

    @cached_property
    def threaded(self) -> set[str]:
        return multithreaded(self.rows)

    @cached_property
    def dims_of(self) -> dict[str, Dims]:
        return dict(zip(self.table.columns["problem"], self.table.dims, strict=True))

    @cached_property
    def contests(self) -> list[Contest]:
        """Return a contest for each problem in each setting, in the order of the rows.

        Kernels that read buffers as column-major compute another product. They have contests only if no other kernel
        was timed. On a GPU, speedups are relative to the vendors' kernels.
        """
        measured = speedups_in_turn(contests(self.rows, self.store), self.threaded, self.run.plan)
        measured = over_vendors([c for c in measured if not c.setting.order] or measured)
        know_leads(measured, self.store, self.run_id)
        return [c.by_lead() for c in measured]

    @cached_property
    def leads(self) -> list[tuple[Contest, Ratio]]:
        """Return the contests of at least two kernels, each with the fastest kernel's speed over the second's."""
        return [(c, lead) for c in self.contests if (lead := c.lead)]

    @cached_property
    def tunes(self) -> Tunes | None:
        """Return the subject and method of a tuning run, or None for any other run."""
        return msgspec.convert(self.run.plan.get("tunes"), Tunes | None)

    @cached_property
    def search(self) -> "RunData | None":
        """Return this run if it searched for tiles; if it raced tiles, the run that found them; otherwise None."""
        if self.tunes is None or not self.tunes.search:
            return self if self.tunes else None
        known = self.tunes.search in self.store.run_ids()
        return RunData(self.store, self.tunes.search) if known else None

    @cached_property
    def race(self) -> "RunData | None":
        """Return this run if it raced tiles; if it searched for tiles, the latest race of them; otherwise None."""
        if self.tunes is None or self.tunes.search:
            return self if self.tunes else None
        plans = {run["run_id"]: run["plan"].get("tunes") or {} for run in self.store.runs()}
        races = [run_id for run_id, tunes in plans.items() if tunes.get("search") == self.run_id]
        return RunData(self.store, races[-1]) if races else None


def sizes(problem: str) -> str:
    """Return the sizes in a problem's id: `m1024n2048k26752` from `gemm/m1024n2048k26752/f32/NT`."""
    return problem.split("/")[1] if "/" in problem else problem


def numbers(text: str) -> list[int]:
    """Return the numbers in an id, or in a part of it."""
    return [int(number) for number in re.findall("[0-9]{1,18}", text)]


def variant(problem: str) -> str:
    """Return the part of an id after its sizes: `f32/NT`."""
    return "/".join(problem.split("/")[2:])


def flop_and_bytes(r: Result) -> tuple[float, float]:
    """Return the executed operations (flop) and the compulsory traffic (bytes) of a timed row, or 0 if unknown."""
    median = r.time_s_median or 0.0
    nominal = (r.gflop_per_s or 0.0) * 1e9 * median
    return (nominal if r.executed_flop is None else r.executed_flop), (r.gbyte_per_s or 0.0) * 1e9 * median


def work(r: Result) -> float:
    """Return the size of a problem: its nominal operations or, if it has none, its bytes of traffic."""
    rate = r.gflop_per_s or r.gbyte_per_s
    return (rate or 0.0) * 1e9 * (r.time_s_median or 0.0)
