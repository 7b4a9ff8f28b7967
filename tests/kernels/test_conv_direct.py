"""Direct, tiled, depthwise and im2col convolutions: plans cover the output, random parameters come out right."""

import itertools
import math
import random
import re
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.emulator.shapes import problems
from kernelmark.bench.emulator.sweep import entries
from kernelmark.bench.measure.compile import compile_cubin, cuda_sources
from kernelmark.bench.measure.cubin import elf_parameters
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel, KernelCall
from kernelmark.bench.plan.operation import Problem
from kernelmark.kernels.conv._geometry import DIVISOR, DIVISORS, GEOMETRY, SIZES, divisor, fits_ints, geometry
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, DIRECTIONS, REGISTRY, cases, chosen, lean

NAMES = ("direct", "direct_tiled", "depthwise", "im2col")
VARIANTS = tuple(itertools.product(("nchw", "nhwc"), DIRECTIONS))
LAYER = "n32c64h56w56k128r3s3pad1"


def kernel(name: str) -> CudaKernel:
    """The declaration of `conv/cuda.<name>`."""
    return CUDA[f"conv/cuda.{name}"]


def conv(sizes: str, variant: str, options: str = "", dtype: str = "f32") -> Problem:
    """A problem by its id: variant is `nchw/fprop`."""
    return REGISTRY.problem("/".join(filter(None, (f"conv/{sizes}/{dtype}/{variant}", options))))


def calls(name: str, problem: Problem) -> list[tuple[str, KernelCall]]:
    """The launches under the tile that a run takes."""
    return chosen(f"conv/cuda.{name}", problem.id).calls


