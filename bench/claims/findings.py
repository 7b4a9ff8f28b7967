"""What the rows of an experiment say to a claim: a number with its interval for each problem that can answer."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from bench.claims.catalog import Comparison
from bench.claims.evidence import Evidence, Row, Setting, quotient, times
from bench.claims.problems import batch_of, matches
from bench.plan.operation import Problem
from bench.plan.status import Status
from bench.report.standings import Ratio

#: Words of an id that all problems of the claims share.
UNSAID = ("f32", "nchw")


class Finding(NamedTuple):
    """A number, where it holds and which kernels it is of; size: by which problems are ordered."""

    where: str
    ratio: Ratio
    by: str = ""
    size: int = 0


Compare = Callable[[Comparison, Evidence, Sequence[Row]], Iterator[Finding]]


def rows_of(asked: Comparison, evidence: Evidence) -> list[Row]:
    """The rows of the problems and kernels that a comparison is about."""
    rows = [row for row in evidence.rows if matches(row.problem.id, asked.problems)]
    return [row for row in rows if matches(row.result.kernel, asked.kernels) or row.result.kernel == asked.against]


def label(asked: Comparison, problem: Problem) -> str:
    """What tells one problem of a claim from the next."""
    if not asked.label:
        words = problem.id.split("/")[1:]
        return "/".join(word for word in words if word not in UNSAID)
    return asked.label.format(**{axis: getattr(problem, axis) for axis in problem.axes()})


def _by_problem(rows: Iterable[Row]) -> dict[Problem, list[Row]]:
    found: dict[Problem, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.problem].append(row)
    return found


def _fastest(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=lambda row: row.time_s, default=None)


def _kernels(rows: Iterable[Row], globs: tuple[str, ...]) -> Row | None:
    return _fastest(row for row in rows if matches(row.result.kernel, globs))


def _said(where: str, setting: Setting, several: bool) -> str:
    """Where, and in which setting where there are several."""
    facts = [f"{setting.threads} thread{'s' * (setting.threads > 1)}", setting.mode, setting.isa, setting.precision]
    return f"{where} ({', '.join(filter(None, facts))})" if several else where


def kernels(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """The fastest of some kernels against the fastest of others, problem by problem."""
    settings = list(evidence.settings(rows))
    for setting, found in settings:
        for problem, own in _by_problem(found).items():
            one, other = _kernels(own, asked.one), _kernels(own, asked.other)
            if one and other:
                where = _said(label(asked, problem), setting, len(settings) > 1)
                yield Finding(where, evidence.faster(one, other), f"{one.short} against {other.short}")


def problems(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """A kernel on one problem against itself, or another, on another problem."""
    settings = list(evidence.settings(rows))
    for setting, found in settings:
        ones = {row.result.kernel: row for row in found if row.problem.id in asked.one}
        for other in found:
            one = ones.get(asked.against or other.result.kernel)
            if other.problem.id in asked.other and one and other.result.kernel != asked.against:
                yield Finding(_said(other.short, setting, len(settings) > 1), evidence.faster(one, other))


def verified(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """The error bound over the largest error; less than one where a row is `wrong`."""
    for row in evidence.all:
        r = row.result
        if matches(r.kernel, asked.one) and r.status in (Status.OK, Status.WRONG) and r.error_bound:
            margin = r.error_bound / max(r.max_error or 0.0, r.error_bound * 1e-6)
            margin = margin if r.status == Status.OK else 0.0
            yield Finding(label(asked, row.problem), Ratio(margin, margin, margin))


def _alike(rows: Iterable[Row], *names: str) -> Iterator[tuple[Row, list[Row]]]:
    """Rows of one kernel on one problem that agree in these columns too; the first of them stands for all."""
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        r = row.result
        found[row.problem, r.kernel, r.mode, *(getattr(r, name) for name in names)].append(row)
    for group in found.values():
        yield group[0], group


def threads(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """A kernel on some numbers of threads against itself on others."""
    for first, group in _alike(rows, "isa"):
        counts = {str(row.result.threads): row for row in group}
        for one in filter(counts.get, asked.one):
            for other in filter(counts.get, asked.other):
                where = f"{_problem(asked, first)}, {one} threads against {other}"
                yield Finding(where, evidence.faster(counts[one], counts[other]), first.short)


def _problem(asked: Comparison, row: Row) -> str:
    return f"{row.problem.op} {label(asked, row.problem)}"


def thread_steps(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """A kernel on each number of threads against itself on the next smaller one."""
    for first, group in _alike(rows, "isa"):
        within = [row for row in group if row.result.threads <= (asked.limit or row.result.threads)]
        for fewer, more in pairwise(sorted(within, key=lambda row: row.result.threads)):
            where = f"{_problem(asked, first)}, {more.result.threads} threads against {fewer.result.threads}"
            yield Finding(where, evidence.faster(more, fewer), more.short)


def isas(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """A kernel with one instruction set against itself with another, thread count by thread count."""
    for _, where, count, ratio in _isa_gains(asked, evidence, rows):
        yield Finding(f"{where}, {count} thread{'s' * (count > 1)}", ratio)


def _isa_gains(
    asked: Comparison, evidence: Evidence, rows: Sequence[Row]
) -> Iterator[tuple[tuple[Problem, str], str, int, Ratio]]:
    for first, group in _alike(rows, "threads"):
        by_isa = {row.result.isa: row for row in group}
        if asked.one[0] in by_isa and asked.other[0] in by_isa:
            ratio = evidence.faster(by_isa[asked.one[0]], by_isa[asked.other[0]])
            yield (first.problem, first.result.kernel), _problem(asked, first), first.result.threads, ratio


def isa_threads(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """What an instruction set gains on the fewest threads, over what it gains on the most."""
    found: dict[tuple[Problem, str], list[tuple[int, str, Ratio]]] = defaultdict(list)
    for key, where, count, ratio in _isa_gains(asked, evidence, rows):
        found[key].append((count, where, ratio))
    for gains in found.values():
        (few, where, least), (many, _, most) = min(gains), max(gains)
        if few < many:
            yield Finding(f"{where}, {few} against {many} threads", quotient(least, most))


def batch_steps(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """Images a second at each batch over those at the next smaller one, kernel by kernel."""
    found: dict[Any, list[Row]] = defaultdict(list)
    for setting, own in evidence.settings(rows):
        for row in own:
            found[row.result.kernel, row.result.device_name, setting].append(row)
    for own in found.values():
        for smaller, larger in pairwise(sorted(own, key=lambda row: batch_of(row.problem))):
            few, many = batch_of(smaller.problem), batch_of(larger.problem)
            yield Finding(f"{few} to {many}", times(evidence.faster(larger, smaller), many / few), larger.short)


def batches(asked: Comparison, evidence: Evidence, rows: Sequence[Row]) -> Iterator[Finding]:
    """Images a second at the largest batch over those at the smallest, layer by layer, the same kernel."""
    by_problem, seen = _by_problem(rows), set()
    least, most = min(evidence.experiment.batches), max(evidence.experiment.batches)
    at = {(layer.base, layer.batch): layer.entry.problem for layer in evidence.layers}
    for base in dict.fromkeys(layer.base for layer in evidence.layers):
        large = {_who(row): row for row in by_problem.get(at[base, most], [])}
        for small in by_problem.get(at[base, least], []):
            if (row := large.get(_who(small))) and (key := (base, *_who(small))) not in seen:
                seen.add(key)
                where = f"{base.op} {label(asked, base)}"
                yield Finding(where, times(evidence.faster(row, small), most / least), row.short)


def _who(row: Row) -> tuple[Any, ...]:
    r = row.result
    return r.kernel, r.device_name, r.threads, r.mode


COMPARE: dict[str, Compare] = {
    "kernels": kernels,
    "problems": problems,
    "verified": verified,
    "threads": threads,
    "thread-steps": thread_steps,
    "isas": isas,
    "isa-threads": isa_threads,
    "batch-steps": batch_steps,
    "batches": batches,
}
