"""CPU kernels of conv: right on drawn problems; blocks and threads divide the work so that nothing is done twice."""

import random
import re
from collections import Counter
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from kernelmark.bench.measure.present import unavailable
from kernelmark.bench.plan.errors import UsageError
from kernelmark.kernels._host import split
from kernelmark.kernels._launches import parts
from kernelmark.kernels._product import SCRATCH
from kernelmark.kernels.conv import _reference
from kernelmark.kernels.conv._shape import shape
from kernelmark.kernels.conv.columns import _plan
from kernelmark.kernels.conv.direct import _phases, _pixels, _stages
from kernelmark.kernels.conv.direct import _plan as direct
from kernelmark.kernels.conv.direct._phases import phases
from kernelmark.kernels.conv.direct._tile import ROWS, tile_rows
from kernelmark.kernels.conv.problem import LARGE
from support.kernels import DIRECTIONS, RAGGED, REGISTRY, allocated_by, compiled_by, convolution, failures, set_up

DRAWN = 210
ENOUGH = 25  # of DRAWN; a kernel takes at least this share of the problems in each direction and layout
LAYOUTS = ("nchw", "nhwc")
#: One pixel, fewer pixels than a vector has lanes, more; one image and several; groups; filters in several items.
POINTWISE = ("n1c5h1w1k3r1s1", "n2c37h5w7k41r1s1", "n3c6h3w11k9r1s1/g3", "n1c70h7w9k300r1s1")
OURS = ("conv/cpu.im2col", "conv/numba.direct", "conv/cpu.winograd", "conv/cpu.winograd4")


def drawn():
    """Return sizes and options of problems, the same in every run; some are for Winograd, some depthwise."""
    rng, drawn_sizes = random.Random(20240229), []
    while len(drawn_sizes) < DRAWN:
        sizes = KINDS[len(drawn_sizes) % len(KINDS)](rng)
        try:
            convolution(sizes)
        except UsageError:  # the filter is larger than the padded image
            continue
        drawn_sizes.append(sizes)
    return drawn_sizes


def _plain(rng):
    ends = [rng.randint(0, 3) for _ in range(4)]
    pad = rng.choice([str(ends[0]), "1", "{}-{}x{}-{}".format(*ends)])
    n, c, h, w, k = (rng.randint(1, most) for most in (2, 37, 15, 21, 37))
    return f"n{n}c{c}h{h}w{w}k{k}r3s3pad{pad}"


def _depthwise(rng):
    channels = rng.choice([1, 3, 8, 37, 70])
    return _with(rng, channels, channels, channels)


def _any(rng):
    groups = rng.choice([1, 1, 2, 3, 8])
    return _with(rng, groups, *(groups * rng.choice([1, 1, 2, 3, 5, 7]) for _ in range(2)))


def _with(rng, groups, c, k):
    h, w = rng.choice([(1, 1), (1, rng.randint(1, 40)), *((rng.randint(1, 17), rng.randint(1, 19)) for _ in range(4))])
    r, s = rng.choice([(1, 1), (3, 3), (rng.randint(1, 6), rng.randint(1, 6)), (rng.randint(1, 6), 1)])
    ends, steps = [rng.randint(0, 4) for _ in range(4)], [rng.randint(1, 4) for _ in range(2)]
    pad = rng.choice(["0", str(ends[0]), "{}x{}".format(*ends), "{}-{}x{}-{}".format(*ends)])
    stride = rng.choice(["1", str(steps[0]), "{}x{}".format(*steps)])
    dilation = rng.choice(["1", "1", "2", "3x1", "1x2"])
    return f"n{rng.randint(1, 3)}c{c}h{h}w{w}k{k}r{r}s{s}pad{pad}stride{stride}/dil{dilation}/g{groups}"


#: Seven kinds, so that every sixth problem, or every thirtieth, is of each kind in turn.
KINDS = (_plain, _any, _depthwise, _any, _plain, _any, _any)


def test_drawn_problems_are_of_every_kind():
    problems = [convolution(sizes) for sizes in drawn()]
    assert len({p.id for p in problems}) >= 200
    kinds = {
        "one pixel": [p.h == p.w == 1 for p in problems],
        "stride": [not p.unit_stride for p in problems],
        "stride beyond the filter": [p.stride_h > p.r and p.stride_w > p.s for p in problems],
        "dilation": [p.dilation != 1 for p in problems],
        "groups": [p.groups > 1 for p in problems],
        "depthwise": [p.groups == p.c > 1 for p in problems],
        "r is not s": [p.r != p.s for p in problems],
        "asymmetric padding": [p.pad_h.before != p.pad_h.after or p.pad_w.before != p.pad_w.after for p in problems],
        "padding beyond the filter": [p.pad_h.before >= p.r * p.dilation_h for p in problems],
        "pointwise": [p.pointwise for p in problems],
    }
    assert {kind: sum(counts) for kind, counts in kinds.items() if sum(counts) < 5} == {}


