"""Every CPU kernel of conv is right on parameters drawn at random, in all directions and layouts, on any threads."""

import random
from itertools import product

import numpy as np
import pytest

pytest.importorskip("numba")

from bench.measure.machine import unavailable
from bench.plan.discovery import discover
from bench.plan.errors import UsageError
from kernel_rig import DIRECTIONS, RAGGED, allocated_by, compiled_by, set_up, verified
from kernels._numba import jit
from kernels._product import SCRATCH
from kernels.conv.direct import _pixels
from kernels.conv.winograd import _loops as winograd
from kernels.conv.winograd import _planes as planes
from kernels.conv.winograd import cpu
from kernels.conv.winograd._lines import LANES, divide, join
from kernels.conv.winograd._tiling import tiling

DRAWN = 210
ENOUGH = 25  # sets that each kernel has to take in each direction and layout that it declares
LAYOUTS = ("nchw", "nhwc")
#: One pixel, fewer than a vector has lanes, some more; one image and several; groups; filters in several items.
POINTWISE = ("n1c5h1w1k3r1s1", "n2c37h5w7k41r1s1", "n3c6h3w11k9r1s1|/g3", "n1c70h7w9k300r1s1")
OURS = ("conv/cpu.im2col", "conv/numba.direct", "conv/cpu.winograd", "conv/cpu.winograd4")


def drawn() -> list[tuple[str, str]]:
    """Sizes and words of problems, the same in every run; some are for Winograd, some depthwise."""
    rng, found = random.Random(20240229), []
    while len(found) < DRAWN:
        sizes, words = KINDS[len(found) % len(KINDS)](rng)
        try:
            discover().problem(f"conv/{sizes}/f32/nchw/fprop{words}")
        except UsageError:  # the filter is larger than the padded image
            continue
        found.append((sizes, words))
    return found


def _plain(rng: random.Random) -> tuple[str, str]:
    ends = [rng.randint(0, 3) for _ in range(4)]
    pad = rng.choice([str(ends[0]), "1", "{}-{}x{}-{}".format(*ends)])
    n, c, h, w, k = (rng.randint(1, most) for most in (2, 37, 15, 21, 37))
    return f"n{n}c{c}h{h}w{w}k{k}r3s3pad{pad}", ""


def _depthwise(rng: random.Random) -> tuple[str, str]:
    channels = rng.choice([1, 3, 8, 37, 70])
    return _with(rng, channels, channels, channels)


def _any(rng: random.Random) -> tuple[str, str]:
    groups = rng.choice([1, 1, 2, 3, 8])
    return _with(rng, groups, *(groups * rng.choice([1, 1, 2, 3, 5, 7]) for _ in range(2)))


def _with(rng: random.Random, groups: int, c: int, k: int) -> tuple[str, str]:
    h, w = rng.choice([(1, 1), (1, rng.randint(1, 40)), *((rng.randint(1, 17), rng.randint(1, 19)) for _ in range(4))])
    r, s = rng.choice([(1, 1), (3, 3), (rng.randint(1, 6), rng.randint(1, 6)), (rng.randint(1, 6), 1)])
    ends, steps = [rng.randint(0, 4) for _ in range(4)], [rng.randint(1, 4) for _ in range(2)]
    pad = rng.choice(["0", str(ends[0]), "{}x{}".format(*ends), "{}-{}x{}-{}".format(*ends)])
    stride = rng.choice(["1", str(steps[0]), "{}x{}".format(*steps)])
    dilation = rng.choice(["1", "1", "2", "3x1", "1x2"])
    return f"n{rng.randint(1, 3)}c{c}h{h}w{w}k{k}r{r}s{s}pad{pad}stride{stride}", f"/dil{dilation}/g{groups}"


#: Seven, so that no kind is left out of a sample of every tenth problem.
KINDS = (_plain, _any, _depthwise, _any, _plain, _any, _any)


