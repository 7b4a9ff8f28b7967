"""Implicit GEMM for convolution: its tiles and slices, what it refuses, and cases that the sweep is too small for."""

import pytest

from kernelmark.bench.plan.kernel import Scratch
from kernelmark.kernels.conv.implicit._product import taps
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, DIRECTIONS, REGISTRY, cases, chosen, refusal

IMPLICIT, MMA, TF32 = "conv/cuda.implicit", "conv/cuda.implicit_mma", "conv/cuda.implicit_tf32"
TENSOR_CORES = (MMA, TF32, "conv/cuda.implicit_3xtf32")
VGG = ("n1c256h56w56k256", "n1c512h28w28k512", "n1c512h14w14k512")


def prove(name: str, problem: str) -> None:
    """Emulates the problem under each tile that takes it."""
    every = cases(name, problem)
    assert every
    assert not wrong_in_emulator(every)


@pytest.mark.parametrize("sizes", VGG)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_small_images_of_vgg_are_cut_into_slices_until_half_of_an_h100_has_work(
    sizes: str, layout: str, direction: str
) -> None:
    (_, call), *_ = chosen(IMPLICIT, f"conv/{sizes}r3s3pad1/f32/{layout}/{direction}").calls
    x, y, z = call.grid
    assert x * y * z >= 66


def test_64_channels_get_a_tile_that_is_64_wide() -> None:
    sides = {
        layout: chosen(IMPLICIT, f"conv/n1c64h224w224k64r3s3pad1/f32/{layout}/fprop").tile
        for layout in ("nchw", "nhwc")
    }
    assert (sides["nchw"].BM, sides["nhwc"].BN) == (64, 64)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_slices_cover_the_reduction_and_none_is_empty(direction: str) -> None:
    for name in (IMPLICIT, *TENSOR_CORES):
        dtype = CUDA[name].domain["dtype"][0]
        one = chosen(name, f"conv/n2c64h14w14k64r3s3pad1/{dtype}/nhwc/{direction}")
        (_, call), *_ = one.calls
        deep, count = call.args[3:5]
        depth = 2 * 14 * 14 if direction == "wgrad" else 64 * 3 * 3
        assert deep % one.tile.BK == 0
        assert (count - 1) * deep < depth <= count * deep


def test_several_slices_leave_fp32_sums_apart_for_a_second_launch() -> None:
    one = chosen(MMA, "conv/n1c512h14w14k512r3s3pad1/f16/nhwc/wgrad")
    assert len(one.calls) == 1
    one = chosen(MMA, "conv/n1c512h14w14k512r3s3pad1/f16/nhwc/fprop")
    (product_, first), (sum_, second) = one.calls
    assert "float, Direction::fprop" in product_
    assert sum_ == "conv_sum<__half>"
    assert isinstance(first.args[2], Scratch)
    assert first.args[2] == second.args[0]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [("r3s3", 9), ("r3s3stride2", 4), ("r1s1stride2", 1), ("r7s7pad3stride2", 16), ("r5s4stride4x3", 4)],
)
def test_pixels_of_an_inputs_gradient_meet_one_stride_squared_of_the_taps(sizes: str, expected: int) -> None:
    assert taps(REGISTRY.problem(f"conv/n1c4h16w16k4{sizes}/f32/nchw/dgrad")) == expected


def test_dilation_that_shares_a_divisor_with_the_stride_leaves_more_taps_to_fewer_phases() -> None:
    problem = REGISTRY.problem("conv/n1c4h16w16k4r3s3stride2/f32/nchw/dgrad/dil2")
    assert taps(problem) == 9


def test_a_pixel_has_bits_for_at_most_32_taps() -> None:
    for sizes, masked in (("r4s8", "true"), ("r3s11", "false")):
        one = chosen(IMPLICIT, f"conv/n1c4h16w16k4{sizes}/f32/nchw/fprop")
        (entry, _), *_ = one.calls
        assert entry.endswith(f", {masked}>")


@pytest.mark.parametrize(
    ("sizes", "masked"),
    [
        ("h16w16k4r15s15", True),
        ("h16w20k4r16s3", False),
        ("h16w20k4r3s16", False),
        ("h40w40k4r3s3pad99-0x40-0", True),
        ("h4w4k4r1s3pad0-1", True),
        ("h4w4k4r1s3pad0-2", False),
    ],
)
def test_taps_of_a_filters_gradient_have_bits_where_they_are_near(sizes: str, masked: bool) -> None:
    (entry, _), *_ = chosen(IMPLICIT, f"conv/n1c4{sizes}/f32/nchw/wgrad").calls
    assert entry.endswith(f", {str(masked).lower()}>")


