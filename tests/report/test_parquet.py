"""Parquet: typed columns, units, samples."""

import csv
import io
import json
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from kernelmark.bench.record.result import COLUMNS, KINDS, Result
from kernelmark.bench.record.store import Run
from kernelmark.bench.report import parquet
from kernelmark.bench.report.export import write_csv
from kernelmark.bench.report.parquet import unit, write_parquet, write_parquet_file
from support.tools import needed

IDENTITY = {"run_id": "r", "suite": "s", "provider": "a", "device": "cpu", "device_name": "d", "mode": "cold"}
KIND = {"dtype": "f32", "numerics": "fp32", "threads": 1, "layout": ""}
GEMM = {"op": "gemm", "problem": "gemm/m8n9k7/f32/NT"}
MOVE = {"op": "transpose", "problem": "transpose/m8n9/f32/in"}
#: Numbers that have no unit, as they are counts, ratios and errors.
PLAIN = {
    "schema",
    "threads",
    "samples",
    "speedup",
    "speedup_ci95_low",
    "speedup_ci95_high",
    "compression_error",
    "max_error",
    "error_bound",
    "seed",
    "processes",
    "count",
    "outliers",
    "speedup_of_minima",
    "attempt",
    "repeated",
    "threads_used",
    "load",
}


@pytest.fixture
def arrow():
    """Reads what was written. Without pyarrow a skip, in CI an error."""
    needed(None if find_spec("pyarrow") else "pyarrow is not installed; pip install 'kernelmark[export]'")
    return import_module("pyarrow.parquet")


@pytest.fixture
def run(store):
    store.begin(Run("r", {"cpu": "some"}, "2026", ("s",), "kernelmark run s", {"blas": []}, "c0ffee", {"seed": 0}))
    times = {"samples": 2, "time_s_median": 0.1 / 3, "scratch_bytes": 0, "executed_flop": 2**40}
    fast = Result(**IDENTITY, **KIND, **GEMM, **times, status="ok", reason="", kernel="gemm/a.fast")
    bad = Result(**IDENTITY, **KIND, **MOVE, status="wrong", reason='c[0] is "2"', kernel="transpose/a.bad")
    store.add(fast, {"m": 8, "beta": 0.0, "b_w": 1, "either": 2}, [0.1 / 3, 0.2], None)
    store.add(bad, {"m": 9, "beta": 1, "place": "in", "either": "x"}, [], None)
    return store


def table(arrow, store):
    out = io.BytesIO()
    write_parquet(store, "r", out)
    return arrow.read_table(io.BytesIO(out.getvalue()))


def test_parquet_has_the_columns_of_the_csv_and_the_samples(arrow, run):
    out = io.StringIO()
    write_csv(run, "r", out)
    (header, *_) = csv.reader(io.StringIO(out.getvalue()))
    assert table(arrow, run).column_names == [*header, "samples_s"]


def test_parquet_types_are_those_of_the_values(arrow, run):
    schema = table(arrow, run).schema
    names = ("threads", "time_s_median", "status", "scratch_bytes", "m", "beta", "place", "either")
    kinds = ["int64", "double", "string", "int64", "int64", "double", "string", "string"]
    assert [str(schema.field(name).type) for name in names] == kinds


def test_parquet_keeps_values_and_leaves_what_is_unknown_null(arrow, run):
    fast, bad = table(arrow, run).to_pylist()
    assert (fast["time_s_median"], fast["samples_s"], fast["executed_flop"]) == (0.1 / 3, [0.1 / 3, 0.2], 2**40)
    assert (fast["roofline_pct"], fast["place"], fast["scratch_bytes"], fast["either"]) == (None, None, 0, "2")
    assert (bad["time_s_median"], bad["reason"], bad["samples_s"], bad["beta"]) == (None, 'c[0] is "2"', [], 1.0)


def test_parquet_fields_know_their_units(arrow, run):
    schema = table(arrow, run).schema
    names = ("time_s_ci95_low", "setup_s", "gflop_per_s", "scratch_bytes", "clock_mhz", "energy_j", "samples_s")
    units = [b"s", b"s", b"GFLOP/s", b"B", b"MHz", b"J", b"s"]
    assert [schema.field(name).metadata[b"unit"] for name in names] == units
    assert [schema.field(name).metadata for name in ("kernel", "m", "b_w")] == [None] * 3


def test_every_number_has_a_unit_or_none_to_have():
    assert {name for name in COLUMNS if KINDS[name] is not str and not unit(name)} == PLAIN


def test_parquet_carries_the_facts_of_the_run(arrow, run):
    facts = json.loads(table(arrow, run).schema.metadata[b"kernelmark"])
    assert (facts["run_id"], facts["machine"], facts["git_commit"]) == ("r", {"cpu": "some"}, "c0ffee")


def test_parquet_is_written_a_row_group_at_a_time(arrow, run, monkeypatch):
    monkeypatch.setattr(parquet, "ROW_GROUP", 1)
    out = io.BytesIO()
    write_parquet(run, "r", out)
    file = arrow.ParquetFile(io.BytesIO(out.getvalue()))
    assert (file.num_row_groups, file.metadata.num_rows) == (2, 2)


def test_a_run_without_rows_is_a_table_without_rows(arrow, store):
    store.begin(Run("r", {}, "2026", (), "", {}, "", {}))
    found = table(arrow, store)
    assert (found.num_rows, found.column_names) == (0, [*COLUMNS, "samples_s"])


def test_a_file_and_its_folder_are_made(arrow, run, tmp_path):
    write_parquet_file(run, "r", tmp_path / "new" / "run.parquet")
    assert arrow.read_table(tmp_path / "new" / "run.parquet").num_rows == 2


def test_a_file_that_cannot_be_written_is_refused_in_one_line(arrow, run, tmp_path, complaint):
    assert "is a folder, expected a file" in complaint(lambda: write_parquet_file(run, "r", tmp_path))


def test_without_pyarrow_the_command_that_installs_it_is_named_and_no_file_left(run, complaint, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    text = complaint(lambda: write_parquet_file(run, "r", tmp_path / "run.parquet"))
    assert text == "parquet: pyarrow is not installed; pip install 'kernelmark[export]'"
    assert not (tmp_path / "run.parquet").exists()