@pytest.mark.parametrize("share", ["fifth", pytest.param("rest", marks=pytest.mark.long)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_kernel_is_right_on_drawn_problems(direction, layout, share):
    # Each problem in one direction and layout; each of the six combinations gets five problems of each kind.
    first = 2 * DIRECTIONS.index(direction) + LAYOUTS.index(layout)
    problems = [p for i, p in enumerate(drawn()[first::6]) if (i % 5 == 0) is (share == "fifth")]
    known = [k for k in REGISTRY.kernels.values() if k.op == "conv" and k.device == "cpu" and k.is_ours]
    declared = [k for k in known if unavailable(k) is None and direction in k.domain.get("direction", DIRECTIONS)]
    declared = [k for k in declared if layout in k.domain.get("layout", LAYOUTS)]
    names, refused = [k.id for k in declared], Counter[str]()
    for i, sizes in enumerate(problems):
        reasons = failures(convolution(sizes, f"{layout}/{direction}").id, *names, threads=1 + i % 3)
        assert all(re.fullmatch("unsupported: .+", reason) for reason in reasons.values()), (sizes, reasons)
        refused.update(reasons.keys())
    assert [name for name in names if len(problems) - refused[name] < ENOUGH * len(problems) / DRAWN] == []


@pytest.mark.parametrize("sizes", RAGGED)
def test_our_kernels_are_right_across_blocks_on_any_number_of_threads(sizes, direction):
    first = RAGGED.index(sizes) + DIRECTIONS.index(direction)
    for i, layout in enumerate(LAYOUTS):
        threads = (1, 3)[(first + i) % 2]  # the other number with other sizes and directions
        reasons = failures(f"conv/{sizes}/f32/{layout}/{direction}", *OURS, threads=threads)
        assert all(reason.startswith("unsupported") for reason in reasons.values()), (layout, reasons)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "sampled"])
@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("n1c16h30w30k8r3s3/f32/nchw/fprop", {"x": 1, "w": 2}),
        ("n1c8h30w30k16r3s3pad2/f32/nchw/dgrad", {"y": 1, "w": 0}),
        ("n1c9h14w14k8r3s3/f32/nchw/wgrad", {"x": 1, "y": 3}),
    ],
)
def test_the_bound_covers_large_values_that_are_multiplied_only_in_a_transform(text, places, whole, monkeypatch):
    if not whole:
        monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    launch, operands, draw, _ = set_up(f"conv/{text}", "conv/cpu.winograd4")
    inputs = draw.views("C")
    for name, at in places.items():
        inputs[name][..., at, at] = LARGE
    operands.load(draw)
    launch()
    problem = REGISTRY.problem(f"conv/{text}")
    reference = problem.reference(inputs, draw.rng)
    assert problem.check(operands.outputs("C"), reference, "winograd4").reason is None


@pytest.mark.parametrize("rule", [_pixels.is_product, lambda g: False], ids=["pixels", "channels"])
@pytest.mark.parametrize("direction", DIRECTIONS[:2])
def test_a_1x1_convolution_is_right_with_lanes_of_pixels_and_of_channels(direction, rule, monkeypatch):
    choices = []
    monkeypatch.setattr(_pixels, "is_better", lambda g, width: choices.append(rule(g)) or choices[-1])
    for sizes, layout, threads in product(POINTWISE, LAYOUTS, (1, 3)):
        problem = convolution(sizes, f"{layout}/{direction}").id
        assert not failures(problem, "conv/numba.direct", threads=threads), problem
    assert set(choices) == {rule is _pixels.is_product}


def test_fft_tiled_is_right_where_each_output_image_is_one_pixel():
    assert not failures("conv/n2c48h1w9k18r1s5stride1x3/f32/nhwc/dgrad/dil2/g2", "conv/numba.fft_tiled")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parts_of_a_1x1_filters_gradient_are_added_up(threads):
    assert not failures("conv/n8c9h13w31k21r1s1/f32/nhwc/wgrad", "conv/cpu.im2col", threads=threads)


