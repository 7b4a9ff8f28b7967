"""Results as objects: loaded runs, measured functions, and the page of docs that shows both."""

import linecache
import re

import numpy as np
import pytest

import kernelmark
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.notebook import _source
from kernelmark.bench.report.export import write_csv
from support import rows
from support.pages import DOCS
from support.texts import csv_rows, text_of
from support.tools import needed

NT = "gemm/m8n8k8/f32/NT"
QUICK = {"max_time": 0.01, "ceilings": False, "mode": "hot"}
ARRAY, TWICE = np.ones(3), 2


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def run_cells(text, names):
    """Execute the cells of a page as a notebook does, which registers their sources under names that are not files."""
    for number, cell in enumerate(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)):
        file = f"<cell {number}>"
        linecache.cache[file] = len(cell), None, cell.splitlines(keepends=True), file
        exec(compile(cell, file, "exec"), names)


@pytest.mark.usefixtures("home")
def test_the_cells_of_the_page_run(capsys):
    needed(module_missing("pandas"))
    names = {"__name__": "__main__"}
    run_cells((DOCS / "notebook.md").read_text(), names)
    printed = capsys.readouterr().out
    assert names["row"].status == "ok"
    assert "measure: shifted uses table, which is a ndarray" in printed
    assert "gemm/mine.transposed over gemm/numpy.matmul" in printed


def test_a_wrong_function_of_a_module_has_a_wrong_row(home, monkeypatch):
    (home / "own_kernels.py").write_text("def still(problem, x):\n    return lambda: None\n")
    monkeypatch.syspath_prepend(str(home))
    row = kernelmark.measure(NT, __import__("own_kernels").still, **QUICK)
    assert (row.kernel, row.status) == ("gemm/mine.still", "wrong")
    assert row.reason


def closure(value):
    def inner(problem, x):
        return lambda: x.c.fill(value)

    return inner


def of_cell(problem, x, times=TWICE):
    def call():
        np.multiply(x.a, twice(times), out=x.c)

    return call


def twice(value):
    return of_cell if value is None else value * TWICE


def uses_array(problem, x):
    return lambda: np.copyto(x.c, ARRAY)


@pytest.mark.parametrize(
    ("fn", "options", "refusal"),
    [
        (lambda problem, x: None, {}, "fn is a lambda, expected a function with a name"),
        (np.matmul, {}, "fn is a ufunc, expected a function"),
        (closure(1), {}, "inner is a closure over value"),
        (uses_array, {}, "uses_array uses ARRAY, which is a ndarray"),
        (of_cell, {"max_tim": 1}, "max_tim is unknown, expected one of .*; did you mean max_time"),
        (of_cell, {"beside": "gemm/scipi.sgemm"}, "--kernels 'gemm/scipi.sgemm': matches no kernel"),
        (of_cell, {"mode": "warm"}, "'warm' is not one of 'cold', 'hot', 'graph'"),
    ],
)
@pytest.mark.usefixtures("home")
def test_functions_that_no_worker_can_measure_and_bad_options_are_refused(complaint, monkeypatch, fn, options, refusal):
    for each in {fn, twice} - {np.matmul}:  # its module cannot be changed
        monkeypatch.setattr(each, "__module__", "__main__")
    assert re.search(refusal, complaint(lambda: kernelmark.measure(NT, fn, **options)))


def test_the_source_of_a_cell_s_function_includes_the_names_that_it_uses(monkeypatch):
    for fn in (of_cell, twice):
        monkeypatch.setattr(fn, "__module__", "__main__")
    names = {}
    exec(_source(of_cell), names)
    assert (names["TWICE"], names["twice"](3), names["np"]) == (2, 6, np)
    assert names["of_cell"] is not of_cell
    assert names["of_cell"].__defaults__ == (2,)


def test_a_loaded_run_has_the_rows_of_its_csv(store):
    rows.varied(store)
    run = kernelmark.load(db=store.path)
    expected = csv_rows(text_of(lambda out: write_csv(store, ["r1"], out)))
    assert [row.case for row in run.rows] == list(run.samples)
    times = [row["time_s_median"] for row in expected]
    assert [row.time_s_median for row in run.rows] == [float(text) if text else None for text in times]
    assert run.samples[run.rows[0].case] == store.samples("r1", run.rows[0].case)
    ratios = {ratio[2:] for ratio in run.ratios}
    variants = {(f"gemm/m{n}n{n}k{n}/f32/NN", 0.9, 0.8, 1.0) for n in (16, 64, 256)}
    assert ratios == {("gemm/some.base", 1.25, 1.2, 1.3), *variants}
    assert f"<td>{run.rows[0].kernel}" in run._repr_html_()
    needed(module_missing("pandas"))
    frame = run.to_pandas()
    assert list(frame.columns) == list(expected[0])
    shown = frame.astype(object).where(frame.notna(), "")
    differ = [
        (name, row[name], cell)
        for name in frame.columns
        for row, cell in zip(expected, shown[name], strict=True)
        if row[name] != str(cell) and float(row[name]) != cell
    ]
    assert differ == []
