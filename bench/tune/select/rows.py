"""Read training data from a store: logarithms of times by problem and kernel, in one setting."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import comparable, is_timed, order

#: The end of the id of a selector's kernel; no selector is made from its rows.
SELECTED = "kernelmark.selected"


class ModelSetting(NamedTuple):
    """The setting that all rows of a model share."""

    op: str
    device: str
    device_name: str
    host: str
    threads: int
    mode: str
    isa: str
    dtype: str
    precision: str


#: The word for a value of each field if rows have several values, and the option that chooses one.
_WORDS = {
    "op": ("operations", "--op chooses one"),
    "device": ("devices", "--kernels chooses those of one"),
    "device_name": ("devices", "train on the runs of one"),
    "host": ("hosts", "train on the runs of one"),
    "threads": ("numbers of threads", "measure with one: `kernelmark run --threads N`"),
    "mode": ("modes", "train on the runs of one"),
    "isa": ("instruction sets", "train on the runs of one"),
    "dtype": ("storage types", "--problem '*/f32/*' chooses one"),
    "precision": ("precisions", "--kernels chooses the kernels of one"),
}


class Times(NamedTuple):
    """The time of each kernel on each problem.

    logs: (2 x problems x kernels) logarithms of seconds from two halves of the processes, NaN without a time; both
    halves are equal if a row has one process. rows: the latest row of each problem and kernel. processes: the fewest of
    any row.
    """

    setting: ModelSetting
    problems: list[Problem]
    kernels: list[str]
    logs: Array
    rows: Mapping[tuple[str, str], Result]
    processes: int

    @property
    def means(self) -> Array:
        """Return the mean of both halves' logarithms (problems x kernels)."""
        means: Array = self.logs.mean(axis=0)
        return means

    def only(self, chosen: Sequence[int], kernels: Sequence[str]) -> "Times":
        """Return the times of some problems, with these kernels in this order; NaN for a kernel without times."""
        none = np.full((2, len(chosen), 1), np.nan)
        columns = [
            self.logs[:, chosen, self.kernels.index(name)][:, :, None] if name in self.kernels else none
            for name in kernels
        ]
        problems = [self.problems[i] for i in chosen]
        return self._replace(problems=problems, kernels=list(kernels), logs=np.concatenate(columns, axis=2))


def read(store: Reader, registry: Registry, run_ids: Sequence[str], selected: bool = False) -> Times:
    """Return the times of runs. selected: include the selector's rows. Raises UsageError unless there is one setting.

    Kernels that read the buffers as column-major matrices compute another product, and are left out.
    """
    medians: dict[tuple[str, str], list[float]] = defaultdict(list)
    rows: dict[tuple[str, str], Result] = {}
    conditions: set[tuple[str, ModelSetting]] = set()
    for run_id in run_ids:
        by_case = {case.case: case.medians for case in store.cases(run_id)}
        for r, _ in store.results(run_id):
            if is_timed(r) and not order(r) and (selected or not r.kernel.endswith(SELECTED)):
                problem = registry.problem(r.problem)
                key = problem.id, r.kernel
                rows[key] = r
                place = r.device, r.device_name, r.host
                setting = ModelSetting(problem.op, *place, r.threads, r.mode, r.isa, r.dtype, comparable(r))
                conditions.add((r.kernel, setting))
                medians[key] += by_case.get(r.case) or [r.time_s_median or 0.0]
    where = f"run {' and '.join(run_ids)}"
    if not rows:
        raise UsageError(f"{where}: has no row with a time; `kernelmark run train-conv` measures some")
    return _tabled(_setting(where, conditions), registry, rows, medians)


def _setting(where: str, conditions: Collection[tuple[str, ModelSetting]]) -> ModelSetting:
    settings = {setting for _, setting in conditions}
    threads = {setting.threads for setting in settings}
    if len({(kernel, setting.threads) for kernel, setting in conditions}) == len({kernel for kernel, _ in conditions}):
        most = max(threads)  # kernels on one thread are compared with those on all
        settings = {setting._replace(threads=most) if setting.threads == 1 else setting for setting in settings}
    for name, values in zip(ModelSetting._fields, zip(*sorted(settings), strict=True), strict=True):
        distinct = sorted(set(values))
        if len(distinct) > 1:
            what, remedy = _WORDS[name]
            listed = ", ".join(str(value) or "none" for value in distinct)
            raise UsageError(f"{where}: has rows of {len(distinct)} {what} ({listed}), expected one; {remedy}")
    return settings.pop()


def _tabled(
    setting: ModelSetting,
    registry: Registry,
    rows: Mapping[tuple[str, str], Result],
    medians: Mapping[tuple[str, str], Sequence[float]],
) -> Times:
    problems = list(dict.fromkeys(problem for problem, _ in rows))
    kernels = sorted({kernel for _, kernel in rows})
    logs = np.full((2, len(problems), len(kernels)), np.nan)
    places = {name: i for i, name in enumerate(problems)}, {name: i for i, name in enumerate(kernels)}
    for (problem, kernel), taken in medians.items():
        for half, chosen in enumerate(_halves(taken)):
            logs[half, places[0][problem], places[1][kernel]] = np.log(chosen).mean()
    processes = min(map(len, medians.values()))
    return Times(setting, [registry.problem(name) for name in problems], kernels, logs, rows, processes)


def _halves(taken: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Return every second process, and the others; the same twice where there is one."""
    return (taken[::2], taken[1::2]) if len(taken) > 1 else (taken, taken)
