"""Whatever is printed as JSON: it has the form that docs/schemas promises, holds no NaN, and stands alone on stdout."""

import math

import pytest

from kernelmark.bench.cli.commands import cli
from kernelmark.bench.cli.documents import DOCUMENTS, schema
from kernelmark.bench.record.result import COLUMNS
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.versions import KernelVersion
from kernelmark.bench.selftest.finding import Finding, as_json
from support.compared import add, begin, times
from support.pages import DOCS, valid

SCHEMAS = DOCS / "schemas"


def test_the_schemas_are_those_of_what_is_printed():
    assert {path.name: path.read_text() for path in SCHEMAS.iterdir()} == {
        f"{name}.json": schema(name) for name in DOCUMENTS
    }


def test_every_command_that_prints_json_has_a_schema():
    promised = [words.strip() for commands, _ in DOCUMENTS.values() for words in commands.split(",")]
    for name, command in cli.commands.items():
        options = {option for param in command.params for option in param.opts}
        formats = [choice for param in command.params for choice in getattr(param.type, "choices", ())]
        assert ("--json" in options) == (f"{name} --json" in promised), name
        assert ("json" in formats) == (f"{name} --format json" in promised), name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("runs",), "runs"),
        (("show",), "run"),
        (("compare", "base", "20260201-new"), "compare"),
        (("crossover", "copy/m3n5/f32", "base"), "crossover"),
        (("doctor",), "doctor"),
    ],
)
def test_what_is_read_of_a_store_is_valid(called, two_runs, words, name):
    assert valid(called(*words, "--json", "--db", two_runs).printed, name)


@pytest.mark.parametrize(("words", "name"), [(("list",), "list"), (("list", "--suites"), "suites")])
def test_lists_are_valid(called, words, name):
    assert len(valid(called(*words, "--json").printed, name)) > 10


def test_an_export_is_valid(called, two_runs):
    found = valid(called("export", "base", "--format", "json", "--db", two_runs).out, "export")
    assert (found["run"]["name"], found["run"]["planned"]) == ("base", 2)


def test_rows_have_all_columns_and_what_is_no_number_is_null(called, store):
    begin(store, "r")
    add(store, "r", "m3n5/f32", gflop_per_s=math.nan, roofline_pct=math.inf)
    path = str(store.path)
    store.close()
    (row,) = valid(called("show", "--json", "--db", path).out, "run")["results"]
    assert list(row)[: len(COLUMNS)] == list(COLUMNS)
    assert (row["gflop_per_s"], row["roofline_pct"]) == (None, None)


def test_a_ratio_of_rows_that_were_not_measured_in_turn_is_marked_so(called, store):
    begin(store, "r")
    add(store, "r", "m3n5/f32", times(1))
    add(store, "r", "m3n5/f32", times(2), kernel="copy/a.slow")
    path = str(store.path)
    store.close()
    (row,) = valid(called("crossover", "copy/m3n5/f32", "r", "--json", "--db", path).out, "crossover")["rows"]
    assert (row["fastest"], row["runner_up"], row["ratio_in_turn"]) == ("copy/a.b", "copy/a.slow", False)
    assert (row["fft"], row["fft_speedup"], row["from"]) == ("", None, "")


def test_a_comparison_without_a_ratio_is_valid_and_has_null_in_its_place(called, two_runs):
    found = valid(called("compare", "base", "20260201-new", "--json", "--db", two_runs).out, "compare")
    m9 = next(case for case in found["cases"] if "m9" in case["case"])
    assert (m9["verdict"], m9["ratio"], m9["p_holm"]) == ("regressed", None, None)
    assert found["verdicts"] == {"same": 1, "regressed": 1}


def test_a_comparison_that_fails_prints_its_json_and_exits_with_1(called, two_runs, store):
    reopened = Store(store.path)
    begin(reopened, "slow")
    add(reopened, "slow", "m3n5/f32", times(1.5))
    reopened.close()
    done = called("compare", "base", "slow", "--fail-slower", "2%", "--json", "--db", two_runs)
    assert done.status == 1
    assert valid(done.out, "compare")["verdicts"] == {"slower": 1}


def test_a_history_is_valid_also_of_a_kernel_without_versions(called, store):
    known = {"kernel": "copy/a.b", "problem": "copy/m3n5/f32", "saved_at": "t", "by": "watch", "right": None}
    for text in (b"int a;\n", b"int b;\n"):
        store.add_version(KernelVersion(**known, verdict="not verified"), {"a.cu": text})
    path = str(store.path)
    store.close()
    found = valid(called("history", "copy/a.b", "copy/m3n5/f32", "--json", "--db", path).out, "history")
    assert [each["diff"] for each in found["versions"]] == ["", "--- a.cu 1\n+++ a.cu 2\n@@ -1 +1 @@\n-int a;\n+int b;"]
    assert valid(called("history", "copy/a.c", "copy/m3n5/f32", "--json", "--db", path).out, "history") == {
        "kernel": "copy/a.c",
        "problem": "copy/m3n5/f32",
        "versions": [],
    }


def test_a_history_without_versions_is_one_line_and_a_tile_is_refused(called, store):
    path = str(store.path)
    store.close()
    done = called("history", "copy/a.c", "copy/m3n5/f32", "--db", path)
    assert (done.status, done.err, len(done.out.splitlines())) == (0, "", 1)
    line = called("history", "copy/a.c@A=1", "copy/m3n5/f32", "--db", path).refusal
    assert line.startswith("kernelmark: copy/a.c@A=1: a history is that of a kernel with all its tiles; ")


def test_findings_of_the_selftest_are_valid():
    findings = [Finding("durations: a", "1 us", "2 us", True), Finding("cold", "none", "", None)]
    assert valid(as_json(findings, ["wrong"]), "selftest")["left_out"] == ["wrong"]


def test_verify_prints_json_alone_and_all_else_on_standard_error(kernelmark):
    done = kernelmark("verify", "gemm/m8n8k8/f32/NT", "--kernels", "gemm/numpy.matmul", "--json", "--name", "one")
    assert done.returncode == 0
    found = valid(done.stdout, "run")
    assert (found["run"]["name"], found["run"]["cases_done"], found["run"]["cases_planned"]) == ("one", 1, 1)
    assert [row["status"] for row in found["results"]] == ["ok"]
    assert f"run {found['run']['run_id']}\n" in done.stderr
    assert "gemm/numpy.matmul (largest error" in done.stderr


@pytest.mark.long
def test_a_run_and_its_claims_are_valid(kernelmark):
    words = ("--mode", "hot", "--max-time", "0.02", "--kernels", "gemm/numpy.*", "--json")  # ceilings of small copies
    done = kernelmark("run", "gemm/m8n8k8/f32/NT", *words)
    assert done.returncode == 0
    run_id = valid(done.stdout, "run")["run"]["run_id"]
    assert valid(kernelmark("claims", run_id, "--json").stdout, "claims")


@pytest.mark.long
@pytest.mark.usefixtures("cuda_compiler")
def test_inspected_kernels_are_valid(kernelmark):
    words = ("--kernels", "transpose/cuda.tiled", "--arch", "sm_90a", "--format", "json")
    assert valid(kernelmark("inspect", *words).stdout, "inspect")
