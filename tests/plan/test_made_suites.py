"""Suites contain what their sources state: products, layers, gradients, and shapes to train on."""

import hashlib
from collections import Counter

import pytest
from msgspec.structs import replace

from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.shards import group_of
from kernelmark.bench.plan.suites import find_suite
from kernelmark.kernels.conv.fft.cpu import STRAIGHT

#: The networks of conv-peers, on whose layers selectors are tested.
HELD_OUT = ("resnet50", "vgg16", "googlenet", "alexnet")


@pytest.fixture
def entries(registry):
    return lambda name: list(find_suite(name, registry).entries())


#: Lists as they were published, computed or drawn: a digest of the problems, counts and kernels of each. Compare a list
#: with its source, which the file names, before you change its digest.
LISTS = {
    "aggregation": "573b97cb8b2a", "alexnet": "6518b7109969", "batch-sweep": "73ad34289606", "cifar10": "953b7d70c527",
    "conv-peers": "2a38b2474363", "convnet-benchmarks": "776fb371f073", "deepbench-conv": "dc32efb3d0e3",
    "deepbench-gemm": "73d419a651db", "deepbench-rnn": "4aabbbb0e405", "experts": "00508113ea0c",
    "fasttext": "fed248a727b9", "filter-sweep": "9e2d544ebdfa", "googlenet": "b9c64e809dbc",
    "inception3": "8c813a2924f9", "llm": "279906768398", "lstm": "92ea14b4ede7", "mlp": "f00e6be0ebd7",
    "mobilenet2": "6b21dd635f17", "resnet50": "aa54451dc214", "resnext50": "d8a74877d87f", "seed": "c789f9d2e8a3",
    "square-sweep": "b2191fdeddc3", "train-conv": "8a6aa4737665", "train-fft-tiles": "15cefcdaea23",
    "train-gemm": "56a5816dc54f", "train-implicit-tiles": "9abfb4289af6", "train-numba-fft-tiles": "92ec6e8d666d",
    "vgg16": "06555ad092de",
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_list_matches_its_digest_and_each_problem_is_parsed_from_its_id(registry, entries, name):
    rows = [(e.network, e.part, e.problem.id, e.count, e.kernels) for e in entries(name)]
    assert hashlib.sha256(repr(rows).encode()).hexdigest()[:12] == LISTS[name]
    assert [e.problem.id for e in entries(name) if registry.problem(e.problem.id) != e.problem] == []


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


@pytest.mark.parametrize(
    ("network", "suite"),
    [("AlexNet", "alexnet"), ("GoogLeNet", "googlenet"), ("ResNet-50", "resnet50"), ("VGG-16", "vgg16")],
)
def test_a_networks_gradient_has_as_many_elements_as_its_weights(entries, network, suite):
    layers = [(entry.count, entry.problem) for entry in entries(suite) if entry.part == "forward"]
    weights = sum(count * (p.c * p.k * p.r * p.s if p.op == "conv" else p.n * p.k) for count, p in layers)
    assert {entry.problem.n for entry in entries("aggregation") if entry.network == network} == {weights}


def test_a_planned_layer_has_its_suite_network_and_part(registry):
    planned = next(jobs([find_suite("cifar10", registry)], registry, Plan(devices=("cpu",))))
    assert (planned.suite, planned.network, planned.part) == ("cifar10", "vgg", "forward")


#: The limit of aggregation.toml, the memory of an idle worker, and a last-level cache.
LIMIT_BYTES, WORKER_BYTES, LLC_BYTES = 12e9, 0.4e9, 32 * 2**20


def test_each_aggregation_fits_into_the_memory_limit(entries):
    for problem in (entry.problem for entry in entries("aggregation")):
        sets = Mode.COLD.rotation(problem.footprint_bytes, LLC_BYTES).sets
        drawn = sum(operand.nbytes for operand in problem.operands() if operand.role != "out")
        compared = sum(operand.elements for operand in problem.operands() if operand.role == "inout")
        peak_bytes = sets * problem.footprint_bytes + drawn + 8 * problem.n + compared  # with the reference
        assert peak_bytes + WORKER_BYTES < LIMIT_BYTES


TRAINING = ["train-conv", "train-gemm"]
#: The calls of a case besides its samples, and the rate of slow kernels, as the files state them.
CALLS, FLOP_PER_S = 20, 10e9


@pytest.mark.parametrize("name", TRAINING)
def test_no_layer_of_the_held_out_networks_is_in_a_training_suite(registry, name):
    test_groups = {group_of(e.problem.id) for suite in HELD_OUT for e in find_suite(suite, registry).entries()}
    drawn = [entry.problem.id for entry in find_suite(name, registry).entries()]
    assert len(set(drawn)) == len(drawn) >= 300
    assert {group_of(problem) for problem in drawn} & test_groups == set()


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
def test_two_processes_take_less_than_an_hour_by_the_estimate_of_the_file(registry, name):
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


def test_the_suite_of_numbas_ffts_has_the_tiles_with_straight_line_code(registry):
    kernels = {name for entry in find_suite("train-numba-fft-tiles", registry).entries() for name in entry.kernels}
    pinned = {f"conv/numba.fft_tiled@HEIGHT={side},WIDTH={side}" for side in STRAIGHT}
    assert kernels == {"conv/numba.fft_tiled", *pinned}
