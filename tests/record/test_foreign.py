"""Imports of other programs' results as new runs.

tests/data/pytest_benchmark.json was written by pytest-benchmark 5.3.1 and shortened. tests/data/nvbench.json has the
layout of nvbench's printer (nvbench/json_printer.cu), with made-up numbers.
"""

import array
import csv
import io
import json
import math
import sqlite3
from pathlib import Path

import pytest

from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.record.columns import COLUMNS
from kernelmark.bench.record.foreign.importing import import_files
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.table import Builder
from kernelmark.bench.report.tables import run_table
from kernelmark.bench.run.session import new_run_id
from support.plugins import ADVERSARIES
from support.processes import complaints
from support.runs import ONLY

DATA = Path(__file__).parents[1] / "data"
FOREIGN, NVBENCH = DATA / "pytest_benchmark.json", DATA / "nvbench.json"
FIRST = json.loads(FOREIGN.read_text())["benchmarks"][0]
#: The cases of two benchmarks in these files.
SORTED = "sort/pytest.test_sorting.test_sorted sort/100  t1"
AXPY = "axpy/nvbench.axpy axpy/T=F32/N=1048576 cold t1"


def test_the_problem_of_a_benchmark_is_its_group_and_parameters_unless_a_parameter_is_one_of_our_problems(imported):
    ((run, rows),) = imported(FOREIGN)
    r, dims = rows["sort/pytest.test_sorting.test_numpy sort/1000  t1"]
    assert (r.suite, r.op, r.problem, r.provider) == ("imported:pytest_benchmark.json", "sort", "sort/1000", "pytest")
    assert (r.device, r.device_name, r.mode, r.dtype, r.numerics) == ("cpu", "AMD EPYC", "", "", "")
    assert (dims, r.status, r.gflop_per_s, r.max_error) == ({"n": 1000}, "ok", None, None)
    assert r.git_commit == "0123456789abcdef0123456789abcdef01234567-dirty"
    assert run.machine == {"cpu": "AMD EPYC", "cpus": 2, "system": "Linux-6.1.0-x86_64", "python": "3.11.7"}
    r, dims = rows["gemm/pytest.test_sorting.TestProduct.test_dot gemm/m33n31k17/f32/NN  t1"]
    assert (r.op, r.problem, r.dtype, r.layout, dims["k"]) == ("gemm", "gemm/m33n31k17/f32/NN", "f32", "NN", 17)
    assert r.gflop_per_s == pytest.approx(2 * 33 * 31 * 17 / r.time_s_median * 1e-9)
    assert run_table(r for r, _ in rows.values())


def test_the_interval_of_a_benchmark_comes_from_its_samples(imported, tmp_path):
    ((run, rows),) = imported(FOREIGN)
    r, _ = rows[SORTED]
    data = FIRST["stats"]["data"]
    want = median_interval(data)
    assert (r.time_s_median, r.time_s_ci95_low, r.time_s_ci95_high) == (want.median, want.low, want.high)
    assert (r.samples, r.interval) == (20, "within-process")
    with Store(tmp_path / "results.db") as store:
        assert store.samples(run.run_id, r.case) == data
        assert [part.samples for part in store.parts(run.run_id, r.case)] == [20]


def test_without_samples_there_is_a_median_and_no_interval(imported, edited):
    stats = {name: value for name, value in FIRST["stats"].items() if name != "data"}
    ((_, rows),) = imported(edited(FOREIGN, "benchmarks.0.stats", stats))
    r, _ = rows[SORTED]
    assert (r.samples, r.time_s_median, r.time_s_mean) == (20, stats["median"], stats["mean"])
    assert (r.time_s_ci95_low, r.interval, r.outliers) == (None, "", None)


