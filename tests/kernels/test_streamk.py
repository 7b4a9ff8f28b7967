"""Stream-K: every step along k is made once, by blocks that have equal shares, and divided tiles are added up."""

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.kernel import Scratch, Tile
from kernelmark.bench.plan.limits import H100
from kernelmark.kernels.gemm.ladder import dealt
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, LAYOUTS, REGISTRY, refusal

KERNEL = CUDA["gemm/cuda.streamk"]
WIDE, MIDDLE, TINY = KERNEL.tiles()
SHAPES = [(1, 1, 1), (31, 33, 17), (1024, 2048, 26752), (4096, 4096, 4096), (129, 130, 8193), (5000, 300, 64)]


@pytest.mark.parametrize("batch", ["", "/batch3"])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("tile", [WIDE, MIDDLE, TINY], ids=["wide", "middle", "tiny"])
def test_whole_tiles_and_equal_shares_cover_every_step_once(tile: Tile, m: int, n: int, k: int, batch: str) -> None:
    problem = REGISTRY.problem(f"gemm/m{m}n{n}k{k}/f32/NT{batch}")
    d = dealt(problem, tile)
    assert d.tiles == -(-m // tile.BM) * -(-n // tile.BN) * problem.batch
    assert (d.steps - 1) * tile.BK < k <= d.steps * tile.BK
    rest = (d.tiles - d.whole) * d.steps
    assert d.share * (d.blocks - 1) < rest <= d.share * d.blocks or d.whole
    assert rest <= d.share * d.blocks
    assert d.whole % d.blocks == 0
    assert d.blocks <= tile.SMS * tile.BLOCKS_PER_SM


def test_the_founding_shape_keeps_every_multiprocessor_busy_for_the_same_time() -> None:
    problem = REGISTRY.problem("gemm/m1024n2048k26752/f32/NT")
    assert KERNEL.tile_for(problem) == WIDE
    d = dealt(problem, WIDE)
    assert (d.tiles, d.whole, d.blocks) == (64, 0, 132)
    assert d.share * d.blocks < 1.001 * d.tiles * d.steps


def test_scratch_is_two_tiles_a_block_and_none_where_no_tile_is_divided() -> None:
    product, _ = KERNEL.plan(REGISTRY.problem("gemm/m1024n2048k26752/f32/NT"), WIDE, H100)
    (partials,) = (arg for arg in product.args if isinstance(arg, Scratch))
    assert partials.nbytes == 2 * 132 * WIDE.BM * WIDE.BN * 4
    (alone,) = KERNEL.plan(REGISTRY.problem("gemm/m128n128k8/f32/NT"), WIDE, H100)
    (partials,) = (arg for arg in alone.args if isinstance(arg, Scratch))
    assert partials.nbytes == 0


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", ["", "/alpha2/beta0.5/batch3/lda+4/ldb+8/ldc+4"])
def test_whole_tiles_ends_and_beginnings_are_right_together(layout: str, options: str) -> None:
    problem = REGISTRY.problem(f"gemm/m72n68k44/f32/{layout}{options}")
    d = dealt(problem, TINY)
    assert d.whole > d.blocks  # several whole tiles a block
    assert d.divides
    assert not wrong_in_emulator([EmulatedCase(KERNEL, problem, TINY)])


def test_a_size_that_is_no_c_int_is_refused() -> None:
    assert "sizes are C ints" in refusal(KERNEL.id, f"gemm/m1n1k{2**31}/f32/NN")
