"""Training data of a selector: times from a store, features of the problems, families, and the cost of each kernel.

A selector uses the inputs of a problem, and expressions of them in the common syntax of Python and C. Both languages
compute them with the same results. A tree only compares expressions with thresholds, so it needs no logarithms; a
formula uses the logarithms of a few expressions. A selector is for one device, so it needs no division by the size of a
cache.
"""

import math
import typing
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import suite_names
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.report.contest import comparable, is_fair, order

#: The end of the id of a selector's kernel. No selector is trained on this kernel's rows.
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


#: The words for the error if rows differ in a field: the plural of its values, and the remedy.
_WORDS = {
    "op": ("operations", "--op chooses one"),
    "device": ("devices", "--kernels chooses one device's kernels"),
    "device_name": ("devices", "train on one device's runs"),
    "host": ("hosts", "train on one host's runs"),
    "threads": ("numbers of threads", "measure with one: `kernelmark run --threads N`"),
    "mode": ("modes", "train on runs in one mode"),
    "isa": ("instruction sets", "train on runs with one set"),
    "dtype": ("storage types", "--problem '*/f32/*' chooses one"),
    "precision": ("precisions", "--kernels chooses kernels of one precision"),
}


class Times(NamedTuple):
    """The time of each kernel on each problem.

    logs: (2 x problems x kernels) logarithms of seconds from two halves of the processes, NaN without a time; both
    halves are equal if a row has one process. rows: the latest row of each problem and kernel. processes: the fewest
    processes of any row.
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
        return np.asarray(self.logs.mean(axis=0))

    def only(self, chosen: Sequence[int], kernels: Sequence[str]) -> "Times":
        """Return the times of some problems, with these kernels in this order; NaN for a kernel without times."""
        logs = np.full((2, len(chosen), len(kernels)), np.nan)
        for column, name in enumerate(kernels):
            if name in self.kernels:
                logs[:, :, column] = self.logs[:, chosen, self.kernels.index(name)]
        return self._replace(problems=[self.problems[i] for i in chosen], kernels=list(kernels), logs=logs)


def read_times(store: Reader, registry: Registry, run_ids: Sequence[str], selected: bool = False) -> Times:
    """Return the times of runs. selected: include the selector's rows. Raises UsageError if settings differ.

    Kernels that interpret the buffers as column-major matrices compute another product, and are left out.
    """
    medians: dict[tuple[str, str], list[float]] = defaultdict(list)
    rows: dict[tuple[str, str], Result] = {}
    conditions: set[tuple[str, ModelSetting]] = set()
    for run_id in run_ids:
        by_case = {case.case: case.medians for case in store.cases(run_id)}
        for r, _ in store.results(run_id):
            if is_fair(r) and not order(r) and (selected or not r.kernel.endswith(SELECTED)):
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
    setting = _setting(where, conditions)
    problems = list(dict.fromkeys(problem for problem, _ in rows))
    kernels = sorted({kernel for _, kernel in rows})
    logs = np.full((2, len(problems), len(kernels)), np.nan)
    row, column = ({name: i for i, name in enumerate(names)} for names in (problems, kernels))
    for (name, kernel), taken in medians.items():  # every second process, and the others; a single process is in both
        logs[:, row[name], column[kernel]] = [np.log(taken[half::2] or taken).mean() for half in (0, 1)]
    processes = min(map(len, medians.values()))
    return Times(setting, [registry.problem(name) for name in problems], kernels, logs, rows, processes)


def _setting(where: str, conditions: Collection[tuple[str, ModelSetting]]) -> ModelSetting:
    settings = {setting for _, setting in conditions}
    if len({(kernel, setting.threads) for kernel, setting in conditions}) == len({kernel for kernel, _ in conditions}):
        # Kernels with one thread are compared with those that use all threads.
        most = max(setting.threads for setting in settings)
        settings = {setting._replace(threads=most) if setting.threads == 1 else setting for setting in settings}
    for name, values in zip(ModelSetting._fields, zip(*sorted(settings), strict=True), strict=True):
        distinct = sorted(set(values))
        if len(distinct) > 1:
            what, remedy = _WORDS[name]
            listed = ", ".join(str(value) or "none" for value in distinct)
            raise UsageError(f"{where}: has rows of {len(distinct)} {what} ({listed}), expected one; {remedy}")
    return settings.pop()


def inputs_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the names of an operation's inputs."""
    return kind.features.inputs or kind.sizes


