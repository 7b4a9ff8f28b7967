"""Convolution's ids, reference, tolerance and checks: equal problems have one id, and wrong results do not pass."""

import itertools

import msgspec
import numpy as np
import pytest

from kernelmark.bench.measure.draw import THIRD, Draw
from kernelmark.bench.plan.dtypes import NUMERICS
from kernelmark.bench.plan.verdict import error_variance
from kernelmark.bench.selftest.wrong.library import nearest
from kernelmark.kernels.conv import _reference
from kernelmark.kernels.conv._convolve import convolve
from kernelmark.kernels.conv._winograd import F2, F4, growth, unevenness
from kernelmark.kernels.conv.problem import ConvProblem
from support.kernels import DIRECTIONS, REGISTRY, referenced


def test_every_problem_is_parsed_from_its_id():
    axes = {"pad": (0, 1, "1x2", "0-1x0-1", "2-0x3"), "stride": (1, 2, "1x2"), "dilation": (1, "2x1"), "groups": (1, 3)}
    axes |= {"layout": ("nchw", "nhwc"), "dtype": ("f32", "f16", "bf16"), "direction": DIRECTIONS}
    options = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    made = [ConvProblem(n=1, c=6, h=9, w=11, k=3, r=3, s=2, **each) for each in options]
    assert [p.id for p in made if REGISTRY.problem(p.id) != p] == []
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
def test_equal_problems_have_one_id(written, canonical):
    sizes = "conv/n1c4h8w8k4r3s3"
    assert REGISTRY.problem(f"{sizes}{written}/f32/nchw/fprop").id == f"{sizes}{canonical}/f32/nchw/fprop"


def test_padding_names_the_two_ends_of_height_and_width():
    problem = REGISTRY.problem("conv/n1c1h4w4k1r1s1pad1-2x3-4/f32/nchw/fprop")
    assert (problem.pad_h, problem.pad_w) == ((1, 2), (3, 4))
    assert (problem.p, problem.q) == (4 + 3, 4 + 7)


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"pad": -1}, "pad is -1, expected integers >= 0"),
        ({"pad": 1.5}, "pad is 1.5, expected"),
        ({"stride": 0}, "stride is 0, expected integers >= 1"),
        ({"groups": 3}, "groups is 3, expected a divisor of c = 4"),
        ({"r": 12}, "r is 12, expected at most the padded image's 9"),
    ],
)
def test_bad_values_of_a_suite_are_refused_in_one_line_that_names_the_parameter(values, refusal, complaint):
    sizes = {"n": 1, "c": 4, "h": 9, "w": 9, "k": 4, "r": 3, "s": 3, "dtype": "f32"}
    assert complaint(lambda: ConvProblem.make(sizes | values, "suite.toml")).startswith(f"suite.toml: {refusal}")


def test_operands_follow_the_layout_and_the_direction():
    def specs(words):
        operands = REGISTRY.problem(f"conv/n2c6h5w7k4r3s2/{words}/g2").operands()
        return {operand.name: (operand.shape, operand.role) for operand in operands}

    assert specs("f32/nchw/fprop") == {"x": ((2, 6, 5, 7), "in"), "w": ((4, 3, 3, 2), "in"), "y": ((2, 4, 3, 6), "out")}
    assert specs("f32/nhwc/dgrad") == {"x": ((2, 5, 7, 6), "out"), "w": ((4, 3, 2, 3), "in"), "y": ((2, 3, 6, 4), "in")}
    assert specs("f32/nhwc/wgrad")["w"] == ((4, 3, 2, 3), "out")


SMALL = [
    "conv/n2c3h5w6k4r3s2pad1/f32/nchw/{}",
    "conv/n1c2h1w1k3r1s1/f32/nhwc/{}",
    "conv/n2c4h6w5k6r2s3pad0-2x1-0stride2x3/f32/nchw/{}/g2",
    "conv/n1c3h7w6k2r3s3pad2x1stride3/f32/nhwc/{}/dil2",
    "conv/n2c4h5w4k8r3s1pad1-0x0stride1x2/f16/nhwc/{}/dil1x3/g4",
    "conv/n1c1h1w9k2r1s4pad0x2stride1x2/bf16/nchw/{}/dil1x2",
    "conv/n1c2h2w2k2r4s4pad1-3x3-0/f32/nchw/{}/g2",
    "conv/n1c2h3w3k3r1s1pad2stride4/f32/nchw/{}",
]


def output(problem, values):
    """Return the output that a kernel would have stored, from values whose second axis is channels."""
    name = {"fprop": "y", "dgrad": "x", "wgrad": "w"}[problem.direction]
    stored = values.transpose(0, 2, 3, 1) if problem.layout == "nhwc" else values
    return {name: np.ascontiguousarray(stored, np.float32)}


