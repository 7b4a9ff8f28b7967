"""Ratios between rows: which rows are compared, and how many times faster one row is than the other.

Kernels are ranked within a contest: one problem in one setting. Rows of one job, even of different variants, were
sampled in turn: if the machine slowed down, it slowed both, and the interval of their ratio comes from samples of the
same rounds. Rows of two jobs were not sampled in turn: the interval of their ratio is the quotient of the intervals of
their times, and the ratio is marked as not measured in turn.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf, log
from statistics import mean
from typing import Any, NamedTuple, TypeVar

from kernelmark.bench.measure.disturbance import ran_beyond
from kernelmark.bench.measure.ratio import speedup
from kernelmark.bench.measure.stats import ALPHA
from kernelmark.bench.plan.dtypes import DTYPES, precision, split_dtype
from kernelmark.bench.plan.kernel import VENDORS
from kernelmark.bench.record.columns import COLUMNS, Result
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.records import Groups
from kernelmark.bench.report import format as fmt

#: Remarks on a ratio: its interval includes 1; its rows come from two jobs; its rows come from two machines.
TIE, APART, ELSEWHERE = "tie", "not measured in turn", "not measured on one machine"
#: The reason why a row has neither a ratio nor a rank.
BEYOND = "used more CPUs or threads than it was given"
#: The suffix of kernels that read the buffers as column-major matrices, and the word for this order.
_COLMAJOR, _COLUMN_MAJOR = "_colmajor", "column-major"
Item = TypeVar("Item")
Key = TypeVar("Key")


class Ratio(NamedTuple):
    """How many times faster one row is than another, with its interval. in_turn: whether the rows shared a job.

    elsewhere: whether the rows were measured on different hosts or devices.
    """

    median: float
    low: float | None = None
    high: float | None = None
    in_turn: bool = True
    elsewhere: bool = False

    @property
    def certain(self) -> bool:
        """Return whether the interval excludes 1."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @property
    def side(self) -> str:
        """Return `faster`, `slower`, `tie`, or `without an interval`."""
        if self.low is None:
            return "without an interval"
        return TIE if not self.certain else "faster" if self.median > 1 else "slower"

    @property
    def apart(self) -> str:
        """Return "" if `in_turn`, otherwise the remark `not measured in turn` or `not measured on one machine`."""
        return "" if self.in_turn else ELSEWHERE if self.elsewhere else APART

    @property
    def remarks(self) -> list[str]:
        return [self.apart] * (not self.in_turn) + [self.side] * (not self.certain)

    @property
    def words(self) -> str:
        """Return the ratio in words: `1.1x [0.9, 1.3] (not measured in turn, tie)`."""
        return f"{self} ({', '.join(self.remarks)})" if self.remarks else str(self)

    def __str__(self) -> str:
        return fmt.factor(self.median, self.low, self.high)

    def scaled(self, factor: float) -> "Ratio":
        """Return the ratio and its interval, multiplied by an exact number."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Ratio(self.median * factor, low, high, self.in_turn, self.elsewhere)

    def plus(self, number: float) -> "Ratio":
        """Return the ratio and its interval, with an exact number added."""
        low, high = (None if end is None else end + number for end in (self.low, self.high))
        return Ratio(self.median + number, low, high, self.in_turn, self.elsewhere)

    def over(self, other: "Ratio") -> "Ratio":
        """Return the quotient of two ratios; its interval is valid however their errors are correlated."""
        median, elsewhere = self.median / other.median, self.elsewhere or other.elsewhere
        if self.low is None or self.high is None or not other.low or not other.high:
            return Ratio(median, in_turn=False, elsewhere=elsewhere)
        return Ratio(median, self.low / other.high, self.high / other.low, False, elsewhere)


def time_of(r: Result) -> Ratio:
    """Return the time of a row in seconds, with its interval, as a `Ratio`, which can be divided by other times."""
    assert r.time_s_median is not None
    return Ratio(*fmt.row_time(r))  # type: ignore[arg-type]  # the median is there


def paired(base: Groups, contender: Groups, alpha: float = ALPHA) -> Ratio | None:
    """Return the time of `base` over the time of `contender`, from samples taken in turn; None for too few samples.

    The i-th samples of both were taken in the i-th round. alpha: the error level of the interval.
    """
    interval = speedup(base, contender, alpha) if len(base) == len(contender) else None
    return Ratio(interval.median, interval.low, interval.high) if interval else None


def faster(store: Reader, row: Result, other: Result, pair: tuple[Groups, Groups] | None = None) -> Ratio:
    """Return how many times faster `row` is than `other`. pair: the samples of `other` and `row`, if already read."""
    in_turn = row.job != "" and (row.run_id, row.job) == (other.run_id, other.job)
    if in_turn:
        base, contender = pair or (store.by_process(row.run_id, r.case) for r in (other, row))
        if ratio := paired(base, contender):
            return ratio
    apart = not in_turn
    return time_of(other).over(time_of(row))._replace(in_turn=in_turn, elsewhere=apart and _is_elsewhere(row, other))


def _is_elsewhere(row: Result, other: Result) -> bool:
    """Return whether two rows were measured on different hosts, or on different devices of the same kind."""
    pairs = [(row.host, other.host)]
    if row.device == other.device:
        pairs += [(row.device_name, other.device_name), (row.device_uuid, other.device_uuid)]
    return any(a and b and a != b for a, b in pairs)


def by_columns(row: Result, other: Result) -> Ratio:
    """Return how many times faster `row` is than `other`, using only columns, as a reader of the CSV would.

    If the rows have the same job, problem and baseline, divide their speedups; the baseline's speedup is 1. Otherwise
    divide their times.
    """
    in_turn = row.job != "" and (row.run_id, row.job) == (other.run_id, other.job)
    if in_turn and row.problem == other.problem:
        sides = [Ratio(1.0, 1.0, 1.0) if r.kernel == r.baseline else speedup_of(r) for r in (row, other)]
        if all(side.median for side in sides) and row.baseline == other.baseline:
            exact = other.kernel == other.baseline or row.kernel == row.baseline
            return sides[0].over(sides[1])._replace(in_turn=exact)
    elsewhere = not in_turn and _is_elsewhere(row, other)
    return time_of(other).over(time_of(row))._replace(in_turn=False, elsewhere=elsewhere)


def speedup_of(r: Result) -> Ratio:
    """Return a row's speedup over the baseline, which the worker computed from samples taken in turn."""
    return Ratio(r.speedup or 0.0, r.speedup_ci95_low, r.speedup_ci95_high)


