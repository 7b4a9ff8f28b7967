"""The suites that selectors are trained on: what is made, without the layers of the test, and within an hour."""

from collections import Counter

import pytest

from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.shards import group_of
from kernelmark.bench.plan.suites import find_suite
from support.tools import script

TRAIN = script("suites")
NAMES = ["train-conv", "train-gemm"]
HELD_OUT = ("resnet50", "vgg16", "googlenet", "alexnet")


@pytest.mark.parametrize("name", NAMES)
def test_no_layer_of_the_test_is_drawn_in_any_direction_or_layout(registry, name):
    held = {group_of(e.problem.id) for suite in HELD_OUT for e in find_suite(suite, registry).entries()}
    drawn = [entry.problem.id for entry in find_suite(name, registry).entries()]
    assert len(set(drawn)) == len(drawn) >= 300
    assert {group_of(problem) for problem in drawn} & held == set()


def test_shapes_lie_around_the_layers_in_every_size(registry):
    def extent(names, axis):
        problems = [entry.problem for name in names for entry in find_suite(name, registry).entries()]
        found = [getattr(problem, axis) for problem in problems if problem.op == "conv"]
        return min(found), max(found)

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


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_take_less_than_an_hour_by_the_sum_that_the_file_states(registry, name):
    seconds = 0.0
    for planned in jobs([find_suite(name, registry)], registry, Plan(devices=("cpu",), threads=(2,))):
        for entrant in planned.job.entrants:
            problem = registry.problem(entrant.problem)
            if registry.kernels[entrant.kernel].refuses(problem) is None:
                calls_s = TRAIN.CALLS * problem.flop / TRAIN.FLOP_PER_S
                seconds += planned.job.budget.max_time_s + calls_s
    assert 600 < seconds < 1800


def test_every_kernel_of_a_cpu_that_a_selector_could_choose_contends(registry):
    found = jobs([find_suite("train-gemm", registry)], registry, Plan(devices=("cpu",), threads=(2,)))
    kernels = {kernel for planned in found for kernel in planned.job.kernels}
    assert {"gemm/numpy.matmul", "gemm/openblas.tnn", "gemm/openblas.inplace"} <= kernels
    assert [kernel for kernel in kernels if kernel.endswith("_colmajor")] == []


def test_the_suite_of_implicit_gemm_has_the_tiles_that_it_chooses_from(registry):
    kernels = {name for entry in find_suite("train-implicit-tiles", registry).entries() for name in entry.kernels}
    implicit = registry.kernels["conv/cuda.implicit"]
    preferred = {(tile["BM"], tile["BN"]) for tile in implicit.prefer.tiles}
    pinned = [registry.named(name).tile for name in kernels - {implicit.id}]
    assert {(tile["BM"], tile["BN"]) for tile in pinned} == preferred
