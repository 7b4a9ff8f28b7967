"""The FP32 ladder: grids cover C, k is cut without gaps, and packs of four are moved over ragged edges of tiles."""

import math

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.kernel import CudaKernel, Scratch
from kernelmark.bench.plan.limits import H100
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, LAYOUTS, REGISTRY, cases, chosen, refusal

RUNGS = ("blocktile1d", "blocktile2d", "vectorised", "warptile", "async", "splitk")
PACKED = ("vectorised", "warptile", "async", "splitk")
FOUNDING = "gemm/m1024n2048k26752/f32/NT"


def rung(name: str) -> CudaKernel:
    """The declaration of `gemm/cuda.<name>`."""
    return CUDA[f"gemm/cuda.{name}"]


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (31, 33, 17), (1000, 257, 3), (129, 64, 4096)])
def test_every_tile_of_c_has_a_block_and_no_block_is_idle(name: str, m: int, n: int, k: int) -> None:
    problem = REGISTRY.problem(f"gemm/m{m}n{n}k{k}/f32/NT/batch3")
    for case in cases(f"gemm/cuda.{name}", problem):
        (_, call), *_ = case.calls
        assert call.grid[:2] == (math.ceil(n / case.tile.BN), math.ceil(m / case.tile.BM))
        assert call.grid[2] % 3 == 0


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    ("problem", "width"),
    [
        ("gemm/m64n64k64/f32/NT", 4),
        ("gemm/m64n64k63/f32/NT", 1),
        ("gemm/m63n64k64/f32/NT", 4),
        ("gemm/m63n64k64/f32/TN", 1),
        ("gemm/m64n64k64/f32/NT/ldc+1", 1),
        ("gemm/m64n64k64/f32/NT/ldc+4", 4),
    ],
)
def test_packs_of_four_are_moved_only_where_all_stored_rows_are_aligned(name: str, problem: str, width: int) -> None:
    (entry, _), *_ = chosen(f"gemm/cuda.{name}", problem).calls
    assert f", {width}, Op::" in entry


@pytest.mark.parametrize("k", [1, 7, 255, 256, 511, 512, 26752, 26753])
@pytest.mark.parametrize("batch", ["", "/batch5"])
def test_slices_cover_k_and_none_is_empty(k: int, batch: str) -> None:
    for case in cases("gemm/cuda.splitk", f"gemm/m130n70k{k}/f32/NN{batch}"):
        (_, product), *sums = case.calls
        depth, count = product.args[-2:]
        if count == 1:
            assert (sums, product.args[2]) == ([], "c"), "one slice is stored to C"
            continue
        ((_, added),) = sums
        assert depth % case.tile.BK == 0
        assert (count - 1) * depth < k <= count * depth
        partials = next(arg for arg in product.args if isinstance(arg, Scratch))
        assert partials in added.args
        assert partials.nbytes == 4 * math.prod(product.grid[2:]) * 130 * 70


def test_the_founding_shape_is_cut_until_its_blocks_fill_the_device() -> None:
    problem = REGISTRY.problem(FOUNDING)
    call = rung("splitk").plan(problem, next(rung("splitk").tiles()), H100)[0]
    assert call.grid == (8, 8, 2)  # 128 blocks for 132 multiprocessors that hold one each


@pytest.mark.parametrize("name", [*RUNGS, "wmma", "mma", "mma_tf32", "mma_3xtf32", "mma_f64"])
def test_what_no_grid_can_cover_is_refused(name: str) -> None:
    dtype = rung(name).domain["dtype"][0]
    assert "blocks along y" in refusal(f"gemm/cuda.{name}", f"gemm/m4194241n1k1/{dtype}/NN")
    assert "blocks along z" in refusal(f"gemm/cuda.{name}", f"gemm/m1n1k1/{dtype}/NN/batch65536")


@pytest.mark.long
@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packs_of_four_are_right_over_the_edges_of_tiles(name: str, layout: str) -> None:
    """The sweep's ragged problems are aligned nowhere; this one is ragged for every tile and aligned everywhere."""
    problem = f"gemm/m140n132k20/f32/{layout}/alpha2/beta0.5/batch2/lda+4/ldb+8/ldc+4"
    assert not wrong_in_emulator(cases(f"gemm/cuda.{name}", problem))


def test_a_device_without_cp_async_is_too_old() -> None:
    assert {rung(name).min_arch for name in ("async", "splitk")} == {80}


@pytest.mark.parametrize("name", ["async", "splitk", "streamk"])
@pytest.mark.parametrize("k", [8, 24, 136])
def test_copies_without_guards_are_right_from_one_step_on(name: str, k: int) -> None:
    """Tiles that divide the product; with few steps some stages of the pipeline are never filled."""
    problems = [REGISTRY.problem(f"gemm/m128n64k{k}/f32/{layout}/alpha2/beta0.5/batch2") for layout in ("NT", "TT")]
    every = [
        EmulatedCase(rung(name), p, tile)
        for p in problems
        for tile in rung(name).tiles()
        if not rung(name).unfit(p, tile)
    ]
    whole = [case for case in every if case.calls[0][0].endswith("true>")]
    assert {case.problem.layout for case in whole} == {"NT", "TT"}
    assert not wrong_in_emulator(whole)


@pytest.mark.parametrize("name", ["async", "splitk", "streamk"])
def test_wide_tiles_divide_a_product_without_guards(name: str) -> None:
    for shape in ("m128n256k40", "m256n256k40"):
        case = chosen(f"gemm/cuda.{name}", f"gemm/{shape}/f32/NT")
        tile = next(t for t in rung(name).tiles() if (t.TM, t.TN) == (8, 16))
        entry, _ = EmulatedCase(case.kernel, case.problem, tile).calls[0]
        assert entry.endswith("true>")
        assert not wrong_in_emulator([EmulatedCase(case.kernel, case.problem, tile)])
