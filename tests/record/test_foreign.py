"""Results from elsewhere as runs of their own.

tests/data/pytest_benchmark.json was written by pytest-benchmark 5.3.1 and shortened.
"""

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from benched import ONLY
from kernelmark.bench.cli.importing import import_command
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.record.foreign.importing import import_files
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.tables import run_table
from kernelmark.bench.run.session import new_run_id

DATA = Path(__file__).parents[1] / "data"
FOREIGN, NVBENCH = DATA / "pytest_benchmark.json", DATA / "nvbench.json"


def test_a_benchmark_of_anybody_stands_under_its_name_and_parameters(imported):
    ((run, rows),) = imported(FOREIGN)
    r, dims = rows["sort/pytest.test_sorting.test_numpy sort/1000  t1"]
    assert (r.suite, r.op, r.problem, r.provider) == ("imported:pytest_benchmark.json", "sort", "sort/1000", "pytest")
    assert (r.device, r.device_name, r.mode, r.dtype, r.numerics) == ("cpu", "AMD EPYC", "", "", "")
    assert (dims, r.status, r.gflop_per_s, r.max_error) == ({"n": 1000}, "ok", None, None)
    assert r.git_commit == "0123456789abcdef0123456789abcdef01234567-dirty"
    assert run.machine == {"cpu": "AMD EPYC", "cpus": 2, "system": "Linux-6.1.0-x86_64", "python": "3.11.7"}


def test_a_parameter_that_is_a_problem_of_ours_puts_the_row_beside_our_kernels(imported):
    ((_, rows),) = imported(FOREIGN)
    r, dims = rows["gemm/pytest.test_sorting.TestProduct.test_dot gemm/m33n31k17/f32/NN  t1"]
    assert (r.op, r.problem, r.dtype, r.layout, dims["k"]) == ("gemm", "gemm/m33n31k17/f32/NN", "f32", "NN", 17)
    assert r.gflop_per_s == pytest.approx(2 * 33 * 31 * 17 / r.time_s_median * 1e-9)


def test_the_interval_of_a_benchmark_comes_from_its_samples(imported, tmp_path):
    ((run, rows),) = imported(FOREIGN)
    data = json.loads(FOREIGN.read_text())["benchmarks"][0]["stats"]["data"]
    r, _ = rows["sort/pytest.test_sorting.test_sorted sort/100  t1"]
    want = median_interval(data)
    assert (r.time_s_median, r.time_s_ci95_low, r.time_s_ci95_high) == (want.median, want.low, want.high)
    assert (r.samples, r.interval) == (20, "within-process")
    with closing(Store(tmp_path / "results.db")) as store:
        assert store.samples(run.run_id, r.case) == data
        assert [part.samples for part in store.parts(run.run_id, r.case)] == [20]


def test_without_samples_there_is_a_median_and_no_interval(imported, edited):
    stats = json.loads(FOREIGN.read_text())["benchmarks"][0]["stats"]
    del stats["data"]
    ((_, rows),) = imported(edited(FOREIGN, "benchmarks.0.stats", stats))
    r, _ = rows["sort/pytest.test_sorting.test_sorted sort/100  t1"]
    assert (r.samples, r.time_s_median, r.time_s_mean) == (20, stats["median"], stats["mean"])
    assert (r.time_s_ci95_low, r.interval, r.outliers) == (None, "", None)


def test_what_our_own_pytest_run_writes_comes_back_as_its_rows(tmp_path, python_in, imported, csv_of):
    asked = ("--km-suite", "gemm/m33n31k17/f32/NT", "--km-kernels", "gemm/numpy.matmul", "--km-no-ceilings")
    files = (f"--km-csv={tmp_path / 'own.csv'}", f"--benchmark-json={tmp_path / 'own.json'}")
    done = python_in(tmp_path, *ONLY, *asked, *files)
    assert done.returncode == 0, done.stdout
    ((run, rows),) = imported(tmp_path / "own.json")
    ((r, dims),) = rows.values()
    text = (tmp_path / "own.csv").read_text()
    old = text.splitlines()[1].split(",")[1]
    assert csv_of(tmp_path / "results.db", run.run_id) == text.replace(old, run.run_id)
    assert (r.kernel, dims["k"]) == ("gemm/numpy.matmul", 17)
    with closing(Store(tmp_path / "results.db")) as store:
        assert len(store.samples(run.run_id, r.case)) == r.samples


