"""Commands that need no run: lists, the doctor, the version, completion, defaults from files, and schemas of JSON."""

import json
import math
from pathlib import Path

import pytest

from kernelmark.bench.cli.commands import cli
from kernelmark.bench.cli.defaults import default_map
from kernelmark.bench.cli.documents import DOCUMENTS, schema
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.record.columns import COLUMNS
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.versions import KernelVersion
from support.compared import add, begin, times
from support.pages import DOCS, valid

HEAVY = (
    *("cupy", "cuda.core", "pycuda", "torch", "numba", "pyfftw", "scipy", "matplotlib", "ml_dtypes", "pandas"),
    *("tabulate", "importlib.metadata", "numpy"),
)
#: The command, which finally prints the names of the heavy modules that it has imported.
IMPORTING = f"""
import atexit
import sys
from kernelmark.bench.cli import main

sys.argv = ["kernelmark", *sys.argv[1:]]
atexit.register(lambda: sys.stderr.write(" ".join(name for name in {HEAVY!r} if name in sys.modules)))
main()
"""


@pytest.mark.parametrize(("words", "imported"), [("list", "numpy"), ("list --suites", "numpy"), ("--help", "")])
def test_list_and_help_import_nothing_heavy(python_in, tmp_path, words, imported):
    done = python_in(tmp_path, "-c", IMPORTING, *words.split())
    assert (done.returncode, done.stderr, done.stdout != "") == (0, imported, True)


def test_list_names_what_can_run_here_the_numbers_that_a_kernel_takes_and_the_suites(called):
    by_kernel = {r["kernel"]: r for r in valid(called("list", "--device", "cpu", "--json").printed, "list")}
    assert by_kernel["gemm/numpy.matmul"]["here"] == "yes"
    assert all(r["device"] == "cpu" and r["label"] for r in by_kernel.values())
    assert by_kernel["gemm/scipy.two_step"]["domain"] == "f32|f64 TN beta 1"
    assert by_kernel["transfer/numba.serial"]["domain"] == "f32|f64 h2h work 1..4096"
    assert by_kernel["transpose/numpy.out"]["domain"] == "out"
    of_gemm = valid(called("list", "--op", "gemm", "--json").printed, "list")
    assert all(r["kernel"].startswith("gemm/") for r in of_gemm)
    suites = valid(called("list", "--suites", "--json").printed, "suites")
    assert {"founding", "seed", "smoke"} <= {r["suite"] for r in suites}
    assert all(r["title"] and r["source"] for r in suites)


def test_doctor_says_what_is_usable_and_how_to_mend_the_rest(called):
    findings = valid(called("doctor", "--json").printed, "doctor")
    assert next(finding for finding in findings if finding["part"] == "numpy")["usable"]
    assert all(finding["found"] for finding in findings)


@pytest.mark.usefixtures("cuda_compiler")
def test_inspect_tells_resources_and_occupancy_without_a_gpu(called):
    done = called("inspect", "--kernels", "gemm/cuda.tiled", "--arch", "sm_90a", "--format", "json")
    by_tile = {row["tunables"]: row for row in valid(done.out, "inspect")}
    report = by_tile['{"T":32}']
    # Two tiles of 32 x 33 floats; 1024 threads of at most 32 registers: two blocks fill the 64 warps.
    assert (report["static_shared_bytes"], report["spill_bytes"], report["threads"]) == (2 * 32 * 33 * 4, 0, 1024)
    assert (report["blocks_per_sm"], report["occupancy"]) == (2, 1.0)


@pytest.mark.usefixtures("cuda_compiler")
def test_inspect_has_a_line_a_kernel(called, registry):
    out = called("inspect", "--arch", "sm_90a").out
    ours = [kernel for kernel in registry.kernels.values() if isinstance(kernel, CudaKernel) and kernel.is_ours]
    assert [line.split()[0] for line in out.splitlines() if "/cuda." in line] == sorted(kernel.id for kernel in ours)


def completing(line):
    return {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_KERNELMARK_COMPLETE": "bash_complete"}


@pytest.fixture
def complete(called, monkeypatch):
    def of(words):
        for name, value in completing(f"kernelmark {words}").items():
            monkeypatch.setenv(name, value)
        return [item.partition(",")[2] for item in called().printed.splitlines() if item]

    return of


#: The commands that take a run, each with the words that precede the run.
TAKE_RUNS = ("run", "--resume "), ("runs", "--delete "), ("compare", ""), ("compare", "base "), ("export", "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("run fou", ["founding", "found.toml"]),
        ("crossover deep/m", ["deep/mine.toml"]),
        ("run smoke --kernels gemm/numpy.m", ["gemm/numpy.matmul"]),
        ("show --db results.db ", ["20260201-new", "base", "20260101-old"]),
        ("claims --db results.db ba", ["base"]),
        *((f"{' --db results.db '.join(words)}ba", ["base"]) for words in TAKE_RUNS),
    ],
)
@pytest.mark.usefixtures("two_runs")
def test_suites_files_kernels_and_runs_complete(complete, tmp_path, words, offered):
    (tmp_path / "found.toml").touch()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "mine.toml").touch()
    assert complete(words) == offered