def parallel(workers: int, compute: Ratio, added: Ratio, hidden: bool = False) -> Ratio:
    """Return the speedup of several workers: the batches that they finish in the time of one batch on one worker.

    compute: the seconds of a batch on one worker. added: additional seconds per batch with several workers. hidden:
    whether the additional work overlaps with the computation.
    """

    def gain(share: float) -> float:
        return workers / (max(1.0, share) if hidden else 1.0 + share)

    median, low, high, in_turn, elsewhere = added.over(compute)
    low, high = (None if end is None else gain(end) for end in (high, low))
    return Ratio(gain(median), low, high, in_turn, elsewhere)


class Setting(NamedTuple):
    """The conditions that kernels must share to be compared.

    order: "", or `column-major` for kernels that read the buffers as column-major and so compute another product.
    """

    device: str
    device_name: str
    threads: int
    mode: str
    precision: str
    isa: str
    order: str = ""

    @property
    def machine(self) -> str:
        """Return the device, and the instruction set if one was chosen."""
        return ", ".join(filter(None, (self.device_name, self.isa)))

    def includes(self, r: Result) -> bool:
        """Return whether a row was measured on this device, in this mode and with this instruction set."""
        return (r.device, r.device_name, r.mode, r.isa) == (self.device, self.device_name, self.mode, self.isa)

    @property
    def title(self) -> str:
        threads = fmt.count(self.threads, "thread") if self.device == "cpu" else ""
        return ", ".join(filter(None, (self.machine, threads, self.mode, self.precision, self.order)))


def comparable(r: Result) -> str:
    """Return a row's precision or, if that is unknown, its storage type; only rows with equal values are compared."""
    return _comparable(r.dtype, r.numerics)


@lru_cache
def _comparable(dtype: str, numerics: str) -> str:
    return precision(dtype, numerics) if split_dtype(dtype)[0] in DTYPES else dtype


