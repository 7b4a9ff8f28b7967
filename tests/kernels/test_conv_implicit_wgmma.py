"""Implicit GEMM by wgmma over maps of images: the pixels that a filter's first tap visits, tiles, slices, refusals."""

from itertools import product

import pytest

from kernelmark.bench.plan.kernel import Im2colMap, Scratch, TensorMap
from kernelmark.bench.plan.limits import H100
from kernelmark.kernels.conv.implicit import hopper
from kernelmark.kernels.conv.problem import ConvProblem
from support.kernels import DIRECTIONS, REGISTRY, chosen, lean, refusal

WGMMA = "conv/cuda.implicit_wgmma"
SIZES = ("n2c16h9w7k24r3s2pad1", "n1c8h12w9k8r2s3pad0-1x2-0", "n1c8h5w6k16r1s1", "n3c8h1w20k8r1s5pad0x7")
STRIDED = ("n1c8h11w9k8r3s3pad1stride2x3", "n1c8h8w8k8r2s2stride8", "n1c8h9w9k8r5s3pad2stride3x1")


@pytest.mark.parametrize(
    ("sizes", "direction"), [*product(SIZES, DIRECTIONS), *product(STRIDED, ("fprop", "wgrad"))], ids=str
)
@pytest.mark.parametrize("dilated", ["", "/dil2x1"])
def test_the_first_tap_visits_one_pixel_for_each_of_the_output(sizes: str, direction: str, dilated: str) -> None:
    p = REGISTRY.problem(f"conv/{sizes}/f16/nhwc/{direction}{dilated}")
    assert isinstance(p, ConvProblem)
    found = hopper.images(p, 128)
    axes = (
        (p.h, p.p, p.r, p.dilation_h, p.pad_h.before, p.stride_h),
        (p.w, p.q, p.s, p.dilation_w, p.pad_w.before, p.stride_w),
    )
    for i, (inputs, outputs, taps, dilation, pad, stride) in enumerate(axes):
        if direction == "dgrad":
            visited = range(found.lower[i], outputs + found.upper[i], found.stride[i])
            assert list(visited) == [place + pad - (taps - 1) * dilation for place in range(inputs)]
        else:
            visited = range(found.lower[i], inputs + found.upper[i], found.stride[i])
            assert list(visited) == [place * stride - pad for place in range(outputs)]


def test_an_inputs_gradient_gathers_the_outputs_with_filters_across_the_reduction() -> None:
    fprop, dgrad, wgrad = (chosen(WGMMA, f"conv/n8c64h28w28k64r3s3pad1/f16/nhwc/{d}").calls[0][1] for d in DIRECTIONS)
    boxes = [
        [(a.operand, a.box) for a in c.args if isinstance(a, TensorMap | Im2colMap)] for c in (fprop, dgrad, wgrad)
    ]
    assert boxes[0] == [("x", (128, 64)), ("w", (64, 64)), ("y", (64, 64))]
    assert boxes[1] == [("y", (128, 64)), ("w", (64, 64)), ("x", (64, 64))]
    assert boxes[2] == [("y", (64, 64)), ("x", (64, 64))]


@pytest.mark.parametrize(("columns", "width"), [(64, 64), (96, 128), (128, 128), (160, 256), (320, 128), (512, 256)])
def test_a_tile_is_not_twice_as_wide_as_what_it_holds(columns: int, width: int) -> None:
    tile = chosen(WGMMA, f"conv/n64c64h56w56k{columns}r3s3pad1/f16/nhwc/fprop").tile
    assert width == tile.BN


def test_slices_of_pixels_fill_the_device_and_cover_them() -> None:
    one = chosen(WGMMA, "conv/n32c256h14w14k256r3s3pad1/bf16/nhwc/wgrad")
    (entry, call), (summed, _) = one.calls
    assert "float" in entry
    assert summed == "conv_sum<__nv_bfloat16>"
    assert isinstance(call.args[2], Scratch)
    pixels, depth, count = call.args[3:6]
    steps = -(-pixels // 64)
    assert (count - 1) * depth < steps <= count * depth
    assert call.grid in range(H100.multiprocessors // 2, H100.multiprocessors + 1)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("n1c16h8w8k16r3s3/f16/nhwc/fprop/g2", "groups are 2, expected 1"),
        ("n1c12h8w8k16r3s3/f16/nhwc/fprop", "channels are 12, expected a multiple of 8"),
        ("n1c16h8w8k12r3s3/f16/nhwc/fprop", "filters are 12, expected a multiple of 8"),
        ("n1c16h8w8k16r3s3stride2/f16/nhwc/dgrad", "the stride is 2, expected 1 in an input's gradient"),
        ("n1c16h8w600k16r1s300/f16/nhwc/fprop", "a tap lies 299 pixels from the first one, expected at most 255"),
        ("n1c16h8w300k16r1s150/f16/nhwc/fprop", "a corner is -149, expected -128 to 127"),
        ("n1c16h90w90k16r1s1stride9/f16/nhwc/fprop", "a stride is 9, expected 1 to 8"),
        ("n1c16h8w8k16r3s3/f16/nchw/fprop", "has no nchw path"),
    ],
)
def test_what_the_tma_cannot_gather_is_refused(problem: str, reason: str) -> None:
    assert reason in refusal(WGMMA, f"conv/{problem}")


@pytest.mark.parametrize("direction", ["dgrad", "wgrad"])  # what inspect shows is fprop
def test_every_tile_compiles_without_spills_and_with_wgmma_in_flight(direction: str, cuda_compiler: str) -> None:
    problem = REGISTRY.problem(f"conv/n8c64h14w14k64r3s3pad1/f16/nhwc/{direction}")
    kernel = chosen(WGMMA, problem.id).kernel
    lean(WGMMA, (entry for tile in kernel.tiles(H100) for entry, _ in kernel.calls(problem, tile, H100)), "sm_90a")
