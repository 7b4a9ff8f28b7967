"""Every hand-written kernel: plans are pure and cover the output, the .cu compiles everywhere, nothing spills."""

import itertools
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.emulator.sweep import entries
from kernelmark.bench.measure.compile import ARCHS, Cubin, compile_cubin, cuda_sources
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.kernel import KernelCall, Tile
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.tune import inspect
from kernelmark.bench.tune.inspect import sample_problem
from support.kernels import CUDA as KERNELS
from support.kernels import LAYOUTS, REGISTRY, cases, losses, refusal

DTYPES = ("f64", "f32", "f16", "bf16")
SHAPES = ((1, 1, 1), (31, 33, 17), (32, 64, 8), (1000, 257, 3))
TRANSPOSED = ((1, 1), (31, 33), (32, 64), (257, 1000))


def plans(op: str, name: str, problem: str) -> list[KernelCall]:
    """The launches of each tile for a problem; each of our kernels makes one."""
    kernel, parsed = KERNELS[f"{op}/cuda.{name}"], REGISTRY.problem(f"{op}/{problem}")
    calls = [kernel.plan(parsed, tile, H100) for tile in kernel.tiles()]
    assert all(len(made) == 1 for made in calls)
    return [made[0] for made in calls]


def spans(width: int, blocks: int, length: int) -> bool:
    """Whether that many blocks cover `length`, and one less does not."""
    return (blocks - 1) * width < length <= blocks * width


