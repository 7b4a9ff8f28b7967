"""The suites of matrix products hold the shapes that their sources state."""

from itertools import pairwise

import numpy as np
import pytest

from kernelmark.bench.plan.suites import FOLDER, find_suite
from support.tools import script

MADE = script("suites")
NAMES = ["alexnet", "deepbench-gemm", "deepbench-rnn", "experts", "fasttext", "llm", "lstm", "mlp", "square-sweep"]
CONV = [
    *("vgg16", "googlenet", "inception3", "resnet50", "resnext50", "mobilenet2", "cifar10", "convnet-benchmarks"),
    "deepbench-conv",
]
FCN5 = (784, 2048, 4096, 1024, 10)
BATCHES = (342, 512, 1024, 4096)


@pytest.fixture
def entries(registry):
    return lambda name: [e for e in find_suite(name, registry).entries() if e.problem.op == "gemm"]


def products(entries, layout):
    return {(e.problem.m, e.problem.n, e.problem.k): e.count for e in entries if e.problem.layout == layout}


@pytest.mark.parametrize("name", [*NAMES, *CONV, "filter-sweep", "batch-sweep"])
def test_every_problem_is_found_again_by_its_id_and_stands_once(registry, name):
    problems = [entry.problem for entry in find_suite(name, registry).entries()]
    assert [p.id for p in problems if registry.problem(p.id) != p] == []
    assert len({p.id for p in problems}) == len(problems) > 0
    dtypes = {"llm": {"bf16", "f32", "e4m3.bf16", "s8.s32"}, "experts": {"bf16", "f32"}}
    assert {p.dtype for p in problems if p.op == "gemm"} <= dtypes.get(name, {"f32"})


