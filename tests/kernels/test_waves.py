"""Tiles that are chosen by how their blocks fill the device."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from kernelmark.bench.plan.kernel import CudaKernel, Tile
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.kernels._waves import filled
from kernelmark.kernels.gemm._tiles import warps
from kernelmark.kernels.gemm.ladder import CHOICES, useful
from support.kernels import CUDA, REGISTRY

SUITES = ("founding", "seed", "smoke")
MULTIPROCESSORS = (46, 68, 82, 108, 114, 132, 144, 148)


@pytest.mark.parametrize(
    ("blocks", "resident", "warps_", "share"),
    [
        (132, 1, 8, 1.0),
        (66, 1, 8, 0.5),
        (133, 1, 8, 133 / 264),
        (264, 2, 4, 1.0),
        (132, 2, 4, 0.5),  # one block of four warps leaves half of the multiprocessor idle
        (132, 2, 8, 1.0),
        (396, 2, 4, 0.75),
    ],
)
def test_the_share_of_a_device_that_blocks_fill(blocks: int, resident: int, warps_: int, share: float) -> None:
    assert filled(blocks, resident, warps_, 132) == pytest.approx(share)


def test_a_small_product_is_not_given_a_tile_that_is_mostly_empty() -> None:
    for name in ("gemm/cuda.async", "gemm/cuda.splitk"):
        tile = CUDA[name].tile_for(REGISTRY.problem("gemm/m32n32k32/f32/NT/batch4"))
        assert tile is not None
        assert (tile.BM, tile.BN) == (64, 32)


def products() -> Iterator[Problem]:
    """The FP32 products of suites, each once."""
    found: dict[str, Problem] = {}
    for suite in SUITES:
        for entry in find_suite(suite, REGISTRY).entries():
            if entry.problem.op == "gemm" and not CUDA["gemm/cuda.async"].outside(entry.problem):
                found[entry.problem.id] = entry.problem
    return iter(found.values())


def share(kernel: CudaKernel, problem: Problem, tile: Tile, device: DeviceLimits) -> float:
    """What the first launch of a tile fills."""
    (resident,) = (c.resident for c in CHOICES if all(vars(tile)[name] == value for name, value in c.values.items()))
    grid = kernel.plan(problem, tile, device)[0].grid
    return filled(math.prod(grid), resident, warps(tile) // 32, device.multiprocessors) * useful(problem, tile)


@pytest.mark.parametrize("name", ["gemm/cuda.async", "gemm/cuda.splitk"])
def test_a_default_fills_nine_tenths_of_what_the_best_tile_of_its_class_does(name: str) -> None:
    """Tiles whose threads have as many sums in warps of the same size compute alike."""
    kernel = CUDA[name]
    for problem, count in product(products(), MULTIPROCESSORS):
        device = replace(H100, multiprocessors=count)
        default = kernel.tile_for(problem, device)
        assert default is not None
        alike = [t for t in kernel.tiles(device) if (t.WM, t.WN, t.TM) == (default.WM, default.WN, default.TM)]
        fit = [tile for tile in alike if not kernel.unfit(problem, tile, device)]
        found = {tile_text(vars(tile)): share(kernel, problem, tile, device) for tile in fit}
        line = f"{problem.id} on {count} multiprocessors: {found[tile_text(vars(default))]:.2f} of {found}"
        print(line)
        assert found[tile_text(vars(default))] >= 0.9 * max(found.values()), line


@pytest.mark.parametrize(
    ("name", "problem", "columns"),
    [
        ("wgmma_tf32", "gemm/m1024n26752k2048/f32/NT", 128),  # 13 waves of 836 clusters on 66, where 256 makes 7 of 420
        ("wgmma_tf32", "gemm/m4096n4096k4096/f32/NT", 256),
        ("wgmma_persistent", "gemm/m8192n8192k8192/bf16/NT", 256),
        ("wgmma_persistent", "gemm/m1024n2048k26752/bf16/NT", 128),
        ("wgmma_persistent", "gemm/m512n512k512/bf16/NT", 64),
    ],
)
def test_a_persistent_grid_takes_the_tile_whose_waves_take_the_least_time(
    name: str, problem: str, columns: int
) -> None:
    tile = CUDA[f"gemm/cuda.{name}"].tile_for(REGISTRY.problem(problem))
    assert tile is not None
    assert columns == tile.BN
