"""Convolution by transforms of tiles: every tile is right in every direction, tiles cover the output, and what has no
overlapping tiles is refused."""

import pytest

from kernelmark import Scratch
from kernelmark.bench.emulator.sweep import EmulatedCase, entries
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100
from kernelmark.kernels.conv.fft._tiling import cuts
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, DIRECTIONS, REGISTRY, lean
from support.kernels import cases as cases_of

#: One tile and several, in the image and out of it, padding on one side, one group and more; then what each tile takes:
#: few channels and images, which leave most of a product's tile empty, and enough of both to fill it.
TILED = (
    *("n2c3h14w11k5r3s2pad1", "n1c4h33w25k6r5s7pad0-2x3-1/g2", "n3c2h7w1k3r7s1pad0x1-0", "n1c3h29w9k2r11s9pad6x8"),
    *("n5c35h5w14k67r3s3pad1", "n1c9h40w31k20r4s15pad3x7"),
    *("n33c1h3w4k49r3s3", "n33c49h3w4k1r3s3", "n1c49h3w4k33r3s3"),
)
FUSED = (
    *("n2c3h14w11k5r3s2pad1", "n1c4h33w25k6r5s7pad0-2x3-1/g2", "n3c2h7w1k3r7s1pad0x1-0", "n1c3h29w9k2r11s9pad6x8"),
    *(
        "n3c8h13w27k19r3s3",
        "n2c4h40w31k3r17s5pad16x2",
        "n1c6h9w50k6r3s3pad1/g6",
        "n1c1h1w1k1r1s1",
        "n9c2h3w4k17r2s2pad1",
    ),
)
L1, L2, L3 = "n128c3h128w128k96r11s11", "n128c64h64w64k128r9s9", "n128c128h32w32k128r9s9"


def kernel(name: str) -> CudaKernel:
    return CUDA[f"conv/cuda.{name}"]


def problem(sizes: str, direction: str):
    sizes, slash, options = sizes.partition("/")
    return REGISTRY.problem(f"conv/{sizes}/f32/nchw/{direction}{slash}{options}")


def cases(name: str, sizes: tuple[str, ...], direction: str) -> list[EmulatedCase]:
    """Each problem that the kernel takes, under each tile that takes it."""
    return cases_of(f"conv/cuda.{name}", *(problem(text, direction) for text in sizes))


@pytest.mark.long  # the sweep has the tiles on smaller problems
@pytest.mark.parametrize("every", [cases("fft_tiled", TILED, direction) for direction in DIRECTIONS], ids=DIRECTIONS)
def test_every_tile_is_right_in_every_direction(every: list[EmulatedCase]) -> None:
    assert {case.tile.T for case in every} == {16, 32}
    assert {case.tile.BM for case in every} == {64, 32, 16}
    assert not wrong_in_emulator(every)


@pytest.mark.long
@pytest.mark.parametrize(
    "every", [cases("fft_fused", FUSED, direction) for direction in ("fprop", "dgrad")], ids=("fprop", "dgrad")
)
def test_the_fused_kernel_is_right_with_as_many_channels_as_a_block_has_tiles_and_with_fewer(
    every: list[EmulatedCase],
) -> None:
    assert {case.tile.T for case in every} == {16, 32}
    assert not wrong_in_emulator(every)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("sizes", [*TILED, L1, L2, L3])
