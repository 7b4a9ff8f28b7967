"""The tiles that our kernels declare: how many there are, what is taken by default, and that each does something."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.kernel import Kernel, Tile
from kernelmark.bench.plan.limits import TYPICAL
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.space import Space
from kernelmark.bench.plan.tiles import tile_text
from support.emulated import wrong_in_emulator
from support.kernels import REGISTRY, TUNABLE, TUNABLE_CPU, TUNABLE_CUDA, typical, verified

RECORDED = json.loads(Path(__file__).parents[1].joinpath("data/default_tiles.json").read_text())


def test_seven_kernels_on_the_cpu_and_twenty_on_a_gpu_have_fifty_tiles_to_search() -> None:
    found = {name: list(islice(Space(kernel, typical(kernel)).valid(), 50)) for name, kernel in TUNABLE.items()}
    wide = {name for name, tiles in found.items() if len(tiles) == 50}
    assert len(wide & set(TUNABLE_CPU)) >= 7
    assert len(wide & set(TUNABLE_CUDA)) >= 20


@pytest.mark.parametrize("name", TUNABLE)
def test_what_is_preferred_is_of_the_space_on_every_device(name: str) -> None:
    for device in TYPICAL.values():
        values = TUNABLE[name].values(device)
        for tile in TUNABLE[name].tiles(device):
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
        tile = TUNABLE[name].tile_for(problem, TYPICAL[capability])
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


#: Small problems, ragged where the kernel takes such, large enough for several pieces of most tiles.
SMALL = {
    "transpose/numba.blocked": ("transpose/m352n1031/f32/out", "transpose/m131n1100/bf16/out"),
    "transpose/numba.tiles": ("transpose/m96n2057/f32/in", "transpose/m2500n33/f64/in"),
    "copy/numba.streaming": ("copy/m67n1031/f32", "copy/m1n301/bf16"),
    "conv/cpu.im2col": tuple(
        f"conv/n2c37h19w23k18r3s3pad1/f32/{words}" for words in ("nchw/fprop", "nhwc/dgrad", "nchw/wgrad")
    ),
    "conv/cpu.winograd": tuple(f"conv/n2c19h22w31k70r3s3pad1/f32/{words}" for words in ("nchw/fprop", "nhwc/dgrad")),
    "conv/cpu.winograd4": tuple(f"conv/n2c19h22w31k70r3s3pad1/f32/{words}" for words in ("nchw/dgrad", "nhwc/fprop")),
    "conv/pyfftw.tiled": tuple(
        f"conv/n2c5h40w31k4r3s5pad1/f32/{words}" for words in ("nchw/fprop", "nhwc/dgrad", "nchw/wgrad")
    ),
    "conv/pyfftw.full": ("conv/n2c5h40w31k4r3s5pad1/f32/nchw/fprop",),
}
for _name, _sizes in (("depthwise", "c19h23w31k19"), ("grouped", "c38h23w31k95")):
    SMALL[f"conv/numba.{_name}"] = tuple(
        f"conv/n2{_sizes}r3s5pad1stride2x1/f32/{words}/g19" for words in ("nchw/fprop", "nhwc/dgrad", "nchw/wgrad")
    )
SMALL["conv/numba.direct"] = SMALL["conv/cpu.im2col"]
SMALL["conv/numba.fft_tiled"] = SMALL["conv/pyfftw.tiled"]


def wrong(problem: str, name: str, count: int) -> list[str]:
    """The tiles of a sample of a kernel's space with which it is not right."""
    kernel = TUNABLE_CPU[name]
    tiles = [tile_text(vars(tile)) for tile in drawn(kernel, REGISTRY.problem(problem), count)]
    assert tiles
    rows = verified(problem, *(f"{name}@{text}" for text in tiles))
    assert [
        json.loads(row.tunables).items() >= {k: int(v) for k, v in (p.split("=") for p in text.split(","))}.items()
        for row, text in zip(rows, tiles, strict=True)
    ] == [True] * len(tiles)
    return [f"{row.kernel} on {problem}: {row.status} {row.reason}" for row in rows if row.status != "ok"]


def test_every_kernel_on_the_cpu_that_has_tunables_is_verified_with_tiles_of_its_space() -> None:
    assert set(SMALL) == set(TUNABLE_CPU)


@pytest.mark.parametrize("name", SMALL)
def test_a_few_tiles_of_a_kernel_on_the_cpu_are_right(name: str) -> None:
    assert wrong(SMALL[name][0], name, 3) == []


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_many_tiles_of_a_kernel_on_the_cpu_are_right(name: str) -> None:
    assert [text for problem in SMALL[name] for text in wrong(problem, name, 12)] == []


#: Kernels whose tiles have rules of their own; drawn tiles of these are run on the TUNABLE_CPU access by access.
EMULATED = {
    "gemm/cuda.blocktile1d": "gemm/m140n70k33/f32/NT",
    "gemm/cuda.blocktile2d": "gemm/m140n70k33/f32/TN",
    "gemm/cuda.vectorised": "gemm/m140n72k36/f32/NN",
    "gemm/cuda.warptile": "gemm/m140n70k33/f32/NN",
    "gemm/cuda.async": "gemm/m140n72k36/f32/TN",
    "gemm/cuda.mma_tf32": "gemm/m140n70k33/f32/NT",
    "gemm/cuda.batched": "gemm/m20n33k17/f32/NN/batch5",
    "gemm/cuda.skinny": "gemm/m13n70k330/f16.f32/NN",
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
    (tile,) = drawn(TUNABLE_CUDA[name], problem, 1)
    assert not wrong_in_emulator([EmulatedCase(TUNABLE_CUDA[name], problem, tile)])
