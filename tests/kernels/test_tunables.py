"""Every tunable of our TUNABLE_CUDA kernels does something: to what is launched, or to the machine code."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, islice

import pytest

from kernelmark.bench.measure.compile import compile_cubin
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.cubin import elf_sections
from kernelmark.bench.plan.kernel import CudaKernel, Kernel, KernelCall, Tile
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.space import Space
from support.kernels import REGISTRY, TUNABLE_CUDA, typical


def pairs(kernel: Kernel, problem: Problem, tunable: str) -> Iterator[tuple[Tile, Tile]]:
    """Valid tiles that differ in one tunable, and in another only where neither can change alone."""
    space = Space(kernel, problem)
    default = kernel.tile_for(problem)
    for tile in chain([default] if default else [], (tile for seed in range(3) for tile in space.sample(1, seed))):
        for more in ({}, *({name: value} for name, values in space.values.items() for value in values)):
            for value in sorted(set(space.values[tunable]) - {vars(tile)[tunable]}):
                other = Tile(**{**vars(tile), **more, tunable: value})
                if tunable not in more and space.why_not(other) is None:
                    yield tile, other


#: Problems for tunables that do nothing for the typical one.
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
TUNABLES = [(name, tunable) for name, kernel in TUNABLE_CUDA.items() for tunable in kernel.tunables]


@cache
def changed(name: str, tunable: str) -> tuple[list[tuple[str, KernelCall]], list[tuple[str, KernelCall]]] | None:
    """The launches under two values of a tunable that differ; None where its value follows from the device alone."""
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
def test_every_tunable_changes_what_is_launched(name: str) -> None:
    found = [changed(name, tunable) for tunable in TUNABLE_CUDA[name].tunables]
    assert any(found)


def entries(calls: list[tuple[str, KernelCall]]) -> list[str]:
    return [entry for entry, _ in calls]


def code(kernel: CudaKernel, wanted: tuple[str, ...]) -> dict[str, str]:
    """The digest of the machine code of each entry, compiled together, which takes less than one by one."""
    arch = next(arch for arch in ("sm_80", "sm_90a") if kernel.runs_on(arch))
    cubin = compile_cubin(kernel.source, wanted, arch, kernel.id)
    parts = elf_sections(cubin.code)
    found = {entry: parts[f".text.{symbol}"] for entry, symbol in cubin.symbols.items()}
    return {e: hashlib.sha256(cubin.code[p.offset : p.offset + p.size]).hexdigest() for e, p in found.items()}


#: One kernel of each kind of template, and the tunables that only its launches show.
COMPILED = (
    "gemm/cuda.blocktile2d",
    "gemm/cuda.warptile",
    "gemm/cuda.async",
    "gemm/cuda.mma_tf32",
    "conv/cuda.fft_tiled",
)
COMPILED += ("gemm/cuda.wgmma_persistent", "transpose/cuda.tma", "copy/cuda.vectorised", "transpose/cuda.tiled")


@pytest.mark.long
@pytest.mark.usefixtures("cuda_compiler")
def test_every_tunable_that_a_kernel_is_compiled_for_changes_its_machine_code() -> None:
    found_by = {pair: changed(*pair) for pair in TUNABLES if pair[0] in COMPILED}
    every = {pair: list(map(entries, found)) for pair, found in found_by.items() if found}
    named = {pair: sides for pair, sides in every.items() if sides[0] != sides[1]}
    wanted = {
        name: [entry for pair in named if pair[0] == name for side in named[pair] for entry in side]
        for name in COMPILED
    }
    assert all(wanted.values())
    with ThreadPoolExecutor(cpu_count()) as pool:
        compiled = pool.map(lambda name: code(TUNABLE_CUDA[name], tuple(dict.fromkeys(wanted[name]))), COMPILED)
        codes = dict(zip(COMPILED, compiled, strict=True))
    for (name, tunable), sides in named.items():
        before, after = ({codes[name][entry] for entry in side} for side in sides)
        assert before != after, (name, tunable)
