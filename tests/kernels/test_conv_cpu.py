"""Every CPU kernel of conv is right on parameters drawn at random, in all directions and layouts, on any threads."""

import random
import tracemalloc
from itertools import product

import numpy as np
import pytest

pytest.importorskip("numba")

from bench.measure.cpu import Cpu
from bench.measure.draw import Draw
from bench.measure.machine import unavailable
from bench.measure.operands import Operands, OperandSet, Scratch
from bench.plan.case import Budget, Job
from bench.plan.discovery import discover
from bench.plan.errors import UsageError
from bench.plan.modes import Mode
from bench.run.job import run_job
from kernels.conv._shape import shape
from kernels.conv._winograd import F2, F4
from kernels.conv.columns import _plan as _columns_plan
from kernels.conv.direct._phases import phases
from kernels.conv.winograd import cpu as winograd

DRAWN = 210
ENOUGH = 25  # sets that each kernel has to take in each direction and layout that it declares
DIRECTIONS, LAYOUTS = ("fprop", "dgrad", "wgrad"), ("nchw", "nhwc")
OURS = ("conv/cpu.im2col", "conv/numba.direct", "conv/cpu.winograd", "conv/cpu.winograd4")
#: More than one block, panel, strip or item of everything that is cut into them; none divides evenly.
RAGGED = (
    "n2c70h23w29k67r3s3pad1",
    "n1c97h40w37k41r3s3pad2-1x0-1",
    "n3c5h31w33k9r5s7pad2x3stride2x1",
    "n1c401h9w11k35r1s1",
    "n1c33h1w700k34r1s3pad0x1",
)


def drawn() -> list[tuple[str, str]]:
    """Sizes and words of problems, the same in every run; every fourth is one that Winograd takes."""
    rng, found = random.Random(20240229), []
    while len(found) < DRAWN:
        sizes, words = _plain(rng) if len(found) % 4 == 0 else _any(rng)
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


def _any(rng: random.Random) -> tuple[str, str]:
    groups = rng.choice([1, 1, 1, 2, 3, 8])
    c, k = (groups * rng.choice([1, 1, 2, 3, 5, 7]) for _ in range(2))
    h, w = rng.choice([(1, 1), (1, rng.randint(1, 40)), *((rng.randint(1, 17), rng.randint(1, 19)) for _ in range(4))])
    r, s = rng.choice([(1, 1), (3, 3), (rng.randint(1, 6), rng.randint(1, 6)), (rng.randint(1, 6), 1)])
    ends, steps = [rng.randint(0, 4) for _ in range(4)], [rng.randint(1, 4) for _ in range(2)]
    pad = rng.choice(["0", str(ends[0]), "{}x{}".format(*ends), "{}-{}x{}-{}".format(*ends)])
    stride = rng.choice(["1", str(steps[0]), "{}x{}".format(*steps)])
    dilation = rng.choice(["1", "1", "2", "3x1", "1x2"])
    return f"n{rng.randint(1, 3)}c{c}h{h}w{w}k{k}r{r}s{s}pad{pad}stride{stride}", f"/dil{dilation}/g{groups}"


def run(problem: str, kernels: tuple[str, ...], threads: int = 2):
    return run_job(Job((problem,), kernels, Mode.VERIFY, (), 0, Budget(), threads=threads))