def words_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the axes whose values are names, such as layout, direction or place.

    Left out are the axes in `assumed`, and the distribution of the operands, which a caller does not know.
    """
    fixed = {"dtype", "distribution", *kind.assumed}
    return tuple(
        name for name, axis in kind.axes().items() if typing.get_origin(axis) is typing.Literal and name not in fixed
    )


def others_of(kind: type[Problem]) -> tuple[str, ...]:
    """Return the axes that no expression contains; on each, all problems of a model must have the same value."""
    contained = {*inputs_of(kind), *kind.sizes, *words_of(kind), *kind.features.held}
    return tuple(name for name in kind.axes() if name not in contained)


def evaluated(names: Sequence[str], known: Sequence[str], rows: Array) -> Array:
    """Return the values of expressions, one per column, for rows of inputs in the order `names`.

    known: expressions that operations declare; no other text is evaluated.
    """
    scope: dict[str, Any] = {"__builtins__": {}, **dict(zip(names, rows.T, strict=True))}
    return np.column_stack([np.asarray(eval(text, scope), dtype=np.float64) for text in known])


#: With fewer problems or families than these, scores on held-out families would mean little.
LEAST_PROBLEMS, LEAST_FAMILIES = 60, 20


class FeatureSpace(NamedTuple):
    """The features of the problems of one operation.

    inputs: the numeric axes; words: the names on each axis with several names; fixed: the values that all problems
    share; texts: the expressions that a tree can compare; slopes: a formula's expressions.
    """

    inputs: tuple[str, ...]
    words: dict[str, list[str]]
    fixed: dict[str, Any]
    texts: tuple[str, ...]
    slopes: tuple[str, ...]

    def numbers(self, problems: Sequence[Problem]) -> Array:
        """Return an array (problems x columns): the inputs, then for each axis in `words` the name's index, or -1."""
        rows = []
        for problem in problems:
            words = ((values, getattr(problem, name)) for name, values in self.words.items())
            places = [float(values.index(value)) if value in values else -1.0 for values, value in words]
            rows.append([*(float(getattr(problem, name)) for name in self.inputs), *places])
        return np.array(rows)

    def features(self, known: Array) -> Array:
        return evaluated((*self.inputs, *self.words), self.texts, known)

    def apart(self, point: Array, others: Array) -> Array:
        """Return the distance of each problem in `others` from `point`, in octaves; infinite if a name differs."""
        count = len(self.inputs)
        octaves = np.log2(others[:, :count]) - np.log2(point[:count])
        is_like = (others[:, count:] == point[count:]).all(axis=1)
        return np.where(is_like, np.hypot.reduce(octaves, axis=1), np.inf)


def feature_space(kind: type[Problem], words: dict[str, list[str]], fixed: dict[str, Any]) -> FeatureSpace:
    """Return the features of an operation. In an expression such as `direction == 2`, 2 is an index in `words`."""
    inputs, features = inputs_of(kind), kind.features
    is_word = (f"{name} == {i}" for name, values in words.items() for i in range(len(values)))
    return FeatureSpace(inputs, words, fixed, (*(features.expressions or inputs), *is_word), features.slopes or inputs)


def space_of(problems: Sequence[Problem]) -> FeatureSpace:
    """Return the feature space of problems of one operation. Raises UsageError if an axis of `others_of` varies."""
    kind = type(problems[0])
    fixed = {name: getattr(problems[0], name) for name in others_of(kind)}
    for name, value in fixed.items():
        if other := next((p for p in problems if getattr(p, name) != value), None):
            pair = f"{value} and {getattr(other, name)} ({other.id})"
            why = "expected the same in all problems, since selectors ignore it"
            raise UsageError(f"{name}: is {pair}, {why}; choose problems with --problem")
    words = {name: sorted({getattr(p, name) for p in problems}) for name in words_of(kind)}
    fixed |= {name: values[0] for name, values in words.items() if len(values) == 1}
    words = {name: values for name, values in words.items() if len(values) > 1}
    return feature_space(kind, words, fixed)


#: The cost that is assumed for a kernel on a problem without a time when the kernels of a leaf are ordered.
MISSING = math.log(100)


class Data(NamedTuple):
    """Times with the features of their problems.

    known: (problems x inputs); costs: (problems x kernels), log(time / time of the fastest kernel); families: the
    index of each problem's family.
    """

    times: Times
    space: FeatureSpace
    known: Array
    costs: Array
    families: Array


def data_of(times: Times, space: FeatureSpace | None = None) -> Data:
    """Return the data of a table of times, in a feature space of all its problems. Raises as `space_of` does."""
    space = space or space_of(times.problems)
    costs = times.means - np.nanmin(times.means, axis=1, keepdims=True)
    costs = np.where(np.isnan(costs), MISSING, costs)
    return Data(times, space, space.numbers(times.problems), costs, families_of(times.problems))


def families_of(problems: Sequence[Problem]) -> Array:
    """Return the index of each problem's family: problems whose sizes round to the same powers of two.

    All layouts, directions and places of a shape are in one family, so that they are held out together.
    """
    names: dict[tuple[int, ...], int] = {}
    families = []
    for problem in problems:
        family = tuple(round(math.log2(getattr(problem, name))) for name in problem.sizes)
        families.append(names.setdefault(family, len(names)))
    return np.array(families)


def require_enough(where: str, data: Data) -> None:
    """Raise UsageError for too few problems, families or kernels, or if no kernel was timed on every problem."""
    problems, families = len(data.families), len(set(data.families.tolist()))
    required = (("problems", problems, LEAST_PROBLEMS), ("families of shapes", families, LEAST_FAMILIES))
    for what, number, least in required:
        if number < least:
            op = data.times.setting.op
            suite = f"`kernelmark run train-{op}`" if f"train-{op}" in suite_names() else "a larger suite"
            raise UsageError(f"{where}: has {number} {what}, expected at least {least} to learn from; {suite} has more")
    if np.isnan(data.times.means).any(axis=0).all():
        what = f"no kernel was timed on all {problems} problems, expected at least one to fall back on"
        raise UsageError(f"{where}: {what}; use --problem to choose problems that one kernel takes")
    if len(data.times.kernels) < 2:
        raise UsageError(f"{where}: has times of only {data.times.kernels[0]}; a choice needs two kernels")


def single(means: Array, costs: Array) -> Array:
    """Return the kernels timed on every problem, then the others; each group is sorted by mean cost."""
    return np.lexsort((costs.mean(axis=0), np.isnan(means).any(axis=0)))
