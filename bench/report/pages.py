"""A run on the screen: all of its tables where they are few; else what its kernels come to, and a page of tables."""

from collections.abc import Iterator
from math import ceil

from bench.plan.errors import UsageError
from bench.record.reader import Reader
from bench.report.tables import ceiling_table, group_table, scope_note, status_line, totals_table

#: Tables on one page.
PAGE = 100


def run_page(store: Reader, run_id: str, page: int = 1, style: str = "simple") -> Iterator[str]:
    """Yield the paragraphs that `show` prints. Raises UsageError for a page that is not there."""
    with store.snapshot():
        pages = max(1, ceil(store.group_count(run_id) / PAGE))
        if not 1 <= page <= pages:
            raise UsageError(f"page {page}: run {run_id} has {pages}; --page 1 shows the first")
        rows = list(store.groups(run_id, PAGE, (page - 1) * PAGE))
        yield from (group_table(group, style) for group in rows)
        yield scope_note(result for group in rows for result in group)
        if pages > 1:
            yield _where(run_id, page, pages)
            yield totals_table(store.kernel_totals(run_id))
        yield ceiling_table(store.ceilings(run_id))
        yield status_line(store.statuses(run_id)) if rows else "no rows"


def _where(run_id: str, page: int, pages: int) -> str:
    """Return which page this is, and the command that shows the next (from the last, the first)."""
    which, other = ("next", page + 1) if page < pages else ("first", 1)
    return f"page {page} of {pages}; the {which}: `kernelmark show {run_id} --page {other}`. All rows of each kernel:"
