"""Direct, depthwise, im2col and implicit convolutions: plans cover the output, drawn parameters give right results."""

import itertools
import math
import random
import re
from itertools import product

import numpy as np
import pytest

from kernelmark.bench.emulator.shapes import problems
from kernelmark.bench.measure.compile import cuda_sources
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import Im2colMap, Scratch, TensorMap
from kernelmark.bench.plan.limits import H100
from kernelmark.kernels.conv._geometry import DIVISOR, DIVISORS, SIZES, divisor, fits_ints, geometry
from kernelmark.kernels.conv.implicit import hopper
from kernelmark.kernels.conv.implicit._product import taps
from kernelmark.kernels.conv.problem import ConvProblem
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, DIRECTIONS, REGISTRY, cases, chosen, convolution

NAMES = ("direct", "direct_tiled", "depthwise", "im2col")
VARIANTS = tuple(itertools.product(("nchw", "nhwc"), DIRECTIONS))
LAYER = "n32c64h56w56k128r3s3pad1"


def calls(name, problem):
    return chosen(f"conv/cuda.{name}", problem).calls


@pytest.mark.parametrize("d", [1, 2, 3, 5, 7, 9, 49, 64, 196, 641, 3136, 50176, 2**30, 2**31 - 1])
def test_a_packed_divisor_divides_exactly_up_to_the_largest_int(d):
    packed = int(divisor(d))
    multiplier, shift = packed & 0xFFFFFFFF, packed >> 32
    assert shift < 64
    near = {q * d + e for q in (0, 1, 2, (2**31 - 1) // d) for e in (-1, 0, 1, d - 1)}
    for dividend in (n for n in (*near, 2**31 - 1, 2**31 - 2) if 0 <= n < 2**31):
        assert dividend * multiplier >> shift == dividend // d
        assert dividend * multiplier < 2**64


def fields(struct):
    """Return names and types of the fields of a struct in cuda/conv/geometry.cuh, in order."""
    header = (cuda_sources() / "conv/geometry.cuh").read_text()
    body = header[header.index(f"struct {struct} {{") :].partition("__device__")[0]
    lines = re.findall(r"^  ((?:\w+ )+)(\w+(?:, \w+)*);", body, re.MULTILINE)
    return [(name, kind.strip()) for kind, names in lines for name in names.split(", ")]


def test_geometry_has_the_fields_of_the_headers_structs_in_their_order():
    widths = {"unsigned": "u4", "unsigned long long": "u8"}
    assert np.dtype([(name, widths[kind]) for name, kind in fields("Divisor")], align=True) == DIVISOR
    assert fields("Geometry") == [(name, "unsigned") for name in SIZES] + [(name, "Divisor") for name in DIVISORS]


def test_geometry_holds_sizes_and_packed_divisors():
    p = convolution("n2c6h9w7k4r3s2pad0-1x2-0stride2x1/dil1x2/g2")
    passed = geometry(p)
    assert [passed[name] for name in SIZES] == [2, 6, 9, 7, 4, 3, 2, 4, 7, 2, 1, 1, 2, 0, 2, 2]
    divided = [28, 7, 63, 7, 6, 2, 3, 2, 2, 1]
    assert [tuple(passed[name]) for name in DIVISORS] == [(d, divisor(d)) for d in divided]


def test_more_elements_than_a_c_int_counts_are_refused():
    reason = fits_ints(convolution("n2c1h40000w40000k1r1s1"))
    assert reason == "the padded input has 3200000000 elements, expected at most 2147483647: they are counted in C ints"


def drawn(rng, depthwise):
    """Return the id of a small convolution, without the operation; depthwise if wanted."""
    while True:
        r, s, groups = rng.randint(1, 5), rng.randint(1, 4), rng.choice((1, 1, 2, 3))
        c, k = groups * rng.randint(1, 7), groups * rng.randint(1, 6)
        if depthwise:
            groups, k = c, c * rng.randint(1, 3)
        h, w = rng.randint(1, 12), rng.randint(1, 15)
        pads = "x".join(f"{rng.randint(0, 2)}-{rng.randint(0, 2)}" for _ in range(2))
        strides, dilations = ("x".join(str(rng.choice((1, 1, 2, 3))) for _ in range(2)) for _ in range(2))
        sizes = f"n{rng.randint(1, 3)}c{c}h{h}w{w}k{k}r{r}s{s}pad{pads}stride{strides}"
        try:
            return convolution(f"{sizes}/dil{dilations}/g{groups}").id.removeprefix("conv/")
        except UsageError:
            continue


@pytest.mark.long
@pytest.mark.parametrize("variant", ["/".join(variant) for variant in VARIANTS])
@pytest.mark.parametrize("name", NAMES)
def test_drawn_problems_are_right_without_reports(name, variant):
    rng = random.Random(f"{name} {variant}")
    ids = [drawn(rng, name == "depthwise").replace("nchw/fprop", variant) for _ in range(16)]
    every = cases(f"conv/cuda.{name}", *(f"conv/{text}" for text in ids))
    if not every:
        assert (name, variant.split("/")[1]) == ("direct_tiled", "wgrad")
    assert not wrong_in_emulator(every)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_the_sweep_has_each_option_and_each_awkward_shape_in_every_variant(dtype, variant):
    every = problems(CUDA["conv/cuda.direct"], REGISTRY.operations["conv"])
    taken = [p for p in every if (p.dtype, p.layout, p.direction) == (dtype, *variant)]
    assert any(p.stride != 1 and p.dilation != 1 and p.groups > 1 for p in taken)
    assert any(p.groups > 1 and p.c // p.groups != p.k // p.groups for p in taken)
    assert any(p.pad_h.before != p.pad_h.after and p.pad_w.before != p.pad_w.after for p in taken)
    assert any(p.r != p.s for p in taken)
    assert any(p.stride_h > p.r for p in taken)
    assert any(p.h * p.w == 1 and p.r > 1 for p in taken)
    assert any(p.h == 1 and p.p * p.q > 32 for p in taken)
    assert any(p.groups == p.c > 1 for p in taken)
    assert max(p.q for p in taken) > 32


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("direction", "pixels", "channels"), [("fprop", 3 * 4 * 5, 6), ("dgrad", 3 * 7 * 9, 4)])
def test_direct_has_a_thread_for_each_element_and_no_idle_block(layout, direction, pixels, channels):
    ((_, call),) = calls("direct", convolution("n3c4h7w9k6r3s3pad1stride2", f"{layout}/{direction}"))
    along, across = (pixels, channels) if layout == "nchw" else (channels, pixels)
    x, y = (0, 1) if layout == "nchw" else (1, 0)
    assert (call.grid[x], call.grid[y]) == (math.ceil(along / 32), math.ceil(across / 8))


@pytest.mark.parametrize(
    ("width", "columns"), [(1, 8), (7, 8), (8, 8), (9, 16), (14, 16), (17, 32), (56, 32), (64, 32)]
)
def test_tiles_of_the_tiled_kernel_are_as_narrow_as_the_image(width, columns):
    ((_, call),) = calls("direct_tiled", convolution(f"n2c4h40w{width}k40r1s1"))
    across = math.ceil(width / columns)
    assert call.grid == (math.ceil(40 / (256 // columns)) * across, 2, 2)
    assert call.args[3] == int(math.log2(columns))


def test_a_large_filter_leaves_shared_memory_for_one_channel():
    assert chosen("conv/cuda.direct_tiled", "conv/n1c9h64w64k1r15s15/f32/nchw/fprop").tile.BC == 1


@pytest.mark.parametrize("variant", ["nchw/fprop", "nhwc/fprop", "nchw/dgrad", "nhwc/dgrad"])
@pytest.mark.parametrize("sizes", ["n2c64h56w56k64r3s3pad1", "n2c64h7w7k64r3s3pad1stride2", "n1c64h1w99k64r1s9"])
def test_blocks_of_depthwise_fit_and_cover_the_output(sizes, variant):
    problem = convolution(f"{sizes}/g64", variant)
    for case in cases("conv/cuda.depthwise", problem):
        ((_, call),) = case.calls
        assert isinstance(call.grid, tuple)
        assert math.prod(call.block) <= 256
        assert call.block[2] <= 64
        assert call.shared_bytes <= 48 * 1024
        cols, rows, planes = call.block if "nchw" in variant else (call.block[1], call.block[2], call.block[0])
        height, width = (problem.p, problem.q) if "fprop" in variant else (problem.h, problem.w)
        assert call.grid[0] == math.ceil(height / (rows * case.tile.OUT)) * math.ceil(width / cols)
        assert call.grid[1] == math.ceil(64 / planes)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("sizes", [LAYER, "n1c64h5w5k64r3s3", "n3c64h112w112k64r3s3stride2"])
def test_slices_of_depthwise_filters_cover_all_pixels_and_none_is_empty(layout, sizes):
    problem = convolution(f"{sizes}/g64", f"{layout}/wgrad")
    pixels = problem.n * problem.p * problem.q
    for case in cases("conv/cuda.depthwise", problem):
        product, *added = case.calls
        count, depth = product[1].grid[2], product[1].args[3]
        assert (count - 1) * depth < pixels <= count * depth
        assert bool(added) == (count > 1)
        for _, call in added:
            assert call.args[2:] == (128 * 9 if "k128" in sizes else 64 * 9, count)


def test_a_pointwise_convolution_needs_no_columns(direction):
    for layout in ("nchw", "nhwc"):
        made = calls("im2col", convolution("n4c64h14w14k96r1s1", f"{layout}/{direction}"))
        assert not any("im2col" in entry or "col2im" in entry for entry, _ in made)
        assert not any(arg.name == "columns" for _, call in made for arg in call.args if isinstance(arg, Scratch))
    assert "conv_im2col_nchw" in dict(calls("im2col", convolution("n4c64h14w14k96r1s1stride2")))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_images_whose_columns_exceed_the_scratch_are_taken_in_passes(layout, direction):
    made = calls("im2col", convolution("n128c64h112w112k64r3s3pad1", f"{layout}/{direction}"))
    (scratch,) = {arg for _, call in made for arg in call.args if isinstance(arg, Scratch) and arg.name == "columns"}
    assert scratch.nbytes <= 2**29
    moved = [call for entry, call in made if "im2col" in entry or "col2im" in entry]
    image = 2**29 // (4 * 576 * 112 * 112)
    assert [call.args[2] for call in moved] == list(range(0, 128, image))


def test_packs_are_moved_where_rows_are_whole_vectors_or_padded_to_them():
    def widths(text, variant):
        entry = next(entry for entry, _ in calls("im2col", convolution(text, variant)) if "columns" in entry)
        return tuple(entry.split(", ")[8:10])

    assert widths("n1c8h7w7k8r3s3pad1", "nchw/fprop") == ("4", "1")  # 49 pixels, in columns padded to 52
    assert widths("n1c8h8w8k8r3s3pad1", "nchw/fprop") == ("4", "4")
    assert widths("n1c8h7w7k8r1s1", "nchw/fprop") == ("1", "1")  # the columns are x itself
    assert widths("n1c8h7w7k8r3s3pad1", "nhwc/wgrad") == ("4", "4")
    assert widths("n1c8h7w7k6r3s3pad1", "nhwc/wgrad") == ("1", "4")


def test_a_wide_grid_of_images_and_groups_is_cut_into_passes():
    made = calls("im2col", convolution("n300c512h2w2k512r1s1stride2/g512"))
    depths = [call.grid[2] for entry, call in made if "columns" in entry]
    assert max(depths) <= 65535
    assert sum(depths) == 300 * 512


IMPLICIT, MMA, TF32 = "conv/cuda.implicit", "conv/cuda.implicit_mma", "conv/cuda.implicit_tf32"
TENSOR_CORES = (MMA, TF32, "conv/cuda.implicit_3xtf32")


@pytest.mark.parametrize("sizes", ["n1c256h56w56k256", "n1c512h28w28k512", "n1c512h14w14k512"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_small_images_of_vgg_are_cut_into_slices_until_half_of_an_h100_has_work(sizes, layout, direction):
    (_, call), *_ = chosen(IMPLICIT, f"conv/{sizes}r3s3pad1/f32/{layout}/{direction}").calls
    x, y, z = call.grid
    assert x * y * z >= 66


def test_64_channels_get_a_tile_that_is_64_wide():
    for layout, side in (("nchw", "BM"), ("nhwc", "BN")):
        tile = chosen(IMPLICIT, f"conv/n1c64h224w224k64r3s3pad1/f32/{layout}/fprop").tile
        assert getattr(tile, side) == 64


def test_slices_cover_the_reduction_and_none_is_empty(direction):
    for name in (IMPLICIT, *TENSOR_CORES):
        dtype = CUDA[name].domain["dtype"][0]
        split = chosen(name, f"conv/n2c64h14w14k64r3s3pad1/{dtype}/nhwc/{direction}")
        (_, call), *_ = split.calls
        deep, count = call.args[3:5]
        depth = 2 * 14 * 14 if direction == "wgrad" else 64 * 3 * 3
        assert deep % split.tile.BK == 0
        assert (count - 1) * deep < depth <= count * deep


def test_several_slices_leave_fp32_sums_for_a_second_launch():
    assert len(chosen(MMA, "conv/n1c512h14w14k512r3s3pad1/f16/nhwc/wgrad").calls) == 1
    (product_, first), (sum_, second) = chosen(MMA, "conv/n1c512h14w14k512r3s3pad1/f16/nhwc/fprop").calls
    assert "float, Direction::fprop" in product_
    assert sum_ == "conv_sum<__half>"
    assert isinstance(first.args[2], Scratch)
    assert first.args[2] == second.args[0]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        *(("r3s3", 9), ("r3s3stride2", 4), ("r1s1stride2", 1), ("r7s7pad3stride2", 16), ("r5s4stride4x3", 4)),
        ("r3s3stride2/dil2", 9),  # a quarter of the phases have all taps
    ],
)
def test_pixels_of_an_inputs_gradient_have_one_in_stride_squared_of_the_taps(sizes, expected):
    assert taps(convolution(f"n1c4h16w16k4{sizes}", "nchw/dgrad")) == expected


@pytest.mark.parametrize(
    ("sizes", "direction", "masked"),
    [
        *(("h16w16k4r4s8", "fprop", "true"), ("h16w16k4r3s11", "fprop", "false")),  # at most 32 taps
        ("h16w16k4r15s15", "wgrad", "true"),
        ("h16w20k4r16s3", "wgrad", "false"),
        ("h16w20k4r3s16", "wgrad", "false"),
        ("h40w40k4r3s3pad99-0x40-0", "wgrad", "true"),
        ("h4w4k4r1s3pad0-1", "wgrad", "true"),
        ("h4w4k4r1s3pad0-2", "wgrad", "false"),
    ],
)
def test_masks_cover_up_to_32_taps_and_near_taps_of_a_filters_gradient(sizes, direction, masked):
    (entry, _), *_ = chosen(IMPLICIT, f"conv/n1c4{sizes}/f32/nchw/{direction}").calls
    assert entry.endswith(f", {masked}>")


WGMMA = "conv/cuda.implicit_wgmma"
IMAGES = ("n2c16h9w7k24r3s2pad1", "n1c8h12w9k8r2s3pad0-1x2-0", "n1c8h5w6k16r1s1", "n3c8h1w20k8r1s5pad0x7")
STRIDED = ("n1c8h11w9k8r3s3pad1stride2x3", "n1c8h8w8k8r2s2stride8", "n1c8h9w9k8r5s3pad2stride3x1")


@pytest.mark.parametrize(
    ("sizes", "direction"), [*product(IMAGES, DIRECTIONS), *product(STRIDED, ("fprop", "wgrad"))], ids=str
)
@pytest.mark.parametrize("dilated", ["", "/dil2x1"])
def test_the_first_tap_visits_one_pixel_for_each_pixel_of_the_result(sizes, direction, dilated):
    p = REGISTRY.problem(f"conv/{sizes}/f16/nhwc/{direction}{dilated}")
    assert isinstance(p, ConvProblem)
    visits = hopper.images(p, 128)
    axes = (
        (p.h, p.p, p.r, p.dilation_h, p.pad_h.before, p.stride_h),
        (p.w, p.q, p.s, p.dilation_w, p.pad_w.before, p.stride_w),
    )
    for i, (inputs, outputs, length, dilation, pad, stride) in enumerate(axes):
        if direction == "dgrad":
            visited = range(visits.lower[i], outputs + visits.upper[i], visits.stride[i])
            assert list(visited) == [place + pad - (length - 1) * dilation for place in range(inputs)]
        else:
            visited = range(visits.lower[i], inputs + visits.upper[i], visits.stride[i])
            assert list(visited) == [place * stride - pad for place in range(outputs)]


def test_boxes_of_tensor_maps_follow_the_direction():
    calls = (chosen(WGMMA, f"conv/n8c64h28w28k64r3s3pad1/f16/nhwc/{d}").calls[0][1] for d in DIRECTIONS)
    boxes = [[(a.operand, a.box) for a in call.args if isinstance(a, TensorMap | Im2colMap)] for call in calls]
    assert boxes[0] == [("x", (128, 64)), ("w", (64, 64)), ("y", (64, 64))]
    assert boxes[1] == [("y", (128, 64)), ("w", (64, 64)), ("x", (64, 64))]
    assert boxes[2] == [("y", (64, 64)), ("x", (64, 64))]


@pytest.mark.parametrize(("columns", "width"), [(64, 64), (96, 128), (128, 128), (160, 256), (320, 128), (512, 256)])
def test_a_tile_is_less_than_twice_as_wide_as_its_columns(columns, width):
    tile = chosen(WGMMA, f"conv/n64c64h56w56k{columns}r3s3pad1/f16/nhwc/fprop").tile
    assert width == tile.BN


def test_slices_cover_all_pixels_and_fill_the_device():
    (entry, call), (summed, _) = chosen(WGMMA, "conv/n32c256h14w14k256r3s3pad1/bf16/nhwc/wgrad").calls
    assert "float" in entry
    assert summed == "conv_sum<__nv_bfloat16>"
    assert isinstance(call.args[2], Scratch)
    pixels, depth, count = call.args[3:6]
    steps = -(-pixels // 64)
    assert (count - 1) * depth < steps <= count * depth
    assert call.grid in range(H100.multiprocessors // 2, H100.multiprocessors + 1)
