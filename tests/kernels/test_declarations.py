"""Every CUDA kernel: its plan is pure and passes its parameters, it compiles without spills, tunables matter."""

import hashlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import chain, islice, product

import numpy as np
import pytest

from kernelmark.bench.emulator.sweep import entries
from kernelmark.bench.measure import occupancy
from kernelmark.bench.measure.compile import ARCHS, compile_cubin, cuda_sources
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.cubin import elf_parameters, elf_sections
from kernelmark.bench.measure.launch import c_scalar
from kernelmark.bench.measure.tensormap import NBYTES, extents
from kernelmark.bench.plan.kernel import Im2colMap, Scratch, TensorMap, Tile
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.space import Space
from kernelmark.bench.tune import inspect
from kernelmark.bench.tune.inspect import sample_problems
from support.kernels import CUDA as KERNELS
from support.kernels import DIRECTIONS, LAYOUTS, REGISTRY, TUNABLE_CUDA, cases, convolution, lean, losses, typical

ARCH = "sm_90a"
DTYPES = ("f64", "f32", "f16", "bf16")


def plans(op, name, problem):
    kernel, parsed = KERNELS[f"{op}/cuda.{name}"], REGISTRY.problem(f"{op}/{problem}")
    calls = [kernel.plan(parsed, tile, H100) for tile in kernel.tiles()]
    assert all(len(made) == 1 for made in calls)
    return [made[0] for made in calls]


def spans(width, blocks, length):
    """Return whether this number of blocks covers `length`, and one block less does not."""
    return (blocks - 1) * width < length <= blocks * width


@pytest.mark.parametrize("name", KERNELS)
def test_a_plan_is_pure(name):
    kernel = KERNELS[name]
    problem = sample_problems(kernel, REGISTRY.problem_class(kernel.op, name))[0]
    loaded = set(sys.modules)
    every = list(kernel.tiles())
    for tile in every[:: len(every) // 16 + 1]:  # all of im2col's tiles with the least scratch take half a minute
        assert kernel.calls(problem, tile) == kernel.calls(problem, tile)
    assert not {"cupy", "cuda.core", "pycuda"} & (set(sys.modules) - loaded)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (31, 33, 17), (32, 64, 8), (1000, 257, 3)])
def test_gemm_plans_cover_c_and_no_block_is_idle(m, n, k):
    tiles = {"naive": [(32, m, 8, n)], "coalesced": [(32, n, 8, m)], "tiled": [(32, n, 32, m), (16, n, 16, m)]}
    for layout, name in product(LAYOUTS, tiles):
        made = plans("gemm", name, f"m{m}n{n}k{k}/f32/{layout}/batch3")
        for call, (wide, across, high, down) in zip(made, tiles[name], strict=True):
            x, y, z = extents(call.grid)
            assert (spans(wide, x, across), spans(high, y, down), z) == (True, True, 3)


def test_gemm_arguments_are_sizes_scalars_leading_dimensions_and_strides_in_this_order():
    (call,) = plans("gemm", "naive", "m5n7k3/f32/TN/alpha0.5/beta2/batch2/lda+1/ldc+4")
    assert call.args == ("a", "b", "c", 5, 7, 3, 0.5, 2.0, 6, 7, 11, 3 * 6, 3 * 7, 5 * 11)
    assert all(isinstance(stride, np.int64) for stride in call.args[-3:])


@pytest.mark.parametrize(("m", "n"), [(1, 1), (31, 33), (32, 64), (257, 1000)])
def test_transposition_plans_cover_the_matrix_and_no_block_is_idle(m, n):
    for name, height in (("naive", 8), ("tiled", 32)):
        for call in plans("transpose", name, f"m{m}n{n}/f32/out"):
            x, y, _ = extents(call.grid)
            assert (spans(32, x, n), spans(height, y, m)) == (True, True)