def test_drawn_problems_are_of_every_kind() -> None:
    problems = [discover().problem(f"conv/{sizes}/f32/nchw/fprop{words}") for sizes, words in drawn()]
    assert len({p.id for p in problems}) >= 200
    kinds = {
        "one pixel": [p.h == p.w == 1 for p in problems],
        "stride": [not p.unit_stride for p in problems],
        "stride beyond the filter": [p.stride_h > p.r and p.stride_w > p.s for p in problems],
        "dilation": [not p.unit_dilation for p in problems],
        "groups": [p.groups > 1 for p in problems],
        "depthwise": [p.groups == p.c > 1 for p in problems],
        "r is not s": [p.r != p.s for p in problems],
        "asymmetric padding": [p.pad_h.before != p.pad_h.after or p.pad_w.before != p.pad_w.after for p in problems],
        "padding beyond the filter": [p.pad_h.before >= p.r * p.dilation_h for p in problems],
        "pointwise": [p.pointwise for p in problems],
    }
    assert {kind: sum(found) for kind, found in kinds.items() if sum(found) < 5} == {}


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_kernel_is_right_on_drawn_problems(direction: str, layout: str, step: int) -> None:
    known = [k for k in discover().kernels.values() if k.op == "conv" and k.device == "cpu" and k.is_ours]
    declared = [k for k in known if unavailable(k) is None and direction in k.domain.get("direction", DIRECTIONS)]
    declared = [k for k in declared if layout in k.domain.get("layout", LAYOUTS)]
    taken = dict.fromkeys((k.id for k in declared), 0)
    for i, (sizes, words) in enumerate(drawn()[::step]):
        for measured in verified(f"conv/{sizes}/f32/{layout}/{direction}{words}", *taken, threads=1 + i % 3):
            assert measured.status in ("ok", "unsupported"), f"{sizes}{words} {measured.kernel}: {measured.reason}"
            if measured.status == "unsupported":
                assert len(measured.reason.splitlines()) == 1
            taken[measured.kernel] += measured.status == "ok"
    assert {name: count for name, count in taken.items() if count < ENOUGH / step} == {}


@pytest.mark.parametrize("sizes", RAGGED)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_our_kernels_are_right_across_blocks_on_any_number_of_threads(sizes: str, direction: str) -> None:
    for layout, threads in product(LAYOUTS, (1, 3)):
        for measured in verified(f"conv/{sizes}/f32/{layout}/{direction}", *OURS, threads=threads):
            assert measured.status in ("ok", "unsupported"), f"{layout} {measured.kernel}: {measured.reason}"


@pytest.mark.parametrize("outputs", [4, 32])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_winograd_is_right_where_few_filters_are_transformed_at_a_time(direction: str, outputs: int) -> None:
    names = [f"conv/cpu.{name}@HELD=2097152,OUTPUTS={outputs}" for name in ("winograd", "winograd4")]
    for layout, threads in product(LAYOUTS, (1, 2, 3)):
        for measured in verified(f"conv/n1c43h9w7k45r3s3pad1/f32/{layout}/{direction}", *names, threads=threads):
            assert measured.status == "ok", f"{layout} {measured.kernel}: {measured.reason}"


@pytest.mark.parametrize(
    ("sizes", "images", "gradient"),
    [
        ("n1c64h56w56k64", 0, 0),  # the cache has room for the transformed filters
        ("n1c128h56w56k128", 0, 0),  # what they are multiplied with is more
        ("n1c128h28w28k128", 32, 0),
        ("n1c256h14w14k256", 32, 32),
        ("n1c512h7w7k512", 128, 128),  # the cache has no room for those of 32 channels
        ("n8c256h28w28k256", 0, 0),  # several blocks of tiles meet them
    ],
)
def test_winograd_transforms_few_filters_at_a_time_where_all_leave_the_cache(
    sizes: str, images: int, gradient: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "second_level_bytes", lambda: 2**21)
    kernel = discover().kernels["conv/cpu.winograd4"]
    for direction, outputs in zip(DIRECTIONS, (images, images, gradient), strict=True):
        tile = kernel.tile_for(discover().problem(f"conv/{sizes}r3s3pad1/f32/nchw/{direction}"))
        assert tile is not None
        assert vars(tile)["OUTPUTS"] == outputs


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_elements_are_divided_and_joined(count: int) -> None:
    @jit
    def both(tile, divided, joined, line, length):  # type: ignore[no-untyped-def]
        divide(tile, divided, 0, length, line)
        join(tile, joined, 0, divided, (0, length), length)

    line = np.arange(2 * LANES * count, dtype="f4")
    divided, joined = np.empty_like(line), np.empty_like(line)
    both((0,) * count, divided, joined, line, 2 * LANES)
    assert (divided.reshape(count, -1) == line.reshape(-1, count).T).all()
    assert (joined == line).all()


