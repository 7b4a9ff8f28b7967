"""The tiles that our kernels declare: how many there are, what is taken by default, and that each does something."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from bench.emulator.sweep import Case
from bench.measure.compile import compile_cubin
from bench.measure.cpu import cpu_count
from bench.measure.elf import elf_sections
from bench.plan.case import Budget, Job
from bench.plan.discovery import discover
from bench.plan.kernel import CudaKernel, Kernel, KernelCall, Tile
from bench.plan.limits import H100, TYPICAL
from bench.plan.modes import Mode
from bench.plan.operation import Problem
from bench.plan.space import Space
from bench.plan.tiles import tile_text
from bench.run.job import run_job
from emulated import wrong_in_emulator

REGISTRY = discover()
OURS = {k.id: k for k in REGISTRY.kernels.values() if k.is_ours and k.tunables}
CUDA = {name: kernel for name, kernel in OURS.items() if isinstance(kernel, CudaKernel)}
CPU = {name: kernel for name, kernel in OURS.items() if kernel.device == "cpu"}
RECORDED = json.loads(Path(__file__).parents[1].joinpath("data/default_tiles.json").read_text())
#: A problem of each kernel for which its space is what it is meant for; for the others one of their operation.
TYPICAL_OF = {
    "gemm": "gemm/m4096n4096k4096/{dtype}/NN",
    "gemm/cuda.wgmma_tf32": "gemm/m4096n4096k4096/f32/NT",
    "gemm/cuda.batched": "gemm/m32n32k32/f32/NN/batch4096",
    "transpose": "transpose/m2048n26752/f32/out",
    "transpose/numba.tiles": "transpose/m2048n26752/f32/in",
    "transpose/cuda.tiled_inplace": "transpose/m4096n4096/f32/in",
    "transpose/cuda.c2r": "transpose/m2048n26752/f32/in",
    "transpose/cuda.c2r_fused": "transpose/m2048n26752/f32/in",
    "copy": "copy/m2048n26752/f32",
    "conv": "conv/n8c256h56w56k256r3s3pad1/{dtype}/{layout}/fprop",
    "conv/cuda.depthwise": "conv/n8c256h56w56k256r3s3pad1/f32/nchw/fprop/g256",
    "conv/cuda.fft_fused": "conv/n128c3h128w128k96r11s11/f32/nchw/fprop",
}


def typical(kernel: Kernel) -> Problem:
    """The problem under which a kernel's space is counted."""
    axes = {"dtype": "f32", "layout": "nchw"} | {axis: str(values[0]) for axis, values in kernel.domain.items()}
    return REGISTRY.problem(TYPICAL_OF.get(kernel.id, TYPICAL_OF[kernel.op]).format(**axes))


def test_seven_kernels_on_the_cpu_and_twenty_on_a_gpu_have_fifty_tiles_to_search() -> None:
    found = {name: list(islice(Space(kernel, typical(kernel)).valid(), 50)) for name, kernel in OURS.items()}
    wide = {name for name, tiles in found.items() if len(tiles) == 50}
    assert len(wide & set(CPU)) >= 7
    assert len(wide & set(CUDA)) >= 20


@pytest.mark.parametrize("name", OURS)
def test_what_is_preferred_is_of_the_space_on_every_device(name: str) -> None:
    for device in TYPICAL.values():
        values = OURS[name].values(device)
        for tile in OURS[name].tiles(device):
            assert list(vars(tile)) == list(values)
            assert all(value in values[tunable] for tunable, value in vars(tile).items())


def defaults(name: str, recorded: dict[str, Any]) -> Iterator[tuple[Problem, int, str]]:
    """The problems that were recorded for a kernel, the capability of the device, and what was taken by default."""
    problems = RECORDED["problems"][name.partition("/")[0]]
    for capability, taken in recorded.items():
        if capability != "tiles":
            for problem, mark in zip(problems, taken, strict=True):
                if mark != ".":
                    found = recorded["tiles"][int(mark, 36)] if mark != "-" else ""
                    yield REGISTRY.problem(problem), int(capability), found


def differing(name: str, part: slice) -> list[str]:
    """What a kernel takes by default otherwise than when it was recorded."""
    found = []
    for problem, capability, recorded in list(defaults(name, RECORDED["kernels"][name]))[part]:
        tile = OURS[name].tile_for(problem, TYPICAL[capability])
        known = dict(pair.split("=") for pair in recorded.split(",") if pair)
        taken = {key: str(vars(tile)[key]) for key in known} if tile else {}
        if taken != known or bool(tile) != bool(known):
            found.append(f"{problem.id} on {capability}: {tile}, expected {recorded or 'none'}")
    return found