@pytest.mark.parametrize(
    "arch", [arch if arch == ARCH else pytest.param(arch, marks=pytest.mark.long) for arch in ARCHS]
)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.usefixtures("cuda_compiler")
def test_every_kernel_compiles_without_spills_or_warnings_and_takes_its_plans_arguments(name, arch, monkeypatch):
    """Compile every tile for Hopper and for the kernel's oldest architecture, and the default tile for the others.

    A tile bounds the registers of a thread by the same number on all architectures.
    """
    kernel = KERNELS[name]
    cubins = []

    def recording(source, entries, for_, name):
        cubins.append(compile_cubin(source, entries, "sm_86" if for_ == "sm_89" else for_, name))
        return cubins[-1]

    monkeypatch.setattr(inspect, "compile_cubin", recording)
    if not kernel.runs_on(arch):
        pytest.skip(f"{name} does not run on {arch}")
    if arch in (ARCH, next(filter(kernel.runs_on, ARCHS))):
        rows = inspect.inspect_rows(REGISTRY, name, (arch,))
    else:
        problems = sample_problems(kernel, REGISTRY.problem_class(kernel.op, name))
        taken = next(problem for problem in problems if not kernel.refuses(problem, occupancy.typical(arch)))
        rows = inspect.tile_rows(kernel, taken, (arch,))
    for row in rows:
        if not kernel.spills:  # a declaration that allows spills gives the reason
            assert (row.spill_bytes, row.stack_bytes) == (0, 0), row.entry
        assert row.blocks_per_sm > 0, row.entry
    assert cubins
    reported = [line for cubin in cubins for line in losses(cubin.log)]
    assert [line for line in reported if not (kernel.spills and "spill" in line)] == []
    if arch == ARCH:
        calls = plan(kernel)
        (cubin, *_) = (cubin for cubin in cubins if cubin.symbols.keys() >= dict(calls).keys())
        assert misfits(cubin, calls) == []


_CONVOLVED = ("n32c64h56w56k128r3s3pad1", "n8c3h7w7k3r3s2", "n8c64h7w7k130r1s1", "n1c3h7w7k130r3s3")
_CONVOLVED += ("n32c64h56w56k128r3s3pad1/g64", "n8c64h14w14k64r5s5pad2stride2/g64", "n1c8h1w9k8r1s3/g8")
#: Kernels with variants that `inspect` does not show, and problems that have all of them.
VARIANTS = {
    **dict.fromkeys(
        (f"conv/cuda.{name}" for name in ("direct", "direct_tiled", "depthwise", "im2col")),
        tuple(
            convolution(sizes, f"{layout}/{direction}", dtype)
            for sizes, layout, direction in product(_CONVOLVED, ("nchw", "nhwc"), DIRECTIONS)
            for dtype in ("f32", "f16", "bf16")
        ),
    ),
    "conv/cuda.implicit_wgmma": [
        f"conv/{sizes}r3s3pad1/f16/nhwc/{direction}"
        for sizes, direction in product(("n8c64h14w14k64", "n64c256h56w56k256"), DIRECTIONS[1:])
    ],
    "fft/cuda.small": [
        f"fft/b64{sides}/{dtype}/{kind}"
        for dtype, more in (("f32", ("h1w256", "h1w1024")), ("f64", ()))
        for sides in ("h16w16", "h32w32", "h1w16", "h1w32", *more)
        for kind in ("r2c", "c2r", "c2c", "c2c/inverse")
    ],
    "gemm/cuda.async_fused": [f"gemm/m4096n4096k64/f32/{words}" for words in ("NT/epi-sigmoid", "TN/epi-update")],
    "gemm/cuda.skinny": [
        f"gemm/m{m}n4096k{k}/{dtype}/{layout}"  # with the numbers of rows that take the most registers
        for m, k, dtype, layout in product((12, 16), (4096, 4095), ("f32", "bf16"), ("NT", "NN"))
    ],
    **{
        f"gemm/cuda.{name}": [f"gemm/m5n7k3/f32/{layout}" for layout in LAYOUTS]
        for name in ("naive", "coalesced", "tiled")
    },
    **{
        f"transpose/cuda.{name}": [f"transpose/m8n8/{dtype}/{place}" for dtype in DTYPES]
        for name, place in (("naive", "out"), ("tiled", "out"), ("tiled_inplace", "in"))
    },
    "transpose/cuda.batched": [
        f"transpose/b2m{m}n{n}/{dtype}/out" for m, n, dtype in product((64, 49), (136, 35), ("f64", "f32", "f16"))
    ],
}