def test_tiles_cover_the_output_and_none_is_beyond_it(sizes: str, direction: str) -> None:
    parsed = problem(sizes, direction)
    for side in (16, 32):
        if max(parsed.r, parsed.s) < side:
            output = getattr(cuts(parsed, (side, side)), "x" if direction == "dgrad" else "y")
            for axis in (output.height, output.width):
                assert (axis.tiles - 1) * axis.step < axis.size <= axis.tiles * axis.step


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("sizes", TILED)
def test_a_spectrum_that_is_multiplied_is_as_large_as_was_written(sizes: str, direction: str) -> None:
    parsed = problem(sizes, direction)
    found = kernel("fft_tiled")
    for tile in found.tiles():
        if max(parsed.r, parsed.s) >= tile.T:
            continue
        *transforms, multiply, _ = found.plan(parsed, tile, H100)
        a, b, c, m, k, lda, ldb = multiply.args
        at_a_frequency = 8 * tile.T * (tile.T // 2 + 1) * parsed.groups
        assert [part.nbytes // at_a_frequency for part in (a, b, c)] == [k * lda, k * ldb, m * ldb]
        for call, read in zip(transforms, (a, b), strict=True):
            (written,) = (arg for arg in call.args if isinstance(arg, Scratch))
            blocks, groups = call.grid
            assert written == read
            assert written.nbytes == 8 * tile.T * (tile.T // 2 + 1) * blocks * groups * 2 * 128 // tile.T


@pytest.mark.parametrize(("sizes", "side"), [(L1, 32), (L2, 32), (L3, 32), ("n8c512h14w14k512r3s3pad1", 16)])
def test_the_side_is_the_one_with_fewest_frequencies(sizes: str, side: int) -> None:
    tile = kernel("fft_tiled").tile_for(problem(sizes, "fprop"))
    assert side == tile.T


@pytest.mark.parametrize("sizes", [L1, L2, L3])
def test_large_filters_take_a_tenth_of_direct_convolution_at_the_most(sizes: str) -> None:
    parsed = problem(sizes, "fprop")
    count = kernel("fft_fused" if sizes == L1 else "fft_tiled").executed_flop(parsed)
    assert 0 < count < parsed.flop / (4 if sizes == L1 else 10)


@pytest.mark.parametrize("name", ["fft_tiled", "fft_fused"])
@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ("n1c2h9w9k2r3s3stride2", "stride is 2, expected 1"),
        ("n1c2h9w9k2r3s3stride1x2", "stride is 1x2, expected 1"),
        ("n1c2h9w9k2r3s3/dil2", "dilation is 2, expected 1"),
        ("n1c2h40w40k2r32s3", "r is 32, expected less than 32, the side of a tile"),
        ("n1c2h40w40k2r3s33", "s is 33, expected less than 32, the side of a tile"),
        ("n1c65536h3w3k65536r3s3/g65536", "groups is 65536, expected at most 65535: a grid has 65535 blocks along y"),
    ],
)
def test_what_has_no_overlapping_tiles_is_refused(name: str, sizes: str, reason: str) -> None:
    assert kernel(name).refuses(problem(sizes, "fprop")) == reason


@pytest.mark.parametrize(
    ("sizes", "direction", "reason"),
    [
        ("n1c9h9w9k2r3s3", "fprop", "c / groups is 9, expected at most 8, the tiles of a block"),
        ("n1c5h39w39k2r17s3", "fprop", "c / groups is 5, expected at most 4, the tiles of a block"),
        ("n1c2h9w9k18r3s3/g2", "dgrad", "k / groups is 9, expected at most 8, the tiles of a block"),
    ],
)
def test_more_channels_than_a_block_has_tiles_are_refused_by_the_fused_kernel(
    sizes: str, direction: str, reason: str
) -> None:
    assert kernel("fft_fused").refuses(problem(sizes, direction)) == reason


def test_the_fused_kernel_has_no_gradient_of_filters() -> None:
    assert "no wgrad path" in (kernel("fft_fused").refuses(problem("n1c2h9w9k2r3s3", "wgrad")) or "")


@pytest.mark.long
@pytest.mark.parametrize(("name", "sizes"), [("fft_tiled", (L2, *TILED)), ("fft_fused", (L1, *FUSED))])
@pytest.mark.usefixtures("cuda_compiler")
def test_no_entry_spills_registers_or_uses_stack(name: str, sizes: tuple[str, ...]) -> None:
    every = [case for direction in DIRECTIONS for case in cases(name, sizes, direction)]
    for arch in ("sm_80", "sm_90a"):
        lean(f"conv/cuda.{name}", entries(every), arch)
