"""Convolution's ids and sizes: equal problems have one id, and bad input is one line that names the parameter."""

import itertools

import pytest

from kernelmark.bench.plan.discovery import discover
from kernelmark.kernels.conv.problem import ConvProblem


def problems():
    """Every way to write padding, stride, dilation and groups, in every layout, direction and storage type."""
    for values in itertools.product(
        (0, 1, "1x2", "0-1x0-1", "2-0x3"), (1, 2, "1x2"), (1, "2x1"), (1, 3), ("nchw", "nhwc"), ("f32", "f16", "bf16")
    ):
        names = ("pad", "stride", "dilation", "groups", "layout", "dtype")
        for direction in ("fprop", "dgrad", "wgrad"):
            options = dict(zip(names, values, strict=True))
            yield ConvProblem(n=1, c=6, h=9, w=11, k=3, r=3, s=2, direction=direction, **options)


def test_every_problem_is_found_again_by_its_id() -> None:
    made = list(problems())
    assert [p.id for p in made if discover().problem(p.id) != p] == []
    assert len({p.id for p in made}) == len(made) == 5 * 3 * 2 * 2 * 2 * 3 * 3


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("pad1x1", "pad1"),
        ("pad1-1x1-1", "pad1"),
        ("pad1-1", "pad1"),
        ("pad0-1", "pad0-1x0-1"),
        ("pad2x2-2", "pad2"),
        ("pad1-1x2", "pad1x2"),
        ("pad0x0", ""),
        ("stride2x2", "stride2"),
        ("stride1x1", ""),
    ],
)
def test_equal_problems_have_one_id(written: str, canonical: str) -> None:
    sizes = "conv/n1c4h8w8k4r3s3"
    assert discover().problem(f"{sizes}{written}/f32/nchw/fprop").id == f"{sizes}{canonical}/f32/nchw/fprop"


def test_padding_names_the_two_ends_of_height_and_width() -> None:
    problem = discover().problem("conv/n1c1h4w4k1r1s1pad1-2x3-4/f32/nchw/fprop")
    assert (problem.pad_h, problem.pad_w) == ((1, 2), (3, 4))
    assert (problem.p, problem.q) == (4 + 3, 4 + 7)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n1c4h3w9k4r5s3pad0x1/f32/nchw/fprop", "r is 5, expected at most the padded image's 3"),
        ("n1c4h9w3k4r3s5/f32/nchw/fprop", "s is 5, expected at most the padded image's 3"),
        ("n1c4h6w9k4r4s3/f32/nchw/fprop/dil2", "r is 4, which spans 7 when dilated by 2, expected at most"),
        ("n1c4h9w9k6r3s3/f32/nchw/fprop/g3", "groups is 3, expected a divisor of c = 4"),
        ("n1c6h9w9k4r3s3/f32/nchw/fprop/g3", "groups is 3, expected a divisor of k = 4"),
        ("n1c4h9w9k4r3s3pad-1/f32/nchw/fprop", "pad is '-1', expected integers >= 0"),
        ("n1c4h9w9k4r3s3pad007/f32/nchw/fprop", "pad is '007', expected integers >= 0, without leading zeros"),
        ("n1c4h9w9k4r3s3pad1x2x3/f32/nchw/fprop", "pad is '1x2x3', expected integers >= 0"),
        ("n1c4h9w9k4r3s3stride0/f32/nchw/fprop", "stride is '0', expected integers >= 1"),
        ("n1c4h9w9k4r3s3stride1-2/f32/nchw/fprop", "stride is '1-2', expected integers >= 1"),
        ("n1c4h9w9k4r3s3/f32/nchw/fprop/dil0", "dilation is '0', expected integers >= 1"),
        ("n1c4h9w9k4r3s3/f32/nchw/fprop/g0", "groups is 0, expected"),
        ("n1c4h9w0k4r3s3/f32/nchw/fprop", "w is 0, expected"),
        ("n1c4h9w9k4r3s3/f64/nchw/fprop", "dtype is 'f64', expected one of f32, f16, bf16"),
        ("n1c4h9w9k4r3s3/f32/nchw/backward", "direction is 'backward', expected one of fprop, dgrad, wgrad"),
        ("n1c4h9w9k4r3s3/f32/chwn/fprop", "layout is 'chwn', expected one of nchw, nhwc"),
        ("n1c4h9w9k4r3s3/f32/nchw", "has no layout and direction"),
        ("n1c4h9w9k4r3s3/f32/nchw/fprop/x2", "'x2' is not a part of a conv id; expected dilN or gN"),
        ("n1c4h9w9k4r3/f32/nchw/fprop", "sizes are 'n1c4h9w9k4r3', expected"),
    ],
)
def test_bad_input_is_one_line_that_names_the_parameter(text: str, found: str, complaint) -> None:
    line = complaint(lambda: discover().problem(f"conv/{text}"))
    assert line.startswith(f"conv/{text}: {found}")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"pad": -1}, "pad is -1, expected integers >= 0"),
        ({"pad": 1.5}, "pad is 1.5, expected"),
        ({"stride": 0}, "stride is 0, expected integers >= 1"),
        ({"groups": 3}, "groups is 3, expected a divisor of c = 4"),
        ({"r": 12}, "r is 12, expected at most the padded image's 9"),
    ],
)
def test_bad_values_of_a_suite_are_one_line_that_names_the_parameter(values: dict, found: str, complaint) -> None:
    sizes = {"n": 1, "c": 4, "h": 9, "w": 9, "k": 4, "r": 3, "s": 3, "dtype": "f32"}
    assert complaint(lambda: ConvProblem.make(sizes | values, "suite.toml")).startswith(f"suite.toml: {found}")


@pytest.mark.parametrize(
    ("text", "gflop", "mb"),
    [
        # VGG-16 conv3_2: 2 x 256 x 256 x 9 x 56^2; 256 x 56^2 twice and 256 x 256 x 9 elements of 4 bytes.
        ("n1c256h56w56k256r3s3pad1/f32/nchw/fprop", 3.699376128, 8.781824),
        ("n1c256h56w56k256r3s3pad1/f32/nhwc/wgrad", 3.699376128, 8.781824),
        # ResNet-50 conv1, 112 x 112 outputs; in half precision.
        ("n1c3h224w224k64r7s7pad3stride2/f16/nhwc/fprop", 0.236027904, 1.925504),
        # MobileNet, depthwise.
        ("n1c32h112w112k32r3s3pad1/f32/nchw/dgrad/g32", 0.007225344, 3.212416),
    ],
)
def test_flop_and_traffic_of_known_layers(text: str, gflop: float, mb: float) -> None:
    problem = discover().problem(f"conv/{text}")
    assert problem.flop == round(gflop * 1e9)
    assert problem.traffic_bytes == round(mb * 1e6)


def test_operands_are_those_of_the_layout_and_the_direction() -> None:
    def found(words: str) -> dict[str, tuple]:
        operands = discover().problem(f"conv/n2c6h5w7k4r3s2/{words}/g2").operands()
        return {operand.name: (operand.shape, operand.role) for operand in operands}

    assert found("f32/nchw/fprop") == {"x": ((2, 6, 5, 7), "in"), "w": ((4, 3, 3, 2), "in"), "y": ((2, 4, 3, 6), "out")}
    assert found("f32/nhwc/dgrad") == {"x": ((2, 5, 7, 6), "out"), "w": ((4, 3, 2, 3), "in"), "y": ((2, 3, 6, 4), "in")}
    assert found("f32/nhwc/wgrad")["w"] == ((4, 3, 2, 3), "out")