@pytest.mark.parametrize("d", [1, 2, 3, 5, 7, 9, 49, 64, 196, 641, 3136, 50176, 2**30, 2**31 - 1])
def test_a_packed_divisor_divides_exactly_up_to_the_largest_int(d: int) -> None:
    packed = int(divisor(d))
    multiplier, shift = packed & 0xFFFFFFFF, packed >> 32
    assert shift < 64
    near = {q * d + e for q in (0, 1, 2, (2**31 - 1) // d) for e in (-1, 0, 1, d - 1)}
    for dividend in (n for n in (*near, 2**31 - 1, 2**31 - 2) if 0 <= n < 2**31):
        assert dividend * multiplier >> shift == dividend // d
        assert dividend * multiplier < 2**64


def fields(struct: str) -> list[tuple[str, str]]:
    """The fields of a struct in cuda/conv/geometry.cuh, each with its type, in their order."""
    header = (cuda_sources() / "conv/geometry.cuh").read_text()
    body = header[header.index(f"struct {struct} {{") :].partition("__device__")[0]
    lines = re.findall(r"^  ((?:\w+ )+)(\w+(?:, \w+)*);", body, re.MULTILINE)
    return [(name, kind.strip()) for kind, names in lines for name in names.split(", ")]


def test_geometry_has_the_fields_of_the_headers_structs_in_their_order() -> None:
    widths = {"unsigned": "u4", "unsigned long long": "u8"}
    assert np.dtype([(name, widths[kind]) for name, kind in fields("Divisor")], align=True) == DIVISOR
    assert fields("Geometry") == [(name, "unsigned") for name in SIZES] + [(name, "Divisor") for name in DIVISORS]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_geometry_is_as_large_as_the_kernels_parameter(arch: str, cuda_compiler: str) -> None:
    ((entry, call),) = calls("direct", conv(LAYER, "nchw/fprop"))
    cubin = compile_cubin("conv/direct.cu", [entry], arch)
    assert elf_parameters(cubin.code, cubin.symbols[entry]) == [8, 8, 8, GEOMETRY.itemsize]
    assert call.args[-1].nbytes == GEOMETRY.itemsize


def test_geometry_holds_sizes_and_what_divides_by_them() -> None:
    p = conv("n2c6h9w7k4r3s2pad0-1x2-0stride2x1", "nchw/fprop", "dil1x2/g2")
    held = geometry(p)  # type: ignore[arg-type]
    assert [held[name] for name in SIZES] == [2, 6, 9, 7, 4, 3, 2, 4, 7, 2, 1, 1, 2, 0, 2, 2]
    divided = [28, 7, 63, 7, 6, 2, 3, 2, 2, 1]
    assert [tuple(held[name]) for name in DIVISORS] == [(d, divisor(d)) for d in divided]


def test_sizes_that_no_int_counts_are_refused_with_their_number() -> None:
    reason = fits_ints(conv("n2c1h40000w40000k1r1s1", "nchw/fprop"))  # type: ignore[arg-type]
    assert reason == "the padded input has 3200000000 places, expected at most 2147483647: they are counted in C ints"


def drawn(rng: random.Random, depthwise: bool) -> str:
    """Sizes and options of a small convolution that exists, as in an id without storage type and variant."""
    while True:
        r, s, groups = rng.randint(1, 5), rng.randint(1, 4), rng.choice((1, 1, 2, 3))
        c, k = groups * rng.randint(1, 7), groups * rng.randint(1, 6)
        if depthwise:
            groups, k = c, c * rng.randint(1, 3)
        h, w = rng.randint(1, 12), rng.randint(1, 15)
        pads = "x".join(f"{rng.randint(0, 2)}-{rng.randint(0, 2)}" for _ in range(2))
        strides, dilations = ("x".join(str(rng.choice((1, 1, 2, 3))) for _ in range(2)) for _ in range(2))
        sizes = f"n{rng.randint(1, 3)}c{c}h{h}w{w}k{k}r{r}s{s}pad{pads}stride{strides}"
        options = "/".join(filter(None, (f"dil{dilations}", f"g{groups}" if groups > 1 else "")))
        try:
            return conv(sizes, "nchw/fprop", options).id.removeprefix("conv/")
        except UsageError:
            continue


@pytest.mark.long
@pytest.mark.parametrize(
    "variant", ["nchw/fprop", *(pytest.param("/".join(v), marks=pytest.mark.long) for v in VARIANTS[1:])]
)
@pytest.mark.parametrize("name", NAMES)
def test_drawn_parameters_come_out_right_and_without_reports(name: str, variant: str) -> None:
    rng = random.Random(f"{name} {variant}")
    ids = [drawn(rng, name == "depthwise").replace("nchw/fprop", variant) for _ in range(16)]
    every = cases(f"conv/cuda.{name}", *(f"conv/{text}" for text in ids))
    if not every:
        assert (name, variant.split("/")[1]) == ("direct_tiled", "wgrad")
    assert not wrong_in_emulator(every)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_the_sweep_meets_each_option_and_each_bad_shape_in_every_variant(dtype: str, variant: tuple[str, str]) -> None:
    every = problems(kernel("direct"), REGISTRY.operations["conv"])
    taken: list[Any] = [p for p in every if (p.dtype, p.layout, p.direction) == (dtype, *variant)]  # type: ignore[attr-defined]
    assert any(p.stride != 1 and p.dilation != 1 and p.groups > 1 for p in taken)
    assert any(p.groups > 1 and p.c // p.groups != p.k // p.groups for p in taken)
    assert any(p.pad_h.before != p.pad_h.after and p.pad_w.before != p.pad_w.after for p in taken)
    assert any(p.r != p.s for p in taken)
    assert any(p.stride_h > p.r for p in taken)
    assert any(p.h * p.w == 1 and p.r > 1 for p in taken)
    assert any(p.h == 1 and p.p * p.q > 32 for p in taken)
    assert any(p.groups == p.c > 1 for p in taken)
    assert max(p.q for p in taken) > 32


@pytest.mark.long  # test_handwritten.py compiles a variant of each
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("cuda_compiler")
def test_no_variant_spills(name: str, arch: str) -> None:
    sizes = (LAYER, "n8c3h7w7k3r3s2", "n8c64h7w7k130r1s1", "n1c3h7w7k130r3s3")
    grouped = ((LAYER, "g64"), ("n8c64h14w14k64r5s5pad2stride2", "g64"), ("n1c8h1w9k8r1s3", "g8"))
    problems = [
        conv(text, "/".join(variant), options, dtype)
        for text, options in (*((text, "") for text in sizes), *grouped)
        for variant in VARIANTS
        for dtype in ("f32", "f16", "bf16")
    ]
    lean(f"conv/cuda.{name}", entries(cases(f"conv/cuda.{name}", *problems)), arch)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("direction", "pixels", "channels"), [("fprop", 3 * 4 * 5, 6), ("dgrad", 3 * 7 * 9, 4)])
def test_direct_has_a_thread_for_each_element_and_no_idle_block(
    layout: str, direction: str, pixels: int, channels: int
) -> None:
    ((_, call),) = calls("direct", conv("n3c4h7w9k6r3s3pad1stride2", f"{layout}/{direction}"))
    along, across = (pixels, channels) if layout == "nchw" else (channels, pixels)
    x, y = (0, 1) if layout == "nchw" else (1, 0)
    assert (call.grid[x], call.grid[y]) == (math.ceil(along / 32), math.ceil(across / 8))


def test_tiled_refuses_strided_gradients_and_what_no_shared_memory_holds() -> None:
    k = kernel("direct_tiled")
    assert k.refuses(conv(LAYER + "stride2", "nchw/dgrad")) == (
        "stride is 2, expected 1: dgrad is run as a forward convolution"
    )
    assert "has no wgrad path" in (k.refuses(conv(LAYER, "nchw/wgrad")) or "")
    reason = k.refuses(conv("n1c1h200w200k1r90s90", "nchw/fprop")) or ""
    assert "no tile is valid: 4 channels take" in reason
    assert k.tile_for(conv("n1c9h64w64k1r15s15", "nchw/fprop")).BC == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("width", "columns"), [(1, 8), (7, 8), (8, 8), (9, 16), (14, 16), (17, 32), (56, 32), (64, 32)]
)
def test_tiles_of_the_tiled_kernel_are_as_narrow_as_the_image(width: int, columns: int) -> None:
    ((_, call),) = calls("direct_tiled", conv(f"n2c4h40w{width}k40r1s1", "nchw/fprop"))
    across = math.ceil(width / columns)
    assert call.grid == (math.ceil(40 / (256 // columns)) * across, 2, 2)
    assert call.args[3] == int(math.log2(columns))


def test_depthwise_wants_a_group_for_each_channel() -> None:
    reason = kernel("depthwise").refuses(conv("n1c8h9w9k8r3s3", "nchw/fprop", "g4"))
    assert reason == "groups is 4, expected c = 8: each filter reads one channel"


@pytest.mark.parametrize("variant", ["nchw/fprop", "nhwc/fprop", "nchw/dgrad", "nhwc/dgrad"])
@pytest.mark.parametrize("sizes", ["n2c64h56w56k64r3s3pad1", "n2c64h7w7k64r3s3pad1stride2", "n1c64h1w99k64r1s9"])
def test_blocks_of_depthwise_fit_and_cover_the_output(sizes: str, variant: str) -> None:
    problem = conv(sizes, variant, "g64")
    for case in cases("conv/cuda.depthwise", problem):
        ((_, call),) = case.calls
        assert isinstance(call.grid, tuple)
        assert math.prod(call.block) <= 256
        assert call.block[2] <= 64
        assert call.shared_bytes <= 48 * 1024
        cols, rows, planes = call.block if "nchw" in variant else (call.block[1], call.block[2], call.block[0])
        height, width = (problem.p, problem.q) if "fprop" in variant else (problem.h, problem.w)  # type: ignore[attr-defined]
        assert call.grid[0] == math.ceil(height / (rows * case.tile.OUT)) * math.ceil(width / cols)
        assert call.grid[1] == math.ceil(64 / planes)


def test_a_filter_that_no_shared_memory_holds_is_refused_by_depthwise() -> None:
    reason = kernel("depthwise").refuses(conv("n1c1h200w200k1r120s120", "nchw/fprop")) or ""
    assert reason.endswith("bytes of shared memory, expected at most 49152")


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("sizes", [LAYER, "n1c64h5w5k64r3s3", "n3c64h112w112k64r3s3stride2"])
def test_slices_of_depthwise_filters_cover_all_pixels_and_none_is_empty(layout: str, sizes: str) -> None:
    problem = conv(sizes, f"{layout}/wgrad", "g64")
    pixels = problem.n * problem.p * problem.q  # type: ignore[attr-defined]
    for case in cases("conv/cuda.depthwise", problem):
        product, *added = case.calls
        count, depth = product[1].grid[2], product[1].args[3]  # type: ignore[index]
        assert (count - 1) * depth < pixels <= count * depth
        assert bool(added) == (count > 1)
        for _, call in added:
            assert call.args[2:] == (128 * 9 if "k128" in sizes else 64 * 9, count)