def test_the_json_of_our_pytest_session_is_imported_as_the_rows_of_its_csv(tmp_path, python_in, imported, called):
    options = ("--km-suite", "gemm/m33n31k17/f32/NT", "--km-kernels", "gemm/numpy.matmul", "--km-no-ceilings")
    files = (f"--km-csv={tmp_path / 'own.csv'}", f"--benchmark-json={tmp_path / 'own.json'}")
    done = python_in(tmp_path, *ONLY, *options, *files)
    assert done.returncode == 0, done.stdout
    ((run, rows),) = imported(tmp_path / "own.json")
    ((r, dims),) = rows.values()
    text = (tmp_path / "own.csv").read_text()
    old = text.splitlines()[1].split(",")[1]
    assert called("export", run.run_id, "--db", "results.db").out == text.replace(old, run.run_id)
    assert (r.kernel, dims["k"]) == ("gemm/numpy.matmul", 17)
    with Store(tmp_path / "results.db") as store:
        assert len(store.samples(run.run_id, r.case)) == r.samples


def test_imported_runs_have_the_given_ids_and_a_taken_id_is_refused(tmp_path, complaint, find):
    ids = iter(("first", "second", "third"))
    runs = import_files(tmp_path / "r.db", [FOREIGN, NVBENCH], find, lambda started: next(ids))
    assert [run.run_id for run in runs] == ["first", "second", "third"]  # one per device; nvbench.json has two
    taken = iter(("fourth", "first"))
    line = complaint(lambda: import_files(tmp_path / "r.db", [NVBENCH], find, lambda started: next(taken)))
    assert "nothing was imported" in line
    with Store(tmp_path / "r.db") as store:
        assert store.run_ids() == ["first", "second", "third"]
        assert {row.run_id for row, _ in store.results("second")} == {"second"}


def test_a_second_import_makes_another_run_and_reports_the_first(called, tmp_path):
    first, second = (called("import", str(FOREIGN), "--db", "r.db").printed for _ in range(2))
    run_id = first.split()[1].removesuffix(":")
    assert first == f"run {run_id}: 5 rows from {FOREIGN}\n"
    assert second.endswith(f": 5 rows from {FOREIGN} (imported before, as run {run_id})\n")
    with Store(tmp_path / "r.db") as store:
        assert len(store.run_ids()) == 2


REFUSED = [
    ("empty.json", "", "is empty; expected pytest-benchmark JSON, nvbench JSON or kernelmark CSV"),
    ("blank.csv", "\n \n", "is empty"),
    ("cut.json", '{"benchmarks": [', "is not JSON: Expecting value: line 1 column 17"),
    ("half.json", '{"machine_info": "\\ud800", "benchmarks": []}', "is not JSON: 'utf-8' codec can't encode"),
    ("list.json", "[1, 2]", "is a list; expected pytest-benchmark JSON"),
    ("other.json", '{"a": 1, "b": 2}', "is an object with a, b; expected pytest-benchmark JSON"),
    ("words.csv", "name,time\na,1\n", "begins with 'name,time'; expected pytest-benchmark JSON"),
    ("none.json", '{"machine_info": {}, "benchmarks": []}', "is pytest-benchmark JSON without rows"),
    ("nothing.json", '{"devices": null, "benchmarks": null}', "is nvbench JSON without rows"),
]


@pytest.mark.parametrize(("name", "text", "refusal"), REFUSED)
def test_a_file_of_no_known_format_or_without_rows_is_refused_in_one_line(tmp_path, refused, name, text, refusal):
    path = tmp_path / name
    path.write_text(text)
    assert refused(path).startswith(f"{path}: {refusal}")


def test_binary_files_missing_files_and_folders_are_refused(tmp_path, refused):
    (tmp_path / "bin.json").write_bytes(b"{\xff")
    assert "byte 1 is not UTF-8" in refused(tmp_path / "bin.json")
    assert "No such file" in refused(tmp_path / "missing.json")
    assert "is a folder, expected a file" in refused(tmp_path)