@pytest.mark.parametrize("name", MADE.SUITES)
def test_a_made_suite_is_what_its_script_makes(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == MADE.SUITES[name](), "run python tools/suites.py"


def test_deepbench_gemm_counts_all_248_rows_and_merges_the_five_that_stand_twice(entries):
    counts = [entry.count for entry in entries("deepbench-gemm")]
    assert (sum(counts), len(counts), counts.count(2)) == (248, 243, 5)


def test_deepbench_gemm_has_as_many_rows_a_layout_as_the_list(entries):
    # The list holds 165 rows N,N; 73 rows T,N; 10 rows N,T, counted with sort and uniq.
    found = entries("deepbench-gemm")
    assert {layout: sum(products(found, layout).values()) for layout in ("NN", "NT", "TN", "TT")} == {
        "NN": 165,
        "NT": 73,
        "TN": 10,
        "TT": 0,
    }


def test_deepbench_gemm_by_hand(entries):
    # make_tuple(5124, 9124, 1760, true, false), make_tuple(1760, 7133, 1760, false, true), and 3072,1,1024 in two sets.
    found = entries("deepbench-gemm")
    assert products(found, "NT")[9124, 5124, 1760] == 1
    assert products(found, "TN")[7133, 1760, 1760] == 1
    assert products(found, "NN")[1, 3072, 1024] == 2


@pytest.mark.parametrize("a_t", ["N", "T"])
@pytest.mark.parametrize("b_t", ["N", "T"])
def test_the_row_major_case_is_deepbenchs_column_major_call_on_the_same_buffers(a_t, b_t):
    m, n, k = 2, 3, 5
    a_stored, b_stored = ((k, m) if a_t == "T" else (m, k)), ((n, k) if b_t == "T" else (k, n))
    a_buffer, b_buffer = np.arange(1, 1 + m * k), np.arange(7, 7 + k * n)
    a, b = a_buffer.reshape(a_stored, order="F"), b_buffer.reshape(b_stored, order="F")
    c_buffer = ((a.T if a_t == "T" else a) @ (b.T if b_t == "T" else b)).ravel(order="F")
    row = {"m": str(m), "n": str(n), "k": str(k), "a_t": a_t, "b_t": b_t}
    (op_a, op_b), (rows, cols, depth) = MADE.deepbench_gemm_case(row)
    first = b_buffer.reshape((depth, rows) if op_a == "T" else (rows, depth))
    second = a_buffer.reshape((cols, depth) if op_b == "T" else (depth, cols))
    c = (first.T if op_a == "T" else first) @ (second.T if op_b == "T" else second)
    assert c.ravel().tolist() == c_buffer.tolist()


def test_deepbench_rnn_counts_the_time_steps_of_every_row(entries):
    rows = MADE.read("deepbench_rnn.csv")
    steps = {kind: sum(int(r["timesteps"]) for r in rows if r["set"] == kind) for kind in {r["set"] for r in rows}}
    found = entries("deepbench-rnn")
    assert len(rows) == 125
    assert sum(products(found, "NT").values()) == sum(steps.values())
    assert sum(products(found, "NN").values()) == steps["training"]


def test_deepbench_rnn_by_hand(entries):
    # 256 units at batch 1 over 150 steps stand in the lists of servers and of devices; 2816 gru units at batch 32 in
    # that of training with 1500, 750, 375 and 187 steps.
    found = entries("deepbench-rnn")
    assert products(found, "NT")[1, 4 * 256, 256] == 2 * 150
    assert products(found, "NT")[32, 3 * 2816, 2816] == products(found, "NN")[32, 2816, 3 * 2816] == 2812
    assert products(found, "NT")[1, 32, 32] == 672


def test_mlp_holds_the_three_products_of_every_layer_of_fcn5(entries):
    found, layers = entries("mlp"), list(pairwise(FCN5))
    assert set(products(found, "NT")) == {(batch, n_out, n_in) for batch in BATCHES for n_in, n_out in layers}
    assert set(products(found, "NN")) == {(batch, n_in, n_out) for batch in BATCHES for n_in, n_out in layers[1:]}
    assert set(products(found, "TN")) == {(n_out, n_in, batch) for batch in BATCHES for n_in, n_out in layers}
    assert len(found) == 44


@pytest.mark.parametrize(
    ("name", "forward", "gradients"), [("mlp", "NT", "NN TN"), ("fasttext", "NT", "NN TN"), ("lstm", "NN", "NT TN")]
)
def test_a_gradient_has_the_sizes_of_its_forward_product_in_another_order(entries, name, forward, gradients):
    found = entries(name)
    made = {tuple(sorted(sizes)) for sizes in products(found, forward)}
    for layout in gradients.split():
        assert {tuple(sorted(sizes)) for sizes in products(found, layout)} <= made


def test_lstm_counts_steps_times_layers(entries):
    # 2 layers: 20 steps of 200 units at batch 20; 32 steps of 256 units at batch 128. [x h] is 2h wide, four gates.
    assert products(entries("lstm"), "NN") == {(20, 4 * 200, 2 * 200): 20 * 2, (128, 4 * 256, 2 * 256): 32 * 2}


def test_llm_is_linear_layers_at_four_token_counts_in_three_types_and_some_in_integers(entries):
    found = entries("llm")
    integers = [entry.problem for entry in found if entry.problem.dtype == "s8.s32"]
    assert {p.id for p in integers} <= {entry.problem.id.replace("bf16", "s8.s32") for entry in found}
    assert len(integers) == 3 * 4
    assert {entry.problem.layout for entry in found} == {"NT"}
    assert {entry.problem.m for entry in found} == {1, 8, 128, 4096}
    assert len({(entry.problem.n, entry.problem.k) for entry in found}) == 17
    scaled = [entry.problem for entry in found if entry.problem.scale == "blocks"]
    assert {problem.dtype for problem in scaled} == {"e4m3.bf16"}
    assert (len(found) - len(scaled) - len(integers), len(scaled)) == (17 * 4 * 3, 4 * 2)


def test_experts_have_as_many_rows_as_their_tokens_take(entries):
    found = [entry.problem for entry in entries("experts")]
    # Each of 8 and 4096 tokens goes to two of 8; 8192 and 4096 are expected of each of 4 and 8.
    assert {(p.groups, p.m) for p in found} == {(8, 2 * 8), (8, 2 * 4096), (4, 4 * 8192), (8, 8 * 4096)}
    assert len(found) == 2 * (2 * 2 * 2) + 2 * 4
    assert {(p.n, p.k) for p in found} == {(2 * 14336, 4096), (4096, 14336), (4096, 7168), (7168, 2048)}


def test_llama_layers_follow_from_width_heads_and_feed_forward(entries):
    shapes = {(entry.problem.n, entry.problem.k) for entry in entries("llm")}
    for width, hidden in ((4096, 14336), (8192, 28672)):
        qkv = width + 2 * 8 * 128  # 8 heads of 128 for keys, and as many for values
        assert {(qkv, width), (width, width), (2 * hidden, width), (width, hidden)} <= shapes


def test_the_square_sweep_is_square(entries):
    assert set(products(entries("square-sweep"), "NN")) == {(2**i, 2**i, 2**i) for i in range(4, 14)}


def test_alexnet_reads_256_maps_of_6_by_6_into_its_fully_connected_layers(entries):
    widths = (256 * 6 * 6, 4096, 4096, 1000)
    assert products(entries("alexnet"), "NT") == {(1, n, k): 1 for k, n in pairwise(widths)}


def test_seed_sets_the_fused_update_against_two_steps_on_every_weight_gradient(entries):
    found = entries("seed")
    plain = products([e for e in found if e.problem.beta == 0], "TN")
    updates = [e for e in found if e.problem.beta == 1]
    assert products(updates, "TN") == plain
    assert all(entry.problem.id.endswith("/f32/TN/alpha-0.01/beta1") for entry in updates)
    assert all({"gemm/scipy.sgemm", "gemm/*.two_step"} <= set(entry.kernels) for entry in updates)