@pytest.mark.parametrize("words", ["show ", "show --db absent.db ", "inspect --kernels none"])
def test_where_there_is_nothing_to_complete_nothing_is_offered(complete, tmp_path, words):
    (tmp_path / "kernelmark.toml").write_text("nonsense")
    assert complete(words) == []


@pytest.mark.parametrize("words", ["show --db {} ", "run smoke --kernels gemm/numpy.m"])
def test_to_complete_imports_nothing_heavy(python_in, tmp_path, two_runs, words):
    done = python_in(tmp_path, "-c", IMPORTING, **completing(f"kernelmark {words.format(two_runs)}"))
    assert (done.returncode, done.stderr, done.stdout != "") == (0, "numpy", True)


def shown(called, *words):
    return [row["problem"] for row in json.loads(called("show", "base", "--json", *words).out)["results"]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kernelmark.toml", "db = 'kept/results.db'\n[show]\nproblem = ['*m3*', '*m4*']\n"),
        ("pyproject.toml", "[tool.kernelmark]\ndb = 'kept/results.db'\n[tool.kernelmark.show]\nproblem = '*m3*'\n"),
    ],
)
def test_a_file_in_a_folder_above_gives_defaults_and_the_command_line_overrides_them(
    called, two_runs, tmp_path, monkeypatch, name, text
):
    (tmp_path / name).write_text(text)
    (tmp_path / "kept").mkdir()
    (tmp_path / "results.db").rename(tmp_path / "kept" / "results.db")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert shown(called) == ["copy/m3n5/f32"]
    assert shown(called, "--problem", "*m9*") == ["copy/m9n5/f32"]


def test_the_table_of_a_command_overrides_the_keys_above_it_and_reaches_no_other_command(tmp_path):
    verify, run = "[verify]\nkernels = ['a/*', 'b/*']\n", "[run]\nceilings = false\nthreads = [1, 2]\n"
    (tmp_path / "kernelmark.toml").write_text(f"max-time = 1\nkernels = 'gemm/*'\n{verify}{run}")
    defaults = default_map(cli.commands, tmp_path)
    assert defaults["run"] == {"max_time_s": "1", "kernels": ["gemm/*"], "ceilings": False, "threads": "1,2"}
    assert defaults["verify"] == {"kernels": ["a/*", "b/*"]}
    assert (defaults["watch"], defaults["report"]) == ({"max_time": "1"}, {})


def test_the_nearest_file_counts_alone_and_a_project_without_our_table_is_none(tmp_path):
    (tmp_path / "kernelmark.toml").write_text("seed = 1\n")
    (tmp_path / "project" / "deep").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text("[tool.other]\nname = 'kernelmark'\n")
    (tmp_path / "pyproject.toml").write_text("[tool is not TOML, and no concern of ours\n")
    assert default_map(cli.commands, tmp_path / "project")["run"] == {"seed": "1"}
    (tmp_path / "project" / "pyproject.toml").write_text("[neither is this\n")
    assert default_map(cli.commands, tmp_path / "project")["run"] == {"seed": "1"}
    (tmp_path / "project" / "deep" / "kernelmark.toml").write_text("\ufeffmode = 'hot'\n")  # as Notepad writes it
    assert default_map(cli.commands, tmp_path / "project" / "deep")["run"] == {"mode": "hot"}


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("max_time = 1", "kernelmark.toml: max_time: is not an option of any command that a file can set"),
        ("[show]\nmax-time = 1", "kernelmark.toml: [show] max-time: is not an option of `show` that a file can set"),
        ("[runs]\ndelete = 'base'", "kernelmark.toml: [runs] delete: is not an option of `runs` that a file can set"),
        ("[rum]\nseed = 1", "kernelmark.toml: [rum]: is not a command; expected one of claims, "),
        ("[run]\nmax-time = 'x'", "kernelmark.toml: [run] max-time: is 'x', expected a number above 0"),
        ('[run]\ndb = "a\\u0000b"', r"kernelmark.toml: [run] db: is 'a\x00b': embedded null byte"),
        ("[run]\nceilings = 'no'", "kernelmark.toml: [run] ceilings: is 'no', expected true or false"),
        ("[run]\nseed = true", "kernelmark.toml: [run] seed: is True, expected a string, a number or a list of them"),
        ("[run]\nmode = 'warm'", "kernelmark.toml: [run] mode: 'warm' is not one of"),
        ("seed = ", "kernelmark.toml: is not TOML: "),
    ],
)
def test_what_no_option_takes_is_refused_in_one_line_with_file_and_key(called, tmp_path, text, refusal):
    (tmp_path / "kernelmark.toml").write_text(text)
    assert f"{tmp_path}/{refusal}" in called("list").refusal


def test_the_schemas_are_those_of_what_is_printed():
    schemas = {f"{name}.json": schema(name) for name in DOCUMENTS}
    assert {path.name: path.read_text() for path in (DOCS / "schemas").iterdir()} == schemas