def test_rows_from_elsewhere_stand_in_the_tables(imported):
    for _, rows in imported(FOREIGN, NVBENCH):
        assert run_table(r for r, _ in rows.values())


def test_an_imported_run_has_the_id_that_it_was_given(tmp_path, find):
    ids = iter(("first", "second", "third"))
    found = import_files(tmp_path / "r.db", [FOREIGN, NVBENCH], find, lambda started: next(ids))
    assert [run.run_id for run in found] == ["first", "second", "third"]  # one a device: nvbench measured on two
    with closing(Store(tmp_path / "r.db")) as store:
        assert store.run_ids() == ["first", "second", "third"]
        assert {row.run_id for row, _ in store.results("second")} == {"second"}


def test_an_id_that_is_taken_is_one_line_and_imports_nothing(tmp_path, complaint, find):
    db = tmp_path / "r.db"
    assert "nothing was imported" in complaint(
        lambda: import_files(db, [FOREIGN, NVBENCH], find, lambda started: "same")
    )
    with closing(Store(db)) as store:
        assert store.run_ids() == []


def test_a_second_import_is_a_run_of_its_own_and_says_so(tmp_path):
    def run():
        return CliRunner().invoke(
            import_command, [str(FOREIGN), "--db", str(tmp_path / "r.db")], catch_exceptions=False
        )

    first, second = run().output, run().output
    run_id = first.split()[1].removesuffix(":")
    assert first == f"run {run_id}: 5 rows from {FOREIGN}\n"
    assert second.endswith(f": 5 rows from {FOREIGN} (imported before, as run {run_id})\n")
    with closing(Store(tmp_path / "r.db")) as store:
        assert len(store.run_ids()) == 2


REFUSED = [
    ("empty.json", "", "is empty; expected pytest-benchmark JSON, nvbench JSON or kernelmark CSV"),
    ("blank.csv", "\n \n", "is empty"),
    ("cut.json", '{"benchmarks": [', "is no JSON: Expecting value: line 1 column 17"),
    ("half.json", '{"machine_info": "\\ud800", "benchmarks": []}', "is no JSON: 'utf-8' codec can't encode"),
    ("list.json", "[1, 2]", "is a list; expected pytest-benchmark JSON"),
    ("other.json", '{"a": 1, "b": 2}', "is an object with a, b; expected pytest-benchmark JSON"),
    ("words.csv", "name,time\na,1\n", "begins with 'name,time'; expected pytest-benchmark JSON"),
    ("none.json", '{"machine_info": {}, "benchmarks": []}', "pytest-benchmark JSON without a single row"),
    ("nothing.json", '{"devices": null, "benchmarks": null}', "nvbench JSON without a single row"),
]


@pytest.mark.parametrize(("name", "text", "found"), REFUSED)
def test_what_is_none_of_the_formats_is_refused_in_one_line(tmp_path, refused, name, text, found):
    path = tmp_path / name
    path.write_text(text)
    assert refused(path).startswith(f"{path}: {found}")


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_refused(tmp_path, refused):
    (tmp_path / "bin.json").write_bytes(b"{\xff")
    assert "byte 1 is no UTF-8" in refused(tmp_path / "bin.json")
    assert "No such file" in refused(tmp_path / "missing.json")
    assert "is a folder, expected a file" in refused(tmp_path)