def order(r: Result) -> str:
    """Return `column-major` for a kernel that reads the buffers as column-major matrices, otherwise ""."""
    return _COLUMN_MAJOR if r.kernel.endswith(_COLMAJOR) else ""


def why_unranked(r: Result) -> str:
    """Return the reason to leave a timed row out of the ranking, or ""."""
    if ran_beyond(r.disturbed):
        return BEYOND
    return "reads column-major operands, so computes a different product" if order(r) else ""


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items of each key as a list; keys and items keep the order in which they occur."""
    groups: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def multithreaded(rows: Iterable[Result]) -> set[str]:
    """Return the kernels that have a row with several threads, timed or not."""
    return {r.kernel for r in rows if r.threads > 1}


def by_setting(rows: Sequence[Result], threaded: Collection[str] | None = None) -> dict[Setting, list[Result]]:
    """Return the rows of each setting, in ascending order of thread count.

    A kernel that has only rows of one thread is also listed at every thread count of the other kernels, since it cannot
    use more threads. threaded: these other kernels; by default, the `multithreaded` kernels of `rows`.
    """
    threaded = multithreaded(rows) if threaded is None else threaded
    alike = grouped(rows, lambda r: (r.device, r.device_name, r.mode, comparable(r), r.isa, order(r)))
    settings = {}
    for (device, name, *others), group in alike.items():
        for threads in sorted({r.threads for r in group if r.kernel in threaded} or {1}):
            beside = [r for r in group if r.threads == threads or r.kernel not in threaded]
            settings[Setting(device, name, threads, *others)] = beside
    return settings


class Contest(NamedTuple):
    """Timed kernels of one problem in one setting, fastest first. known: ratios computed so far, by pair of cases."""

    problem: str
    setting: Setting
    ranked: list[Result]
    store: Reader
    known: dict[tuple[str, str], Ratio]

    @property
    def op(self) -> str:
        return fmt.operation(self.problem)

    @property
    def fastest(self) -> Result:
        return self.ranked[0]

    @property
    def lead(self) -> Ratio | None:
        return self.faster(self.ranked[0], self.ranked[1]) if len(self.ranked) > 1 else None

    def by_lead(self) -> "Contest":
        """Return the contest with its first two kernels ordered by their samples taken in turn, not by their medians.

        The two orders may differ if only one of the kernels was slow for a while.
        """
        if self.lead is None or self.lead.side != "slower":
            return self
        first, second, *others = self.ranked
        return self._replace(ranked=[second, first, *others])

    def of(self, kernel: str) -> Result | None:
        return next((r for r in self.ranked if r.kernel == kernel), None)

    def faster(self, row: Result, other: Result) -> Ratio:
        """Return how many times faster `row` is than `other`, two rows of one run."""
        pair = row.case, other.case
        if pair not in self.known:
            self.known[pair] = faster(self.store, row, other)
        return self.known[pair]

    def slowdown(self, r: Result) -> float:
        return time_of(r).over(time_of(self.fastest)).median


def slowdowns(contests: Iterable[Contest]) -> dict[str, list[float]]:
    """Return each kernel's slowdown in each contest: the kernel's time over the fastest kernel's time."""
    by_kernel: dict[str, list[float]] = defaultdict(list)
    for c in contests:
        for r in c.ranked:
            by_kernel[r.kernel].append(c.slowdown(r))
    return by_kernel


def is_timed(r: Result) -> bool:
    """Return whether a row has a time."""
    return 0 < (r.time_s_median or 0.0) < inf


def is_fair(r: Result) -> bool:
    """Return whether a row has a time that may be compared: its kernel used only the CPUs and threads it was given."""
    return is_timed(r) and not ran_beyond(r.disturbed)


def contests(rows: Sequence[Result], store: Reader) -> list[Contest]:
    """Return a contest for each problem and setting, in row order, from rows for which `is_fair` is true.

    rows: must include the untimed rows; without them, a kernel that fails on several threads would be ranked by its
    single-threaded row.
    """
    threaded = multithreaded(rows)
    problems = grouped(filter(is_fair, rows), lambda r: r.problem)
    return [
        Contest(problem, setting, sorted(contenders, key=lambda r: r.time_s_median or 0.0), store, {})
        for problem, group in problems.items()
        for setting, contenders in by_setting(group, threaded).items()
    ]


