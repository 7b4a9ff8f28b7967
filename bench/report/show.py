"""Print a run for `show`: all of its tables, or one page of them and totals by kernel, or one row with all columns."""

from collections.abc import Iterator
from math import ceil
from statistics import median

from kernelmark.bench.measure.measurement import Evidence
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.columns import row
from kernelmark.bench.record.store import Store, command_on
from kernelmark.bench.report.digest import MOST_JUDGED
from kernelmark.bench.report.findings import verdict
from kernelmark.bench.report.layout import paragraph, width, wrapped
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.report.places import places
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tables import ceiling_table, group_table, scope_note, status_line, totals_table

#: The most tables on a page.
PAGE = 100
#: The most cases that an error message lists.
_NAMED = 5


def run_page(store: Store, run_id: str, page: int = 1, style: str = "simple") -> Iterator[str]:
    """Yield the paragraphs that `show` prints. Raises UsageError for a page that does not exist."""
    with store.snapshot():
        yield from run_tables(store, run_id, page, style)
        yield from run_end(store, run_id, page)


def run_tables(store: Store, run_id: str, page: int = 1, style: str = "simple") -> Iterator[str]:
    """Yield the tables of a page. Raises UsageError for a page that does not exist."""
    pages = _pages(store, run_id)
    if not 1 <= page <= pages:
        raise UsageError(f"page {page}: run {run_id} has {pages}; --page 1 shows the first")
    yield from (group_table(group, style) for group in store.groups(run_id, PAGE, (page - 1) * PAGE))


def run_end(store: Store, run_id: str, page: int = 1) -> Iterator[str]:
    """Yield the paragraphs below a page of tables: the notes on the whole run, and its verdict."""
    pages, tally = _pages(store, run_id), store.statuses(run_id)
    if pages > 1:
        which, other = ("next", page + 1) if page < pages else ("first", 1)
        show = command_on(store.path, f"show {run_id} --page {other}")
        yield paragraph(f"page {page} of {pages}; the {which}: {show}. All rows of each kernel:", rest="")
        yield totals_table(store.kernel_totals(run_id))
    data = RunData(store, run_id) if tally.total() <= MOST_JUDGED else None
    if data:
        yield paragraph(scope_note(data.rows), rest="")
    yield ceiling_table(store.ceilings(run_id))
    yield from places(store, run_id)
    if data is None:
        writes = command_on(store.path, f"report {run_id} --out DIR")
        text = f"no verdict is printed for {tally.total()} rows; {writes} writes one"
        yield paragraph(text, rest="")
    else:
        yield paragraph(noise_of(data.rows).sentence, rest="")
        if any(len(contest.ranked) > 1 for contest in data.contests):
            yield paragraph(f"Verdict: {verdict(data)}", rest="")
    yield paragraph(status_line(tally), rest="")


def row_page(store: Store, run_id: str, text: str) -> Iterator[str]:
    """Yield the paragraphs that `show --row` prints for the case whose name contains `text`.

    Raises UsageError if no case matches, or several match.
    """
    with store.snapshot():
        case = _find(store, run_id, text)
        result, dims = store.result(run_id, case)
        evidence = store.evidence(run_id, case)
    yield "\n".join(wrapped(case, width(), "", "    "))
    yield _aligned({name: value for name, value in row(result, dims).items() if value not in (None, "")})
    if evidence:
        yield f"The evidence against the row, from samples not in the row:\n{_aligned(dict(_accusation(evidence)))}"


def _pages(store: Store, run_id: str) -> int:
    return max(1, ceil(store.group_count(run_id) / PAGE))


def _find(store: Store, run_id: str, text: str) -> str:
    cases = store.find_cases(run_id, text, _NAMED + 1)
    if not cases:
        lists = command_on(store.path, f"export {run_id}")
        raise UsageError(f"--row {text!r}: run {run_id} has no such case; {lists} lists its rows")
    if len(cases) > 1:
        named = ", ".join(map(repr, cases[:_NAMED])) + (" and more" if len(cases) > _NAMED else "")
        raise UsageError(f"--row {text!r}: expected one case of run {run_id}, found {named}; give more of the name")
    return cases[0]


def _accusation(evidence: Evidence) -> Iterator[tuple[str, object]]:
    interval, excess = evidence.interval, evidence.excess
    yield "samples", len(evidence.samples)
    yield "time_s_median", interval.median if interval else median(evidence.samples)
    yield "time_s_min", min(evidence.samples)
    if interval:
        yield "time_s_ci95_low", interval.low
        yield "time_s_ci95_high", interval.high
    if excess:
        yield "declared", f"{excess.declared:,} {'bytes' if excess.ceiling.need.moves else 'flop'}"
        yield "over time_s_ci95_high", f"{excess.rate * 1e-9:.4g} {excess.ceiling.rate_unit}"
        yield "surpassed ceiling", ", measured ".join(filter(None, (str(excess.ceiling), excess.ceiling.measured_at)))


def _aligned(values: dict[str, object]) -> str:
    longest = max(map(len, values))
    indent = " " * (longest + 2)
    lines = (wrapped(str(value), width(), f"{name:<{longest}}  ", indent) for name, value in values.items())
    return "\n".join(line for value in lines for line in value)
