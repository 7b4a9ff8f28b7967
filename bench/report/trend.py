"""The times of a case over runs, commits and library versions, and the steps between runs.

Consecutive runs are compared as `compare` does: by Welch's test on their processes' medians, with Holm's correction for
all tests of a command. A run of one process is shown but not tested.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, islice, pairwise
from sys import intern
from typing import IO, Any

import msgspec
import numpy as np

from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.plan.text import as_json, escaped
from kernelmark.bench.record.records import PointRow, RunFacts
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.anonymity import NAMES, hidden
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.format import count, factor, percent, seconds, short, spread
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.noise import MARK
from kernelmark.bench.report.runs import differences, settings_of
from kernelmark.bench.report.welch import ALPHA, holm, welch

MARGIN = 0.02
#: The host and the device's UUID of a row; "" if unknown.
Place = tuple[str, str]
#: The place of a point and the settings of its run; a function from the indices of a case and its point to these.
PointFacts = tuple[Place, dict[str, Any]]
Facts = Callable[[int, int], PointFacts]
#: Pairs that are tested at once; the most cases and steps that are printed; the most cases printed run by run.
CHUNK, LISTED, IN_FULL = 2000, 50, 3


class TrendPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A case's row in one run, with commit and versions. processes: how many measured it; one is too few for a test."""

    run_id: str
    started_at: str
    git_commit: str
    kernelmark: str
    versions: str
    tunables: str
    time_s_median: float
    time_s_ci95_low: float | None
    time_s_ci95_high: float | None
    processes: int
    disturbed: str


class TrendStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change between two runs. ratio: `to`'s time over `since`'s time; changed: recorded facts that differ."""

    since: str
    to: str
    ratio: float
    ratio_ci95_low: float
    ratio_ci95_high: float
    p_holm: float
    changed: list[str]

    @property
    def words(self) -> str:
        side = "slower" if self.ratio > 1 else "faster"
        how = factor(self.ratio, self.ratio_ci95_low, self.ratio_ci95_high)
        why = "; ".join(self.changed) or "no recorded fact changed"
        return f"{side} in run {self.to}, {how} the time of run {self.since}: {why}"


class TrendCase(msgspec.Struct, forbid_unknown_fields=True):
    """A case on one machine, with its runs in order of their start. drift: the step from the first run to the last."""

    case: str
    kernel: str
    problem: str
    machine_id: str
    device_name: str
    points: list[TrendPoint]
    steps: list[TrendStep] = []
    drift: TrendStep | None = None


class TrendDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document of `trend --json`. single: the number of cases in one run only; tests: that of tested pairs."""

    subject: str
    margin: float
    single: int
    tests: int
    cases: list[TrendCase]


def trend(store: Store, subject: str, text: str, problems: Iterable[str] = (), margin: float = MARGIN) -> TrendDocument:
    """Return the trends of the cases whose names contain `text`, or of the cases of these problems.

    margin: changes in time of at most this fraction are left out.
    """
    with store.snapshot():
        runs = {run["run_id"]: run for run in store.runs()}
        cases, medians, places, single, known = [], [], [], 0, dict[Place, Place]()
        for _, rows in groupby(store.points(text, problems), key=lambda row: row[:3]):
            case_rows = list(rows)
            single += len(case_rows) == 1
            if len(case_rows) > 1:
                first = case_rows[0]
                points = [_point(row, runs[row.run_id]) for row in case_rows]
                cases.append(TrendCase(first.case, first.kernel, first.problem, *first[1:3], points))
                medians.append([np.array(row.medians) for row in case_rows])
                pairs = ((row.host, row.device_uuid) for row in case_rows)
                places.append([known.setdefault(pair, pair) for pair in pairs])

    @cache
    def settings(run_id: str) -> dict[str, Any]:
        return settings_of(runs[run_id])

    def facts(at: int, place: int) -> tuple[Place, dict[str, Any]]:
        return places[at][place], settings(cases[at].points[place].run_id)

    return TrendDocument(subject, margin, single, _find_steps(cases, medians, facts, margin), cases)