@pytest.mark.parametrize("pad", ["3", "1-1x3-3", "3-0x0-3"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_winograd_leaves_out_what_no_tile_meets(direction: str, pad: str) -> None:
    for layout, threads in product(LAYOUTS, (1, 3)):
        problem = f"conv/n2c5h4w10k3r3s3pad{pad}/f32/{layout}/{direction}"
        for measured in verified(problem, "conv/cpu.winograd", "conv/cpu.winograd4", threads=threads):
            assert measured.status == "ok", f"{layout} {measured.kernel}: {measured.reason}"


@pytest.mark.parametrize("rule", [_pixels.is_product, lambda g: False], ids=["pixels", "channels"])
@pytest.mark.parametrize("direction", DIRECTIONS[:2])
def test_a_product_of_matrices_is_right_with_lanes_of_pixels_and_of_channels(direction: str, rule, monkeypatch) -> None:
    taken = []
    monkeypatch.setattr(_pixels, "is_better", lambda g, width: taken.append(rule(g)) or taken[-1])
    for sizes, layout, threads in product(POINTWISE, LAYOUTS, (1, 3)):
        sizes, _, words = sizes.partition("|")
        (measured,) = verified(f"conv/{sizes}/f32/{layout}/{direction}{words}", "conv/numba.direct", threads=threads)
        assert measured.status == "ok", f"{sizes}{words} {layout}: {measured.reason}"
    assert set(taken) == {rule is _pixels.is_product}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parts_of_a_1x1_filters_gradient_are_added_up(threads: int) -> None:
    (measured,) = verified("conv/n8c9h13w31k21r1s1/f32/nhwc/wgrad", "conv/cpu.im2col", threads=threads)
    assert measured.status == "ok", measured.reason


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("conv/n1c4h9w9k4r3s3stride2/f32/nchw/fprop", "stride is 2, expected 1"),
        ("conv/n1c4h9w9k4r3s3stride2x1/f32/nchw/fprop", "stride is 2x1, expected 1"),
        ("conv/n1c4h9w9k4r3s3/f32/nchw/fprop/dil2", "dilation is 2, expected 1"),
        ("conv/n1c4h9w9k4r3s3/f32/nchw/fprop/g2", "groups is 2, expected 1"),
        ("conv/n1c4h9w9k4r5s3/f32/nchw/fprop", "r is 5, expected 3"),
        ("conv/n1c4h9w9k4r3s1/f32/nchw/dgrad", "s is 1, expected 3"),
    ],
)
def test_winograd_says_what_it_cannot_take(problem: str, reason: str) -> None:
    for name in ("winograd", "winograd4"):
        (measured,) = verified(problem, f"conv/cpu.{name}")
        assert (measured.status, measured.reason) == ("unsupported", reason)


def executed(name: str, problem: str) -> int:
    """What the kernel declares to execute."""
    return discover().kernels[f"conv/cpu.{name}"].executed_flop(discover().problem(problem))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_winograd_executes_fewer_operations_by_what_its_tiles_save(direction: str) -> None:
    layer = f"conv/n64c512h48w48k512r3s3pad1/f32/nchw/{direction}"
    for name, saved in (("winograd", 9 * 4 / 16), ("winograd4", 9 * 16 / 36)):
        ratio = discover().problem(layer).flop / executed(name, layer)
        assert 0.95 * saved < ratio < saved