def by_definition(p, inputs):
    """Return the result by seven loops, as the docstring of ConvProblem defines it."""
    order = (0, 3, 1, 2) if p.layout == "nhwc" else (0, 1, 2, 3)
    arrays = {name: array.transpose(order).astype(float) for name, array in inputs.items()}
    shapes = {"x": (p.n, p.c, p.h, p.w), "w": (p.k, p.c // p.groups, p.r, p.s), "y": (p.n, p.k, p.p, p.q)}
    (out,) = (name for name in shapes if name not in arrays)
    arrays[out] = np.zeros(shapes[out])
    depth, filters = p.c // p.groups, p.k // p.groups
    for n, k, i, j, c, a, b in np.ndindex(p.n, p.k, p.p, p.q, depth, p.r, p.s):
        h = i * p.stride_h + a * p.dilation_h - p.pad_h.before
        w = j * p.stride_w + b * p.dilation_w - p.pad_w.before
        if 0 <= h < p.h and 0 <= w < p.w:
            place = {"x": (n, k // filters * depth + c, h, w), "w": (k, c, a, b), "y": (n, k, i, j)}
            factor, weight = (arrays[name][place[name]] for name in shapes if name != out)
            arrays[out][place[out]] += factor * weight
    return arrays[out]


@pytest.mark.parametrize("text", SMALL)
def test_reference_is_the_definition(text, direction):
    problem, inputs, reference = referenced(text.format(direction))
    assert reference.places is None
    assert np.allclose(reference.values, by_definition(problem, inputs), rtol=0, atol=1e-13)


@pytest.mark.parametrize("text", SMALL)
def test_a_sampled_reference_equals_the_whole_one_at_its_places(text, direction, monkeypatch):
    problem, inputs, reference = referenced(text.format(direction))
    whole = reference.values
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    sampled = problem.reference(inputs, np.random.default_rng(0))
    assert np.allclose(sampled.values, whole[sampled.places], rtol=0, atol=1e-13)
    axis = 0 if direction == "wgrad" else 1
    groups = np.split(whole, problem.groups, axis)
    sums = [np.tensordot(part, w, (axis, 0)) for g, part in enumerate(groups) for w in sampled.weights[:, g]]
    assert np.allclose(sampled.sums, np.stack(sums, axis), rtol=0, atol=1e-12)
    assert problem.check(output(problem, whole), sampled, "fp32").reason is None


@pytest.mark.parametrize("error", [0.01, 1.0, np.nan])
@pytest.mark.parametrize("words", ["nchw", "nhwc"])
def test_one_wrong_element_outside_the_sample_is_found_by_the_checksum(words, direction, error, monkeypatch):
    problem, inputs, whole = referenced(f"conv/n2c12h19w17k18r3s3pad1/f32/{words}/{direction}/g2")
    wrong = whole.values
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    reference = problem.reference(inputs, np.random.default_rng(0))
    assert problem.check(output(problem, wrong), reference, "fp32").reason is None
    places = set(zip(*(axis.tolist() for axis in reference.places), strict=True))
    place = next(place for place in np.ndindex(wrong.shape) if place not in places)
    wrong[place] += error
    reason = problem.check(output(problem, wrong), reference, "fp32").reason
    assert reason.startswith("checksum of ")


def test_an_element_that_was_not_written_is_wrong():
    problem, _, reference = referenced("conv/n1c3h5w5k2r3s3/f32/nchw/fprop")
    right = output(problem, reference.values)
    right["y"].view(np.uint32)[0, 1, 2, 0] = 0x7FC0DEAD
    assert "y[0, 1, 2, 0] was not written" in problem.check(right, reference, "fp32").reason


def test_tolerance_is_tighter_the_more_exact_the_numerics():
    problem = REGISTRY.problem("conv/n1c64h28w28k64r3s3pad1/f32/nchw/fprop")
    bounds = {
        numerics: problem.tolerance(numerics).largest for numerics in NUMERICS if numerics not in ("exact", "fp64")
    }
    order = ["fp32", "3xtf32", "f16", "tf32", "bf16"]  # TF32 is truncated to as many bits as f16 is rounded to
    assert sorted(order, key=bounds.__getitem__) == order
    # Winograd's sums are a ninth as long as a plain chain, which compensates for the errors of its transforms.
    assert bounds["winograd"] < bounds["winograd4"] < bounds["f16"]
    assert bounds["fp32"] < bounds["fft"] < bounds["f16"]


def test_tolerance_grows_with_the_reduction_of_each_direction():
    problem = REGISTRY.problem("conv/n4c64h28w28k8r3s3pad1/f32/nchw/fprop")
    lengths = {d: msgspec.structs.replace(problem, direction=d).reduction for d in DIRECTIONS}
    assert lengths == {"fprop": 64 * 9, "dgrad": 8 * 9, "wgrad": 4 * 28 * 28}
    bounds = [msgspec.structs.replace(problem, direction=d).tolerance("fp32").rms for d in ("dgrad", "fprop", "wgrad")]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize("f", [F2, F4])
def test_the_transforms_compute_a_correlation(f):
    rng = np.random.default_rng(3)
    x, w = rng.uniform(-1, 1, len(f.bt)), rng.uniform(-1, 1, 3)
    assert np.allclose(f.at @ ((f.g @ w) * (f.bt @ x)), np.correlate(x, w), rtol=0, atol=1e-13)


def test_the_bound_of_sums_covers_the_least_exact_pixels_of_tiles():
    problem = REGISTRY.problem("conv/n1c144h54w54k176r3s3pad1/f32/nchw/fprop")
    bound, rng = problem.tolerance("winograd4"), np.random.default_rng(5)
    along = np.resize(np.sqrt(F4.at**2 @ ((F4.bt**2).sum(axis=1) * (F4.g**2).sum(axis=1))), problem.p)
    sizes = np.outer(along, along) * bound.rms / 10 / along.max() ** 2
    for _ in range(2000):
        rows, columns = (_reference._places(np.arange(problem.p), rng) for _ in "hw")
        errors = rng.normal(0, sizes[rows, columns])
        assert error_variance(errors, np.zeros(len(errors)), bound, problem.k) > sizes.max() ** 2


@pytest.mark.parametrize("f", [F2, F4, *(f._replace(at=f.g.T, g=f.at.T) for f in (F2, F4))])
def test_growth_is_the_measured_growth_of_errors(f):
    # Sums over many channels in single precision, of products of transformed and of plain operands.
    rng, channels, tiles = np.random.default_rng(5), 512, 200
    side, taps = f.g.shape
    x, w = rng.uniform(-1, 1, (tiles, channels, side, side)), rng.uniform(-1, 1, (channels, taps, taps))

    def error(a, b):
        """Return the errors of sums over channels in single precision, for operands rounded to it."""
        a, b = a.astype(np.float32), b.astype(np.float32)
        total = np.zeros(a.shape[:1] + a.shape[2:], np.float32)
        for c in range(channels):
            total += a[:, c] * b[c]
        return total - np.einsum("tcij,cij->tij", a.astype(np.float64), b.astype(np.float64))

    plain = error(x, rng.uniform(-1, 1, (channels, side, side)))
    transformed = f.at @ error(f.bt @ x @ f.bt.T, f.g @ w @ f.g.T) @ f.at.T
    spread = np.sqrt((transformed**2).mean(axis=0))
    assert spread.max() / np.sqrt((plain**2).mean()) == pytest.approx(growth(f), rel=0.1)
    assert spread.max() / np.sqrt((spread**2).mean()) == pytest.approx(unevenness(f), rel=0.1)


def test_a_filters_gradient_may_be_one_chain_over_all_tiles_but_not_of_operands_with_13_bits():
    problem, inputs, reference = referenced("conv/n1024c16h5w5k16r3s3pad1/f32/nchw/wgrad")
    x, y = (np.pad(inputs[name], ((0, 0), (0, 0), ends, ends)) for name, ends in (("x", (1, 4)), ("y", (0, 3))))
    sums = np.zeros((16, 16, 6, 6), np.float32)
    for i, j in itertools.product((0, 4), (0, 4)):
        tiles = F4.bt @ x[:, :, i : i + 6, j : j + 6] @ F4.bt.T, F4.at.T @ y[:, :, i : i + 4, j : j + 4] @ F4.at
        for of_x, of_y in zip(*(tile.astype(np.float32) for tile in tiles), strict=True):
            sums += of_y[:, None] * of_x
    right = (F4.g.T @ sums @ F4.g).astype(np.float32)
    wrong = convolve(problem, {name: nearest(13)(array) for name, array in inputs.items()}).astype(np.float32)
    reasons = [problem.check({"w": output}, reference, "winograd4").reason for output in (right, wrong)]
    assert reasons[0] is None
    assert reasons[1].startswith("w has an rms error")


@pytest.mark.parametrize("numerics", ["fp32", "winograd4", "fft"])
def test_operands_clipped_at_4_are_wrong_in_every_third_draw(numerics):
    problem = REGISTRY.problem("conv/n2c16h14w14k16r3s3pad1/f32/nchw/fprop")
    draw = Draw(problem, 1)
    for _ in range(THIRD):
        draw.redraw()
    inputs = draw.views("C")
    reference = problem.reference(inputs, draw.rng)
    clipped = convolve(problem, {name: np.clip(x, -4, 4) for name, x in inputs.items()}).astype(np.float32)
    assert problem.check({"y": clipped}, reference, numerics).reason
    assert problem.check({"y": reference.values.astype(np.float32)}, reference, numerics).reason is None


def test_the_bound_of_an_fft_covers_large_inputs_that_strides_skip():
    problem = REGISTRY.problem("conv/n1c1h8w8k1r1s1stride4/f32/nchw/fprop")
    x, w = np.full((1, 1, 8, 8), 0.5, np.float32), np.full((1, 1, 1, 1), 0.5, np.float32)
    x[0, 0, 1, 1] = 1e3
    reference = problem.reference({"x": x, "w": w}, np.random.default_rng(1))
    error = np.array([1, -1, 1, -1], np.float32).reshape(1, 1, 2, 2) * 1e-5
    assert problem.check({"y": 0.25 + error}, reference, "fft").reason is None
    assert problem.check({"y": 0.25 + error}, reference, "fp32").reason
