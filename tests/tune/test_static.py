"""Kernels' use of a multiprocessor's resources, and tiles ranked by it without a GPU."""

import math
import re

import pytest

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.tune.inspect import render
from kernelmark.bench.tune.search import subjects_of
from kernelmark.bench.tune.static import CompiledTile, rank, words
from support.tuning import row

#: Holds H values over a barrier in 32 registers, and does not compile for three.
SOURCE = """#include "common.cuh"

template <typename T, int H> __global__ __launch_bounds__(1024, 2) void held(const T *a, T *b, int n) {
  static_assert(H != 3);
  T held[H];
  for (int i = 0; i < H; ++i) held[i] = a[(i * 1024 + threadIdx.x) % n];
  __syncthreads();
  for (int i = 0; i < H; ++i) b[(i * 1024 + threadIdx.x) % n] = held[H - 1 - i] * held[i];
}
"""
PLUGIN = """from pathlib import Path

from kernelmark import KernelCall, cuda_kernel


@cuda_kernel("transpose", source=str(Path(__file__).with_name("held.cu")), entry="held<bits::{dtype}, {H}>",
             dtypes=("f32",), places=("out",), tunables={"H": (1, 128, 3)})
def held(p, t, device):
    \"\"\"Values over a barrier.\"\"\"
    return [KernelCall(1, 1024, ("a", "b", p.m * p.n))]
"""


@pytest.fixture
def subject(registry):

    def of(kernel, problem):
        return subjects_of(registry, kernel, find_suite(problem, registry), 0, static=True)[0]

    return of


def built(bound_s, *occupancies):
    return CompiledTile([row(occupancy=occupancy) for occupancy in occupancies], bound_s)


def test_the_least_bound_comes_first_and_of_equals_the_highest_occupancy():
    tiles = [built(1.0, 0.5), built(1.0, 1.0, 0.75), built(2.0, 1.0), built(None, 0.5), built(None, 1.0)]
    assert sorted(tiles, key=lambda tile: tile.order) == [tiles[i] for i in (1, 0, 2, 4, 3)]
    few = built(1.0, 0.5)._replace(counted=(1.0, 7))
    assert min([*tiles, few], key=lambda tile: tile.order) == few, "fewer counted beats occupancy"


@pytest.mark.usefixtures("cuda_compiler")
def test_what_spills_or_does_not_compile_is_dropped_and_counted(subject, tmp_path):
    (tmp_path / "held.cu").write_text(SOURCE)
    (tmp_path / "held.py").write_text(PLUGIN)
    discover((str(tmp_path / "held.py"),))
    ranked = rank(subject("transpose/cuda.held", "transpose/m64n64/f32/out"), "sm_90a", None, 0)
    assert ([tile.launches[0].tunables for tile in ranked.tiles], ranked.tried) == (['{"H":1}'], 3)
    assert (ranked.spilling, ranked.failed) == (1, 1)


@pytest.mark.usefixtures("cuda_compiler")
def test_tiles_of_a_product_are_ranked_by_the_bound_of_their_machine_code(subject):
    one = subject("gemm/cuda.tiled", "gemm/m128n128k128/f32/NT")
    ranked = rank(one, "sm_90a", 2, 0)
    bounds = [tile.bound_s for tile in ranked.tiles]
    assert len(bounds) == 2
    assert all(0 < bound < math.inf for bound in bounds)
    assert bounds == sorted(bounds)
    text = words(one, ranked, "sm_90a")
    assert "NOTHING WAS TIMED: ranked by the least time that published limits of the H100 SXM5 leave" in text
    assert "bound" in text.splitlines()[2]
    assert re.search(r"^The default, T=32, ranks [12] of 2, ", text, re.MULTILINE)


@pytest.mark.usefixtures("cuda_compiler")
def test_the_default_is_ranked_and_each_tile_has_one_line(subject):
    one = subject("gemm/cuda.splitk", "gemm/m128n128k128/f32/NT")
    ranked = rank(one, "sm_90a", 2, 0)
    text = words(one, ranked, "sm_90a")
    assert one.tiles.default in [tile.config for tile in ranked.tiles]
    assert text.count("gemm/cuda.splitk@") == len(ranked.tiles) == 2


@pytest.mark.usefixtures("cuda_compiler")
def test_tiles_with_equal_bounds_are_counted(subject):
    ranked = rank(subject("transpose/cuda.tiled", "transpose/m64n64/f32/out"), "sm_90a", None, 0)
    assert ranked.counted == len(ranked.tiles) == 3
    assert len({tile.bound_s for tile in ranked.tiles}) == 1
    assert all(tile.counted[1] > 0 for tile in ranked.tiles)


@pytest.mark.usefixtures("cuda_compiler")
def test_where_nothing_is_published_of_an_architecture_occupancy_ranks(subject, monkeypatch):
    monkeypatch.setattr("kernelmark.bench.tune.static.usual", lambda arch: None)
    one = subject("gemm/cuda.tiled", "gemm/m128n128k128/f32/NT")
    ranked = rank(one, "sm_90a", 2, 0)
    assert [tile.bound_s for tile in ranked.tiles] == [None, None]
    assert "NOTHING WAS TIMED: ranked by occupancy, which" in words(one, ranked, "sm_90a")


@pytest.mark.parametrize(
    ("kernel", "problem", "words"),
    [
        ("copy/numba.streaming", "copy/m64n1024/f32", "--static: copy/numba.streaming is not a CUDA kernel; omit "),
        ("gemm/cuda.wgmma", "gemm/m128n128k128/f16.f32/NT", "--static: gemm/cuda.wgmma does not run on sm_80; it is"),
    ],
)
def test_what_cannot_be_ranked_is_refused_in_one_line(subject, complaint, kernel, problem, words):
    assert complaint(lambda: rank(subject(kernel, problem), "sm_80", None, 0)).startswith(words)


def resources(entry, tunables=""):
    return row(kernel="conv/cuda.k", entry=entry, tunables=tunables)


def names(*rows):
    return [line.split("  ")[0].strip() for line in render(rows, "table").splitlines()[2:]]


def test_the_launches_of_a_kernel_are_distinguished_by_their_functions():
    assert names(resources("filters<2>"), resources("product<64, 4>")) == [
        "conv/cuda.k: filters",
        "conv/cuda.k: product",
    ]


def test_a_kernel_of_one_launch_is_named_with_its_tile_alone():
    assert names(resources("k<2>", '{"T":2}'), resources("k<4>", '{"T":4,"S":1}')) == [
        "conv/cuda.k@T=2",
        "conv/cuda.k@T=4,S=1",
    ]


def test_a_narrow_terminal_shows_the_name_above_the_resources(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = render([resources("k<2>", '{"T":2}')], "table").splitlines()
    assert shown[0] == "kernel and tile"
    assert shown[3] == "conv/cuda.k@T=2"
    assert shown[4].split() == ["sm_80", "32", "0", "8", "100%", "warps"]
    assert shown[5].startswith("  left out to fit: static, dynamic, stack, threads")
