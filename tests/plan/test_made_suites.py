"""Suites contain what their sources state: products, layers, gradients, and shapes to train on."""

import hashlib
from collections import Counter
from itertools import pairwise

import pytest
from msgspec.structs import replace

from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.shards import group_of
from kernelmark.bench.plan.suites import find_suite
from kernelmark.kernels.conv.fft.cpu import STRAIGHT

NAMES = ["alexnet", "deepbench-gemm", "deepbench-rnn", "experts", "fasttext", "llm", "lstm", "mlp", "square-sweep"]
WITH_CONVOLUTIONS = [
    *("vgg16", "googlenet", "inception3", "resnet50", "resnext50", "mobilenet2", "cifar10", "convnet-benchmarks"),
    "deepbench-conv",
]
FCN5 = (784, 2048, 4096, 1024, 10)
BATCHES = (342, 512, 1024, 4096)
#: The networks of conv-peers, on whose layers selectors are tested.
HELD_OUT = ("resnet50", "vgg16", "googlenet", "alexnet")


@pytest.fixture
def entries(registry):
    return lambda name: list(find_suite(name, registry).entries())


@pytest.fixture
def gemms(entries):
    return lambda name: [e for e in entries(name) if e.problem.op == "gemm"]


def products(entries, layout):
    return {(e.problem.m, e.problem.n, e.problem.k): e.count for e in entries if e.problem.layout == layout}


@pytest.mark.parametrize("name", [*NAMES, *WITH_CONVOLUTIONS, "filter-sweep", "batch-sweep"])
def test_every_problem_is_found_again_by_its_id_and_stands_once(registry, name):
    problems = [entry.problem for entry in find_suite(name, registry).entries()]
    assert [p.id for p in problems if registry.problem(p.id) != p] == []
    assert len({p.id for p in problems}) == len(problems) > 0
    dtypes = {"llm": {"bf16", "f32", "e4m3.bf16", "s8.s32"}, "experts": {"bf16", "f32"}}
    assert {p.dtype for p in problems if p.op == "gemm"} <= dtypes.get(name, {"f32"})


