"""The commands select, profile and scaling: their output and files."""

import json
import sqlite3
from dataclasses import replace

import msgspec
import pytest

from kernelmark.bench.cli.documents import DOCUMENTS
from kernelmark.bench.emulator.build import missing_tool
from kernelmark.bench.measure.cpu import cpu_name
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.record.store import Layer, Store
from kernelmark.bench.tune.profile import sass
from kernelmark.bench.tune.select import train
from kernelmark.bench.tune.select.model import Model, file_text
from support.pages import valid
from support.rows import put
from support.tuning import FIRST, SECOND, bordered, plant, shapes

PROBLEM = "gemm/m500n70k256/f32/NT"


@pytest.fixture
def trained(called, store):
    def of(*words, kernels=None, **runs):
        for run_id, values in (runs or {"planted": {}}).items():
            columns = {"device_name": cpu_name(), **values}
            plant(store, kernels or bordered(256), columns.pop("chosen", ()), run_id=run_id, **columns)
        return called("select", "--train", *(runs or {"planted": {}}), *words, "--db", str(store.path))

    return of


def test_a_training_prints_what_was_held_out_and_keeps_a_selector_that_answers(trained, called):
    done = trained()
    assert done.status == 0
    assert "Select: the oracle is " in done.out
    assert "best single" in done.out
    answered = called("select", PROBLEM)
    assert answered.out.startswith(f"{PROBLEM}: {SECOND}\n")
    assert "gemm/m512n64k256/f32/NT" in answered.out
    assert "OUTSIDE" not in answered.out
    assert "OUTSIDE THE MEASURED RANGE: k is 8, measured 256.\n" in called("select", "gemm/m99n99k8/f32/NT").out


def test_noise_is_reported_with_what_it_disturbed(trained, tmp_path):
    done = trained(noisy={"disturbed": "other processes used 0.98 CPUs during 60 % of the sampling"})
    assert "NOISY: 242 of 242 cases were disturbed (other processes used 0.98 CPUs)" in done.out
    (selector,) = (tmp_path / "data" / "kernelmark" / "selectors").glob("*.json")
    assert json.loads(selector.read_text())["regret"]["noise"].startswith("NOISY: ")


def test_where_one_kernel_is_as_good_it_is_the_answer(trained, called):
    kernels = {FIRST: lambda m, n, k: 1e-9 * m * n * k, SECOND: lambda m, n, k: 1.02e-9 * m * n * k}
    assert f"Use {FIRST}: the oracle is 1.00x" in trained(kernels=kernels).out
    answered = called("select", PROBLEM).out
    assert answered.startswith(f"{PROBLEM}: {FIRST}\n")
    assert "use it for every shape" in answered


def test_the_json_of_a_training_and_of_an_answer_has_the_form_of_its_schema(trained, called):
    document = valid(trained("--json").out, "select")
    assert (document["single"], document["leaves"], document["answer"]) == ("", 2, None)
    assert [line["way"] for line in document["regret"]["lines"]][:3] == ["selected", "best single", "nearest neighbour"]
    assert valid(called("select", PROBLEM, "--json").out, "select")["answer"]["kernel"] == SECOND


def test_a_selector_is_printed_as_code_and_as_the_file_that_is_kept(trained, called, tmp_path):
    assert trained("--format", "c").out.startswith("/* kernelmark select: gemm on ")
    assert "def select(m, n, k, batch):" in called("select", PROBLEM, "--format", "python").out
    assert called("select", PROBLEM, "--format", "json", "-o", "copy.json").printed == ""
    assert DOCUMENTS["selector"][1] is Model
    valid((tmp_path / "copy.json").read_text(), "selector")
    assert called("select", PROBLEM, "--model", "copy.json").out.startswith(f"{PROBLEM}: {SECOND}")


def test_the_figure_is_drawn(trained, tmp_path):
    done = trained("--figures", "drawn")
    (name,) = (tmp_path / "drawn").glob("*.svg")
    assert f"drawn/{name.name}" in done.out
    assert (tmp_path / "drawn" / f"{name.stem}.pdf").is_file()


def test_rows_of_one_process_are_enough_with_a_remark(trained):
    assert "whose samples choose and time the oracle's kernels" in trained(planted={"processes": 1}).out


FEW = shapes()[:59]
FLAT = [(32 + i, 32, 256) for i in range(70)]


