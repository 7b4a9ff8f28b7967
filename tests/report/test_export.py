"""Rows for other programs and for papers: CSV, JSON, Markdown, and Parquet with typed columns and units."""

import csv
import io
import json
import re
import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import pandas as pd
import pytest

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.columns import COLUMNS, KINDS
from kernelmark.bench.record.store import Run
from kernelmark.bench.report import parquet
from kernelmark.bench.report.anonymity import hashed
from kernelmark.bench.report.export import WRITERS, write_file
from kernelmark.bench.report.parquet import unit, write_parquet_file
from kernelmark.bench.report.pivot import MOST_PROBLEMS, Options
from support.pages import strict
from support.rows import MACHINE, begin, fail, put, result
from support.texts import csv_rows, text_of
from support.tools import needed

REASON = 'c[0, 1] is 2, expected "1"'
DIMS = ("m", "n", "k", "beta", "b_w", "either")
MEDIAN = 1 / 3 * 1e-3
TAKEN = [1e-3, 2e-3] * 6


def exported(store, style, runs=(), **options):
    return text_of(lambda out: WRITERS[style](store, runs or store.run_ids(), out, Options(**options)))


@pytest.fixture
def run(store):
    store.begin(Run("r", {"cpu": "some"}, "2026", ("s",), "kernelmark run s", {"blas": []}, "c0ffee", {"seed": 0}))
    times = {"time_s_median": MEDIAN, "time_s_ci95_low": MEDIAN * 0.9, "time_s_ci95_high": MEDIAN * 1.2, "samples": 2}
    known = {"gflop_per_s": 12.5, "scratch_bytes": 0, "executed_flop": 2**40, "stopped_by": "ci"}
    fast = result(run_id="r", kernel="gemm/a.fast_one", **times, **known)
    move = {"op": "transpose", "problem": "transpose/m8n9/f32/in", "kernel": "transpose/a.bad", "layout": ""}
    bad = result(run_id="r", status="wrong", reason=REASON, **move)
    store.add(fast, dict(zip(DIMS, (8, 9, 7, 0.0, 1, 2), strict=True)), [MEDIAN, 4e-4], None)
    store.add(bad, {"m": 8, "n": 9, "beta": 1, "place": "in", "either": "x"}, [], None)
    return store


def test_csv_is_empty_where_nothing_is_known_and_loads_in_pandas_with_numbers_as_numbers(run):
    fast, bad = csv_rows(exported(run, "csv"))
    assert (fast["roofline_pct"], fast["power_w"], fast["speedup"], fast["place"]) == ("",) * 4
    assert (fast["scratch_bytes"], fast["beta"]) == ("0", "0.0")
    assert (bad["time_s_median"], bad["gflop_per_s"], bad["k"], bad["scratch_bytes"]) == ("",) * 4
    assert (bad["status"], bad["reason"], bad["place"]) == ("wrong", REASON, "in")
    frame = pd.read_csv(io.StringIO(exported(run, "csv")))
    assert list(frame.columns) == [*COLUMNS, *DIMS, "place"]
    assert frame.time_s_median[0] == MEDIAN
    assert frame[["time_s_median", "gflop_per_s", "k", "roofline_pct"]].dtypes.astype(str).tolist() == ["float64"] * 4
    assert frame.loc[1, ["time_s_median", "gflop_per_s", "speedup"]].isna().all()
    assert list(frame.m) == [8, 8]


def test_json_holds_the_run_and_its_rows_with_their_samples(run):
    document = strict(exported(run, "json"))
    facts = {"run_id": "r", "name": "", "planned": None, "started_at": "2026", "finished_at": None, "suites": ["s"]}
    facts |= {"command": "kernelmark run s", "git_commit": "c0ffee", "plan": {"seed": 0}}
    assert document["run"] == facts | {"environment": {"blas": []}, "machine": {"cpu": "some"}}
    fast, bad = document["results"]
    assert list(fast) == [*COLUMNS, *DIMS, "samples_s"]
    assert (fast["samples_s"], bad["samples_s"]) == ([MEDIAN, 4e-4], [])
    assert (fast["roofline_pct"], bad["time_s_median"], bad["reason"]) == (None, None, REASON)