def test_every_command_that_prints_json_has_a_schema():
    promised = [words.strip() for commands, _ in DOCUMENTS.values() for words in commands.split(",")]
    for name, command in cli.commands.items():
        options = {option for param in command.params for option in param.opts}
        formats = [choice for param in command.params for choice in getattr(param.type, "choices", ())]
        assert ("--json" in options) == (f"{name} --json" in promised), name
        assert ("json" in formats) == (f"{name} --format json" in promised), name


#: Commands that read a store, and the names of their schemas.
READ = {"runs": "runs", "show": "run", "compare base 20260201": "compare", "crossover copy/m3n5/f32": "crossover"}


@pytest.mark.parametrize("words", READ)
def test_what_is_read_of_a_store_is_valid(called, two_runs, words):
    assert valid(called(*words.split(), "--json", "--db", two_runs).printed, READ[words])
    document = valid(called("export", "base", "--format", "json", "--db", two_runs).out, "export")
    assert (document["run"]["name"], document["run"]["planned"]) == ("base", 2)


def test_rows_have_all_columns_no_number_is_null_and_a_ratio_of_rows_not_in_turn_is_marked_so(called, store):
    begin(store, "r")
    add(store, "r", "m3n5/f32", times(1), gflop_per_s=math.nan, roofline_pct=math.inf)
    add(store, "r", "m3n5/f32", times(2), kernel="copy/a.slow")
    path = str(store.path)
    row, _ = valid(called("show", "--json", "--db", path).out, "run")["results"]
    assert list(row)[: len(COLUMNS)] == list(COLUMNS)
    assert (row["gflop_per_s"], row["roofline_pct"]) == (None, None)
    (row,) = valid(called("crossover", "copy/m3n5/f32", "r", "--json", "--db", path).out, "crossover")["rows"]
    assert (row["fastest"], row["runner_up"], row["ratio_in_turn"]) == ("copy/a.b", "copy/a.slow", False)
    assert (row["fft"], row["fft_speedup"], row["from"]) == ("", None, "")


def test_a_comparison_without_a_ratio_has_null_and_one_that_fails_its_json_too(called, two_runs):
    document = valid(called("compare", "base", "20260201-new", "--json", "--db", two_runs).out, "compare")
    m9 = next(case for case in document["cases"] if "m9" in case["case"])
    assert (m9["verdict"], m9["ratio"], m9["p_holm"]) == ("regressed", None, None)
    assert document["verdicts"] == {"same": 1, "regressed": 1}
    with Store(Path(two_runs)) as store:
        begin(store, "slow")
        add(store, "slow", "m3n5/f32", times(1.5))
    done = called("compare", "base", "slow", "--fail-slower", "2%", "--json", "--db", two_runs)
    assert done.status == 1
    assert valid(done.out, "compare")["verdicts"] == {"slower": 1}


def test_a_history_is_valid_also_of_a_kernel_without_versions(called, store):
    known = {"kernel": "copy/a.b", "problem": "copy/m3n5/f32", "saved_at": "t", "by": "watch", "right": None}
    for text in (b"int a;\n", b"int b;\n"):
        store.add_version(KernelVersion(**known, verdict="not verified"), {"a.cu": text})
    path = str(store.path)
    shown = valid(called("history", "copy/a.b", "copy/m3n5/f32", "--json", "--db", path).out, "history")
    assert [each["diff"] for each in shown["versions"]] == ["", "--- a.cu 1\n+++ a.cu 2\n@@ -1 +1 @@\n-int a;\n+int b;"]
    shown = valid(called("history", "copy/a.c", "copy/m3n5/f32", "--json", "--db", path).out, "history")
    assert shown == {"kernel": "copy/a.c", "problem": "copy/m3n5/f32", "versions": []}
    assert called("history", "copy/a.c", "copy/m3n5/f32", "--db", path).printed.count("\n") == 1


def test_verify_prints_json_alone_and_all_else_on_standard_error(called):
    done = called("verify", "gemm/m8n8k8/f32/NT", "--kernels", "gemm/numpy.matmul", "--json", "--name", "one")
    assert done.status == 0
    document = valid(done.out, "run")
    assert (document["run"]["name"], document["run"]["cases_done"], document["run"]["cases_planned"]) == ("one", 1, 1)
    assert [row["status"] for row in document["results"]] == ["ok"]
    assert f"run {document['run']['run_id']}\n" in done.err
    assert "gemm/numpy.matmul (largest error" in done.err


@pytest.mark.long
def test_a_run_and_its_claims_are_valid(called):
    words = ("--mode", "hot", "--max-time", "0.02", "--kernels", "gemm/numpy.*", "--json")  # ceilings of small copies
    done = called("run", "gemm/m8n8k8/f32/NT", *words)
    assert done.status == 0
    run_id = valid(done.out, "run")["run"]["run_id"]
    assert valid(called("claims", run_id, "--json").out, "claims")
