"""Rows for other programs and for papers."""

import csv
import io

import pandas as pd
import pytest

from kernelmark.bench.record.result import COLUMNS, Result
from kernelmark.bench.record.store import Run
from kernelmark.bench.report.export import WRITERS
from kernelmark.bench.report.pivot import MOST_PROBLEMS
from support.pages import strict

REASON = 'c[0, 1] is 2, expected "1"'
IDENTITY = {"run_id": "r", "suite": "s", "provider": "a", "device": "cpu", "device_name": "d", "mode": "cold"}
KIND = {"dtype": "f32", "numerics": "fp32", "threads": 1}
GEMM = {"op": "gemm", "problem": "gemm/m8n9k7/f32/NT", "layout": "NT"}
MOVE = {"op": "transpose", "problem": "transpose/m8n9/f32/in", "layout": ""}
MEDIAN = 1 / 3 * 1e-3


def exported(store, style):
    out = io.StringIO(newline="")
    WRITERS[style](store, "r", out)
    return out.getvalue()


def add(store, m, **values):
    """A row of a product of m rows."""
    own = {**IDENTITY, **KIND, **GEMM, "problem": f"gemm/m{m}n1k1/f32/NT", "status": "ok", "reason": ""}
    store.add(Result(**own, kernel="gemm/a.b", time_s_median=1e-3, **values), {}, [], None)


@pytest.fixture
def empty(store):
    """A store with a run that has no rows yet."""
    store.begin(Run("r", {}, "2026", (), "", {}, "", {}))
    return store


@pytest.fixture
def written(store):
    store.begin(Run("r", {"cpu": "some"}, "2026", ("s",), "kernelmark run s", {"blas": []}, "c0ffee", {"seed": 0}))
    ok = {"status": "ok", "reason": "", "samples": 2, "time_s_median": MEDIAN, "gflop_per_s": 12.5, "scratch_bytes": 0}
    spread = {"time_s_ci95_low": MEDIAN * 0.9, "time_s_ci95_high": MEDIAN * 1.2, "stopped_by": "ci"}
    fast = Result(**IDENTITY, **KIND, **GEMM, **ok, **spread, kernel="gemm/a.fast_one")
    bad = Result(**IDENTITY, **KIND, **MOVE, status="wrong", reason=REASON, kernel="transpose/a.bad")
    store.add(fast, {"m": 8, "n": 9, "k": 7, "beta": 0.0}, [MEDIAN, 4e-4], None)
    store.add(bad, {"m": 8, "n": 9, "place": "in"}, [], None)
    return lambda style: exported(store, style)


def test_csv_begins_with_the_contracts_columns_and_ends_with_the_dimensions(written):
    assert written("csv").splitlines()[0] == f"{','.join(COLUMNS)},m,n,k,beta,place"


def test_csv_is_empty_where_nothing_is_known(written):
    fast, bad = csv.DictReader(io.StringIO(written("csv")))
    assert (fast["roofline_pct"], fast["power_w"], fast["speedup"], fast["place"]) == ("",) * 4
    assert (fast["scratch_bytes"], fast["beta"]) == ("0", "0.0")
    assert (bad["time_s_median"], bad["gflop_per_s"], bad["k"], bad["scratch_bytes"]) == ("",) * 4
    assert (bad["status"], bad["reason"], bad["place"]) == ("wrong", REASON, "in")


def test_csv_loads_in_pandas_with_numbers_as_numbers(written):
    frame = pd.read_csv(io.StringIO(written("csv")))
    assert list(frame.columns) == [*COLUMNS, "m", "n", "k", "beta", "place"]
    assert frame.time_s_median[0] == MEDIAN
    assert frame[["time_s_median", "gflop_per_s", "k", "roofline_pct"]].dtypes.astype(str).tolist() == ["float64"] * 4
    assert frame.loc[1, ["time_s_median", "gflop_per_s", "speedup"]].isna().all()
    assert list(frame.m) == [8, 8]