@pytest.mark.long
@pytest.mark.usefixtures("cuda_compiler")
@pytest.mark.parametrize("name", VARIANTS)
def test_no_variant_spills_on_hopper_or_on_the_oldest_architecture(name):
    every = cases(name, *VARIANTS[name])
    assert every
    for arch in {ARCH, next(filter(KERNELS[name].runs_on, ARCHS))}:
        lean(name, entries(every), arch)


@pytest.mark.long
@pytest.mark.usefixtures("cuda_compiler")
def test_machine_code_for_sm_89_is_the_same_as_for_sm_86():
    texts = (path.read_text() for path in cuda_sources().rglob("*.cu*"))
    limits = {int(number) for text in texts for number in re.findall(r"__CUDA_ARCH__ \S+ (\d+)", text)}
    assert limits
    assert not limits & set(range(861, 891))
    for name in COMPILED:
        if KERNELS[name].runs_on("sm_89"):
            wanted = tuple(dict(plan(KERNELS[name])))
            assert code(KERNELS[name], wanted, "sm_89") == code(KERNELS[name], wanted, "sm_86")


KINDS = {"int": "i4", "unsigned int": "i4", "float": "f4", "double": "f8"}
KINDS |= dict.fromkeys(("long", "unsigned long", "long long", "unsigned long long"), "i8")


def handed_over(value):
    """Return kind and bytes of a plan's argument: pointer, integer, floating point or struct."""
    if isinstance(value, str | Scratch):
        return "p8"
    if isinstance(value, TensorMap | Im2colMap):
        return f"s{NBYTES}"
    scalar = c_scalar(value, "argument")
    kind = {"u": "i", "V": "s"}.get(scalar.dtype.kind, scalar.dtype.kind)
    return f"{kind}{scalar.dtype.itemsize}"


def demangled(symbols):
    """Return the C types of each symbol's parameters; none where the entry is extern "C"."""
    named = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout
    return [divided(line) for line in named.splitlines()]


def divided(signature):
    parts, depth = [""], 0
    for letter in reversed(signature if signature.endswith(")") else ""):
        depth += (letter in ")>") - (letter in "(<")
        if not depth:
            break
        if letter == "," and depth == 1:
            parts.append("")
        elif depth > 1 or letter != ")":
            parts[-1] += letter
    return [part[::-1].strip() for part in reversed(parts) if part]


def taken(cubin, symbol, types):
    """Return kind and bytes of each parameter; the kind is `?` where the symbol has no types."""
    sizes = elf_parameters(cubin.code, symbol)
    assert len(types) in (0, len(sizes)), f"{symbol}: {len(sizes)} parameters, and types {types}"
    if not types:
        return [f"?{size}" for size in sizes]
    kinds = [
        "p8" if kind.endswith("*")
        else f"i{size}" if kind == "Int8::Sum"
        else f"f{size}" if kind.endswith("::Sum")  # float or double, as the arithmetic adds
        else KINDS.get(kind, f"s{size}")
        for kind, size in zip(types, sizes, strict=True)
    ]  # fmt: skip
    assert [int(kind[1:]) for kind in kinds] == sizes
    return kinds