#: Lists as they were published or drawn: a digest of the problems, counts and kernels of each.
LISTS = {
    "alexnet": "6518b7109969", "cifar10": "953b7d70c527", "conv-peers": "2a38b2474363",
    "deepbench-conv": "dc32efb3d0e3", "deepbench-gemm": "73d419a651db", "deepbench-rnn": "4aabbbb0e405",
    "googlenet": "b9c64e809dbc", "inception3": "8c813a2924f9", "mobilenet2": "6b21dd635f17", "resnet50": "aa54451dc214",
    "resnext50": "d8a74877d87f", "train-conv": "8a6aa4737665", "train-fft-tiles": "15cefcdaea23",
    "train-gemm": "56a5816dc54f", "train-implicit-tiles": "9abfb4289af6", "train-numba-fft-tiles": "92ec6e8d666d",
    "vgg16": "06555ad092de",
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_as_it_was_published_or_drawn(entries, name):
    rows = [(e.network, e.part, e.problem.id, e.count, e.kernels) for e in entries(name)]
    assert hashlib.sha256(repr(rows).encode()).hexdigest()[:12] == LISTS[name]


def test_deepbench_gemm_has_all_248_rows_of_the_list_and_merges_the_five_that_stand_twice(gemms):
    entries = gemms("deepbench-gemm")
    counts = [entry.count for entry in entries]
    assert (sum(counts), len(counts), counts.count(2)) == (248, 243, 5)
    # The list holds 165 rows N,N; 73 rows T,N; 10 rows N,T, counted with sort and uniq.
    rows = {layout: sum(products(entries, layout).values()) for layout in ("NN", "NT", "TN", "TT")}
    assert rows == {"NN": 165, "NT": 73, "TN": 10, "TT": 0}
    # make_tuple(5124, 9124, 1760, true, false), make_tuple(1760, 7133, 1760, false, true), and 3072,1,1024 in two sets.
    assert products(entries, "NT")[9124, 5124, 1760] == products(entries, "TN")[7133, 1760, 1760] == 1
    assert products(entries, "NN")[1, 3072, 1024] == 2


def test_deepbench_rnn_counts_the_time_steps_of_every_row(gemms):
    # The list holds 125 rows: 55839 time steps, 15849 of them of training.
    entries = gemms("deepbench-rnn")
    assert sum(products(entries, "NT").values()) == 55839
    assert sum(products(entries, "NN").values()) == 15849
    # 256 units at batch 1 over 150 steps stand in the lists of servers and of devices; 2816 gru units at batch 32 in
    # that of training with 1500, 750, 375 and 187 steps.
    assert products(entries, "NT")[1, 4 * 256, 256] == 2 * 150
    assert products(entries, "NT")[32, 3 * 2816, 2816] == products(entries, "NN")[32, 2816, 3 * 2816] == 2812
    assert products(entries, "NT")[1, 32, 32] == 672


def test_mlp_holds_the_three_products_of_every_layer_of_fcn5(gemms):
    entries, layers = gemms("mlp"), list(pairwise(FCN5))
    assert set(products(entries, "NT")) == {(batch, n_out, n_in) for batch in BATCHES for n_in, n_out in layers}
    assert set(products(entries, "NN")) == {(batch, n_in, n_out) for batch in BATCHES for n_in, n_out in layers[1:]}
    assert set(products(entries, "TN")) == {(n_out, n_in, batch) for batch in BATCHES for n_in, n_out in layers}
    assert len(entries) == 44


@pytest.mark.parametrize(
    ("name", "forward", "gradients"), [("mlp", "NT", "NN TN"), ("fasttext", "NT", "NN TN"), ("lstm", "NN", "NT TN")]
)
def test_a_gradient_has_the_sizes_of_its_forward_product_in_another_order(gemms, name, forward, gradients):
    entries = gemms(name)
    made = {tuple(sorted(sizes)) for sizes in products(entries, forward)}
    for layout in gradients.split():
        assert {tuple(sorted(sizes)) for sizes in products(entries, layout)} <= made


def test_lstm_counts_steps_times_layers(gemms):
    # 2 layers: 20 steps of 200 units at batch 20; 32 steps of 256 units at batch 128. [x h] is 2h wide, four gates.
    assert products(gemms("lstm"), "NN") == {(20, 4 * 200, 2 * 200): 20 * 2, (128, 4 * 256, 2 * 256): 32 * 2}


def test_llm_is_linear_layers_at_four_token_counts_in_three_types_and_some_in_integers(gemms):
    entries = gemms("llm")
    integers = [entry.problem for entry in entries if entry.problem.dtype == "s8.s32"]
    assert {p.id for p in integers} <= {entry.problem.id.replace("bf16", "s8.s32") for entry in entries}
    assert len(integers) == 3 * 4
    assert {entry.problem.layout for entry in entries} == {"NT"}
    assert {entry.problem.m for entry in entries} == {1, 8, 128, 4096}
    assert len({(entry.problem.n, entry.problem.k) for entry in entries}) == 17
    scaled = [entry.problem for entry in entries if entry.problem.scale == "blocks"]
    assert {problem.dtype for problem in scaled} == {"e4m3.bf16"}
    assert (len(entries) - len(scaled) - len(integers), len(scaled)) == (17 * 4 * 3, 4 * 2)
    shapes = {(entry.problem.n, entry.problem.k) for entry in entries}
    for width, hidden in ((4096, 14336), (8192, 28672)):  # of Llama
        qkv = width + 2 * 8 * 128  # 8 heads of 128 for keys, and as many for values
        assert {(qkv, width), (width, width), (2 * hidden, width), (width, hidden)} <= shapes


def test_experts_have_as_many_rows_as_their_tokens_take(gemms):
    problems = [entry.problem for entry in gemms("experts")]
    # Each of 8 and 4096 tokens goes to two of 8; 8192 and 4096 are expected of each of 4 and 8.
    assert {(p.groups, p.m) for p in problems} == {(8, 2 * 8), (8, 2 * 4096), (4, 4 * 8192), (8, 8 * 4096)}
    assert len(problems) == 2 * (2 * 2 * 2) + 2 * 4
    assert {(p.n, p.k) for p in problems} == {(2 * 14336, 4096), (4096, 14336), (4096, 7168), (7168, 2048)}


def test_the_square_sweep_is_square_and_alexnet_reads_256_maps_of_6_by_6_into_its_last_layers(gemms):
    assert set(products(gemms("square-sweep"), "NN")) == {(2**i, 2**i, 2**i) for i in range(4, 14)}
    widths = (256 * 6 * 6, 4096, 4096, 1000)
    assert products(gemms("alexnet"), "NT") == {(1, n, k): 1 for k, n in pairwise(widths)}


def test_seed_sets_the_fused_update_against_two_steps_on_every_weight_gradient(gemms):
    entries = gemms("seed")
    plain = products([e for e in entries if e.problem.beta == 0], "TN")
    updates = [e for e in entries if e.problem.beta == 1]
    assert products(updates, "TN") == plain
    assert all(entry.problem.id.endswith("/f32/TN/alpha-0.01/beta1") for entry in updates)
    assert all({"gemm/scipy.sgemm", "gemm/*.two_step"} <= set(entry.kernels) for entry in updates)


# Multiply-adds of one image forward, as the papers and torchvision state them (in 10^9).
@pytest.mark.parametrize(
    ("name", "macs", "convolutions"),
    [
        ("vgg16", 15.5, 13),
        ("resnet50", 4.1, 53),
        ("googlenet", 1.58, 57),
        ("inception3", 5.7, 94),
        ("alexnet", 1.14, 5),
        ("resnext50", 4.23, 53),
        ("mobilenet2", 0.3, 52),
    ],
)
def test_a_network_has_the_layers_and_the_work_that_are_known_of_it(entries, name, macs, convolutions):
    forward = [e for e in entries(name) if e.part == "forward"]
    assert sum(e.count for e in forward if e.problem.op == "conv") == convolutions
    assert sum(e.count * e.problem.flop for e in forward) / 2e9 == pytest.approx(macs, rel=0.01)


def test_every_row_of_deepbench_is_counted(entries):
    counts = Counter()
    for e in entries("deepbench-conv"):
        counts[e.problem.direction] += e.count
    assert counts == {"fprop": 217, "dgrad": 94, "wgrad": 94}  # 94 of the rows are of training


def test_filters_grow_at_the_same_work_and_batches_to_beyond_the_memory_of_any_one_gpu(entries):
    problems = [e.problem for e in entries("filter-sweep")]
    assert [p.r for p in problems] == list(range(1, 16))
    assert {(p.p, p.q) for p in problems} == {(56, 56)}  # the image keeps its size
    assert [p.id for p in problems if not 0.95 * 361e6 < p.flop < 1.05 * 361e6] == []
    batches = [e.problem for e in entries("batch-sweep")]
    assert [p.n for p in batches] == [2**i for i in range(16)]
    assert batches[-1].footprint_bytes > 200e9


def test_the_layers_of_a_network_know_it_when_they_are_planned(registry):
    planned = next(jobs([find_suite("cifar10", registry)], registry, Plan(devices=("cpu",))))
    assert (planned.suite, planned.network, planned.part) == ("cifar10", "vgg", "forward")


@pytest.mark.parametrize("name", HELD_OUT)
def test_conv_peers_has_each_layer_of_a_network_once_in_both_layouts_for_1_and_8_images(entries, name):
    layers = {e.problem for e in entries(name) if e.problem.op == "conv"}
    layer_entries = [e for e in entries("conv-peers") if e.network == name]
    counts = Counter(e.problem for e in layer_entries)
    assert set(counts.values()) == {e.count for e in layer_entries} == {1}
    for n in (1, 8):
        for layout in ("nchw", "nhwc"):
            expected = {replace(layer, n=n, layout=layout) for layer in layers}
            assert {p for p in counts if (p.n, p.layout) == (n, layout)} == expected
    assert len(counts) == 4 * len(layers)


#: A worker's own memory, and the last-level cache of the machine whose memory was read.
LIMIT_BYTES, WORKER_BYTES, LLC_BYTES = 12e9, 0.4e9, 32 * 2**20


def weights(layers):
    sizes = ((e, e.problem) for e in layers if e.part == "forward")
    return sum(e.count * (p.c * p.k * p.r * p.s if p.op == "conv" else p.n * p.k) for e, p in sizes)


def dense(*widths):
    return sum(a * b for a, b in pairwise(widths))


def test_gradients_are_as_large_as_the_layers_for_two_four_and_eight_workers(entries):
    hidden = 2048
    expected = {
        "AlexNet": weights(entries("alexnet")),
        "GoogLeNet": weights(entries("googlenet")),
        "ResNet-50": weights(entries("resnet50")),
        "VGG-16": weights(entries("vgg16")),
        "FCN-5": dense(26752, *[hidden] * 3, 26752),
        "FCN-8": dense(26752, *[hidden] * 6, 26752),
        "FCN-R": dense(784, 2048, 4096, 1024, 10),
        "FCN-R, by its transfer": round(0.0256 * 8e9 / 4),
        "LSTM": 2 * (2 * 256) * (4 * 256),
    }
    gradients = [(entry.network, entry.problem.n, entry.problem.w) for entry in entries("aggregation")]
    assert sorted(gradients) == sorted((*network, workers) for network in expected.items() for workers in (2, 4, 8))


def peak_bytes(problem):
    """Sets of operands, the values drawn for them, the reference, and a byte for each residual that is compared."""
    sets = Mode.COLD.rotation(problem.footprint_bytes, LLC_BYTES).sets
    drawn = sum(operand.nbytes for operand in problem.operands() if operand.role != "out")
    compared = sum(operand.elements for operand in problem.operands() if operand.role == "inout")
    return sets * problem.footprint_bytes + drawn + 8 * problem.n + compared


def test_what_a_problem_takes_in_all_is_less_than_the_limit(entries):
    assert max(peak_bytes(entry.problem) for entry in entries("aggregation")) + WORKER_BYTES < LIMIT_BYTES


TRAINING = ["train-conv", "train-gemm"]
#: The calls of a case besides its samples, and the rate of slow kernels, as the files state them.
CALLS, FLOP_PER_S = 20, 10e9


@pytest.mark.parametrize("name", TRAINING)
def test_no_layer_of_the_test_is_drawn_in_any_direction_or_layout(registry, name):
    test_groups = {group_of(e.problem.id) for suite in HELD_OUT for e in find_suite(suite, registry).entries()}
    drawn = [entry.problem.id for entry in find_suite(name, registry).entries()]
    assert len(set(drawn)) == len(drawn) >= 300
    assert {group_of(problem) for problem in drawn} & test_groups == set()


def test_shapes_lie_around_the_layers_in_every_size(registry):
    def extent(names, axis):
        problems = [entry.problem for name in names for entry in find_suite(name, registry).entries()]
        lengths = [getattr(problem, axis) for problem in problems if problem.op == "conv"]
        return min(lengths), max(lengths)

    for axis in ("c", "k", "h", "r"):
        (low, high), (least, most) = extent(["train-conv"], axis), extent(HELD_OUT, axis)
        assert low <= 2 * least, axis
        assert high >= most / 2, axis


def test_each_kind_of_layer_is_drawn_in_every_direction(registry):
    def kinds(*names):
        problems = [entry.problem for name in names for entry in find_suite(name, registry).entries()]
        convolutions = [p for p in problems if p.op == "conv"]
        sides = Counter((p.direction, p.r, "large") for p in convolutions if p.h > 2**6.5)
        return sides + Counter((p.direction, p.r, str(p.stride)) for p in convolutions)

    drawn = kinds("train-conv")
    assert min(drawn[kind] for kind in kinds(*HELD_OUT)) >= 3
    for least, *rare in ((10, 1, "2"), (5, 3, "large")):
        assert min(drawn[direction, *rare] for direction in ("fprop", "dgrad", "wgrad")) >= least, rare


@pytest.mark.parametrize("name", TRAINING)
def test_two_processes_take_less_than_an_hour_by_the_sum_that_the_file_states(registry, name):
    seconds = 0.0
    for planned in jobs([find_suite(name, registry)], registry, Plan(devices=("cpu",), threads=(2,))):
        for entrant in planned.job.entrants:
            problem = registry.problem(entrant.problem)
            if registry.kernels[entrant.kernel].refuses(problem) is None:
                calls_s = CALLS * problem.flop / FLOP_PER_S
                seconds += planned.job.budget.max_time_s + calls_s
    assert 600 < seconds < 1800


def test_kernels_and_tiles_that_a_selector_could_choose_contend(entries, registry):
    planned_jobs = jobs([find_suite("train-gemm", registry)], registry, Plan(devices=("cpu",), threads=(2,)))
    kernels = {kernel for planned in planned_jobs for kernel in planned.job.kernels}
    assert {"gemm/numpy.matmul", "gemm/openblas.tnn", "gemm/openblas.inplace"} <= kernels
    assert [kernel for kernel in kernels if kernel.endswith("_colmajor")] == []
    kernels = {name for entry in entries("train-implicit-tiles") for name in entry.kernels}
    implicit = registry.kernels["conv/cuda.implicit"]
    preferred = {(tile["BM"], tile["BN"]) for tile in implicit.prefer.tiles}
    pinned = [registry.named(name).tile for name in kernels - {implicit.id}]
    assert {(tile["BM"], tile["BN"]) for tile in pinned} == preferred
    tiled, drawn = ({entry.problem.id for entry in entries(name)} for name in ("train-implicit-tiles", "train-conv"))
    assert tiled == drawn


def test_the_suite_of_numbas_ffts_has_the_tiles_that_have_straight_code(registry):
    kernels = {name for entry in find_suite("train-numba-fft-tiles", registry).entries() for name in entry.kernels}
    pinned = {f"conv/numba.fft_tiled@HEIGHT={side},WIDTH={side}" for side in STRAIGHT}
    assert kernels == {"conv/numba.fft_tiled", *pinned}
