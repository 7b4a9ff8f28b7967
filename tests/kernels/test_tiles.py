"""Tiles and plans: the defaults, right results with every tile, and launches within every device's limits."""

import itertools
import json
import math
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import Tile
from kernelmark.bench.plan.limits import H100, TYPICAL
from kernelmark.bench.plan.space import Space
from kernelmark.bench.plan.tiles import tile_text
from support.emulated import wrong_in_emulator
from support.kernels import CUDA as KERNELS
from support.kernels import REGISTRY, TUNABLE, TUNABLE_CPU, TUNABLE_CUDA, typical, verified

RECORDED = json.loads(Path(__file__).parents[1].joinpath("data/default_tiles.json").read_text())


def test_seven_kernels_on_the_cpu_and_twenty_on_a_gpu_have_fifty_tiles_to_search():
    sampled = {name: list(islice(Space(kernel, typical(kernel)).valid(), 50)) for name, kernel in TUNABLE.items()}
    wide = {name for name, tiles in sampled.items() if len(tiles) == 50}
    assert len(wide & set(TUNABLE_CPU)) >= 7
    assert len(wide & set(TUNABLE_CUDA)) >= 20


@pytest.mark.parametrize("name", TUNABLE)
def test_preferred_tiles_are_in_the_space_on_every_device(name):
    for device in TYPICAL.values():
        values = TUNABLE[name].values(device)
        for tile in TUNABLE[name].tiles(device):
            assert list(vars(tile)) == list(values)
            assert all(value in values[tunable] for tunable, value in vars(tile).items())


def defaults(name, recorded):
    problems = RECORDED["problems"][name.partition("/")[0]]
    for capability, taken in recorded.items():
        if capability != "tiles":
            for problem, mark in zip(problems, taken, strict=True):
                if mark != ".":
                    tile = recorded["tiles"][int(mark, 36)] if mark != "-" else ""
                    yield REGISTRY.problem(problem), int(capability), tile


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", RECORDED["kernels"])
def test_default_tiles_are_as_recorded(name, step):
    changes = []
    for problem, capability, recorded in list(defaults(name, RECORDED["kernels"][name]))[::step]:
        tile = TUNABLE[name].tile_for(problem, TYPICAL[capability])
        known = dict(pair.split("=") for pair in recorded.split(",") if pair)
        taken = {key: str(vars(tile)[key]) for key in known} if tile else {}
        if taken != known or bool(tile) != bool(known):
            changes.append(f"{problem.id} on {capability}: {tile}, expected {recorded or 'none'}")
    assert not changes


EACH = ("nchw/fprop", "nhwc/dgrad", "nchw/wgrad")
#: Small problems, ragged if the kernel takes such problems, with several pieces of most tiles.
SMALL = {
    "transpose/numba.blocked": ("transpose/m352n1031/f32/out", "transpose/m131n1100/bf16/out"),
    "transpose/numba.tiles": ("transpose/m96n2057/f32/in", "transpose/m2500n33/f64/in"),
    "copy/numba.streaming": ("copy/m67n1031/f32", "copy/m1n301/bf16"),
    "conv/cpu.im2col": tuple(f"conv/n2c37h19w23k18r3s3pad1/f32/{words}" for words in EACH),
    "conv/cpu.winograd": tuple(f"conv/n2c19h22w31k70r3s3pad1/f32/{words}" for words in ("nchw/fprop", "nhwc/dgrad")),
    "conv/cpu.winograd4": tuple(f"conv/n2c19h22w31k70r3s3pad1/f32/{words}" for words in ("nchw/dgrad", "nhwc/fprop")),
    "conv/pyfftw.tiled": tuple(f"conv/n2c5h40w31k4r3s5pad1/f32/{words}" for words in EACH),
    "conv/pyfftw.full": ("conv/n2c5h40w31k4r3s5pad1/f32/nchw/fprop",),
    "conv/numba.depthwise": tuple(f"conv/n2c19h23w31k19r3s5pad1stride2x1/f32/{words}/g19" for words in EACH),
    "conv/numba.grouped": tuple(f"conv/n2c38h23w31k95r3s5pad1stride2x1/f32/{words}/g19" for words in EACH),
}
SMALL["conv/numba.direct"] = SMALL["conv/cpu.im2col"]
SMALL["conv/numba.fft_tiled"] = SMALL["conv/pyfftw.tiled"]