def test_winograd_counts_the_operations_of_its_transforms() -> None:
    # F(2,3) of one vector: 4 additions of the input, 4 of the output, 4 of the filter and 6 multiplications by a half.
    products, inputs, outputs, filters = 2 * 16, 2 * 4 * 4, (4 + 2) * 4, (3 + 4) * (4 + 6)
    assert executed("winograd", "conv/n1c1h4w4k1r3s3/f32/nchw/fprop") == products + inputs + outputs + filters
    # A takes 2 additions for a vector of the gradient, G^T 5 for one of the products and 6 multiplications by a half.
    outputs, filters = (2 + 4) * 2, (4 + 3) * (5 + 6)
    assert executed("winograd", "conv/n1c1h4w4k1r3s3/f32/nchw/wgrad") == products + inputs + outputs + filters


@pytest.mark.parametrize("kernel", OURS)
def test_a_launch_neither_compiles_nor_allocates(kernel: str) -> None:
    for direction, layout in product(DIRECTIONS[:2], LAYOUTS):
        launch, operands, *_ = set_up(f"conv/n2c19h30w31k21r3s3pad1/f32/{layout}/{direction}", kernel)
        launch()
        operands.poison()
        assert allocated_by(launch) < 20_000
        assert not compiled_by(launch)
        assert not np.isnan(operands.flat["y" if direction == "fprop" else "x"]).any()


def test_columns_take_scratch_for_blocks_only() -> None:
    # All columns of this layer are 9 times its input, 29 MB; a pointwise convolution has none, but parts of a sum.
    products = 2 * 4 * SCRATCH  # what each of two threads multiplies with
    *_, scratch = set_up("conv/n1c256h56w56k256r3s3pad1/f32/nchw/fprop", "conv/cpu.im2col")
    assert products < scratch.nbytes <= products + 2 * 2**19  # half a second-level cache of columns for each
    *_, scratch = set_up("conv/n1c256h56w56k64r1s1/f32/nhwc/wgrad", "conv/cpu.im2col")
    assert scratch.nbytes == products + 4 * 256 * 64


@pytest.mark.parametrize("side", [7, 13, 4 * LANES - 1, 4 * LANES + 3])
def test_rows_between_zeros_leave_those_of_other_threads_alone(side: int) -> None:
    problem = discover().problem(f"conv/n1c2h{side}w{side}k1r3s3pad1/f32/nchw/fprop")
    g = tiling(problem, 4, LANES)
    row, source = g.phases * g.columns, np.arange(2.0 * side * side, dtype="f4") + 1
    image, held = np.full(2 * g.rows * row, np.nan, "f4"), np.empty(2 * g.phases * (g.columns + LANES), "f4")
    start, stop = 3, g.rows + 4  # the last has elements
    winograd.padded(image, source, held, g, start, stop)
    assert np.isnan(image[: start * row]).all()
    assert np.isnan(image[stop * row :]).all()
    for line in range(start, stop):
        expected = np.zeros(row, "f4")
        channel, down = divmod(line, g.rows)
        if 0 < down <= side:
            expected[1 : side + 1] = source[(channel * side + down - 1) * side :][:side]
        assert (image[line * row : (line + 1) * row] == expected.reshape(-1, 4).T.reshape(-1)).all()


@pytest.mark.parametrize("side", [7, 9, 4 * LANES + 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", [0, 1])
def test_planes_leave_lines_of_other_threads_alone(layout: str, side: int, first: int) -> None:
    problem = discover().problem(f"conv/n1c3h{side}w{side}k1r3s3pad1/f32/{layout}/fprop")
    g = tiling(problem, 4, LANES)
    plane, length = planes.strides(g, g.down)
    v, image = np.full(36 * plane, np.nan, "f4"), np.ones(3 * g.rows * g.phases * g.columns + LANES, "f4")
    edge = 36 * (length + LANES)
    held = np.empty(6 * (winograd.STRIPS * g.inputs * (g.phases * g.columns + LANES) + LANES) + edge, "f4")
    band = planes.strips if g.channels_last else planes.channels
    band(v, image, held, g, plane, length, 0, g.down, first, 2)
    lines = v[: len(v) // plane * plane].reshape(-1, plane)[:, : plane - LANES].reshape(36, -1, length)
    own = slice(first * g.across, 2 * g.across) if g.channels_last else slice(first, 2)
    assert not np.isnan(lines[:, own, : g.inputs if g.channels_last else g.down * g.across]).any()
    lines[:, own] = np.nan
    assert np.isnan(v).all()