@pytest.mark.parametrize(
    ("kernel", "directions", "most"),
    [
        *((kernel, DIRECTIONS[:2], 20_000) for kernel in OURS),
        *((kernel, DIRECTIONS, 50_000) for kernel in ("conv/pyfftw.full", "conv/pyfftw.tiled", "conv/numba.fft_tiled")),
    ],
)
def test_a_launch_neither_compiles_nor_allocates(kernel, directions, most):
    for direction, layout in product(directions, LAYOUTS):
        launch, operands, *_ = set_up(f"conv/n2c19h60w61k21r3s3pad1/f32/{layout}/{direction}", kernel, 3)
        launch()
        operands.poison()
        assert allocated_by(launch) < most
        assert not compiled_by(launch)
        assert not np.isnan(operands.flat[{"fprop": "y", "dgrad": "x", "wgrad": "w"}[direction]]).any()


def test_im2col_takes_scratch_only_for_blocks_of_columns():
    # All columns of this layer are 9 times its input, 29 MB; a pointwise convolution has parts of a sum instead.
    products = 2 * 4 * SCRATCH  # for each of two threads
    *_, scratch = set_up("conv/n1c256h56w56k256r3s3pad1/f32/nchw/fprop", "conv/cpu.im2col")
    assert products < scratch.nbytes <= products + 2 * 2**19  # and columns, in half of its second-level cache
    *_, scratch = set_up("conv/n1c256h56w56k64r1s1/f32/nhwc/wgrad", "conv/cpu.im2col")
    assert scratch.nbytes == products + 4 * 256 * 64


#: Also problems smaller than one block, strip or item.
SIZES = (
    *RAGGED,
    "n1c1h1w1k1r1s1",
    "n2c6h7w5k9r3s2pad1stride2/g3",
    "n1c8h12w3k8r4s1pad2/dil2x1/g8",
    "n3c2h17w19k35r6s6pad4stride3x1",
    "n8c9h13w31k21r1s1",
)


TILE = next(REGISTRY.kernels["conv/cpu.im2col"].tiles())


def _shapes():
    for sizes, layout in product(SIZES, ("nchw", "nhwc")):
        problem = convolution(sizes, f"{layout}/fprop")
        yield shape(problem), problem.pointwise


def test_blocks_of_columns_cover_each_channel_and_tap_once():
    for (g, plain), threads in product(_shapes(), (1, 2, 5)):
        for plan_of in (_plan.forward, _plan.image_gradient, _plan.filter_gradient):
            covered = np.zeros((g.c, g.r * g.s), int)
            for c0, c1, t0, t1 in plan_of(g, plain, threads, TILE).blocks:
                covered[c0:c1, t0:t1] += 1
            assert (covered == 1).all()


def test_items_of_columns_cover_each_output_once():
    for (g, plain), threads in product(_shapes(), (1, 2, 5)):
        images, pixels = (1, g.n * g.p * g.q) if g.channels_last else (g.n, g.p * g.q)
        y = np.zeros((images, g.groups, g.k, pixels), int)
        for n, group, f0, f1, p0, p1 in _plan.forward(g, plain, threads, TILE).items:
            y[n, group, f0:f1, p0:p1] += 1
        plan = _plan.image_gradient(g, plain, threads, TILE)
        x = np.zeros((images, g.groups, g.c, pixels) if plain else (g.n, g.groups, g.c, g.p * g.q), int)
        for n, group, e0, e1, p0, p1 in plan.items:
            (bounds,) = {(block[0], block[1]) for block in plan.blocks[e0:e1].tolist()}
            x[n, group, slice(*bounds), p0:p1] += 1
        plan = _plan.filter_gradient(g, plain, threads, TILE)
        w = np.zeros((g.groups, g.k, len(plan.blocks), pixels), int)
        for group, f0, f1, e0, e1, p0, p1 in plan.items:
            w[group, f0:f1, e0:e1, p0:p1] += 1
        assert (y == 1).all()
        assert (x == 1).all()
        assert (w == 1).all()