TIMES = {"rounds": 5, "min": 1.0, "median": 1.25, "mean": 1.5, "max": 2.0, "stddev": 0.5}
STATS, STATE = "benchmarks.1.stats", "benchmarks.0.states.0"
BROKEN = [
    (FOREIGN, "benchmarks.1.stats.data.3", "fast", "benchmarks[1].stats.data[3] is 'fast', expected a number"),
    (FOREIGN, STATS, {"rounds": 5}, "benchmarks[1].stats.median is missing"),
    (FOREIGN, STATS, {"rounds": 5.5, "median": 1}, "benchmarks[1].stats.rounds is 5.5, expected an integer"),
    (FOREIGN, STATS, 7, "benchmarks[1].stats is 7, expected an object"),
    (FOREIGN, STATS, {**TIMES, "min": 3.0}, "benchmarks[1].stats.min is 3.0, expected at most the larg"),
    (FOREIGN, STATS, {**TIMES, "min": 1.5}, "[1].time_s_min is 1.5, expected at most time_s_median, 1.25"),
    (FOREIGN, STATS, {**TIMES, "stddev": -1.0}, "benchmarks[1].time_s_std is -1.0, expected 0 or more"),
    (FOREIGN, "benchmarks.0.fullname", None, "benchmarks[0].fullname is missing"),
    (FOREIGN, "benchmarks", {}, "benchmarks is {}, expected a list"),
    (FOREIGN, "machine_info", "x", "machine_info is 'x', expected an object"),
    (FOREIGN, "benchmarks.2", FIRST, "occurs twice"),
    (NVBENCH, f"{STATE}.device", 7, "states[0].device is 7, expected one of the devices of the file (0, 1)"),
    (NVBENCH, f"{STATE}.summaries.0.data.0.value", "1.5", "value is '1.5', expected an integer"),
]


@pytest.mark.parametrize(("path", "place", "value", "refusal"), BROKEN)
def test_a_file_with_an_invalid_value_is_refused_with_its_place(edited, refused, path, place, value, refusal):
    broken = edited(path, place, value)
    text = refused(FOREIGN, broken)
    assert text.startswith(f"{broken}: ")
    assert refusal in text


#: A place in a file with several benchmarks, a value that no time can have, and the error.
IMPOSSIBLE = [
    (FOREIGN, "benchmarks.1.stats.data.3", math.nan, "benchmarks[1].stats.data[3] is nan, expected a finite number"),
    (FOREIGN, "benchmarks.1.stats.data.3", 1e200, "benchmarks[1].stats.data[3] is 1e+200, expected 1e-18 to 1e+09 s"),
    (FOREIGN, STATS, {"rounds": 5, "median": 0}, "stats.median is 0, expected a finite number above 0"),
    (FOREIGN, STATS, {**TIMES, "mean": -1.0}, "stats.mean is -1.0, expected a finite number above 0"),
    (NVBENCH, f"{STATE}.summaries.3.data.0.value", "0", "value is '0', expected a finite number above 0"),
]


@pytest.mark.parametrize(("path", "place", "value", "refusal"), IMPOSSIBLE)
def test_only_the_benchmark_with_an_impossible_time_is_left_out(edited, tmp_path, find, path, place, value, refusal):
    whole, *_ = import_files(tmp_path / "w.db", [path], find, new_run_id)
    part, *_ = import_files(tmp_path / "p.db", [edited(path, place, value)], find, new_run_id)
    (line,) = part.refused
    assert (part.rows, refusal in line, whole.refused) == (whole.rows - 1, True, [])


def test_a_write_that_fails_half_way_leaves_the_store_as_it_was(store, complaint, find):
    with sqlite3.connect(store.path) as db:
        db.execute("CREATE UNIQUE INDEX full ON result (device)")
    line = complaint(lambda: import_files(store.path, [FOREIGN, NVBENCH], find, new_run_id))
    assert line == f"{store.path}: cannot be written: UNIQUE constraint failed: result.device; nothing was imported"
    assert store.run_ids() == []


