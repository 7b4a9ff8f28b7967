"""Every CPU kernel of conv is right on parameters drawn at random, in all directions and layouts, on any threads."""

import random
from itertools import product

import numpy as np
import pytest

pytest.importorskip("numba")

from kernelmark.bench.measure.present import unavailable
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.kernels._product import SCRATCH
from kernelmark.kernels.conv.direct import _pixels
from support.kernels import DIRECTIONS, RAGGED, allocated_by, compiled_by, set_up, verified

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