@pytest.mark.parametrize("name", RECORDED["kernels"])
def test_defaults_stay_as_they_were_before_there_were_other_tiles(name: str) -> None:
    assert not differing(name, slice(None, None, 29))


@pytest.mark.long
@pytest.mark.parametrize("name", RECORDED["kernels"])
def test_defaults_of_every_suite_stay_as_they_were_before_there_were_other_tiles(name: str) -> None:
    assert not differing(name, slice(None))


def drawn(kernel: Kernel, problem: Problem, count: int) -> list[Tile]:
    """Valid tiles of a kernel, and for each of its tunables two that differ in little else."""
    return Space(kernel, problem).sample(count, seed=1)


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
    ("conv/cuda.implicit_tf32", "BLOCKS_PER_SM"): "conv/n8c64h56w56k64r3s3pad1/f32/nchw/wgrad",
    ("conv/cuda.implicit_3xtf32", "BLOCKS_PER_SM"): "conv/n8c64h56w56k64r3s3pad1/f32/nhwc/wgrad",
    ("transpose/cuda.c2r_fused", "W"): "transpose/m512n26752/f32/in",
    ("conv/cuda.im2col", "SLICE"): "conv/n1c64h8w8k64r3s3pad1/f32/nchw/wgrad",
    ("gemm/cuda.splitk", "DEPTH"): "gemm/m128n128k4096/f32/NN",
    ("gemm/cuda.splitk", "BLOCKS_PER_SM"): "gemm/m128n128k65536/f32/NN",
    ("gemm/cuda.streamk", "DEPTH"): "gemm/m128n128k4096/f32/NN",
    ("conv/cuda.implicit", "DEPTH"): "conv/n1c64h8w8k64r3s3pad1/f32/nchw/wgrad",
    ("conv/cuda.implicit_mma", "DEPTH"): "conv/n1c64h8w8k64r3s3pad1/f16/nhwc/wgrad",
    ("conv/cuda.implicit_tf32", "DEPTH"): "conv/n1c64h8w8k64r3s3pad1/f32/nchw/wgrad",
    ("conv/cuda.implicit_3xtf32", "DEPTH"): "conv/n1c64h8w8k64r3s3pad1/f32/nhwc/wgrad",
}
TUNABLES = [(name, tunable) for name, kernel in CUDA.items() for tunable in kernel.tunables]


@cache
def changed(name: str, tunable: str) -> tuple[list[tuple[str, KernelCall]], list[tuple[str, KernelCall]]] | None:
    """The launches under two values of a tunable that differ; None where its value follows from the device alone."""
    kernel, other = CUDA[name], OTHERWISE.get((name, tunable))
    problem = REGISTRY.problem(other) if other else typical(kernel)
    if len(kernel.values()[tunable]) == 1:
        return None
    for tiles in islice(pairs(kernel, problem, tunable), 20):
        before, after = (kernel.calls(problem, tile, H100) for tile in tiles)
        if before != after:
            return before, after
    raise AssertionError(f"{name} launches the same for every value of {tunable}")


@pytest.mark.parametrize("name", CUDA)
def test_every_tunable_changes_what_is_launched(name: str) -> None:
    assert any(changed(name, tunable) for tunable in CUDA[name].tunables)


def code(kernel: CudaKernel, calls: list[tuple[str, KernelCall]]) -> str:
    """The digest of the machine code of launches, without its names."""
    entries = tuple(dict.fromkeys(entry for entry, _ in calls))
    cubin = compile_cubin(kernel.source, entries, "sm_90a" if kernel.archs else "sm_80", kernel.id)
    parts = [found for name, found in sorted(elf_sections(cubin.code).items()) if name.startswith(".text")]
    digests = sorted(hashlib.sha256(cubin.code[part.offset : part.offset + part.size]).hexdigest() for part in parts)
    return " ".join(digests)


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
    named = {
        pair: found
        for pair, found in found_by.items()
        if found and [entry for entry, _ in found[0]] != [entry for entry, _ in found[1]]
    }
    assert len({name for name, _ in named}) == len(COMPILED)
    with ThreadPoolExecutor(cpu_count()) as pool:
        codes = pool.map(lambda item: [code(CUDA[item[0][0]], calls) for calls in item[1]], named.items())
        same = [pair for pair, (before, after) in zip(named, codes, strict=True) if before == after]
    assert same == []