def test_a_parameter_named_like_a_column_does_not_overwrite_it(imported, edited):
    ((_, rows),) = imported(edited(FOREIGN, "benchmarks.0.params", {"threads": 8, "a,b": 1, "x": [1]}))
    r, dims = rows[SORTED]
    assert (r.threads, dims) == (1, {"param_threads": 8, "a b": 1})


def test_nvbench_gives_one_run_per_device_with_isolated_times_cold_and_batches_hot(imported):
    gpu_a, gpu_b = imported(NVBENCH)
    assert run_table(r for r, _ in gpu_a[1].values())
    assert [run.machine["gpu"] for run, _ in (gpu_a, gpu_b)] == ["GPU A", "GPU B"]
    assert gpu_a[0].machine["compute_capability"] == "9.0"
    assert {r.device_name for r, _ in gpu_b[1].values()} == {"GPU B"}
    cold, dims = gpu_a[1][AXPY]
    hot, _ = gpu_a[1][AXPY.replace("cold", "hot")]
    assert (cold.time_s_mean, hot.time_s_mean, cold.samples, hot.samples) == (1.25e-5, 1.1e-5, 812, 2048)
    assert (cold.time_s_std, cold.gbyte_per_s, cold.clock_mhz) == pytest.approx((1.25e-5 * 0.0125, 1500.0, 1755.0))
    assert (cold.device, cold.versions, hot.gbyte_per_s) == ("cuda", "nvbench 0.1.0", None)
    assert dims == {"T": "F32", "N": 1048576}


def test_nvbench_median_and_noise_are_empty_where_they_are_unknown(imported, edited):
    (_, rows), (_, others) = imported(NVBENCH)
    cold, _ = rows[AXPY]
    ours, _ = rows["gemm/nvbench.my_gemm gemm/m64n64k64/f32/NN cold t1"]
    assert (cold.time_s_median, cold.time_s_ci95_low, ours.time_s_median) == (None, None, 4.9e-6)
    assert ours.gflop_per_s == pytest.approx(2 * 64**3 / 4.9e-6 * 1e-9)
    (_, texts), _ = imported(edited(NVBENCH, f"{STATE}.summaries.4.data.0.value", "inf"))
    assert [r.time_s_std for r, _ in (*others.values(), texts[AXPY])] == [None, None]


def test_nvbench_states_without_a_time_are_unsupported_or_failed_with_their_reason(imported, edited):
    (_, rows), _ = imported(NVBENCH)
    (_, timeless), _ = imported(edited(NVBENCH, f"{STATE}.summaries", None))
    skipped, _ = rows["axpy/nvbench.axpy axpy/T=F64/N=1048576 cold t1"]
    failed, _ = rows["axpy/nvbench.axpy axpy/T=F32/N=64 cold t1"]
    unknown, _ = timeless[AXPY]
    assert (skipped.status, skipped.reason) == ("unsupported", "Skipping: not for F64.")
    assert (failed.status, failed.reason) == ("failed", "Unexpected error: too small")
    assert (unknown.status, unknown.reason) == ("failed", "the file has no time for this state")
    assert skipped.time_s_mean is None


def test_nvbench_files_of_samples_give_a_median_and_an_interval(tmp_path, imported):
    root = json.loads(NVBENCH.read_text())
    data = [{"name": "filename", "value": "elsewhere/out.json-bin/0.bin"}, {"name": "size", "value": "9"}]
    state = root["benchmarks"][0]["states"][0]
    state["summaries"].append({"tag": "nv/json/bin:nv/cold/sample_times", "name": "file", "data": data})
    (tmp_path / "out.json").write_text(json.dumps(root))
    (tmp_path / "out.json-bin").mkdir()
    samples = array.array("f", [1e-5 + i * 1e-7 for i in range(9)])
    (tmp_path / "out.json-bin" / "0.bin").write_bytes(samples.tobytes())
    (_, rows), _ = imported(tmp_path / "out.json")
    cold, _ = rows[AXPY]
    assert (cold.samples, cold.time_s_median, cold.interval) == (9, samples[4], "within-process")


