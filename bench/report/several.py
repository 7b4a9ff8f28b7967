"""Several runs of a machine as one, for a report whose questions are each answered by a run of its own."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import Contest, Ratio, Setting, contests, over_vendors
from kernelmark.bench.report.run_data import Dims, RunData


class SeveralRuns(RunData):
    """The GPU's part of several runs, the earliest first; facts are those of the last.

    A contest is of one run: of the one with the most kernels, their tiles not counted, of these the one that measured
    most problems in turn with it, of these the newest. No ratio is of two runs. A kernel alone contends with none.
    """

    def __init__(self, store: Store, run_ids: Sequence[str]) -> None:
        super().__init__(store, run_ids[-1])
        self._runs = [RunData(store, run) for run in run_ids]
        self.all_ceilings = [ceiling for run in self._runs for ceiling in run.all_ceilings]
        self.tunes = None

    @property
    def rows(self) -> Sequence[Result]:
        return [r for run in self._runs for r in run.rows]

    @cached_property
    def timed(self) -> list[Result]:
        return [r for run in self._runs for r in run.timed if r.device != "cpu"]

    @cached_property
    def dims_of(self) -> dict[str, Dims]:
        return {problem: dims for run in self._runs for problem, dims in run.dims_of.items()}

    @cached_property
    def contests(self) -> list[Contest]:
        found: dict[tuple[str, Setting], Contest] = {}
        most: dict[tuple[str, Setting], tuple[int, int]] = {}
        for run in self._runs:
            in_turn: dict[str, set[str]] = defaultdict(set)
            for r in run.timed:
                in_turn[r.job].add(r.problem)
            for c in contests((r for r in run.timed if r.device != "cpu"), self._store):
                kernels = {r.kernel.partition("@")[0] for r in c.ranked}
                have, key = (len(kernels), max(len(in_turn[r.job]) for r in c.ranked)), (c.problem, c.setting)
                if not c.setting.order and have >= most.get(key, (0, 0)):
                    found[key], most[key] = c, have
        decided = [c for c in found.values() if len(c.ranked) > 1]
        return over_vendors(decided or list(found.values()))

    @cached_property
    def leads(self) -> list[tuple[Contest, Ratio]]:
        """Return the contests of two kernels or more, each with the lead of its fastest over the next."""
        return [(c, lead) for c in self.contests if (lead := c.lead)]

    def samples(self, r: Result) -> list[float]:
        return self._store.samples(r.run_id, r.case)

    def by_process(self, r: Result) -> list[Sequence[float]]:
        return self._store.by_process(r.run_id, r.case)
