"""Products with few rows: slices of k, widths of loads, and what a block reads and stores."""

import math

import pytest

from kernelmark.bench.emulator.sweep import entries
from kernelmark.bench.measure.compile import ARCHS
from kernelmark.bench.plan.kernel import Scratch
from kernelmark.bench.plan.limits import H100
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, REGISTRY, cases, chosen, lean, refusal

KERNEL = CUDA["gemm/cuda.skinny"]
LAYOUTS = ("NT", "NN")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16.f32"])
@pytest.mark.parametrize("sizes", ["m1n576k7168", "m16n129280k7168", "m5n33k1", "m8n2112k7169", "m16n7168k16384"])
def test_slices_cover_k_once_and_blocks_cover_the_columns(sizes: str, dtype: str, layout: str) -> None:
    problem = REGISTRY.problem(f"gemm/{sizes}/{dtype}/{layout}/batch2")
    taken = cases(KERNEL.id, problem)
    assert taken
    for tile in (case.tile for case in taken):
        call, *added = KERNEL.plan(problem, tile, H100)
        depth = call.args[-1]
        assert call.grid == (math.ceil(problem.n / tile.COLS), math.ceil(problem.k / depth), 2)
        assert bool(added) == (call.grid[1] > 1) == isinstance(call.args[2], Scratch)
        if added:
            assert depth >= tile.DEPTH
            assert call.args[2].nbytes == 4 * math.prod(call.grid[1:]) * problem.m * problem.n


@pytest.mark.parametrize(("n", "k"), [(576, 7168), (2112, 7168), (4096, 4096)])
@pytest.mark.parametrize("m", [1, 8, 16])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_layer_of_a_decoder_fills_the_device(n: int, k: int, m: int, dtype: str) -> None:
    (_, call), *_ = chosen(KERNEL.id, f"gemm/m{m}n{n}k{k}/{dtype}/NT").calls
    assert math.prod(call.grid) >= 0.9 * H100.multiprocessors


@pytest.mark.parametrize(
    ("problem", "width"),
    [
        ("gemm/m5n64k64/f32/NT", 4),
        ("gemm/m5n63k64/f32/NT", 4),
        ("gemm/m5n63k64/f32/NN", 1),
        ("gemm/m5n64k64/f16/NT", 8),
        ("gemm/m5n64k60/f16/NT", 1),
        ("gemm/m5n64k64/bf16/NN/lda+4", 1),
        ("gemm/m5n64k64/bf16/NN/lda+8", 8),
        ("gemm/m5n64k64/f16/NT/ldc+1", 8),
    ],
)
def test_sixteen_bytes_are_loaded_at_once_only_where_rows_of_a_and_b_are_aligned(problem: str, width: int) -> None:
    (entry, _), *_ = chosen(KERNEL.id, problem).calls
    assert f", {width}, Op::" in entry


def test_more_than_sixteen_rows_are_refused() -> None:
    assert "expected at most 16" in refusal(KERNEL.id, "gemm/m17n64k64/f16/NT")


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f32", "f16.f32", "bf16"])
@pytest.mark.parametrize("sizes", ["m16n70k1100", "m9n128k2048", "m13n33k259"])
def test_many_steps_of_every_warp_are_right(sizes: str, dtype: str, layout: str) -> None:
    assert not wrong_in_emulator(cases(KERNEL.id, f"gemm/{sizes}/{dtype}/{layout}/alpha2/beta0.5"))


@pytest.mark.parametrize("arch", [pytest.param(a, marks=pytest.mark.long) if a != "sm_90a" else a for a in ARCHS])
@pytest.mark.usefixtures("cuda_compiler")
def test_no_variant_spills(arch: str) -> None:
    if not KERNEL.runs_on(arch):
        pytest.skip(f"{KERNEL.id} does not run on {arch}")
    shapes = [f"m{m}n4096k{k}/{dtype}" for m in (1, 8, 12, 16) for k in (4096, 4095) for dtype in ("f32", "bf16")]
    lean(
        KERNEL.id,
        entries([chosen(KERNEL.id, f"gemm/{shape}/{layout}") for shape in shapes for layout in LAYOUTS]),
        arch,
    )
