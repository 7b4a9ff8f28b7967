"""Problems that are too large for the emulator's sweep; each covers a property of one kernel."""

from functools import partial
from itertools import product

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.kernel import Tile
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, DIRECTIONS, LAYOUTS, REGISTRY, cases, chosen, convolution

RAGGED = "alpha2/beta0.5/batch2/lda+8/ldb+16/ldc+8"
PAIRS = Tile(BN=128, STAGES=3, CLUSTER=2, SMS=4)  # two clusters, each for several tiles
ALONE = Tile(BN=64, STAGES=2, CLUSTER=1, SMS=3)
BOTH = list(product(("nchw", "nhwc"), ("fprop", "dgrad")))
#: Filters with near and far taps.
FAR = ("n2c3h9w17k5r8s4pad50-3x7-2stride3x2/dil2x1", "n1c2h15w16k3r15s4pad14x0/dil1x4", "n1c2h15w16k3r16s3pad1")
FAR += ("n1c2h4w5k3r1s2pad0-3x1-5",)
#: Phases without pixels or taps, which must leave no element of a gradient unwritten.
EMPTY = ("n1c4h5w7k8r1s1stride3", "n2c8h12w11k12r5s4pad2x3stride4x3/dil2x3/g2", "n1c4h9w6k4r3s2stride2x5/dil2x1")
#: Batches that end within a block, a tile and a row of tiles; the sweep takes others of most sides.
BATCHES = ("b1h1w8", "b130h1w16", "b67h1w32", "b5h8w8", "b17h16w16", "b1h32w32", "b9h32w32")
LINES = ("b35h1w64", "b1h1w64", "b17h1w256", "b9h1w1024")


def tiles(kernel):
    return list(CUDA[kernel].tiles())


def storage(kernel):
    return str(CUDA[kernel].domain["dtype"][0])