def misfits(cubin, calls):
    """Return a line for each launch whose arguments do not fit the kernel's parameters."""
    mismatches, types = [], demangled([cubin.symbols[entry] for entry, _ in calls])
    for (entry, call), kinds in zip(calls, types, strict=True):
        given, expected = list(map(handed_over, call.args)), taken(cubin, cubin.symbols[entry], kinds)
        if expected not in (given, [f"?{kind[1:]}" for kind in given]):
            mismatches.append(f"{entry} takes {expected}, the plan hands over {given}")
    return mismatches


def plan(kernel):
    problem = sample_problems(kernel, REGISTRY.problem_class(kernel.op, kernel.id))[0]
    return kernel.calls(problem, kernel.tile_for(problem))


@pytest.mark.parametrize(
    "change",
    [
        *(lambda args, at=at, value=value: args.__setitem__(at, value)
          for at, value in ((3, np.int64(7)), (3, 7.0), (3, "a"), (6, 7), (0, 7), (0, np.int64(7)), (-1, 7))),
        lambda args: args.append(1),
        lambda args: args.pop(),
    ],
)  # fmt: skip
def test_arguments_of_another_kind_too_many_and_too_few_are_found(change, cuda_compiler):
    kernel = KERNELS["gemm/cuda.tiled"]
    ((entry, call),) = plan(kernel)
    arguments = list(call.args)
    change(arguments)
    cubin = compile_cubin(kernel.source, (entry,), ARCH, kernel.id)
    assert misfits(cubin, [(entry, call)]) == []
    assert misfits(cubin, [(entry, replace(call, args=tuple(arguments)))])


def pairs(kernel, problem, tunable):
    """Yield pairs of valid tiles that differ in this tunable, and, where it depends on another tunable, in both."""
    space = Space(kernel, problem)
    default = kernel.tile_for(problem)
    for tile in chain([default] if default else [], (tile for seed in range(3) for tile in space.sample(1, seed))):
        for more in ({}, *({name: value} for name, values in space.values.items() for value in values)):
            for value in sorted(set(space.values[tunable]) - {vars(tile)[tunable]}):
                other = Tile(**{**vars(tile), **more, tunable: value})
                if tunable not in more and space.why_not(other) is None:
                    yield tile, other


#: Problems for tunables that have no effect on the typical problem.
OTHERWISE = {
    ("conv/cuda.depthwise", "PIXELS"): "conv/n8c256h56w56k256r3s3pad1/f32/nchw/wgrad/g256",
    ("conv/cuda.depthwise", "KIB"): "conv/n8c256h112w112k256r11s11pad5/f32/nchw/fprop/g256",
    ("conv/cuda.fft_fused", "BLOCKS"): "conv/n1c3h32w32k96r11s11/f32/nchw/fprop",
    ("conv/cuda.implicit", "BLOCKS_PER_SM"): "conv/n8c64h56w56k64r3s3pad1/f32/nchw/wgrad",
    ("conv/cuda.implicit_mma", "BLOCKS_PER_SM"): "conv/n8c64h56w56k64r3s3pad1/f16/nhwc/wgrad",
    ("conv/cuda.implicit_wgmma", "SMS"): "conv/n32c256h56w56k256r3s3pad1/f16/nhwc/fprop",
    ("conv/cuda.implicit_tf32", "BLOCKS_PER_SM"): "conv/n8c64h56w56k64r3s3pad1/f32/nchw/wgrad",
    ("conv/cuda.implicit_3xtf32", "BLOCKS_PER_SM"): "conv/n8c64h56w56k64r3s3pad1/f32/nhwc/wgrad",
    ("transpose/cuda.c2r_fused", "W"): "transpose/m512n26752/f32/in",
    ("conv/cuda.im2col", "SLICE"): "conv/n1c64h8w8k64r3s3pad1/f32/nchw/wgrad",
    ("gemm/cuda.splitk", "DEPTH"): "gemm/m128n128k4096/f32/NN",
    ("gemm/cuda.splitk", "BLOCKS_PER_SM"): "gemm/m128n128k65536/f32/NN",
    ("gemm/cuda.streamk", "DEPTH"): "gemm/m128n128k4096/f32/NN",
    ("conv/cuda.implicit", "DEPTH"): "conv/n1c64h8w8k64r3s3pad1/f32/nchw/wgrad",
    ("conv/cuda.implicit_mma", "DEPTH"): "conv/n1c64h8w8k64r3s3pad1/f16/nhwc/wgrad",
    ("conv/cuda.implicit_wgmma", "DEPTH"): "conv/n1c64h14w14k64r3s3pad1/f16/nhwc/wgrad",
    ("conv/cuda.implicit_tf32", "DEPTH"): "conv/n1c64h8w8k64r3s3pad1/f32/nchw/wgrad",
    ("conv/cuda.implicit_3xtf32", "DEPTH"): "conv/n1c64h8w8k64r3s3pad1/f32/nhwc/wgrad",
}