def test_items_of_direct_sums_cover_each_output_once():
    for (g, _), threads in product(_shapes(), (1, 2, 5)):
        y, x, w = g.n * g.groups * g.k * g.p * g.q, g.n * g.groups * g.c * g.h * g.w, g.groups * g.k * g.c * g.r * g.s
        plans = (direct.forward, y), (_phases.image_gradient, x), (direct.filter_gradient, w)
        for plan_of, elements in plans:
            plan, written = plan_of(g, 8, threads, 24), np.zeros(elements, int)
            for r0, r1, _t0, _t1, _b, _v, out, lanes, *_ in plan.items:
                assert r1 - r0 <= 24
                np.add.at(written, out + plan.targets[r0:r1, None] + plan.lanes[1] * np.arange(lanes), 1)
            assert (written == 1).all()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("n1c512h7w7k2048r1s1", True),
        ("n1c512h1w1k64r1s1", True),
        ("n1c512h14w14k64r1s1", False),
        ("n8c512h7w7k2048r1s1", False),
        ("n2c512h4w4k64r1s1", False),
        ("n1c512h7w7k64r1s1stride2", False),
        ("n1c512h7w7k64r1s1pad1", False),
        ("n1c512h7w7k64r3s3pad1", False),
    ],
)
def test_lanes_are_pixels_if_these_fill_a_few_panels(sizes, expected):
    g = shape(REGISTRY.problem(f"conv/{sizes}/f32/nchw/fprop"))
    assert _pixels.is_better(g, 32) == expected


@pytest.mark.parametrize(
    ("problem", "rows"),
    [
        ("n8c128h56w56k128r3s3pad1stride2/f32/nhwc/fprop", 256),
        ("n8c128h56w56k128r3s3pad1stride2/f32/nhwc/dgrad", 1024),
        ("n8c128h56w56k128r3s3pad1stride2/f32/nchw/fprop", 1024),
        ("n8c512h7w7k64r1s1/f32/nchw/fprop", 256),
        ("n8c512h7w7k64r1s1/f32/nchw/dgrad", 1024),
        ("n8c64h7w7k512r1s1/f32/nhwc/dgrad", 256),
        ("n8c512h7w7k512r1s1/f32/nhwc/wgrad", 1024),
        ("n8c512h7w7k512r1s1/f32/nhwc/fprop/g2", 1024),
    ],
)
def test_few_rows_are_summed_at_once_if_their_inputs_exceed_the_cache(problem, rows, monkeypatch):
    monkeypatch.setattr("kernelmark.kernels.conv.direct.cpu.second_level_bytes", lambda: 2**21)
    assert rows == REGISTRY.kernels["conv/numba.direct"].tile_for(REGISTRY.problem(f"conv/{problem}")).AT_ONCE


def test_tiles_waste_few_rows_and_if_high_divide_runs_of_evenly_spaced_rows():
    length = ROWS * (ROWS - 1)
    assert tile_rows(length, None) == tile_rows(length, 4 * ROWS) == ROWS
    assert tile_rows(length, 4 * (ROWS - 1)) == ROWS - 1
    assert tile_rows(length, length) == ROWS - 1  # an odd number of half tiles otherwise
    assert tile_rows(ROWS, 4 * (ROWS - 1)) == ROWS
    assert tile_rows(ROWS - 1, ROWS) == ROWS - 1


@pytest.mark.parametrize(
    ("rows", "count"), [([7], 1), ([0, 9], 2), ([0, 2, 4, 6], 4), ([0, 1, 2, 5, 6, 7], 3), ([0, 1, 5, 9], 2)]
)
def test_evenly_spaced_rows_at_the_beginning_are_counted(rows, count):
    assert _stages._even(np.array(rows)) == count


@pytest.mark.parametrize("most", [1, 3, 100])
def test_parts_cover_a_length_and_have_at_most_a_given_length(most):
    for length, others, threads in product((1, 5, 97), (1, 2, 3, 16), (1, 2, 6)):
        parts = split(length, most, others, threads)
        assert [stop for _, stop in parts[:-1]] == [start for start, _ in parts[1:]]
        assert (parts[0][0], parts[-1][1]) == (0, length)
        assert all(0 < stop - start <= most for start, stop in parts)


@pytest.mark.parametrize(
    ("length", "most", "others", "threads", "expected"),
    [
        (512, 40, 1, 1, 13),
        (512, 40, 1, 2, 14),  # with one more part, no thread waits
        (64, 64, 1, 2, 2),
        (64, 64, 9, 2, 2),  # one thread would have 5 items, the other one 4
        (64, 64, 15, 2, 1),  # 8 and 7: twice as many would take longer
        (64, 64, 64, 2, 1),
        (64, 64, 65, 64, 3),
        (3, 3, 1, 4, 3),  # no more parts than elements
    ],
)
def test_there_are_more_parts_if_threads_share_them_more_evenly(length, most, others, threads, expected):
    assert len(split(length, most, others, threads)) == expected