@pytest.fixture(scope="module")
def measured(tmp_path_factory, kernelmark_in):
    """Return the CSV of a real run with failures, problems in place and convolutions."""
    folder = tmp_path_factory.mktemp("measured")
    problems = ("gemm/m33n31k17/f32/NT/beta1", "transpose/m33n31/f32/in", "fft/b4h8w8/f32/r2c")
    products = ("gemm/numpy.matmul", "gemm/test.zeros", "gemm/test.picky")
    kernels = (*products, "transpose/openblas.imatcopy", "conv/cpu.im2col", "fft/scipy.pocketfft")
    globs = [word for glob in kernels for word in ("--kernels", glob)]
    quick = ("--mode", "hot", "--max-time", "0.02", "--no-ceilings", "--device", "cpu")
    options = ("--plugin", ADVERSARIES, "--threads", "1", *quick, "--csv", "run.csv")
    done = kernelmark_in(folder, "run", *problems, "conv/n2c3h9w9k5r3s3pad1/f32/nchw/fprop", *globs, *options)
    assert (done.returncode, complaints(done.stderr)) == (1, [])
    return folder / "run.csv"


def test_imported_csv_is_exported_unchanged_with_typed_dimensions_and_its_machine(measured, imported, called):
    ((run, rows),) = imported(measured)
    before = measured.read_bytes().decode()
    old = before.splitlines()[1].split(",")[1]
    assert {r.status for r, _ in rows.values()} == {"ok", "wrong", "unsupported"}
    assert called("export", run.run_id, "--db", "results.db").out == before.replace(old, run.run_id)
    assert run.run_id != old
    dims = {r.op: d for r, d in rows.values()}
    assert (dims["gemm"]["m"], dims["gemm"]["beta"]) == (33, 1.0)
    assert isinstance(dims["gemm"]["m"], int)
    assert dims["transpose"] == {"batch": 1, "distribution": "uniform", "m": 33, "n": 31, "place": "in"}
    assert "place" not in dims["conv"]
    assert run.machine == {"cpu": next(iter(rows.values()))[0].device_name}
    assert (run.suites, run.command) == (("imported:run.csv",), f"kernelmark import {measured}")


def test_csv_of_an_older_kernelmark_leaves_newer_columns_empty(measured, imported, tmp_path):
    cut = COLUMNS.index("bound_by")
    lines = [line for line in measured.read_text().splitlines() if '"' not in line and "patience" not in line]
    old = tmp_path / "old.csv"
    old.write_text("".join(",".join(line.split(",")[:cut]) + "\n" for line in lines))
    ((_, rows),) = imported(old)
    assert (len(rows), {r.bound_by for r, _ in rows.values()}) == (len(lines) - 1, {""})


CELLS = {"schema": "1", "kernel": "gemm/a.b", "problem": "gemm/m1n1k1/f32/NN", "status": "ok", "threads": "1"}
CELLS |= dict.fromkeys(("run_id", "suite", "op", "provider", "device", "device_name", "mode", "dtype", "numerics"), "x")
CELLS |= {"layout": "", "reason": "", "time_s_median": "0.5"}