def set_up(problem: str, kernel: str, threads: int = 2):
    parsed, chosen = discover().problem(problem), discover().kernels[kernel]
    operands, scratch, draw = OperandSet(parsed, Cpu()), Scratch(Cpu()), Draw(parsed, 0)
    draw.redraw()
    operands.load(draw)
    return chosen.setup(parsed, Operands(operands, "C", Cpu(), threads, scratch)), operands, scratch


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
        "asymmetric padding": [p.pad_h.before != p.pad_h.behind or p.pad_w.before != p.pad_w.behind for p in problems],
        "padding beyond the filter": [p.pad_h.before >= p.r * p.dilation_h for p in problems],
        "pointwise": [p.pointwise for p in problems],
    }
    assert {kind: sum(found) for kind, found in kinds.items() if sum(found) < 5} == {}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_kernel_is_right_on_drawn_problems(direction: str, layout: str) -> None:
    known = [k for k in discover().kernels.values() if k.op == "conv" and k.device == "cpu" and k.is_ours]
    declared = [k for k in known if unavailable(k) is None and direction in k.domain.get("direction", DIRECTIONS)]
    declared = [k for k in declared if layout in k.domain.get("layout", LAYOUTS)]
    taken = dict.fromkeys((k.id for k in declared), 0)
    for i, (sizes, words) in enumerate(drawn()):
        for measured in run(f"conv/{sizes}/f32/{layout}/{direction}{words}", tuple(taken), 1 + i % 3):
            assert measured.status in ("ok", "unsupported"), f"{sizes}{words} {measured.kernel}: {measured.reason}"
            if measured.status == "unsupported":
                assert len(measured.reason.splitlines()) == 1
            taken[measured.kernel] += measured.status == "ok"
    assert {name: count for name, count in taken.items() if count < ENOUGH} == {}


@pytest.mark.parametrize("sizes", RAGGED)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_our_kernels_are_right_across_blocks_on_any_number_of_threads(sizes: str, direction: str) -> None:
    for layout, threads in product(LAYOUTS, (1, 3)):
        for measured in run(f"conv/{sizes}/f32/{layout}/{direction}", OURS, threads):
            assert measured.status in ("ok", "unsupported"), f"{layout} {measured.kernel}: {measured.reason}"


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
        (measured,) = run(problem, (f"conv/cpu.{name}",))
        assert (measured.status, measured.reason) == ("unsupported", reason)


def test_winograd_executes_fewer_operations_by_what_its_tiles_save() -> None:
    problem = discover().problem("conv/n64c512h48w48k512r3s3pad1/f32/nchw/fprop")
    for f, saved in ((F2, 9 * 4 / 16), (F4, 9 * 16 / 36)):
        ratio = problem.flop / winograd.executed(problem, f)
        assert 0.95 * saved < ratio < saved


def test_winograd_counts_the_operations_of_its_transforms() -> None:
    # F(2,3) of one vector: 4 additions of the input, 4 of the output, and 4 and 4 of the filter, which is also halved.
    assert [winograd._operations(matrix) for matrix in (F2.bt, F2.at)] == [4, 4]
    problem = discover().problem("conv/n1c1h4w4k1r3s3/f32/nchw/fprop")
    products, inputs, outputs = 2 * 16, 2 * 4 * 4, (4 + 2) * 4
    assert winograd.executed(problem, F2) == products + inputs + outputs + (3 + 4) * winograd._operations(F2.g)


@pytest.mark.parametrize("kernel", OURS)
def test_blas_has_its_threads_back_after_a_launch(kernel: str) -> None:
    import scipy.linalg.blas  # noqa: F401
    import threadpoolctl

    def threads() -> list[int]:
        return [lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]

    launch, *_ = set_up("conv/n2c8h12w12k8r3s3pad1/f32/nchw/fprop", kernel, 3)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        launch()
        assert set(threads()) == {2}


@pytest.mark.parametrize("kernel", OURS)
def test_a_launch_neither_compiles_nor_allocates(kernel: str) -> None:
    from kernels.conv.columns import _loops as _columns
    from kernels.conv.direct import _loops as _direct
    from kernels.conv.winograd import _loops as _winograd_loops

    def compiled() -> list[int]:
        modules = (_columns, _direct, _winograd_loops)
        return [len(f.signatures) for m in modules for f in vars(m).values() if hasattr(f, "signatures")]

    for direction, layout in product(DIRECTIONS[:2], LAYOUTS):
        launch, operands, _ = set_up(f"conv/n2c19h30w31k21r3s3pad1/f32/{layout}/{direction}", kernel)
        launch()
        operands.poison()
        known = compiled()
        tracemalloc.start()
        launch()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert compiled() == known
        assert peak < 20_000
        assert not np.isnan(operands.flat["y" if direction == "fprop" else "x"]).any()