@pytest.mark.parametrize("name", TENSOR_CORES)
def test_channels_that_fill_no_16_bytes_are_refused_by_tensor_cores(name: str) -> None:
    dtype, least = CUDA[name].domain["dtype"][0], 8 if name == MMA else 4
    narrow = f"conv/n1c3h8w8k{least}r3s3/{dtype}/nhwc"
    assert f"channels of a group are 3, expected a multiple of {least}" in refusal(name, f"{narrow}/fprop")
    odd = f"conv/n1c{least}h8w8k5r3s3/{dtype}/nhwc"
    assert refusal(name, f"{odd}/fprop") == ""
    assert "filters of a group are 5" in refusal(name, f"{odd}/dgrad")
    assert "filters of a group are 5" in refusal(name, f"{odd}/wgrad")


def test_what_no_grid_and_no_int_can_cover_is_refused() -> None:
    assert "65536 parts" in refusal(IMPLICIT, "conv/n1c65536h2w2k65536r1s1/f32/nchw/fprop/g65536")
    assert "a tile reaches over" in refusal(IMPLICIT, "conv/n64c40000h64w512k1r1s1/f32/nchw/fprop")


@pytest.mark.long
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("direction", ["fprop", "dgrad"])
def test_filters_of_32_taps_and_of_more_are_right(layout: str, direction: str) -> None:
    prove(IMPLICIT, f"conv/n1c3h9w17k5r4s8pad2/f32/{layout}/{direction}")
    prove(IMPLICIT, f"conv/n1c3h9w17k5r3s11pad0x5/f32/{layout}/{direction}")


#: Filters with near and far taps.
FAR = ("n2c3h9w17k5r8s4pad50-3x7-2stride3x2/dil2x1", "n1c2h15w16k3r15s4pad14x0/dil1x4", "n1c2h15w16k3r16s3pad1")
FAR += ("n1c2h4w5k3r1s2pad0-3x1-5",)
#: Phases without pixels or taps, which must leave no element of a gradient unwritten.
EMPTY = ("n1c4h5w7k8r1s1stride3", "n2c8h12w11k12r5s4pad2x3stride4x3/dil2x3/g2", "n1c4h9w6k4r3s2stride2x5/dil2x1")


@pytest.mark.long
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    ("direction", "sizes"), [*(("wgrad", sizes) for sizes in FAR), *(("dgrad", sizes) for sizes in EMPTY)]
)
def test_gradients_are_right_with_far_taps_and_with_empty_phases(direction: str, sizes: str, layout: str) -> None:
    shape, *rest = sizes.split("/")
    prove(IMPLICIT, "/".join(["conv", shape, "f32", layout, direction, *rest]))


@pytest.mark.long
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_slices_in_several_groups_are_added_up(layout: str, direction: str) -> None:
    problem = f"conv/n3c32h9w8k40r3s3pad1/f32/{layout}/{direction}/g2"
    assert any(len(one.calls) > 1 for one in cases(IMPLICIT, problem))
    prove(IMPLICIT, problem)


@pytest.mark.long
@pytest.mark.parametrize("name", TENSOR_CORES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_tensor_cores_are_right_under_stride_dilation_groups_and_one_sided_padding(name: str, direction: str) -> None:
    dtype = CUDA[name].domain["dtype"][0]
    prove(name, f"conv/n2c16h9w10k48r3s2pad0-1x2-0stride2x1/{dtype}/nhwc/{direction}/dil1x2/g2")


@pytest.mark.long
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_tf32_takes_any_channels_before_the_pixels_word_by_word(direction: str) -> None:
    prove(TF32, f"conv/n2c9h9w10k15r3s2pad0-1x2-0stride2x1/f32/nchw/{direction}/dil1x2/g3")


@pytest.mark.long
@pytest.mark.parametrize("direction", ["fprop", "dgrad"])
def test_tensor_cores_are_right_with_more_taps_than_a_mask_has_bits(direction: str) -> None:
    prove(MMA, f"conv/n1c8h7w12k8r3s11pad1x5/f16/nhwc/{direction}")


@pytest.mark.long
def test_filters_that_fill_no_16_bytes_are_stored_one_by_one_from_the_widest_warp() -> None:
    prove(MMA, "conv/n1c8h5w7k37r3s3/f16/nhwc/fprop")