TIMES = {"rounds": 5, "min": 1.0, "median": 1.25, "mean": 1.5, "max": 2.0, "stddev": 0.5}
BROKEN = [
    (
        FOREIGN,
        "benchmarks.1.stats.data.3",
        float("nan"),
        "benchmarks[1].stats.data[3] is nan, expected a finite number",
    ),
    (FOREIGN, "benchmarks.1.stats.data.3", "fast", "benchmarks[1].stats.data[3] is 'fast', expected a number"),
    (FOREIGN, "benchmarks.1.stats", {"rounds": 5}, "benchmarks[1].stats.median is missing"),
    (
        FOREIGN,
        "benchmarks.1.stats",
        {"rounds": 5.5, "median": 1},
        "benchmarks[1].stats.rounds is 5.5, expected a whole",
    ),
    (FOREIGN, "benchmarks.1.stats", {"rounds": 5, "median": 0}, "stats.median is 0, expected a finite number above 0"),
    (FOREIGN, "benchmarks.1.stats", 7, "benchmarks[1].stats is 7, expected an object"),
    (FOREIGN, "benchmarks.1.stats", {**TIMES, "min": 3.0}, "benchmarks[1].stats.min is 3.0, expected at most the larg"),
    (
        FOREIGN,
        "benchmarks.1.stats",
        {**TIMES, "min": 1.5},
        "[1].time_s_min is 1.5, expected at most time_s_median, 1.25",
    ),
    (FOREIGN, "benchmarks.1.stats", {**TIMES, "stddev": -1.0}, "benchmarks[1].time_s_std is -1.0, expected 0 or more"),
    (FOREIGN, "benchmarks.1.stats", {**TIMES, "mean": math.inf}, "benchmarks[1].stats.mean is inf, expected a finite"),
    (FOREIGN, "benchmarks.1.stats", {**TIMES, "mean": -1.0}, "stats.mean is -1.0, expected a finite number above 0"),
    (FOREIGN, "benchmarks.0.fullname", None, "benchmarks[0].fullname is missing"),
    (FOREIGN, "benchmarks", {}, "benchmarks is {}, expected a list"),
    (FOREIGN, "machine_info", "x", "machine_info is 'x', expected an object"),
    (FOREIGN, "benchmarks.2.fullname", "test_sorting.py::test_sorted[100]", "is there twice"),
    (
        NVBENCH,
        "benchmarks.0.states.0.device",
        7,
        "states[0].device is 7, expected one of the devices of the file (0, 1)",
    ),
    (
        NVBENCH,
        "benchmarks.0.states.0.summaries.3.data.0.value",
        "inf",
        "summaries[3].data[0].value is 'inf', expected a f",
    ),
    (NVBENCH, "benchmarks.0.states.0.summaries.0.data.0.value", "1.5", "value is '1.5', expected a whole number"),
    (NVBENCH, "benchmarks.0.name", None, "benchmarks[0].name is missing"),
]


@pytest.mark.parametrize(("path", "place", "value", "found"), BROKEN)
def test_a_value_that_cannot_be_is_told_with_its_place(edited, tmp_path, refused, path, place, value, found):
    if place.endswith("2.fullname"):
        root = json.loads(path.read_text())
        root["benchmarks"][2] |= {"param": "100", "params": {"n": 100}}
        path = tmp_path / "twice.json"
        path.write_text(json.dumps(root))
    broken = edited(path, place, value)
    text = refused(FOREIGN, broken)
    assert text.startswith(f"{broken}: ")
    assert found in text


def test_a_write_that_fails_half_way_leaves_the_store_as_it_was(store, complaint, find):
    refuse = "CREATE TRIGGER full BEFORE INSERT ON result WHEN NEW.device = 'cuda' BEGIN SELECT RAISE(ABORT, 'no'); END"
    with sqlite3.connect(store.path) as db:
        db.execute(refuse)
    line = complaint(lambda: import_files(store.path, [FOREIGN, NVBENCH], find, new_run_id))
    assert line == f"{store.path}: cannot be written: no; nothing was imported"
    assert store.run_ids() == []


def test_a_column_of_ours_is_not_overwritten_by_a_parameter_of_its_name(imported, edited):
    ((_, rows),) = imported(edited(FOREIGN, "benchmarks.0.params", {"threads": 8, "a,b": 1, "x": [1]}))
    r, dims = rows["sort/pytest.test_sorting.test_sorted sort/100  t1"]
    assert (r.threads, dims) == (1, {"param_threads": 8, "a b": 1})