def gemm():
    """Yield a property, a kernel, problems and tiles; an empty list stands for all tiles that the kernel allows."""
    wgmma, persistent, splitk = (f"gemm/cuda.wgmma{name}" for name in ("", "_persistent", "_splitk"))
    registers, turned = "gemm/cuda.wgmma_tf32_registers", "gemm/cuda.wgmma_tf32_turned"
    for layout in LAYOUTS:
        yield "one block a tile", wgmma, [f"gemm/m136n136k200/bf16/{layout}/{RAGGED}"], tiles(wgmma)
        yield "a persistent grid", persistent, [f"gemm/m264n136k264/f16/{layout}/{RAGGED}"], [PAIRS, ALONE]
        # Three slices of five steps: two, two and one.
        sliced = [Tile(**vars(tile) | {"SMS": 24, "DEPTH": 64}) for tile in (PAIRS, ALONE)]
        yield "slices of unequal depth", splitk, [f"gemm/m136n72k264/f16/{layout}/{RAGGED}"], sliced
    # Rows of C end in an odd element, and the element after it must not be written.
    for name, scaled in product((wgmma, splitk), ("", "/alpha2/beta0.5")):
        odd = [f"gemm/m133n133k72/bf16.f32/NN{scaled}/ldb+3/ldc+3", f"gemm/m133n133k72/f16/TT{scaled}/lda+3/ldc+3"]
        yield "half a pair at the end of a row", name, odd, tiles(name)[-1:]
    yield "the last of several bands of tiles", persistent, ["gemm/m1160n72k8/bf16/NT"], [ALONE]
    yield "the widest tile", persistent, ["gemm/m264n264k328/bf16/NT"], tiles(persistent)[:1]
    # An odd and an even number of steps; two sets of registers take the products of steps in turn.
    edges = [
        f"gemm/m264n132{depth}/ldc+4" for depth in ("k132/f32/NT/alpha2/beta0.5/batch2/lda+4", "k100/f32/NT/beta0.5")
    ]
    in_registers = [Tile(**vars(PAIRS) | {"STAGES": stages}, REGISTERS=1) for stages in (2, 3)]
    for name, taken in (
        ("tf32", [PAIRS, ALONE]),
        ("3xtf32", [Tile(**vars(tile), REGISTERS=0) for tile in (PAIRS, ALONE)]),
        ("3xtf32", in_registers),
    ):
        yield "edges of tiles of tf32", f"gemm/cuda.wgmma_{name}", edges, taken
    for layout in ("NN", "TT"):
        # An odd and an even number of steps; two sets of registers take the rows of steps in turn.
        depths = (f"k132/f32/{layout}/alpha2/beta0.5/batch2/lda+4/ldb+4", f"k100/f32/{layout}")
        yield "rows from registers", registers, [f"gemm/m264n132{depth}/ldc+4" for depth in depths], [PAIRS, ALONE]
        yield "the widest tile", registers, [f"gemm/m264n264k72/f32/{layout}"], tiles(registers)[:1]
    # Also less than one step, and tiles without rows for the second half of a warpgroup.
    depths = ("k132/f32/TN/alpha2/beta0.5/batch2/lda+4/ldb+4", "k3/f32/TN")
    yield "turned columns", turned, [f"gemm/m552n132{depth}/ldc+4" for depth in depths], [PAIRS, ALONE]
    for dtype, tile in (("e4m3.bf16", PAIRS), ("e5m2.f32", ALONE)):
        ends = f"{dtype}/NT/alpha2/beta0.5/batch2/lda+16/ldc+8"
        yield "edges of tiles of fp8", "gemm/cuda.wgmma_fp8", [f"gemm/m264n136k{k}/{ends}" for k in (272, 400)], [tile]
    for dtype, tile in (("e4m3.bf16", PAIRS), ("e4m3.f32", ALONE)):
        # Three and five steps, whose scales end in padding, as those of the rows do.
        ends = f"{dtype}/NT/alpha2/beta0.5/batch2/ldc+8/scale-blocks"
        scaled = [f"gemm/m262n264k{k}/{ends}" for k in (272, 528)]
        yield "scales of rows, columns and steps", "gemm/cuda.wgmma_fp8_blocks", scaled, [tile]
    integers = [Tile(BN=256, STAGES=3, CLUSTER=2, SMS=4), PAIRS, ALONE]
    yield "integers", "gemm/cuda.wgmma_int8", ["gemm/m264n264k272/s8.s32/NT/batch2/lda+16/ldc+8"], integers
    # The sweep's ragged problems are aligned nowhere; these are ragged for every tile and aligned everywhere.
    for layout, name in product(LAYOUTS, ("vectorised", "warptile", "async", "splitk")):
        aligned = f"gemm/m140n132k20/f32/{layout}/alpha2/beta0.5/batch2/lda+4/ldb+8/ldc+4"
        yield "packs over the edges of tiles", f"gemm/cuda.{name}", [aligned], []
    for layout, name in product(
        LAYOUTS, ("gemm/cuda.mma", *(f"gemm/cuda.mma_{kind}" for kind in ("tf32", "3xtf32", "f64")))
    ):
        aligned = f"gemm/m72n264k40/{storage(name)}/{layout}/alpha2/beta0.5/batch2/lda+8/ldb+8/ldc+8"
        yield "copies of 16 bytes over the edges of tiles", name, [aligned], []
        if layout == "NN":
            yield "more rows of tiles than a band", name, [f"gemm/m1160n136k16/{storage(name)}/NN"], tiles(name)[:1]
    # Only the leading dimensions are aligned: the last copy of a row is partial, and NaN follows it.
    for layout, name in product(LAYOUTS, ("mma", "mma_f64")):
        stored = {"NN": (51, 77), "NT": (51, 51), "TN": (75, 77), "TT": (75, 51)}[layout]
        lda, ldb, ldc = (-length % 8 for length in (*stored, 77))
        cut = f"gemm/m75n77k51/{'bf16' if name == 'mma' else 'f64'}/{layout}/beta0.5/lda+{lda}/ldb+{ldb}/ldc+{ldc}"
        yield "rows that end within 16 bytes", f"gemm/cuda.{name}", [cut], []
    update = "gemm/m140n132k20/f32/TN/alpha2/batch2/lda+4/ldb+8/ldc+4/epi-update"
    yield "packs of an update", "gemm/cuda.async_fused", [update], [chosen("gemm/cuda.async_fused", update).tile]
    # Several whole tiles for each block, and tiles that blocks share.
    for layout, words in product(LAYOUTS, ("", "/alpha2/beta0.5/batch3/lda+4/ldb+8/ldc+4")):
        dealt = [f"gemm/m72n68k44/f32/{layout}{words}"]
        yield "whole and divided tiles together", "gemm/cuda.streamk", dealt, tiles("gemm/cuda.streamk")[-1:]
    for sizes, dtype in product(("m16n70k1100", "m9n128k2048", "m13n33k259"), ("f32", "f16.f32", "bf16")):
        many = [f"gemm/{sizes}/{dtype}/{layout}/alpha2/beta0.5" for layout in ("NT", "NN")]
        yield "many steps of every warp", "gemm/cuda.skinny", many, []
    for sizes, layout in product(("m6n5k7", "m100n70k9", "m9n128k128"), LAYOUTS):
        fewer = [f"gemm/{sizes}/f32/{layout}/alpha2/beta0.5/batch7/lda+1/ldb+3/ldc+2"]
        yield "a last block with fewer products", "gemm/cuda.batched", fewer, []