def test_csv_keeps_every_digit_of_a_time(written):
    assert float(next(csv.DictReader(io.StringIO(written("csv"))))["time_s_median"]) == MEDIAN


def test_json_holds_the_run_and_its_rows_with_their_samples(written):
    found = strict(written("json"))
    assert found["run"] == {
        "run_id": "r",
        "name": "",
        "planned": None,
        "started_at": "2026",
        "finished_at": None,
        "command": "kernelmark run s",
        "git_commit": "c0ffee",
        "suites": ["s"],
        "environment": {"blas": []},
        "plan": {"seed": 0},
        "machine": {"cpu": "some"},
    }
    fast, bad = found["results"]
    assert list(fast) == [*COLUMNS, "m", "n", "k", "beta", "samples_s"]
    assert (fast["samples_s"], bad["samples_s"]) == ([MEDIAN, 4e-4], [])
    assert (fast["roofline_pct"], bad["time_s_median"], bad["reason"]) == (None, None, REASON)


def test_markdown_holds_the_table_and_the_failures(written):
    lines = written("markdown").splitlines()
    assert lines[1] == ""
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == ["kernel", "time", "95 %", "GFLOP/s", "by"]
    assert [cell.strip() for cell in lines[4].strip("|").split("|")] == [
        "a.fast_one",
        "333 us",
        "-10.0 +20.0 %",
        "12.5",
        "ci, 2",
    ]
    assert (lines[-2], lines[-1].strip()) == ("", f"wrong: transpose/a.bad: {REASON}")


@pytest.mark.parametrize("style", ["csv", "json", "markdown", "latex"])
def test_a_run_without_rows_can_be_exported(empty, style):
    assert exported(empty, style).endswith("\n")


@pytest.mark.parametrize(("problems", "pivots"), [(2, 1), (1, 0), (MOST_PROBLEMS + 1, 0)])
def test_markdown_begins_with_problems_x_kernels_where_these_are_a_few(empty, problems, pivots):
    for m in range(1, problems + 1):
        add(empty, m)
    text = exported(empty, "markdown")
    assert text.count("**gemm, n1k1 f32 NT**") == pivots
    assert text.startswith("**gemm" if pivots else "gemm/m1n1k1/f32/NT")


def test_markdown_notes_once_that_intervals_are_within_one_process(empty):
    for m, scope in ((1, "within-process"), (2, "within-process"), (3, "between-processes")):
        add(empty, m, interval=scope)
    text = exported(empty, "markdown")
    assert text.count("one process cannot show") == 1
    assert text.splitlines()[-1].startswith("one process cannot")


FORMULAS = {"a": "=cmd|'/c calc'!A0", "b": "+1+1", "c": "-2+3", "d": "@SUM(A1)", "e": "\t=1", "f": "\r=1", "=g": "x"}
NUMBERS = {"h": "-1.5", "i": -2, "j": "-1e-3", "k": "a=b", "l": ""}


def of_formulas(store, style):
    store.begin(Run("r", {}, "2026", ("s",), "", {}, "", {}))
    row = Result(**IDENTITY, **KIND, **GEMM, kernel="gemm/a.b", status="ok", reason="", time_s_median=1.0)
    store.add(row, FORMULAS | NUMBERS, [], None)
    (found,) = csv.DictReader(io.StringIO(exported(store, style), newline=""))
    return {name: found[name] for name in found if name not in COLUMNS}


def test_csv_is_exact_whatever_a_cell_begins_with(store):
    assert of_formulas(store, "csv") == {name: str(value) for name, value in (FORMULAS | NUMBERS).items()}


def test_csv_for_a_spreadsheet_has_a_quote_before_what_would_be_a_formula(store):
    found = of_formulas(store, "spreadsheet")
    assert {name: found[name] for name in NUMBERS} == {name: str(value) for name, value in NUMBERS.items()}
    del found["'=g"]
    assert {name: found[name] for name in found if name in FORMULAS} == {
        name: f"'{value}" for name, value in FORMULAS.items() if name != "=g"
    }