def test_markdown_holds_the_table_and_the_failures(run):
    lines = exported(run, "markdown").splitlines()
    assert lines[1] == ""
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == ["kernel", "time", "95 %", "GFLOP/s", "by"]
    cells = ["a.fast_one", "333 us", "-10.0 +20.0 %", "12.5", "ci, 2"]
    assert [cell.strip() for cell in lines[4].strip("|").split("|")] == cells
    assert (lines[-2], lines[-1].strip()) == ("", f"wrong: transpose/a.bad: {REASON}")


def test_a_run_without_rows_can_be_exported(begun, arrow):
    assert all(exported(begun, style).endswith("\n") for style in WRITERS)
    read = table(arrow, begun)
    assert (read.num_rows, read.column_names) == (0, [*COLUMNS, "samples_s"])


@pytest.mark.parametrize("style", [*WRITERS, "parquet"])
def test_a_full_disk_leaves_the_old_file_as_it_was(run, small_disk, complaint, style):
    folder = small_disk("4k")
    old = folder / "out"
    old.write_text("old")
    write = partial(write_file, run, ["r"], style) if style in WRITERS else partial(write_parquet_file, run, ["r"])
    assert complaint(lambda: write(old)) == (f"{old}: cannot be written: No space left on device; name another file")
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [("out", "old")]


@pytest.mark.parametrize(("problems", "pivots"), [(2, 1), (1, 0), (MOST_PROBLEMS + 1, 0)])
def test_markdown_begins_with_problems_x_kernels_where_these_are_a_few_and_ends_with_its_only_note(
    begun, problems, pivots
):
    for m in range(1, problems + 1):
        put(begun, f"gemm/m{m}n1k1/f32/NT", "gemm/a.b")
    text = exported(begun, "markdown")
    assert text.count("**gemm, n1k1 f32 NT**") == pivots
    assert text.startswith("**gemm" if pivots else "gemm/m1n1k1/f32/NT")
    assert text.count("one process cannot show") == 1
    assert text.splitlines()[-1].startswith("one process cannot")


def test_the_metadata_of_parquet_have_hashes_of_uuids_and_users_unless_they_are_asked_for(store):
    environment = {"variables": {"CUDA_PATH": "/home/jane"}}
    plan = {"gpus": ["GPU-c0ffee"], "shards": [{"run_id": "s1", "environment": environment}]}
    begin(store, plan=plan, environment=environment)
    facts = parquet._facts(store, "r1")
    masked = {"variables": {"CUDA_PATH": f"/home/{hashed('user', 'jane')}"}}
    shards = [{"run_id": "s1", "environment": masked}]
    assert facts["plan"] == {"gpus": [hashed("uuid", "GPU-c0ffee")], "shards": shards}
    assert facts["environment"]["variables"] == masked["variables"]
    store.identifies = True
    facts = parquet._facts(store, "r1")
    assert (facts["plan"]["gpus"], facts["environment"]["variables"]) == (["GPU-c0ffee"], {"CUDA_PATH": "/home/jane"})


@pytest.fixture
def two(store):
    """Two runs, each with a timed row and one that is not."""
    for run_id in ("r1", "r2"):
        begin(store, run_id, machine=MACHINE | {"isas": ["AVX2", "AVX512"], "python": "3.11.7"})
        put(store, "gemm/m8n9k7/f32/NT", "gemm/a.b", dims={"m": 8, "n": 9, "k": 7}, run_id=run_id, taken=TAKEN)
        fail(store, "transpose/m8n9/f32/in", "transpose/a.b", dims={"m": 8, "place": "in"}, run_id=run_id)
    return store