def test_columns_take_scratch_for_blocks_only() -> None:
    # All columns of this layer are 9 times its input, 29 MB; a pointwise convolution has none at all.
    _, _, scratch = set_up("conv/n1c256h56w56k256r3s3pad1/f32/nchw/fprop", "conv/cpu.im2col")
    assert 0 < scratch.nbytes <= 2 * 4 * _columns_plan.AREA
    _, _, scratch = set_up("conv/n1c256h56w56k64r1s1/f32/nhwc/wgrad", "conv/cpu.im2col")
    assert scratch.nbytes == 0


def _shapes():
    for (sizes, words), layout in product([*drawn()[::7], *((sizes, "") for sizes in RAGGED)], LAYOUTS):
        problem = discover().problem(f"conv/{sizes}/f32/{layout}/fprop{words}")
        yield shape(problem), problem.pointwise


def test_blocks_of_columns_cover_each_channel_and_tap_once() -> None:
    for (g, plain), threads in product(_shapes(), (1, 2, 5)):
        for plan_of in (_columns_plan.forward, _columns_plan.image_gradient, _columns_plan.filter_gradient):
            covered = np.zeros((g.c, g.r * g.s), int)
            for c0, c1, t0, t1 in plan_of(g, plain, threads).blocks:
                covered[c0:c1, t0:t1] += 1
            assert (covered == 1).all()


def test_items_of_columns_cover_each_output_once() -> None:
    for (g, plain), threads in product(_shapes(), (1, 2, 5)):
        y = np.zeros((g.n, g.groups, g.k, g.p * g.q), int)
        for n, group, f0, f1, p0, p1 in _columns_plan.forward(g, plain, threads).items:
            y[n, group, f0:f1, p0:p1] += 1
        plan = _columns_plan.image_gradient(g, plain, threads)
        x = np.zeros((g.n, g.groups, g.c), int)
        for n, group, e0, e1 in plan.items:
            (bounds,) = {(block[0], block[1]) for block in plan.blocks[e0:e1].tolist()}
            x[n, group, slice(*bounds)] += 1
        plan = _columns_plan.filter_gradient(g, plain, threads)
        w = np.zeros((g.groups, g.k, len(plan.blocks)), int)
        for group, f0, f1, e in plan.items:
            w[group, f0:f1, e] += 1
        assert (y == 1).all()
        assert (x == 1).all()
        assert (w == 1).all()


@pytest.mark.parametrize("most", [1, 3, 100])
def test_threads_get_as_many_parts_each(most: int) -> None:
    for length, others, threads in product((1, 5, 97), (1, 2, 3, 16), (1, 2, 6)):
        parts = _columns_plan.split(length, most, others, threads)
        assert [stop for _, stop in parts[:-1]] == [start for start, _ in parts[1:]]
        assert (parts[0][0], parts[-1][1]) == (0, length)
        assert all(0 < stop - start <= most for start, stop in parts)
        many = others * len(parts) >= 4 * threads or len(parts) == length
        assert many or others * len(parts) % threads == 0


@pytest.mark.parametrize(
    ("size", "taps", "pad", "stride", "dilation"), [(9, 3, 1, 1, 1), (7, 3, 0, 2, 1), (5, 2, 3, 4, 3)]
)
def test_phases_meet_each_output_through_each_tap_where_it_is(
    size: int, taps: int, pad: int, stride: int, dilation: int
) -> None:
    outputs = (size + 2 * pad - (taps - 1) * dilation - 1) // stride + 1
    met = set()
    for phase in phases(size, taps, pad, stride, dilation):
        for u, (tap, first) in product(range(phase.length), zip(phase.taps, phase.outputs, strict=True)):
            met.add((phase.first + u * stride, int(tap), int(first) + u))
    places = product(range(outputs), range(taps))
    defined = {(output * stride + tap * dilation - pad, tap, output) for output, tap in places}
    assert {place for place in defined if 0 <= place[0] < size} == {place for place in met if 0 <= place[2] < outputs}