def _point(row: PointRow, run: RunFacts) -> TrendPoint:
    # Each of the few different texts is kept once, not as a copy for each of hundreds of thousands of points.
    return TrendPoint(
        run_id=run["run_id"],
        started_at=run["started_at"],
        git_commit=run["git_commit"],
        kernelmark=str(run["environment"].get("kernelmark", "")),
        versions=intern(row.versions),
        tunables=intern(row.tunables),
        time_s_median=row.time_s_median,
        time_s_ci95_low=row.time_s_ci95_low,
        time_s_ci95_high=row.time_s_ci95_high,
        processes=len(row.medians),
        disturbed=intern(row.disturbed),
    )


def _find_steps(cases: list[TrendCase], medians: Sequence[Sequence[Any]], facts: Facts, margin: float) -> int:
    """Add to each case its steps that are certain and exceed the margin; return the number of tested pairs."""
    pairs = list(_pairs(cases))
    estimates: list[tuple[float, ...]] = []
    for start in range(0, len(pairs), CHUNK):
        chunk = pairs[start : start + CHUNK]
        tested = welch([medians[at][old] for at, old, *_ in chunk], [medians[at][new] for at, _, new, _ in chunk])
        estimates += zip(tested.ratio, tested.low, tested.high, tested.p, strict=True)
    adjusted = holm(np.array([p for *_, p in estimates]))
    for (at, old, new, whole), (ratio, low, high, _), p in zip(pairs, estimates, adjusted, strict=True):
        if p < ALPHA and not 1 / (1 + margin) <= ratio <= 1 + margin:
            case = cases[at]
            since, to = case.points[old], case.points[new]
            numbers = float(ratio), float(low), float(high), float(p)
            changed = _changed(since, to, facts(at, old), facts(at, new))
            step = TrendStep(since.run_id, to.run_id, *numbers, changed)
            if whole:
                case.drift = step
            else:
                case.steps.append(step)
    return len(pairs)


def _several(points: Sequence[TrendPoint]) -> list[int]:
    return [at for at, point in enumerate(points) if point.processes > 1]


def _pairs(cases: Iterable[TrendCase]) -> Iterator[tuple[int, int, int, bool]]:
    """Yield indices of points to test: (case, point, next point, False), then (case, first, last, True)."""
    for at, case in enumerate(cases):
        tested = _several(case.points)
        yield from ((at, *pair, False) for pair in pairwise(tested))
        if len(tested) > 2:
            yield at, tested[0], tested[-1], True


def _changed(since: TrendPoint, to: TrendPoint, old: PointFacts, now: PointFacts) -> list[str]:
    """Return the differences between two points, other than the time, and between their runs' settings."""
    fields = (("commit", "git_commit", 8), ("kernelmark", "kernelmark", 99), ("tile", "tunables", 999))
    changes = [(name, getattr(since, field)[:most], getattr(to, field)[:most]) for name, field, most in fields]
    was, are = (dict.fromkeys(point.versions.split("; ")) for point in (since, to))
    gone, new = ([a for a in versions if a not in other] for versions, other in ((was, are), (are, was)))
    changes.append(("versions", "; ".join(gone), "; ".join(new)))
    places = zip(NAMES, old[0], now[0], strict=True)
    changes += [(name, hidden(name, a), hidden(name, b)) for name, a, b in places if a and b]
    named = {"git_commit", "kernelmark", "tiles", "tunes", *(version.rpartition(" ")[0] for version in (*gone, *new))}
    settings = ({k: v for k, v in known.items() if k not in named} for _, known in (old, now))
    return [f"{name}: {a or 'none'} -> {b or 'none'}" for name, a, b in changes if a != b] + differences(*settings)


def write_json(document: TrendDocument, out: IO[str]) -> None:
    """Write the document case by case, since hundreds of thousands of points in one text would use too much memory."""
    head = {name: getattr(document, name) for name in document.__struct_fields__ if name != "cases"}
    out.write(as_json(head)[:-1] + ',\n"cases": [')
    for i, case in enumerate(document.cases):
        out.write(("" if i == 0 else ",") + "\n" + as_json(case))
    out.write("\n]}\n")