def test_a_thread_surrounds_exactly_the_lines_that_its_items_read():
    for (g, _), threads in product(_shapes(), (2, 5)):
        for plan_of in (direct.forward, _phases.image_gradient, direct.filter_gradient):
            plan = plan_of(g, 8, threads, 24)
            for start, stop in parts(len(plan.items), threads):
                is_read = np.zeros(g.n * plan.border.strides[0] // plan.border.strides[2], bool)
                for r0, r1, t0, t1, b, _v, _out, _lanes, images, next_b, _ in plan.items[start:stop].tolist():
                    places = b + direct.grid(plan.rows[r0:r1], plan.steps[t0:t1], direct.line(images, next_b))
                    is_read[places // plan.border.strides[2]] = True
                assert direct.lines_met(plan, g.n, start, stop).tolist() == np.flatnonzero(is_read).tolist()


@pytest.mark.parametrize(
    ("sizes", "threads", "cache", "copies"),
    [
        ("n1c128h28w28k128", 2, 2**21, 2),  # each thread reads all lines
        ("n1c128h28w28k128", 2, 2**18, 1),  # an image is more than the cache
        ("n1c64h56w56k64", 2, 2**21, 2),  # each reads half of the lines, and one more
        ("n1c128h28w28k128", 4, 2**21, 1),  # four threads would each surround all lines
        ("n4c128h28w28k128", 4, 2**22, 4),  # each thread has an image of its own
    ],
)
def test_each_thread_surrounds_its_own_images_if_that_is_little_work(sizes, threads, cache, copies, monkeypatch):
    monkeypatch.setattr(_stages, "second_level_bytes", lambda: cache)
    problem = REGISTRY.problem(f"conv/{sizes}r3s3pad1/f32/nchw/fprop")
    plan = direct.forward(shape(problem), 32, threads, 1024)
    scratch_sizes = []

    def scratch(shape, _dtype):
        scratch_sizes.append(*shape)
        return np.empty(shape, "f4")

    x = SimpleNamespace(threads=threads, scratch=scratch)
    images, _ = _stages._images(np.empty(1, "f4"), plan, problem.n, x)
    assert scratch_sizes == [problem.n * plan.border.strides[0]] * copies
    assert len({id(image) for image in images}) == copies


@pytest.mark.parametrize(
    ("size", "taps", "pad", "stride", "dilation"), [(9, 3, 1, 1, 1), (7, 3, 0, 2, 1), (5, 2, 3, 4, 3)]
)
def test_phases_pair_each_input_pixel_with_its_taps_and_outputs(size, taps, pad, stride, dilation):
    outputs = (size + 2 * pad - (taps - 1) * dilation - 1) // stride + 1
    pairs = set()
    for phase in phases(size, taps, pad, stride, dilation):
        for u, (tap, first) in product(range(phase.length), zip(phase.taps, phase.outputs, strict=True)):
            pairs.add((phase.first + u * stride, int(tap), int(first) + u))
    places = product(range(outputs), range(taps))
    defined = {(output * stride + tap * dilation - pad, tap, output) for output, tap in places}
    assert {place for place in defined if 0 <= place[0] < size} == {place for place in pairs if 0 <= place[2] < outputs}


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("c", "k", "longer"), [(256, 64, "channels"), (64, 256, "filters")])
def test_threads_share_the_longer_side_of_a_1x1_filters_gradient(layout, c, k, longer):
    problem = REGISTRY.problem(f"conv/n1c{c}h28w28k{k}r1s1/f32/{layout}/wgrad")
    plan = _plan.filter_gradient(shape(problem), True, 2, TILE)
    filters = {(int(item[1]), int(item[2])) for item in plan.items}
    halves = {
        "channels": ([[0, 128, 0, 1], [128, 256, 0, 1]], {(0, 64)}),
        "filters": ([[0, 64, 0, 1]], {(0, 128), (128, 256)}),
    }
    assert (plan.blocks.tolist(), filters) == halves[longer]


def test_threads_add_up_parts_of_a_1x1_filters_gradient_if_pixels_are_many():
    problem = REGISTRY.problem("conv/n8c256h28w28k64r1s1/f32/nhwc/wgrad")
    plan = _plan.filter_gradient(shape(problem), True, 2, TILE)
    assert (plan.parts, plan.blocks.tolist()) == (2, [[0, 256, 0, 1]])
    assert plan.items.tolist() == [[0, 0, 64, 0, 1, 0, 3136], [0, 0, 64, 0, 1, 3136, 6272]]
    assert _plan.filter_gradient(shape(problem), True, 1, TILE).parts == 1