@pytest.mark.parametrize("name", KERNELS)
def test_a_plan_is_pure(name: str) -> None:
    kernel = KERNELS[name]
    problem = sample_problem(kernel, REGISTRY.problem_class(kernel.op, name))
    loaded = set(sys.modules)
    every = list(kernel.tiles())
    for tile in every[:: len(every) // 16 + 1]:  # all of im2col's tiles with the least scratch take half a minute
        assert kernel.calls(problem, tile) == kernel.calls(problem, tile)
    assert not {"cupy", "cuda.core", "pycuda"} & (set(sys.modules) - loaded)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_gemm_plans_cover_c_and_no_block_is_idle(m: int, n: int, k: int) -> None:
    for layout in LAYOUTS:
        problem = f"m{m}n{n}k{k}/f32/{layout}/batch3"
        for call in plans("gemm", "naive", problem):
            x, y, z = extents(call.grid)
            assert (spans(32, x, m), spans(8, y, n), z) == (True, True, 3)
        for call in plans("gemm", "coalesced", problem):
            x, y, z = extents(call.grid)
            assert (spans(32, x, n), spans(8, y, m), z) == (True, True, 3)
        for call, width in zip(plans("gemm", "tiled", problem), (32, 16), strict=True):
            x, y, z = extents(call.grid)
            assert (spans(width, x, n), spans(width, y, m), z) == (True, True, 3)


def test_gemm_arguments_are_sizes_then_scalars_then_leading_dimensions_then_strides() -> None:
    (call,) = plans("gemm", "naive", "m5n7k3/f32/TN/alpha0.5/beta2/batch2/lda+1/ldc+4")
    assert call.args == ("a", "b", "c", 5, 7, 3, 0.5, 2.0, 6, 7, 11, 3 * 6, 3 * 7, 5 * 11)
    assert all(isinstance(stride, np.int64) for stride in call.args[-3:])


@pytest.mark.parametrize(("m", "n"), TRANSPOSED)
def test_transposition_plans_cover_the_matrix_and_no_block_is_idle(m: int, n: int) -> None:
    for name, height in (("naive", 8), ("tiled", 32)):
        for call in plans("transpose", name, f"m{m}n{n}/f32/out"):
            x, y, _ = extents(call.grid)
            assert (spans(32, x, n), spans(height, y, m)) == (True, True)


def pair_of_tiles(x: int, y: int, tiles: int, group: int) -> tuple[int, int]:
    """Row and column of the lower tile of a block, as in pairs.cuh."""
    groups, (x, nth) = -(-tiles // group), divmod(x, group**2)
    even = 1 - groups % 2
    row, col = (x - even, y) if x >= y + even else (groups - 1 - x, groups - even - y)
    return row * group + nth // group, col * group + nth % group


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("tiles", range(1, 12))
def test_the_folded_grid_owns_each_pair_of_tiles_once(tiles: int, group: int) -> None:
    kernel, problem = KERNELS["transpose/cuda.tiled_inplace"], f"transpose/m{32 * tiles}n{32 * tiles}/f32/in"
    (call,) = kernel.plan(REGISTRY.problem(problem), Tile(TILE=32, ROWS=8, GROUP=group), H100)
    width, height, _ = extents(call.grid)
    blocks = itertools.product(range(width), range(height))
    owned = Counter(pair_of_tiles(x, y, tiles, group) for x, y in blocks)
    within = {(row, col): times for (row, col), times in owned.items() if col <= row < tiles}
    assert within == {(row, col): 1 for row in range(tiles) for col in range(row + 1)}
    assert group > 1 or within == owned


def test_in_place_on_a_rectangle_says_why_not() -> None:
    reason = refusal("transpose/cuda.tiled_inplace", "transpose/m5n7/f32/in")
    assert reason == "transposes square matrices only; m is 5 and n is 7"


@pytest.mark.parametrize(
    ("name", "problem", "axis"),
    [
        ("gemm/cuda.naive", "gemm/m1n524281k1/f32/NN", "n"),
        ("gemm/cuda.coalesced", "gemm/m524281n1k1/f32/NN", "m"),
        ("gemm/cuda.tiled", "gemm/m1n1k1/f32/NN/batch65536", "batch"),
        ("transpose/cuda.naive", "transpose/m524281n1/f32/out", "m"),
    ],
)
def test_what_no_grid_can_cover_is_refused(name: str, problem: str, axis: str) -> None:
    assert refusal(name, problem).startswith(f"{axis} is ")


@pytest.mark.parametrize("name", KERNELS)
def test_the_source_of_every_kernel_is_there(name: str) -> None:
    assert (cuda_sources() / KERNELS[name].source).is_file()


@pytest.mark.parametrize(
    "arch", [arch if arch in ("sm_80", "sm_90a") else pytest.param(arch, marks=pytest.mark.long) for arch in ARCHS]
)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.usefixtures("cuda_compiler")
def test_every_kernel_compiles_without_spills_or_stack_or_a_loss_that_ptxas_reports(
    name: str, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = KERNELS[name]
    logs: list[str] = []

    def logged(*args: Any) -> Cubin:
        cubin = compile_cubin(*args)
        logs.append(cubin.log)
        return cubin

    monkeypatch.setattr(inspect, "compile_cubin", logged)
    if not kernel.runs_on(arch):
        pytest.skip(f"{name} does not run on {arch}")
    for row in inspect.inspect_rows(REGISTRY, name, (arch,)):
        if not kernel.spills:  # a declaration that allows it has the reason
            assert (row.spill_bytes, row.stack_bytes) == (0, 0), row.entry
        assert row.blocks_per_sm > 0, row.entry
    assert logs
    reported = [line for log in logs for line in losses(log)]
    assert [line for line in reported if not (kernel.spills and "spill" in line)] == []


@pytest.mark.usefixtures("cuda_compiler")
@pytest.mark.parametrize(
    ("names", "problem"),
    [
        *((("gemm/cuda.naive", "gemm/cuda.coalesced", "gemm/cuda.tiled"), f"gemm/m5n7k3/f32/{x}") for x in LAYOUTS),
        *((("transpose/cuda.naive", "transpose/cuda.tiled"), f"transpose/m8n8/{x}/out") for x in DTYPES),
        *((("transpose/cuda.tiled_inplace",), f"transpose/m8n8/{x}/in") for x in DTYPES),
    ],
)
def test_first_kernels_compile_in_every_layout_and_storage_type(names: tuple[str, ...], problem: str) -> None:
    for name in names:
        wanted = entries(cases(name, problem))
        assert set(compile_cubin(KERNELS[name].source, wanted, "sm_90a").symbols) == set(wanted)
