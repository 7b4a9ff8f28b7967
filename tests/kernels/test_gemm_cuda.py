"""FP32 GEMM, stream-K, few rows and batches: grids cover C, k is cut without gaps, and tiles fill the device."""

import math
from dataclasses import replace
from itertools import product

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.kernel import Scratch
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.kernels._waves import filled
from kernelmark.kernels.gemm._tiles import warps
from kernelmark.kernels.gemm.ladder import CHOICES, dealt, useful
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, REGISTRY, cases, chosen

PACKED = ("vectorised", "warptile", "async", "splitk")
FOUNDING = "gemm/m1024n2048k26752/f32/NT"


@pytest.mark.parametrize("name", ["blocktile1d", "blocktile2d", *PACKED])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (31, 33, 17), (1000, 257, 3), (129, 64, 4096)])
def test_every_tile_of_c_has_a_block_and_no_block_is_idle(name, m, n, k):
    problem = REGISTRY.problem(f"gemm/m{m}n{n}k{k}/f32/NT/batch3")
    for case in cases(f"gemm/cuda.{name}", problem):
        (_, call), *_ = case.calls
        assert call.grid[:2] == (math.ceil(n / case.tile.BN), math.ceil(m / case.tile.BM))
        assert call.grid[2] % 3 == 0


@pytest.mark.parametrize(
    ("names", "problem", "width"),
    [
        (PACKED, "m64n64k64/f32/NT", 4),
        (PACKED, "m64n64k63/f32/NT", 1),
        (PACKED, "m63n64k64/f32/NT", 4),
        (PACKED, "m63n64k64/f32/TN", 1),
        (PACKED, "m64n64k64/f32/NT/ldc+1", 1),
        (PACKED, "m64n64k64/f32/NT/ldc+4", 4),
        # skinny loads sixteen bytes of A and B at once; rows of C need not be aligned.
        (("skinny",), "m5n64k64/f32/NT", 4),
        (("skinny",), "m5n63k64/f32/NT", 4),
        (("skinny",), "m5n63k64/f32/NN", 1),
        (("skinny",), "m5n64k64/f16/NT", 8),
        (("skinny",), "m5n64k60/f16/NT", 1),
        (("skinny",), "m5n64k64/bf16/NN/lda+4", 1),
        (("skinny",), "m5n64k64/bf16/NN/lda+8", 8),
        (("skinny",), "m5n64k64/f16/NT/ldc+1", 8),
    ],
)
def test_packs_are_moved_only_where_their_rows_are_aligned(names, problem, width):
    for name in names:
        (entry, _), *_ = chosen(f"gemm/cuda.{name}", f"gemm/{problem}").calls
        assert f", {width}, Op::" in entry, name


@pytest.mark.parametrize("k", [1, 7, 255, 256, 511, 512, 26752, 26753])
@pytest.mark.parametrize("batch", ["", "/batch5"])
def test_slices_cover_k_and_none_is_empty(k, batch):
    for case in cases("gemm/cuda.splitk", f"gemm/m130n70k{k}/f32/NN{batch}"):
        (_, product), *sums = case.calls
        depth, count = product.args[-2:]
        if count == 1:
            assert (sums, product.args[2]) == ([], "c"), "the sums of a single slice are stored to C"
            continue
        ((_, added),) = sums
        assert depth % case.tile.BK == 0
        assert (count - 1) * depth < k <= count * depth
        partials = next(arg for arg in product.args if isinstance(arg, Scratch))
        assert partials in added.args
        assert partials.nbytes == 4 * math.prod(product.grid[2:]) * 130 * 70


def test_the_founding_shape_is_cut_until_its_blocks_fill_the_device():
    problem = REGISTRY.problem(FOUNDING)
    splitk = CUDA["gemm/cuda.splitk"]
    call = splitk.plan(problem, next(splitk.tiles()), H100)[0]
    assert call.grid == (8, 8, 2)  # 128 blocks for 132 multiprocessors that hold one each


@pytest.mark.parametrize("name", ["async", "splitk", "streamk"])
@pytest.mark.parametrize("k", [8, 24, 136])
def test_copies_without_guards_are_right_for_one_step_and_more(name, k):
    """Tiles that divide the product; with few steps some stages of the pipeline are never filled."""
    problems = [REGISTRY.problem(f"gemm/m128n64k{k}/f32/{layout}/alpha2/beta0.5/batch2") for layout in ("NT", "TT")]
    kernel = CUDA[f"gemm/cuda.{name}"]
    every = [EmulatedCase(kernel, p, tile) for p in problems for tile in kernel.tiles() if not kernel.unfit(p, tile)]
    whole = [case for case in every if case.calls[0][0].endswith("true>")]
    assert {case.problem.layout for case in whole} == {"NT", "TT"}
    assert not wrong_in_emulator(whole)