def conv():
    """Yield a property, a kernel, problems and an empty list, which stands for all tiles that the kernel allows."""
    implicit, mma, tf32 = (f"conv/cuda.implicit{name}" for name in ("", "_mma", "_tf32"))
    for layout, direction in BOTH:
        yield "filters of 32 taps", implicit, [f"conv/n1c3h9w17k5r4s8pad2/f32/{layout}/{direction}"], []
    for layout, (direction, every) in product(("nchw", "nhwc"), (("wgrad", FAR), ("dgrad", EMPTY))):
        taken = [convolution(sizes, f"{layout}/{direction}").id for sizes in every]
        yield "far taps and empty phases", implicit, taken, []
    for layout, direction in product(("nchw", "nhwc"), DIRECTIONS):
        yield "slices in several groups", implicit, [f"conv/n3c32h9w8k40r3s3pad1/f32/{layout}/{direction}/g2"], []
    for name, direction in product((mma, tf32, "conv/cuda.implicit_3xtf32"), DIRECTIONS):
        options = f"{storage(name)}/nhwc/{direction}/dil1x2/g2"
        odd = [f"conv/n2c16h9w10k48r3s2pad0-1x2-0stride2x1/{options}"]
        yield "stride, dilation, groups and one-sided padding", name, odd, []
    for direction in DIRECTIONS:
        odd = [f"conv/n2c9h9w10k15r3s2pad0-1x2-0stride2x1/f32/nchw/{direction}/dil1x2/g3"]
        yield "any channels before the pixels", tf32, odd, []
    yield "filters that fill no 16 bytes, from the widest warp", mma, ["conv/n1c8h5w7k37r3s3/f16/nhwc/fprop"], []
    padded = ("n2c17h9w8k70r3s3pad1", "n1c70h6w7k9r3s3pad1-2x0-3", "n3c6h17w15k4r3s3pad0-3x2-0/g2")
    padded += ("n1c3h4w6k3r3s3pad5x4", "n1c66h3w12k68r3s3pad1/g2")
    for name, (i, variant) in product(("winograd", "winograd4", "winograd4_fused"), enumerate(BOTH)):
        # Each problem in half of the variants: in both layouts and in both directions.
        taken = [convolution(sizes, "/".join(variant)).id for sizes in padded[(i + i // 2) % 2 :: 2]]
        yield "edges, and more padding than the filter", f"conv/cuda.{name}", taken, []


def others():
    for dtype in ("f64", "f32", "f16"):
        ids = [f"transpose/b3m{m}n{n}/{dtype}/out" for m, n in product((72, 49), (136, 35))]
        yield "tiles of several matrices", "transpose/cuda.batched", ids, []
    for sizes in ("m131n1021/f32", "m63n1031/f64", "m131n2045/bf16", "m1n15/f16", "m64n1024/f32"):
        name = "copy/cuda.vectorised"
        yield "rounds of a small grid, and elements after the last vector", name, [f"copy/{sizes}"], tiles(name)
    for dtype, kind in product(("f32", "f64"), ("r2c", "c2r", "c2c", "c2c/inverse")):
        sides = BATCHES + (LINES if dtype == "f32" else ())
        yield "ragged batches", "fft/cuda.small", [f"fft/{sizes}/{dtype}/{kind}" for sizes in sides], []
    for name, problem in (
        *(("ffma", "n4200k63/f32"), ("ffma", "n2049k193/f64"), ("ffma_fed", "n33000k43/f32/fed")),
        *(("mma", "n8321k129/f32/mma"), ("mma", "n8321k135/f16/mma"), ("mma", "n16000k128/bf16/mma")),
        *(("wgmma", "n33000k70/f16/mma"), ("wgmma", "n9000k193/bf16/mma"), ("wgmma", "n9000k70/f32/mma")),
    ):
        yield "several blocks and rounds of the unrolled loop", f"fma/cuda.{name}", [f"fma/{problem}"], []


BEYOND = [*gemm(), *conv(), *others()]


def cases_of(kernel, problems, tiles):
    """Return the cases of a row, whether or not the declaration would take its tiles for so small a problem."""
    if not tiles:
        return cases(kernel, *problems)
    return [EmulatedCase(CUDA[kernel], REGISTRY.problem(problem), tile) for problem in problems for tile in tiles]


@pytest.mark.long
@pytest.mark.parametrize(
    "every",
    [pytest.param(partial(cases_of, *row), id=f"{label}-{row[0]}-{row[1][0]}-{row[2][:1]}") for label, *row in BEYOND],
)
def test_kernels_are_right_on_problems_beyond_the_sweep(every):
    (kernel, problems, _), tested = every.args, every()
    assert {case.problem.id for case in tested} == {REGISTRY.problem(problem).id for problem in problems}
    assert not any(CUDA[kernel].refuses(case.problem) for case in tested)
    assert not wrong_in_emulator(tested)


def test_problems_for_slices_have_several_slices():
    for label, kernel, problems, tiles in BEYOND:
        if label == "slices in several groups":
            assert any(len(case.calls) > 1 for case in cases(kernel, *problems))
        elif label == "slices of unequal depth":
            planned = [EmulatedCase(CUDA[kernel], REGISTRY.problem(problems[0]), tile).calls for tile in tiles]
            assert [calls[0][1].args[-2:] for calls in planned] == [(2, 3), (2, 3)]