def test_several_runs_become_one_file(two, arrow):
    run_ops = [(row["run_id"], row["op"]) for row in csv_rows(exported(two, "csv"))]
    assert run_ops == [("r1", "gemm"), ("r1", "transpose"), ("r2", "gemm"), ("r2", "transpose")]
    assert [run["run"]["run_id"] for run in strict(exported(two, "json"))] == ["r1", "r2"]
    assert re.findall(r"^## .*", exported(two, "markdown"), re.MULTILINE) == ["## run r1", "## run r2"]
    assert exported(two, "latex").count("% kernelmark run r") == 2
    assert table(arrow, two).column("run_id").to_pylist() == ["r1", "r1", "r2", "r2"]


def test_columns_are_chosen_by_name_in_the_order_given(two):
    assert exported(two, "csv", columns=("k", "problem")).splitlines()[:2] == ["k,problem", "7,gemm/m8n9k7/f32/NT"]
    first, _ = strict(exported(two, "json", columns=("problem", "k")))
    assert first["results"] == [{"problem": "gemm/m8n9k7/f32/NT", "k": 7}, {"problem": "transpose/m8n9/f32/in"}]
    with pytest.raises(UsageError, match="--columns problm: these rows have no such column; did you mean problem"):
        exported(two, "csv", columns=("problm",))


def test_columns_that_are_empty_throughout_are_left_out_on_request(two):
    (header, *rows) = csv.reader(io.StringIO(exported(two, "csv", filled=True)))
    assert {"reason", "time_s_median", "k", "place"} <= set(header)
    assert not {"roofline_pct", "against", "ratio"} & set(header)
    assert all(any(row[i] for row in rows) for i in range(len(header)))


def test_github_gets_an_entry_a_timed_row_in_one_unit_with_the_interval_as_range(two):
    entries = strict(exported(two, "github"))
    assert len(entries) == 2
    assert {type(entries[0][name]) for name in ("name", "unit", "range", "extra")} == {str}
    assert (entries[0]["name"], entries[0]["unit"]) == ("gemm/a.b gemm/m8n9k7/f32/NT cold t2", "us")
    assert (entries[0]["value"], entries[0]["range"]) == (pytest.approx(1500), "[1000, 2000]")


def test_bencher_gets_a_latency_a_timed_row_in_nanoseconds(two):
    (metric,) = strict(of_one_run(two, "bencher")).values()
    assert metric == {"latency": pytest.approx({"value": 1.5e6, "lower_value": 1e6, "upper_value": 2e6})}


def test_asv_gets_a_file_of_results_in_the_order_of_its_columns(two):
    document = strict(of_one_run(two, "asv"))
    assert {"version", "commit_hash", "env_name", "date", "params", "python", "requirements", "env_vars", "durations",
            "result_columns", "results"} == set(document)  # fmt: skip
    assert (document["version"], document["params"]["machine"], document["python"]) == (2, "Some CPU", "3.11.7")
    assert (document["params"]["isas"], document["params"]["cpus"]) == ("AVX2, AVX512", "4")
    ((name, values),) = document["results"].items()
    assert name == "gemm/a.b gemm/m8n9k7/f32/NT cold t2"
    row = dict(zip(document["result_columns"], values, strict=True))
    assert (row["result"], row["params"], row["stats_repeat"], row["samples"]) == ([1.5e-3], [], [12], [TAKEN])
    assert (row["stats_q_25"], row["stats_q_75"], row["stats_ci_99_a"]) == ([1e-3], [2e-3], [None])


def of_one_run(store, style):
    with pytest.raises(UsageError, match=f"--format {style}: takes one run, found 2"):
        exported(store, style)
    return exported(store, style, ["r1"])


FORMULAS = {"a": "=cmd|'/c calc'!A0", "b": "+1+1", "c": "-2+3", "d": "@SUM(A1)", "e": "\t=1", "f": "\r=1", "=g": "x"}
NUMBERS = {"h": "-1.5", "i": -2, "j": "-1e-3", "k": "a=b", "l": ""}