def speedups_in_turn(contests: Iterable[Contest], threaded: Collection[str], plan: Mapping[str, Any]) -> list[Contest]:
    """Return the contests, without speedups over a baseline that ran with another thread count.

    Single-threaded kernels are in all contests, but were measured only in jobs with the plan's first thread count. So
    their speedups over a multi-threaded baseline are removed from contests with other counts. threaded: the
    multi-threaded kernels.
    """
    later = plan.get("threads", [])[1:]

    def shown(c: Contest, r: Result) -> Result:
        is_other = c.setting.device == "cpu" and c.setting.threads in later and r.baseline in threaded
        return _with_speedup(r) if r.speedup and is_other and r.kernel not in threaded else r

    return [c._replace(ranked=[shown(c, r) for r in c.ranked]) for c in contests]


def know_leads(contests: Iterable[Contest], store: Reader, run_id: str) -> None:
    """Store each contest's ratio of its first two kernels in its `known`; one pass over the rows saves queries."""
    waiting: dict[str, list[Contest]] = defaultdict(list)
    for c in contests:
        for r in c.ranked[:2] if len(c.ranked) > 1 else ():
            waiting[r.case].append(c)
    halves: dict[int, Groups] = {}
    for case, groups in store.all_by_process(run_id, waiting):
        for c in waiting[case]:
            half = halves.pop(id(c), None)
            if half is None:
                halves[id(c)] = groups
                continue
            first, second = c.ranked[:2]
            pair = (half, groups) if case == first.case else (groups, half)
            c.known[first.case, second.case] = faster(store, first, second, pair)


_COPY = "copy/cuda.memcpy"
#: Parts of the names of kernels that make several calls; a baseline makes a single call.
_SEVERAL = (".tnn", ".inplace", ".two_step")
_LIKE = 0.01  # vendors' kernels whose times differ by a smaller fraction count as equally fast


def over_vendors(contests: Sequence[Contest]) -> list[Contest]:
    """Return the contests; on a GPU, speedups become relative to a vendor's kernel, since the baseline may be NumPy.

    For each operation and setting, vendors' kernels are ordered by the number of problems they were timed on, then by
    speed. In each contest, the first of these kernels that has a time is the baseline; if none has, nothing changes.
    """
    alike = grouped((c for c in contests if c.setting.device == "cuda"), lambda c: (c.op, c.setting))
    ranked = {key: _vendors(group) for key, group in alike.items()}
    return [_with_baseline(c, ranked.get((c.op, c.setting), ())) for c in contests]


def _vendors(contests: Iterable[Contest]) -> list[str]:
    slowdowns: dict[str, list[float]] = defaultdict(list)
    places: dict[str, int] = {}
    for c in contests:
        for r in filter(_is_baseline, c.ranked):
            slowdowns[r.kernel].append(log(c.slowdown(r)))
            places[r.kernel] = VENDORS.index(r.provider) if r.provider in VENDORS else -1
    return sorted(slowdowns, key=lambda k: (-len(slowdowns[k]), round(mean(slowdowns[k]) / _LIKE), places[k]))


def _is_baseline(r: Result) -> bool:
    one_call = r.provider in VENDORS and not any(part in r.kernel for part in _SEVERAL)
    return one_call or r.kernel == _COPY


def _with_baseline(c: Contest, names: Sequence[str]) -> Contest:
    base = next((row for name in names if (row := c.of(name))), None)
    if base is None or {r.baseline for r in c.ranked} == {base.kernel}:
        return c
    return c._replace(ranked=[_over_base(c, r, base) for r in c.ranked])


def _over_base(c: Contest, r: Result, base: Result) -> Result:
    """Return a row with its speedup over the baseline, or without one if the two were not measured in turn."""
    ratio = Ratio(1.0) if r is base else c.faster(r, base)
    return _with_speedup(r, base.kernel if ratio.in_turn else "", ratio if ratio.in_turn and r is not base else None)


def _with_speedup(r: Result, baseline: str = "", ratio: Ratio | None = None) -> Result:
    columns = {name: getattr(r, name) for name in COLUMNS} | {"baseline": baseline}
    median, low, high = ratio[:3] if ratio else (None, None, None)
    return Result(**columns | {"speedup": median, "speedup_ci95_low": low, "speedup_ci95_high": high})