@pytest.mark.parametrize("name", ["async", "splitk", "streamk"])
def test_wide_tiles_divide_a_product_without_guards(name):
    for shape in ("m128n256k40", "m256n256k40"):
        kernel = CUDA[f"gemm/cuda.{name}"]
        tile = next(t for t in kernel.tiles() if (t.TM, t.TN) == (8, 16))
        case = EmulatedCase(kernel, REGISTRY.problem(f"gemm/{shape}/f32/NT"), tile)
        assert case.calls[0][0].endswith("true>")
        assert not wrong_in_emulator([case])


STREAMK = CUDA["gemm/cuda.streamk"]
WIDE, MIDDLE, TINY = STREAMK.tiles()
SHAPES = [(1, 1, 1), (31, 33, 17), (1024, 2048, 26752), (4096, 4096, 4096), (129, 130, 8193), (5000, 300, 64)]


@pytest.mark.parametrize("tile", [WIDE, MIDDLE, TINY], ids=["wide", "middle", "tiny"])
def test_whole_tiles_and_equal_shares_cover_every_step_once(tile):
    for (m, n, k), batch in product(SHAPES, ("", "/batch3")):
        problem = REGISTRY.problem(f"gemm/m{m}n{n}k{k}/f32/NT{batch}")
        d = dealt(problem, tile)
        assert d.tiles == -(-m // tile.BM) * -(-n // tile.BN) * problem.batch, problem.id
        assert (d.steps - 1) * tile.BK < k <= d.steps * tile.BK, problem.id
        rest = (d.tiles - d.whole) * d.steps
        assert d.share * (d.blocks - 1) < rest <= d.share * d.blocks or d.whole, problem.id
        assert rest <= d.share * d.blocks, problem.id
        assert d.whole % d.blocks == 0, problem.id
        assert d.blocks <= tile.SMS * tile.BLOCKS_PER_SM, problem.id


def test_the_founding_shape_keeps_all_multiprocessors_busy_for_the_same_time():
    problem = REGISTRY.problem(FOUNDING)
    assert STREAMK.tile_for(problem) == WIDE
    d = dealt(problem, WIDE)
    assert (d.tiles, d.whole, d.blocks) == (64, 0, 132)
    assert d.share * d.blocks < 1.001 * d.tiles * d.steps


def test_scratch_is_two_tiles_a_block_and_none_where_no_tile_is_divided():
    product, _ = STREAMK.plan(REGISTRY.problem(FOUNDING), WIDE, H100)
    (partials,) = (arg for arg in product.args if isinstance(arg, Scratch))
    assert partials.nbytes == 2 * 132 * WIDE.BM * WIDE.BN * 4
    (alone,) = STREAMK.plan(REGISTRY.problem("gemm/m128n128k8/f32/NT"), WIDE, H100)
    (partials,) = (arg for arg in alone.args if isinstance(arg, Scratch))
    assert partials.nbytes == 0


@pytest.mark.parametrize("options", ["", "/alpha2/beta0.5/batch3/lda+4/ldb+8/ldc+4"])
def test_the_emulated_product_has_several_whole_tiles_for_each_block_and_divided_tiles(options):
    d = dealt(REGISTRY.problem(f"gemm/m72n68k44/f32/NT{options}"), TINY)
    assert d.whole > d.blocks
    assert d.divides


SKINNY = CUDA["gemm/cuda.skinny"]
ALONG_N = ("NT", "NN")


@pytest.mark.parametrize("sizes", ["m1n576k7168", "m16n129280k7168", "m5n33k1", "m8n2112k7169", "m16n7168k16384"])
def test_slices_cover_k_once_and_blocks_cover_the_columns(sizes):
    variants = product(("f32", "f16", "bf16.f32"), ALONG_N)
    taken = [cases(SKINNY.id, f"gemm/{sizes}/{dtype}/{layout}/batch2") for dtype, layout in variants]
    assert all(taken)
    for problem, tile in ((case.problem, case.tile) for every in taken for case in every):
        call, *added = SKINNY.plan(problem, tile, H100)
        depth = call.args[-1]
        assert call.grid == (math.ceil(problem.n / tile.COLS), math.ceil(problem.k / depth), 2)
        assert bool(added) == (call.grid[1] > 1) == isinstance(call.args[2], Scratch)
        if added:
            assert depth >= tile.DEPTH
            assert call.args[2].nbytes == 4 * math.prod(call.grid[1:]) * problem.m * problem.n


@pytest.mark.parametrize("sizes", ["n576k7168", "n2112k7168", "n4096k4096"])
def test_a_layer_of_a_decoder_fills_the_device(sizes):
    for m, dtype in product((1, 8, 16), ("f32", "bf16")):
        (_, call), *_ = chosen(SKINNY.id, f"gemm/m{m}{sizes}/{dtype}/NT").calls
        assert math.prod(call.grid) >= 0.9 * H100.multiprocessors, (m, dtype)


BATCHED = CUDA["gemm/cuda.batched"]
DEFAULT = next(BATCHED.tiles())


@pytest.mark.parametrize("size", [1, 3, 8, 17, 32, 33, 64, 100, 128])
def test_every_element_of_every_product_has_a_thread_and_panels_fit(size):
    for dtype, batch in product(("f32", "f64"), (1, 2, 1000, 100_000)):
        problem = f"gemm/m{size}n{size}k{size}/{dtype}/NT" + (f"/batch{batch}" if batch > 1 else "")
        ((entry, call),) = chosen(BATCHED.id, problem).calls
        threads, products = call.block
        wide = int(entry.split(", ")[1])
        assert call.grid[0] * products >= batch > (call.grid[0] - 1) * products, problem
        assert call.grid[1:] == (math.ceil(size / wide),) * 2, problem
        assert threads * products <= 256, problem
        assert call.shared_bytes <= 99 * 1024, problem  # what every device from 8.0 on has


def test_products_share_blocks_only_if_every_multiprocessor_still_has_one():
    small, large = (REGISTRY.problem(f"gemm/m4n4k4/f32/NN/batch{batch}") for batch in (100, 10_000))
    assert BATCHED.plan(small, DEFAULT, H100)[0].block[1] == 1
    shared = BATCHED.plan(large, DEFAULT, H100)[0]
    assert shared.block[1] > 1
    assert shared.grid[0] >= DEFAULT.SMS


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
def test_the_share_of_a_devices_rate_follows_from_waves_and_resident_warps(blocks, resident, warps_, share):
    assert filled(blocks, resident, warps_, 132) == pytest.approx(share)


def test_a_small_product_is_not_given_a_tile_that_is_mostly_empty():
    for name in ("gemm/cuda.async", "gemm/cuda.splitk"):
        tile = chosen(name, "gemm/m32n32k32/f32/NT/batch4").tile
        assert (tile.BM, tile.BN) == (64, 32)


def share(kernel, problem, tile, device):
    (resident,) = (c.resident for c in CHOICES if all(vars(tile)[name] == value for name, value in c.values.items()))
    grid = kernel.plan(problem, tile, device)[0].grid
    return filled(math.prod(grid), resident, warps(tile) // 32, device.multiprocessors) * useful(problem, tile)


@pytest.mark.parametrize("name", ["gemm/cuda.async", "gemm/cuda.splitk"])
def test_a_default_fills_nine_tenths_of_the_device_share_of_the_best_tile_of_its_class(name):
    """Tiles of a class have warps of equal size and threads with equal numbers of sums; they compute equally fast."""
    kernel = CUDA[name]
    suites = ("founding", "seed", "smoke")
    problems = {entry.problem for suite in suites for entry in find_suite(suite, REGISTRY).entries()}
    products = [problem for problem in problems if problem.op == "gemm" and not kernel.outside(problem)]
    for problem, count in product(products, (46, 68, 82, 108, 114, 132, 144, 148)):
        device = replace(H100, multiprocessors=count)
        default = kernel.tile_for(problem, device)
        alike = [t for t in kernel.tiles(device) if (t.WM, t.WN, t.TM) == (default.WM, default.WN, default.TM)]
        fit = [tile for tile in alike if not kernel.unfit(problem, tile, device)]
        shares = {tile_text(vars(tile)): share(kernel, problem, tile, device) for tile in fit}
        line = f"{problem.id} on {count} multiprocessors: {shares[tile_text(vars(default))]:.2f} of {shares}"
        assert shares[tile_text(vars(default))] >= 0.9 * max(shares.values()), line