COLUMNS = (
    TableColumn("run"),
    TableColumn("begun (UTC)", spare=3),
    TableColumn("commit", spare=2),
    TableColumn("kernelmark", spare=5),
    TableColumn("versions", spare=4, wraps=16),
    TableColumn("processes", "right", spare=1),
    TableColumn("time", "right"),
    TableColumn("95 %", "right"),
    TableColumn("step"),
)
SUMMARY = (
    TableColumn("case", wraps=30),
    TableColumn("runs", "right"),
    TableColumn("first", "right", spare=1),
    TableColumn("last", "right"),
    TableColumn("last over first"),
    TableColumn("steps", "right"),
)


def page(document: TrendDocument) -> Iterator[str]:
    """Yield the paragraphs of a trend: a few cases run by run, or a line for each of many; cases with steps first."""
    cases = sorted(document.cases, key=lambda case: not (case.steps or case.drift))
    several = sum(len(_several(case.points)) > 1 for case in cases)
    stepped = sum(bool(case.steps or case.drift) for case in cases)
    head = f"{document.subject}: {count(len(cases), 'case')} in two runs or more, {stepped} with steps"
    head += f"; {count(document.single, 'case')} in one run" * bool(document.single)
    yield paragraph(head, rest="")
    if len(cases) <= IN_FULL:
        for case in cases:
            yield f"{escaped(case.case)} on {escaped(case.device_name)}\n\n{table(COLUMNS, list(_run_cells(case)))}"
    else:
        yield table(SUMMARY, [_case_cells(case) for case in cases[:LISTED]])
        if len(cases) > LISTED:
            yield paragraph(f"and {len(cases) - LISTED} more cases; `--json` has all", rest="")
    changes = ((case, step) for case in cases for step in case.steps or filter(None, [case.drift]))
    lines = [paragraph(f"{short(case.case)}: {step.words}", rest="  ") for case, step in islice(changes, LISTED)]
    if lines:
        yield "\n".join(lines)
    if several < len(cases):
        remark = f"no step can be found in {count(len(cases) - several, 'case')} without two runs of several processes"
        yield paragraph(f"{remark}; `kernelmark run --processes 5` makes such a run", rest="")
    if several and not stepped:
        most = percent(document.margin)
        yield paragraph(f"no certain step of more than {most} in {count(document.tests, 'test')}", rest="")


def _run_cells(case: TrendCase) -> Iterator[tuple[str, ...]]:
    steps = {step.to: step for step in case.steps}
    for point in case.points:
        step = steps.get(point.run_id)
        times = point.time_s_median, point.time_s_ci95_low, point.time_s_ci95_high
        yield (
            point.run_id,
            point.started_at[:16].replace("T", " "),
            point.git_commit[:8],
            point.kernelmark,
            point.versions,
            str(point.processes),
            MARK * was_noisy(point.disturbed) + seconds(point.time_s_median),
            spread(*times),
            factor(step.ratio, step.ratio_ci95_low, step.ratio_ci95_high) if step else "",
        )


def _case_cells(case: TrendCase) -> tuple[str, ...]:
    step = case.drift or (case.steps[0] if case.steps and len(_several(case.points)) == 2 else None)
    ends = (step.since, step.to) if step else (case.points[0].run_id, case.points[-1].run_id)
    first, last = (next(point for point in case.points if point.run_id == run_id) for run_id in ends)
    if step:
        ratio = factor(step.ratio, step.ratio_ci95_low, step.ratio_ci95_high)
    else:
        times = (Ratio(p.time_s_median, p.time_s_ci95_low, p.time_s_ci95_high) for p in (last, first))
        ratio = next(times).over(next(times))._replace(in_turn=True).words
    cells = str(len(case.points)), seconds(first.time_s_median), seconds(last.time_s_median)
    return short(case.case), *cells, ratio, str(len(case.steps))
