"""Print a run for `show`: all of its tables or, if one page cannot hold them, one page and totals by kernel."""

from collections.abc import Iterator
from math import ceil

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.digest import MOST_JUDGED
from kernelmark.bench.report.findings import verdict
from kernelmark.bench.report.layout import paragraph
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.report.places import places
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tables import ceiling_table, group_table, scope_note, status_line, totals_table

#: The most tables on a page.
PAGE = 100


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
        show = f"`kernelmark show {run_id} --page {other}`"
        yield paragraph(f"page {page} of {pages}; the {which}: {show}. All rows of each kernel:", rest="")
        yield totals_table(store.kernel_totals(run_id))
    data = RunData(store, run_id) if tally.total() <= MOST_JUDGED else None
    if data:
        yield scope_note(data.rows)
    yield ceiling_table(store.ceilings(run_id))
    yield from places(store, run_id)
    if data is None:
        text = f"no verdict is printed for {tally.total()} rows; `kernelmark report {run_id} --out DIR` writes one"
        yield paragraph(text, rest="")
    else:
        yield paragraph(noise_of(data.rows).sentence, rest="")
        if any(len(contest.ranked) > 1 for contest in data.contests):
            yield paragraph(f"Verdict: {verdict(data)}", rest="")
    yield paragraph(status_line(tally), rest="")


def _pages(store: Store, run_id: str) -> int:
    return max(1, ceil(store.group_count(run_id) / PAGE))
