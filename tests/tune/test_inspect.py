"""The resources of kernels, tiles ranked by them without a GPU, and gates by pinned figures."""

import json
import math
import re

import msgspec
import pytest

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.tune.inspect import render
from kernelmark.bench.tune.pins import PinnedCommand, gate
from kernelmark.bench.tune.search import subjects_of
from kernelmark.bench.tune.static import CompiledTile, rank, words
from support.pages import valid
from support.tuning import PLUGIN, row

#: Keeps a value over a barrier, with at most 32 registers a thread. For H = 8 it keeps 128 values, so that registers
#: spill; for H = 3 it does not compile.
SPILLING = """#include "common.cuh"

template <typename T, int H> __global__ __launch_bounds__(1024, 2) void turned(const T *a, T *b, int m, int n) {
  static_assert(H != 3);
  constexpr int count = H == 8 ? 128 : 1;
  T values[count];
  for (int i = 0; i < count; ++i) values[i] = a[(i * 1024 + threadIdx.x) % (m * n)];
  __syncthreads();
  for (int i = 0; i < count; ++i) b[(i * 1024 + threadIdx.x) % (m * n)] = values[count - 1 - i] * values[i];
}
"""


@pytest.fixture
def subject(registry):
    return lambda kernel, problem: subjects_of(registry, kernel, find_suite(problem, registry), 0, static=True)[0]


def built(bound_s, *occupancies):
    return CompiledTile([row(occupancy=occupancy) for occupancy in occupancies], bound_s)


def test_tiles_are_ordered_by_bound_and_then_by_occupancy():
    tiles = [built(1.0, 0.5), built(1.0, 1.0, 0.75), built(2.0, 1.0), built(None, 0.5), built(None, 1.0)]
    assert sorted(tiles, key=lambda tile: tile.order) == [tiles[i] for i in (1, 0, 2, 4, 3)]
    sparing = built(1.0, 0.5)._replace(counted=(1.0, 7))
    assert min([*tiles, sparing], key=lambda tile: tile.order) == sparing, "a lower count goes before occupancy"


@pytest.mark.usefixtures("cuda_compiler")
def test_tiles_that_spill_or_do_not_compile_are_dropped_and_counted(subject, folder):
    (folder / "turned.cu").write_text(SPILLING)
    (folder / "turned.py").write_text(PLUGIN.replace("(8, 4)", "(1, 8, 3)"))
    discover((str(folder / "turned.py"),))
    ranked = rank(subject("transpose/cuda.turned", "transpose/m64n64/f32/out"), "sm_90a", None, 0)
    assert ([tile.launches[0].tunables for tile in ranked.tiles], ranked.tried) == (['{"H":1}'], 3)
    assert (ranked.spilling, ranked.failed) == (1, 1)


@pytest.mark.usefixtures("cuda_compiler")
@pytest.mark.parametrize(
    ("kernel", "default"),
    [("gemm/cuda.tiled", "T=32"), pytest.param("gemm/cuda.splitk", r"BM=64,BN=32,\S+", marks=pytest.mark.long)],
)
def test_tiles_of_a_product_are_ranked_by_the_bound_of_their_machine_code_with_one_line_each(subject, kernel, default):
    examined = subject(kernel, "gemm/m128n128k128/f32/NT")
    ranked = rank(examined, "sm_90a", 2, 0)
    bounds = [tile.bound_s for tile in ranked.tiles]
    assert all(0 < bound < math.inf for bound in bounds)
    assert bounds == sorted(bounds)
    text = words(examined, ranked, "sm_90a")
    assert "NOTHING WAS TIMED: ranked by the code's least time under published limits of the H100 SXM5" in text
    assert "bound" in text.splitlines()[2]
    assert re.search(rf"^The default, {default}, ranks [12] of 2, ", text, re.MULTILINE)
    assert text.count(f"{kernel}@") == len(ranked.tiles) == 2


@pytest.mark.usefixtures("cuda_compiler")
def test_tiles_with_equal_bounds_are_counted(subject):
    ranked = rank(subject("transpose/cuda.tiled", "transpose/m64n64/f32/out"), "sm_90a", None, 0)
    assert ranked.counted == len(ranked.tiles) == 3
    assert len({tile.bound_s for tile in ranked.tiles}) == 1
    assert all(tile.counted[1] > 0 for tile in ranked.tiles)


@pytest.mark.usefixtures("cuda_compiler")
def test_tiles_are_ranked_by_occupancy_if_an_architecture_has_no_published_limits(subject, monkeypatch):
    monkeypatch.setattr("kernelmark.bench.tune.static.usual", lambda arch: None)
    examined = subject("gemm/cuda.tiled", "gemm/m128n128k128/f32/NT")
    ranked = rank(examined, "sm_90a", 2, 0)
    assert [tile.bound_s for tile in ranked.tiles] == [None, None]
    assert "NOTHING WAS TIMED: ranked by occupancy, which" in words(examined, ranked, "sm_90a")


@pytest.mark.parametrize(
    ("kernel", "problem", "words"),
    [
        ("copy/numba.streaming", "copy/m64n1024/f32", "--static: copy/numba.streaming is not a CUDA kernel; omit "),
        ("gemm/cuda.wgmma", "gemm/m128n128k128/f16.f32/NT", "--static: gemm/cuda.wgmma does not run on sm_80, "),
    ],
)
def test_a_kernel_that_cannot_be_ranked_is_refused_in_one_line(subject, complaint, kernel, problem, words):
    assert complaint(lambda: rank(subject(kernel, problem), "sm_80", None, 0)).startswith(words)


def resources(entry, tunables=""):
    return row(kernel="conv/cuda.k", entry=entry, tunables=tunables)