@pytest.mark.parametrize(
    ("runs", "refusal"),
    [
        ({"few": {"chosen": FEW}}, "has 59 problems, expected at least 60 to learn from; `kernelmark run train-gemm`"),
        ({"flat": {"chosen": FLAT}}, "has 3 families of shapes, expected at least 20"),
        ({"a": {}, "b": {"device_name": "Other CPU"}}, "has rows of 2 devices ("),
        ({"a": {}, "b": {"mode": "hot"}}, "has rows of 2 modes (cold, hot), expected one; train on runs in one mode"),
        ({"a": {}, "b": {"threads": 1}}, "has rows of 2 numbers of threads (1, 2), expected one; measure with one"),
        ({"a": {}, "b": {"numerics": "tf32"}}, "has rows of 2 precisions (fp32, tf32), expected one; --kernels"),
        ({"a": {}, "b": {"dtype": "f16"}}, "has rows of 2 storage types (f16, f32), expected one; --problem"),
        ({"a": {}, "b": {"host": "x"}, "c": {"host": "y"}}, "has rows of 3 hosts (none, x, y), expected one"),
        ({"a": {"isa": "avx2"}, "b": {}}, "has rows of 2 instruction sets (none, avx2), expected one"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_rows_that_are_too_few_or_of_two_settings_are_refused(trained, runs, refusal):
    line = trained(**runs).refusal
    assert refusal in line
    assert line.startswith(f"kernelmark: run {' and '.join(runs)}: has ")


def test_rows_of_one_kernel_leave_no_choice(trained):
    line = trained(kernels={FIRST: bordered(256)[FIRST]}).refusal
    assert line.endswith("has times of only gemm/numpy.matmul; a choice needs two kernels")


def test_where_each_kernel_refuses_a_problem_none_is_left(trained):
    both = bordered(256)
    kernels = {
        FIRST: lambda m, n, k: both[FIRST](m, n, k) if m > 32 else None,
        SECOND: lambda m, n, k: both[SECOND](m, n, k) if m < 1024 else None,
    }
    assert "no kernel was timed on all 121 problems" in trained(kernels=kernels).err


def test_a_test_that_was_measured_otherwise_is_refused(called, store):
    plant(store, bordered(256), run_id="a")
    plant(store, bordered(256), run_id="b", mode="hot")
    words = ("select", "--train", "a", "--db", str(store.path), "--test")
    refusal = "kernelmark: --test b: its mode is hot, the training's is cold; use the same"
    assert called(*words, "b").refusal == refusal
    assert "run a: has only the shapes of --test; train on others" in called(*words, "a").refusal


@pytest.fixture(scope="module")
def selector(tmp_path_factory):
    with Store(tmp_path_factory.mktemp("selector") / "results.db") as store:
        plant(store, bordered(256), device_name=cpu_name())
        model = train.train(store, discover(), ["planted"], ()).model
    return json.loads(file_text(model))


#: A text that would end a string or a comment in C, or a string in Python.
ENDS = '"; */ evil() """'
EVALUATED = {"expression": "().__class__", "below": 1, "above": 2}
LEAF = {"order": [0, 1], "share": {"mean": 1.0, "low": None, "high": None}, "worst": 1.0}
#: Nodes whose branches both lead to the next node: the number of paths is 2 to the power of the number of nodes.
CHAIN = [{"expression": "m", "below": i, "above": i} for i in range(1, 40)] + [LEAF]


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"device_name": "Other CPU"}, "is for Other CPU, but this machine has "),
        ({"format": 0}, "has format 0, expected 2; `kernelmark select --train` makes one"),
        ({"column": 1}, "is not a selector, or has another schema: Object contains unknown field `column`"),
        ({"op": "sort"}, "is for 'sort', which is not an operation"),
        ({"op": "transpose"}, "has the inputs m, n, k, batch, expected m, n;"),
        ({"tree": []}, "has a tree with a node that leads nowhere"),
        ({"tree": CHAIN}, "has two parents"),
        ({"tree": [{"expression": "m", "below": 1, "above": 1}, {"order": [0, 1]}]}, "has a tree with a node"),
        ({"tree": [EVALUATED, LEAF, LEAF]}, "compares '().__class__', which is not an expression of gemm"),
        ({"kernels": [ENDS, FIRST]}, "Expected `str` matching regex"),
        ({"kernels": [FIRST, FIRST]}, "contains a name twice"),
        ({"words": {ENDS: ["NN", "NT"]}}, "is not an axis of gemm"),
        ({"words": {"m": [1, 2]}}, "Expected `str`, got `int`"),
        ({"words": {"layout": ["NN", ENDS]}}, "expected one of NN, NT, TN, TT"),
        ({"fixed": {"m": 64}}, "has an axis 'm', which no selector of gemm has"),
        ({"dtype": ENDS}, "has the dtype"),
        ({"ranges": {"m": [1, 2]}}, "has the ranges m, expected m, n, k, batch"),
        ({"single": ENDS}, "calls a kernel that is not in its list"),
        ({"measured": []}, "Expected `array` of length >= 1"),
        ({"measured": [{"problem": "transpose/m3n5/f32/out", "fastest": FIRST}]}, "has a problem of transpose"),
        ({"device_name": "x" * 2**24}, "has 16.8 MB, expected at most 16"),
        ({"inputs": ["m"]}, "has the inputs m, expected m, n, k, batch"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_selector_of_another_device_or_schema_is_refused(selector, called, tmp_path, changes, refusal):
    (tmp_path / "own.json").write_text(json.dumps({**selector, **changes}))
    line = called("select", PROBLEM, "--model", "own.json").refusal
    assert line.startswith("kernelmark: own.json: ")
    assert refusal in line


PROFILED = "gemm/m256n512k64/f32/NN"


@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
def test_page_and_json_hold_the_counts(called):
    words = ("profile", "transpose/cuda.tiled", "transpose/m33n70/f32/out")
    assert "all of 6 blocks ran" in called(*words).printed
    assert valid(called(*words, "--json").printed, "profile")["counts"]["launches"][0]["blocks"] == 6


def test_a_kernel_without_a_twin_is_refused_with_its_reason(called, registry):
    kernel = registry.kernels["gemm/cuda.async"]
    registry.kernels[kernel.id] = replace(kernel, emulated="mma.sp has no twin")
    refusal = called("profile", kernel.id, PROFILED).refusal
    assert "cannot be emulated, so it cannot be counted: mma.sp has no twin" in refusal


def test_without_a_compiler_the_complaint_names_the_package(called, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-g++")
    assert "install it with" in called("profile", "gemm/cuda.async", PROFILED).refusal


@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
def test_machine_code_and_bound_follow_the_counts(called):
    words = ("profile", "gemm/cuda.tiled", "gemm/m64n64k640/f32/NN", "--on", "h200")
    printed = called(*words).printed
    assert "The counts agree with the machine code over" in printed
    assert "least time on H200 SXM" in printed
    machine = json.loads(called(*words, "--json").out)["machine"]
    assert machine["bound"]["device"] == "H200 SXM"
    main = machine["sass"]["functions"][0]
    assert main["loop"]["mix"]["FFMA"] > 0
    assert main["clumped"] is None
    assert f"about {main['cover']:,} issue cycles from an LDG to the first use of its data" in printed
    assert "copies clumped" not in printed


@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
def test_without_nvdisasm_the_counts_stand_alone(called, monkeypatch):
    def gone():
        raise Unsupported("no nvdisasm")

    monkeypatch.setattr(sass, "disassembler", gone)
    printed = called("profile", "transpose/cuda.tiled", "transpose/m33n70/f32/out").printed
    assert "No machine code: no nvdisasm" in printed


WORDS = ("scaling", "net", "--link", "8GB/s", "--workers", "4,8,1")


@pytest.fixture
def path(begun):
    for problem, part in (("gemm/m1n1000k500/f32/NT", "forward"), ("gemm/m1000n500k1/f32/TN", "backward")):
        put(begun, problem, "gemm/a.b")
        begun.add_layer("r1", Layer("net", problem, part, 1))
    put(begun, "aggregate/w4n500000/f32", "aggregate/cpu.host_serial", 1e-4, {"w": 4, "n": 500_000, "step": "sum"})
    return str(begun.path)


def test_the_table_is_printed_and_nothing_is_stored(called, path):
    with sqlite3.connect(path) as db:
        before = list(db.iterdump())
    printed = called(*WORDS, "--db", path).printed
    assert "500,000 weights, 2.00 MB a gradient" in printed
    assert "TensorFlow on 4 GPUs" in printed
    with sqlite3.connect(path) as db:
        assert list(db.iterdump()) == before
    in_bits, in_bytes = (called("scaling", "net", "--link", text, "--db", path).out for text in ("8Gbit/s", "1GB/s"))
    assert in_bits == in_bytes != ""


def test_the_json_has_its_schema_and_every_strategy_at_every_number_of_workers(called, path):
    done = called(*WORDS, "--db", path, "--json")
    document = msgspec.json.decode(done.out, type=DOCUMENTS["scaling"][1], strict=True)
    assert [(point.kernel, point.workers) for point in document.computed] == [
        ("aggregate/cpu.host_serial", workers) for workers in (1, 4, 8)
    ]
    assert (document.parameters, document.link_bytes_per_s) == (500_000, 8e9)
    assert [stated.what for stated in document.stated] == ["TensorFlow on 4 GPUs"]


def test_figures_are_written_where_asked_and_named(called, path, tmp_path):
    printed = called(*WORDS, "--db", path, "--figures", str(tmp_path / "out")).printed
    names = {f"scaling-net-cpu-t2-cold-fp32.{kind}" for kind in ("svg", "pdf")}
    assert {file.name for file in (tmp_path / "out").iterdir()} == names
    assert "scaling-net-cpu-t2-cold-fp32.svg" in printed


def test_figures_that_cannot_be_written_are_one_line(called, path, tmp_path):
    (tmp_path / "file").touch()
    done = called(*WORDS, "--db", path, "--figures", str(tmp_path / "file" / "out"))
    assert (done.status, done.err.count("\n"), "cannot be written" in done.err) == (2, 1, True)