#: Small problems, ragged where the kernel takes such, large enough for several pieces of most tiles.
SMALL = {
    "transpose/numba.blocked": ("transpose/m352n1031/f32/out", "transpose/m131n1100/bf16/out"),
    "transpose/numba.tiles": ("transpose/m96n2057/f32/in", "transpose/m2500n33/f64/in"),
    "copy/numba.streaming": ("copy/m67n1031/f32", "copy/m1n301/bf16"),
    "conv/cpu.im2col": tuple(
        f"conv/n2c37h19w23k18r3s3pad1/f32/{words}" for words in ("nchw/fprop", "nhwc/dgrad", "nchw/wgrad")
    ),
    "conv/numba.direct": tuple(
        f"conv/n2c37h19w23k18r3s3pad1/f32/{words}" for words in ("nchw/fprop", "nhwc/dgrad", "nchw/wgrad")
    ),
    "conv/cpu.winograd": tuple(f"conv/n2c19h22w31k70r3s3pad1/f32/{words}" for words in ("nchw/fprop", "nhwc/dgrad")),
    "conv/cpu.winograd4": tuple(f"conv/n2c19h22w31k70r3s3pad1/f32/{words}" for words in ("nchw/dgrad", "nhwc/fprop")),
    "conv/pyfftw.tiled": tuple(
        f"conv/n2c5h40w31k4r3s5pad1/f32/{words}" for words in ("nchw/fprop", "nhwc/dgrad", "nchw/wgrad")
    ),
    "conv/pyfftw.full": ("conv/n2c5h40w31k4r3s5pad1/f32/nchw/fprop",),
}


def wrong(problem: str, name: str, count: int) -> list[str]:
    """The tiles of a sample of a kernel's space with which it is not right."""
    kernel = CPU[name]
    tiles = [tile_text(vars(tile)) for tile in drawn(kernel, REGISTRY.problem(problem), count)]
    assert tiles
    names = tuple(f"{name}@{text}" for text in tiles)
    rows = run_job(Job((problem,), names, Mode.VERIFY, (), 0, Budget(), threads=2))
    assert [
        json.loads(row.tunables).items() >= {k: int(v) for k, v in (p.split("=") for p in text.split(","))}.items()
        for row, text in zip(rows, tiles, strict=True)
    ] == [True] * len(tiles)
    return [f"{row.kernel} on {problem}: {row.status} {row.reason}" for row in rows if row.status != "ok"]


def test_every_kernel_on_the_cpu_that_has_tunables_is_verified_with_tiles_of_its_space() -> None:
    assert set(SMALL) == set(CPU)


@pytest.mark.parametrize("name", SMALL)
def test_a_few_tiles_of_a_kernel_on_the_cpu_are_right(name: str) -> None:
    assert wrong(SMALL[name][0], name, 3) == []


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_many_tiles_of_a_kernel_on_the_cpu_are_right(name: str) -> None:
    assert [text for problem in SMALL[name] for text in wrong(problem, name, 12)] == []


#: Kernels whose tiles have rules of their own; drawn tiles of these are run on the CPU access by access.
EMULATED = {
    "gemm/cuda.blocktile1d": "gemm/m140n70k33/f32/NT",
    "gemm/cuda.blocktile2d": "gemm/m140n70k33/f32/TN",
    "gemm/cuda.vectorised": "gemm/m140n72k36/f32/NN",
    "gemm/cuda.warptile": "gemm/m140n70k33/f32/NN",
    "gemm/cuda.async": "gemm/m140n72k36/f32/TN",
    "gemm/cuda.mma_tf32": "gemm/m140n70k33/f32/NT",
    "gemm/cuda.batched": "gemm/m20n33k17/f32/NN/batch5",
    "conv/cuda.implicit": "conv/n2c5h8w9k37r3s3pad1/f32/nchw/fprop",
    "conv/cuda.fft_tiled": "conv/n2c5h18w9k7r3s3pad1/f32/nchw/fprop",
    "conv/cuda.depthwise": "conv/n2c7h18w9k7r3s3pad1/f32/nhwc/fprop/g7",
    "copy/cuda.vectorised": "copy/m67n103/f32",
    "transpose/cuda.tma": "transpose/m76n300/f32/out",
}


@pytest.mark.long
@pytest.mark.parametrize("name", EMULATED)
def test_a_drawn_tile_is_right_in_the_emulator(name: str) -> None:
    problem = REGISTRY.problem(EMULATED[name])
    (tile,) = drawn(CUDA[name], problem, 1)
    assert not wrong_in_emulator([Case(CUDA[name], problem, tile)])