def names(*rows):
    return [line.split("  ")[0].strip() for line in render(rows, "table").splitlines()[2:]]


def test_the_launches_of_a_kernel_are_distinguished_by_their_functions():
    several = names(resources("filters<2>"), resources("product<64, 4>"))
    assert several == ["conv/cuda.k: filters", "conv/cuda.k: product"]
    one_each = names(resources("k<2>", '{"T":2}'), resources("k<4>", '{"T":4,"S":1}'))
    assert one_each == ["conv/cuda.k@T=2", "conv/cuda.k@T=4,S=1"], "a kernel with one launch has only its tile"
    assert names(row(kernel="conv/cuda.k@T=2", tunables='{"T":2}')) == ["conv/cuda.k@T=2"], "a tile is named once"


def test_a_narrow_terminal_shows_the_name_above_the_resources(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = render([resources("k<2>", '{"T":2}')], "table").splitlines()
    assert shown[0] == "kernel and tile"
    assert shown[3] == "conv/cuda.k@T=2"
    assert shown[4].split() == ["sm_80", "32", "0", "8", "100%", "warps"]
    assert shown[5].startswith("  left out to fit: static, dynamic, stack, threads")


WORDS = "inspect --kernels some"
PINNED = {"some.kernel sm_90a f": {"registers": 32, "spill_bytes": 0}, "some.kernel": {"sectors": 9, "wavefronts": 4}}
LOOP = {"f": {"multiply_add_pct": 91.3}}


@pytest.fixture
def against(tmp_path):
    def of(pinned, counted, **more):
        path = tmp_path / "pins.json"
        gate(path, WORDS, PinnedCommand("nvcc 1", pinned), update=True)
        return gate(path, WORDS, PinnedCommand("nvcc 2", counted), update=False, **more)

    return of


@pytest.mark.parametrize(
    ("pinned", "counted", "fails", "line"),
    [
        (PINNED, PINNED, False, None),
        ({"f": {"registers": 32}}, {"f": {"registers": 33}}, True, "f: 33 registers now, pinned 32; "),
        ({"f": {"registers": 32}}, {"f": {"registers": 31}}, False, "f: 31 registers now, pinned 32; "),
        ({"f": {"spill_bytes": 0}}, {"f": {"spill_bytes": 8}}, True, "f: 8 bytes of spills now, pinned 0; "),
        ({"f": {"sectors": 1024}}, {"f": {"sectors": 2048}}, True, "f: 2,048 sectors now, pinned 1,024; "),
        ({"f": {"wavefronts": 1}}, {"f": {"wavefronts": 32}}, True, "f: 32 wavefronts now, pinned 1; "),
        (LOOP, {"f": {"multiply_add_pct": 91.2}}, True, "f: 91.2 % multiply-adds in the main loop now, pinned 91.3; "),
        (LOOP, {"f": {"multiply_add_pct": 91.4}}, False, "f: 91.4 % multiply-adds in the main loop now, pinned 91.3; "),
        (LOOP, {"f": {}}, True, "f: none now, pinned 91.3 % multiply-adds in the main loop; "),
        (LOOP, {}, True, "f: gone now, pinned 91.3 % multiply-adds"),
        ({}, {"f": {"registers": 32}}, False, "f: 32 registers, not pinned; "),
    ],
)
def test_a_line_names_each_change_and_only_worse_figures_fail(against, tmp_path, pinned, counted, fails, line):
    text, is_worse = against(pinned, counted)
    *changes, head = text.splitlines()
    assert is_worse == fails
    assert f"{int(fails)} worse or gone" in head
    assert len(changes) == (line is not None)
    if line:
        assert changes[0].startswith(line)
        assert changes[0].endswith(f"`kernelmark {WORDS} --baseline {tmp_path / 'pins.json'} --update` accepts it")
        assert "pinned with nvcc 1, now nvcc 2" in head


def test_figures_that_could_not_be_counted_fail_with_the_reason(against):
    text, fails = against({"f": {"registers": 32}}, {}, why_unknown="nvdisasm is missing")
    assert fails
    assert text.startswith("f: nvdisasm is missing, pinned 32 registers")


@pytest.mark.usefixtures("cuda_compiler")
def test_a_kernel_that_uses_more_than_its_pins_gives_exit_status_1(called, tmp_path):
    path = tmp_path / "p.json"
    words = ("inspect", "--kernels", "gemm/cuda.tiled@T=32", "--arch", "sm_90a", "--baseline")
    assert "there is no such file; `kernelmark inspect" in called(*words, str(path)).refusal
    assert "1 pin of " in called(*words, str(path), "--update").printed
    assert called(*words, str(path)).printed == "1 pin: 0 worse or gone, 0 better or new\n"
    pins = valid(path.read_text(), "pins")
    (numbers,) = pins["commands"]["inspect --kernels gemm/cuda.tiled@T=32 --arch sm_90a"]["pins"].values()
    numbers["registers"] -= 1
    path.write_text(json.dumps(pins))
    done = called(*words, str(path), "--format", "json")
    assert (done.status, msgspec.json.decode(done.out)[0]["registers"]) == (1, numbers["registers"] + 1)
    assert f"{numbers['registers'] + 1} registers now, pinned {numbers['registers']}" in done.err
    others = called("inspect", "--kernels", "gemm/cuda.tiled@T=16", "--arch", "sm_90a", "--baseline", str(path)).refusal
    assert "has no pins of `inspect --kernels gemm/cuda.tiled@T=16" in others
    path.write_text("{}")
    assert "is not a file of pins" in called(*words, str(path)).refusal
    assert "--update: has no file to write" in called(*words[:-1], "--update").refusal