@pytest.mark.parametrize(
    ("column", "value", "refusal"),
    [
        ("time_s_median", "nan", "line 2: time_s_median is 'nan', expected a finite number, or an empty cell"),
        ("time_s_median", "0.0", "time_s_median is 0.0, expected seconds above 0"),
        ("time_s_median", "٣", "time_s_median is '٣', expected a finite number"),
        ("status", "wrong", "time_s_median is 0.5, expected no time in a row that is 'wrong'"),
        ("time_s_min", "0.75", "time_s_min is 0.75, expected at most time_s_median, 0.5"),
        ("time_s_std", "-0.1", "time_s_std is -0.1, expected 0 or more"),
        ("samples", "-3", "samples is '-3', expected an integer from 0"),
        ("threads", "", "threads is empty; every row of kernelmark has it"),
        ("threads", "0", "threads is 0, expected a count from 1"),
        ("status", "fine", "status is 'fine', expected one of ok, unsupported, wrong"),
        ("schema", "2", "schema is 2, expected 1"),
        ("provider", None, "has no column provider"),
        ("threads", "99999999999999999999", "threads is '99999999999999999999', expected an integer"),
        ("a,b", "1", "column 'a,b': expected a unique name without commas"),
    ],
)
def test_a_csv_with_an_invalid_header_or_cell_is_refused_with_the_reason(tmp_path, refused, column, value, refusal):
    fields = {**CELLS, column: value}
    names = [f'"{name}"' if "," in name else name for name in fields if fields[name] is not None]
    (tmp_path / "own.csv").write_text(",".join(names) + "\n" + ",".join(v for v in fields.values() if v is not None))
    assert refusal in refused(tmp_path / "own.csv")


@pytest.mark.parametrize(
    ("tail", "refusal"),
    [("a,b\n", "line 3: 2 values, expected"), ('"open', "cannot be read as CSV: unexpected end of data")],
)
def test_a_csv_that_was_cut_short_is_refused_and_a_blank_line_is_no_row(tmp_path, imported, refused, tail, refusal):
    text = ",".join(CELLS) + "\n" + ",".join(CELLS.values()) + "\n"
    (tmp_path / "own.csv").write_text(text + tail)
    assert refusal in refused(tmp_path / "own.csv")
    (tmp_path / "own.csv").write_text(f"{text}\n")
    ((_, rows),) = imported(tmp_path / "own.csv")
    assert len(rows) == 1


def test_a_csv_is_read_in_chunks_of_lines(tmp_path, imported, monkeypatch):
    rows = [{**CELLS, "problem": f"gemm/m{m}n1k1/f32/NN", "m": str(m)} for m in range(1, 8)]
    path = tmp_path / "own.csv"
    path.write_text("".join(",".join(line) + "\n" for line in ([*rows[0]], *(row.values() for row in rows))))
    sizes, add = [], Builder.add
    monkeypatch.setattr("kernelmark.bench.record.foreign.own_csv.CHUNK", 3)
    monkeypatch.setattr(Builder, "add", lambda self, columns: sizes.append(len(columns[0])) or add(self, columns))
    monkeypatch.setattr("pathlib.Path.read_bytes", None)
    ((_, read),) = imported(path)
    assert sizes == [3, 3, 1]
    assert [(r.problem, dims) for r, dims in read.values()] == [(row["problem"], {"m": int(row["m"])}) for row in rows]


def test_quoted_cells_are_read_as_they_were_written_with_line_breaks_escaped(tmp_path, imported, refused):
    reasons = ["plain", 'a "word", twice', "two\nlines", "a,b", "", '"']
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, CELLS, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({**CELLS, "problem": f"p{i}", "reason": reason} for i, reason in enumerate(reasons))
    (tmp_path / "own.csv").write_bytes(out.getvalue().encode())
    ((_, read),) = imported(tmp_path / "own.csv")
    assert [r.reason for r, _ in read.values()] == [one_line(reason) for reason in reasons]
    (tmp_path / "own.csv").write_bytes(out.getvalue().encode() + b"a,b\n")
    assert "line 9: 2 values, expected" in refused(tmp_path / "own.csv")  # the cell with a line break takes two lines


def test_a_wrong_number_after_valid_lines_is_refused_with_its_line(tmp_path, refused):
    rows = [*({**CELLS, "problem": f"p{i}"} for i in range(5)), {**CELLS, "time_s_median": "1-2"}]
    (tmp_path / "own.csv").write_text("".join(",".join(line) + "\n" for line in (CELLS, *map(dict.values, rows))))
    line = "line 7: time_s_median is '1-2', expected a finite number, or an empty cell"
    assert refused(tmp_path / "own.csv").endswith(line)