@cache
def changed(name, tunable):
    """Return the launches with two values of a tunable, which must differ; None if the device determines the value."""
    kernel, other = TUNABLE_CUDA[name], OTHERWISE.get((name, tunable))
    problem = REGISTRY.problem(other) if other else typical(kernel)
    if len(kernel.values()[tunable]) == 1:
        return None
    for tiles in islice(pairs(kernel, problem, tunable), 20):
        before, after = (kernel.calls(problem, tile, H100) for tile in tiles)
        if before != after:
            return before, after
    raise AssertionError(f"{name} launches the same for every value of {tunable}")


@pytest.mark.parametrize("name", TUNABLE_CUDA)
def test_every_tunable_changes_what_is_launched(name):
    effects = [changed(name, tunable) for tunable in TUNABLE_CUDA[name].tunables]
    assert any(effects)


def code(kernel, wanted, arch):
    """Return the digest of each entry's machine code; compiling all entries together is faster."""
    cubin = compile_cubin(kernel.source, wanted, arch, kernel.id)
    parts = elf_sections(cubin.code)
    sections = {entry: parts[f".text.{symbol}"] for entry, symbol in cubin.symbols.items()}
    return {e: hashlib.sha256(cubin.code[p.offset : p.offset + p.size]).hexdigest() for e, p in sections.items()}


#: One kernel of each kind of template.
COMPILED = tuple(f"gemm/cuda.{name}" for name in ("blocktile2d", "warptile", "async", "mma_tf32", "wgmma_persistent"))
COMPILED += ("conv/cuda.fft_tiled", "transpose/cuda.tma", "copy/cuda.vectorised", "transpose/cuda.tiled")


@pytest.mark.long
@pytest.mark.usefixtures("cuda_compiler")
def test_every_tunable_that_a_kernel_is_compiled_for_changes_its_machine_code():
    launches = {(name, each): changed(name, each) for name in COMPILED for each in TUNABLE_CUDA[name].tunables}
    named = {}  # the first entry that differs, under both values
    for pair, sides in launches.items():
        before, after = ([entry for entry, _ in calls] for calls in sides or ((), ()))
        differing = [both for both in zip(before, after, strict=True) if both[0] != both[1]]
        if differing:
            named[pair] = differing[0]
    wanted = {name: [entry for pair in named if pair[0] == name for entry in named[pair]] for name in COMPILED}
    assert all(wanted.values())
    with ThreadPoolExecutor(cpu_count()) as pool:
        archs = [next(arch for arch in ("sm_80", "sm_90a") if KERNELS[name].runs_on(arch)) for name in COMPILED]
        compiled = pool.map(
            lambda name, arch: code(KERNELS[name], tuple(dict.fromkeys(wanted[name])), arch), COMPILED, archs
        )
        codes = dict(zip(COMPILED, compiled, strict=True))
    for (name, tunable), (before, after) in named.items():
        assert codes[name][before] != codes[name][after], (name, tunable)
