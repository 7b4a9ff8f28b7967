"""A run on the screen, whole or by the page."""

import pytest

from kernelmark.bench.measure.measurement import Ceiling
from kernelmark.bench.record.store import Run
from kernelmark.bench.report import pages
from kernelmark.bench.report.pages import run_end, run_page
from support.rows import result

CEILING = Ceiling("cpu", 1, "fp32", "fma/n1/f32", "fma/a.b", "d", 1e9, 0.9e9, 1.1e9, 1.1e9, "2026")


def row(m, **values):
    identity = {"run_id": "r", "op": "copy", "problem": f"copy/m{m}n1/f32", "kernel": "copy/a.b"}
    return result(**{**identity, "time_s_median": 1e-3, "interval": "within-process", **values})


@pytest.fixture
def filled(store, monkeypatch):
    """Return a function that fills run `r` with N problems, three to a page."""
    monkeypatch.setattr(pages, "PAGE", 3)
    store.begin(Run("r", {}, "2026", (), "", {}, "", {}))

    def fill(count):
        for m in range(count):
            store.add(row(m), {}, [], None)
        return store

    return fill


def shown(store, page=1):
    return [paragraph for paragraph in run_page(store, "r", page) if paragraph]


def test_a_page_or_less_is_shown_whole(filled):
    *tables, note, tally = shown(filled(3))
    assert [table.split()[0] for table in tables] == [f"copy/m{m}n1/f32" for m in range(3)]
    assert note.startswith("one process cannot show")
    assert tally == "3 rows: 3 ok"


def test_the_verdict_stands_below_the_tables_where_two_kernels_have_times(filled):
    store = filled(2)
    store.add(row(0, kernel="copy/a.other"), {}, [], None)
    *_, verdict, tally = shown(store)
    assert verdict.startswith("Verdict: ")
    assert tally == "3 rows: 3 ok"


@pytest.mark.parametrize(
    ("page", "problems", "where"),
    [
        (1, (0, 1, 2), "page 1 of 3; the next: `kernelmark show r --page 2`."),
        (2, (3, 4, 5), "page 2 of 3; the next: `kernelmark show r --page 3`."),
        (3, (6,), "page 3 of 3; the first: `kernelmark show r --page 1`."),
    ],
)
def test_more_is_shown_by_the_page_with_what_all_rows_come_to(filled, page, problems, where):
    *tables, said, totals, _, tally = shown(filled(7), page)
    assert [table.split()[0] for table in tables] == [f"copy/m{m}n1/f32" for m in problems]
    assert said.startswith(where)
    assert totals.splitlines()[-1].split() == ["copy/a.b", "7", "7"]
    assert tally == "7 rows: 7 ok"


def test_a_row_that_was_measured_later_stands_with_its_problem(filled):
    store = filled(5)
    store.add(row(0, kernel="copy/a.late"), {}, [], None)
    assert "a.late" in shown(store)[0]


def test_a_page_that_is_not_there_is_refused_in_one_line(filled, complaint):
    store = filled(4)
    assert complaint(lambda: shown(store, 3)) == "page 3: run r has 2; --page 1 shows the first"


def test_a_run_without_rows_says_so(filled):
    assert shown(filled(0)) == ["no rows"]


def test_a_run_of_several_pages_ends_with_what_all_rows_come_to_and_where_the_tables_are(filled):
    where, totals, *_, tally = filter(None, run_end(filled(7), "r"))
    assert where.startswith("page 1 of 3; the next: `kernelmark show r --page 2`.")
    assert totals.splitlines()[-1].split() == ["copy/a.b", "7", "7"]
    assert tally == "7 rows: 7 ok"


def test_a_run_with_too_many_rows_for_a_verdict_keeps_its_ceilings(filled, monkeypatch):
    monkeypatch.setattr(pages, "MOST_JUDGED", 1)
    store = filled(2)
    store.add_ceiling("r", CEILING)
    text = "\n".join(run_end(store, "r"))
    assert "fma/a.b" in text
    assert "2 rows have no verdict here; `kernelmark report r --out DIR` writes one" in text