def test_csv_is_exact_and_that_for_a_spreadsheet_has_a_quote_before_what_would_be_a_formula(begun):
    put(begun, "gemm/m8n8k8/f32/NT", "gemm/a.b", dims=FORMULAS | NUMBERS)
    (exact,), (inert,) = (csv_rows(exported(begun, style)) for style in ("csv", "spreadsheet"))
    written = {name: str(value) for name, value in (FORMULAS | NUMBERS).items()}
    assert {name: exact[name] for name in exact if name not in COLUMNS} == written
    del written["=g"]
    quoted = {name: f"'{value}" for name, value in written.items() if name in FORMULAS} | {"'=g": "x"}
    assert {name: inert[name] for name in inert if name not in COLUMNS} == written | quoted


#: Numbers that have no unit, since they are counts, ratios and errors.
PLAIN = {
    *("schema", "threads", "samples", "speedup", "speedup_ci95_low", "speedup_ci95_high", "ratio", "ratio_ci95_low"),
    *("ratio_ci95_high", "compression_error", "max_error", "error_bound", "seed", "processes", "count", "outliers"),
    *("speedup_of_minima", "attempt", "repeated", "threads_used", "load"),
}


@pytest.fixture
def arrow():
    """A reader of what was written. Without pyarrow the test is skipped; in CI it fails."""
    needed(None if find_spec("pyarrow") else "pyarrow is not installed; pip install 'kernelmark[export]'")
    return import_module("pyarrow.parquet")


def table(arrow, store):
    path = store.path.with_name("runs.parquet")
    write_parquet_file(store, store.run_ids(), path)
    return arrow.read_table(path)


def test_parquet_has_the_columns_of_the_csv_with_samples_types_units_and_facts_of_the_run(arrow, run):
    (header, *_) = csv.reader(io.StringIO(exported(run, "csv")))
    assert table(arrow, run).column_names == [*header, "samples_s"]
    fast, bad = table(arrow, run).to_pylist()
    assert (fast["time_s_median"], fast["samples_s"], fast["executed_flop"]) == (MEDIAN, [MEDIAN, 4e-4], 2**40)
    assert (fast["roofline_pct"], fast["place"], fast["scratch_bytes"], fast["either"]) == (None, None, 0, "2")
    assert (bad["time_s_median"], bad["reason"], bad["samples_s"], bad["beta"]) == (None, REASON, [], 1.0)
    schema = table(arrow, run).schema
    names = ("threads", "time_s_median", "status", "scratch_bytes", "m", "beta", "place", "either")
    kinds = ["int64", "double", "string", "int64", "int64", "double", "string", "string"]
    assert [str(schema.field(name).type) for name in names] == kinds
    names = ("time_s_ci95_low", "setup_s", "gflop_per_s", "scratch_bytes", "clock_mhz", "energy_j", "samples_s")
    units = [b"s", b"s", b"GFLOP/s", b"B", b"MHz", b"J", b"s"]
    assert [schema.field(name).metadata[b"unit"] for name in names] == units
    assert [schema.field(name).metadata for name in ("kernel", "m", "b_w")] == [None] * 3
    facts = json.loads(schema.metadata[b"kernelmark"])
    assert (facts["run_id"], facts["machine"], facts["git_commit"]) == ("r", {"cpu": "some"}, "c0ffee")


def test_every_number_has_a_unit_or_none_to_have():
    assert {name for name in COLUMNS if KINDS[name] is not str and not unit(name)} == PLAIN


def test_parquet_is_written_a_row_group_at_a_time_to_a_file_whose_folder_is_made(arrow, run, monkeypatch, tmp_path):
    monkeypatch.setattr(parquet, "ROW_GROUP", 1)
    write_parquet_file(run, ["r"], tmp_path / "new" / "run.parquet")
    file = arrow.ParquetFile(tmp_path / "new" / "run.parquet")
    assert (file.num_row_groups, file.metadata.num_rows) == (2, 2)


def test_without_pyarrow_the_command_that_installs_it_is_named_and_no_file_left(run, complaint, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    text = complaint(lambda: write_parquet_file(run, ["r"], tmp_path / "run.parquet"))
    assert text == "parquet: pyarrow is not installed; pip install 'kernelmark[export]'"
    assert not (tmp_path / "run.parquet").exists()