def test_every_kernel_on_the_cpu_that_has_tunables_is_verified_with_tiles_of_its_space():
    assert set(SMALL) == set(TUNABLE_CPU)


@pytest.mark.parametrize(("problem_count", "count"), [(1, 2), pytest.param(None, 12, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SMALL)
def test_tiles_of_a_kernel_on_the_cpu_are_right(name, problem_count, count):
    for problem in SMALL[name][:problem_count]:
        tiles = Space(TUNABLE_CPU[name], REGISTRY.problem(problem)).sample(count, seed=1)
        assert tiles
        rows = verified(problem, *(f"{name}@{tile_text(vars(tile))}" for tile in tiles))
        taken = [json.loads(row.tunables) for row in rows]
        assert all(tunables.items() >= vars(tile).items() for tunables, tile in zip(taken, tiles, strict=True))
        assert [(row.kernel, row.status, row.reason) for row in rows if row.status != "ok"] == [], problem


#: Kernels whose tiles have rules of their own; drawn tiles of these are run on the CPU access by access.
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
def test_a_drawn_tile_is_right_in_the_emulator(name):
    problem = REGISTRY.problem(EMULATED[name])
    (tile,) = Space(TUNABLE_CUDA[name], problem).sample(1, seed=1)
    assert not wrong_in_emulator([EmulatedCase(TUNABLE_CUDA[name], problem, tile)])


C2R, FUSED = KERNELS["transpose/cuda.c2r"], KERNELS["transpose/cuda.c2r_fused"]
FOUNDING = REGISTRY.problem("transpose/m1024n26752/f32/in")
MULTIPROCESSORS = (46, 58, 84, 108, 114, 132, 148)
#: By the shared memory of a block, in KiB: a device, of which DEVICES vary the number of multiprocessors.
KINDS = {64: TYPICAL[75], 99: TYPICAL[86], 163: TYPICAL[80], 227: TYPICAL[90]}
DEVICES = [replace(kind, multiprocessors=count) for kind, count in itertools.product(KINDS.values(), MULTIPROCESSORS)]
IDS = [f"{device.multiprocessors} x {device.block_shared_bytes // 1024} KiB" for device in DEVICES]
#: By operation; the storage types are those of each kernel.
PROBLEMS = {
    "gemm": (
        "m1024n2048k26752/{}/NT",
        "m512n512k512/{}/NN",
        "m512n512k512/{}/TN",
        "m8192n8192k8192/{}/NT",
        "m8192n8192k8192/{}/NT/scale-blocks",
        "m8192n4096k4096/{}/NT/groups8-skewed",
        "m64n64k128/{}/NT/batch1000",
        "m16n4096k4096/{}/NT",
        "m1n576k7168/{}/NN",
        "m1024n2048k784/{}/NT/epi-bias-relu",
        "m2048n784k1024/{}/TN/epi-update",
    ),
    "transpose": (
        "m1024n26752/{}/in",
        "m26752n2048/{}/in",
        "m1024n26752/{}/out",
        "b8m64n3136/{}/out",
        "m8192n8192/{}/in",
        "m999n6/{}/in",
        "m300n30001/{}/in",
    ),
    "conv": (
        "n1c64h56w56k64r3s3pad1/{}/nchw/fprop",
        "n16c256h28w28k512r1s1/{}/nhwc/fprop",
        "n16c256h28w28k512r1s1/{}/nhwc/wgrad",
        "n8c3h64w64k32r9s9/{}/nchw/fprop",
        "n8c16h64w64k16r5s5pad2/{}/nhwc/dgrad",
        "n4c64h28w28k64r3s3pad1/{}/nchw/wgrad/g64",
    ),
    "copy": ("m1024n26752/{}",),
    "transfer": ("n51200000/{}/h2d", "n1031/{}/d2h", "n51200000/{}/d2d/work64"),
    "aggregate": ("w4n51200000/{}", "w8n1000001/{}/update", "w4n51200000/{}/ef", "w96n65537/{}/update/ef"),
    "fft": ("b64h32w32/{}/r2c",),
    "fma": ("n1000000k64/{}", "n1000000k64/{}/fed", "n1000000k64/{}/mma"),
}


@cache
def problems(name):
    suitable, kernel = [], KERNELS[name]
    for dtype, text in itertools.product(kernel.domain.get("dtype", ("f32", "f16")), PROBLEMS[kernel.op]):
        try:
            problem = REGISTRY.problem(f"{kernel.op}/{text.format(dtype)}")
        except UsageError:  # the operation has no such variant of this storage type
            continue
        if kernel.outside(problem) is None and not (kernel.supports and kernel.supports(problem)):
            suitable.append(problem)
    return suitable


def complaint(kernel, tile, call, device):
    grid, block, threads = extents(call.grid), extents(call.block), math.prod(extents(call.block))
    if not all(1 <= count <= most for count, most in zip(grid, (2**31 - 1, 65535, 65535), strict=True)):
        return f"a grid of {grid}"
    if not 1 <= threads <= min(1024, device.sm_threads) or block[2] > 64:
        return f"blocks of {block}"
    if grid[0] % call.cluster or call.shared_bytes > device.block_shared_bytes:
        return f"clusters of {call.cluster}, {call.shared_bytes} bytes of shared memory a block"
    if getattr(tile, "SMS", 1) not in (1, device.multiprocessors):
        return f"a tile for {tile.SMS} multiprocessors"
    resident = min(device.sm_threads // threads, device.blocks_by_shared(call.shared_bytes))
    if kernel.cooperative and math.prod(grid) > resident * device.multiprocessors:
        return f"{math.prod(grid)} blocks that synchronise, {resident} on each multiprocessor"
    return None


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
def test_each_kernel_launches_within_the_limits_or_gives_a_reason_in_one_line(device):
    planned = set()
    able = {name: kernel for name, kernel in KERNELS.items() if kernel.runs_on(device.arch)}
    for name, kernel in able.items():
        for problem in problems(name):
            tile = kernel.tile_for(problem, device)
            if tile is None:
                assert "\n" not in (kernel.refuses(problem, device) or "\n")
                continue
            calls = [call for _, call in kernel.calls(problem, tile, device)]
            assert [excess for call in calls if (excess := complaint(kernel, tile, call, device))] == [], problem.id
            planned.add(name)
    assert planned == set(able)


def test_a_tile_with_more_shared_memory_than_the_device_has_is_left_out():
    kernel, problem = KERNELS["gemm/cuda.wgmma"], REGISTRY.problem("gemm/m512n512k512/f16/NT")
    small, none = (replace(H100, block_shared_bytes=kib * 1024) for kib in (64, 16))
    assert [tile.BN for device in (H100, small) if (tile := kernel.tile_for(problem, device))] == [128, 64]
    assert kernel.refuses(problem, none) == (
        "gemm/cuda.wgmma: no tile is valid: a block needs 99328 bytes of shared memory, expected at most 16384"
    )


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
def test_the_founding_shape_is_transposed_in_place_on_every_device(device):
    assert C2R.refuses(FOUNDING, device) is None
    rows_are_shared = device.block_shared_bytes >= 26752 * 4
    tile = C2R.tile_for(FOUNDING, device)
    by_scratch = [entry.partition("<")[0] for entry, _ in C2R.calls(FOUNDING, tile, device) if "scratch" in entry]
    assert tile.SCRATCH == 0
    assert ("c2r_rows_by_scratch" in by_scratch) != rows_are_shared
    assert (FUSED.refuses(FOUNDING, device) is None) == rows_are_shared


def small_cases():
    """Yield cases with more rows than resident blocks on 108 or 114 multiprocessors, and rows that need scratch."""
    problem = REGISTRY.problem("transpose/m231n497/f32/in")
    for count in (108, 114):
        device = replace(TYPICAL[80], multiprocessors=count)
        yield EmulatedCase(FUSED, problem, FUSED.tile_for(problem, device) or Tile(), device)
    problem = REGISTRY.problem("transpose/m40n600/f32/in")
    device = replace(TYPICAL[86], block_shared_bytes=2048)
    yield EmulatedCase(C2R, problem, C2R.tile_for(problem, device) or Tile(), device)


@pytest.mark.parametrize(
    "case", list(small_cases()), ids=lambda case: f"{case.kernel.name} {case.device.multiprocessors}"
)
def test_emulated_transpositions_for_other_devices_are_right(case):
    (_, rows), *_ = (named for named in case.calls if "rows" in named[0])
    assert rows.grid in (2 * case.device.multiprocessors, 4)
    assert not wrong_in_emulator([case])
