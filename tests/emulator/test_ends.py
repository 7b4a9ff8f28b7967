"""Operands of more than 2^32 elements: offsets that need 33 bits are right, and overflows planted in them are found."""

from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from emulator.ends import End, case_of, drawn, ends, faults, last, numbered
from emulator.fixtures import first_short
from emulator.proof import Overflow
from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.report import unwaived
from kernelmark.bench.emulator.sweep import EmulatedCase, launches
from kernelmark.bench.emulator.worker import Array, Buffer, Launch, WorkerError, run
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.tiles import tile_on
from kernelmark.kernels.gemm.ladder import SMALL
from support.emulated import program_entries
from support.kernels import CUDA as KERNELS


def _all_ends(planned: list[Launch]) -> list[Launch]:
    return [ends(launch) for launch in planned]


def _corner(planned: list[Launch]) -> list[Launch]:
    """Choose the blocks that transpose the last 2 x 2 tiles; a side has an even number (transpose/pairs.cuh)."""
    (launch,) = planned
    assert isinstance(launch.grid, tuple)
    return [numbered(launch, 0, launch.grid[0], launch.grid[0] + 1)]


def _images_spectra(planned: list[Launch]) -> list[Launch]:
    """Choose the blocks of fft_tiled.cu for the last 32 images, 16 per block, of 8 channels and 16 filters."""
    of_w, of_x, multiply, to_y = planned
    return [of_w, ends(of_x, 8, 2), ends(multiply), ends(to_y, 16, 2)]


def _channels_spectra(planned: list[Launch]) -> list[Launch]:
    """Choose the blocks of fft_tiled.cu for the filters of the last 16 channels."""
    of_x, of_y, multiply, to_w = planned
    return [ends(of_x), of_y, ends(multiply), ends(to_w, blocks=16)]


#: A tile of 64 x 64 elements in f32.
_SQUARES = {"SQUARES": 16, "RING": 96, "BLOCKS": 2**21, "GROUP": 4}
_PACKS = {"V": 4, "THREADS": 256, "BLOCKS": 2**23}
_CODES = {"V": 4, "THREADS": 128, "BLOCKS": 2**23}
_LARGE = 3 * 2**29  # elements of one of four or five gradients
#: For each scratch buffer of four workers, its rows, and a block's bytes in each row (128 threads).
_ONE_BIT = {"words_of_workers": (4, 256), "scales_of_workers": (4, 32)}
_ONE_BIT |= {"words_of_owners": (1, 256), "scales_of_owners": (1, 32)}
_BYTES = {"words_of_workers": (4, 1024), "scales_of_workers": (4, 16)}
_BYTES |= {"words_of_owners": (1, 1024), "scales_of_owners": (1, 16)}
_FFT_TILE = {"T": 16, "BM": 16, "BN": 32, "BK": 8, "WM": 16, "WN": 32, "TM": 4, "TN": 4, "STAGES": 3}

ENDS = (
    End("transpose/cuda.unpadded", "transpose/m3n3/f32/out", {"m": 65603, "n": 65571}),
    End("transpose/cuda.tiled", "transpose/m3n3/f16/out", {"m": 65603, "n": 65571}),
    End("transpose/cuda.vectorised", "transpose/m8n8/f32/out", {"m": 65608, "n": 65544}),
    End("transpose/cuda.tma", "transpose/m64n64/f32/out", {"m": 65600, "n": 65600}, _SQUARES),
    End("transpose/cuda.batched", "transpose/b2m64n64/f32/out", {"batch": 2**20 + 2}, {"TILE": 64, "THREADS": 256},
        lambda planned: [last(planned[0], 2)]),
    End("transpose/cuda.tiled_inplace", "transpose/m64n64/f32/in", {"m": 65600, "n": 65600}, choose=_corner),
    End("transpose/cuda.vectorised_inplace", "transpose/m128n128/f32/in", {"m": 65664, "n": 65664}, choose=_corner),
    # The next two problems have more than 2^32 vectors of 16 bytes.
    End("copy/cuda.vectorised", "copy/m1n16384/f64", {"m": 2**19 + 1}, {"THREADS": 512, "LOADS": 16, "BLOCKS": 2**20}),
    End("transfer/cuda.arrived", "transfer/n8192/f64/d2d/work2", {"n": 2**33 + 8192},
        {"THREADS": 512, "LOADS": 8, "BLOCKS": 2**21}),
    End("fft/cuda.small", "fft/b16h8w8/f32/c2c", {"b": 2**26 + 16}),
    End("fft/cuda.small", "fft/b32h8w8/f32/r2c", {"b": 2**26 + 32}),
    End("fft/cuda.small", "fft/b32h8w8/f32/c2r", {"b": 2**26 + 32}),
    End("aggregate/cuda.device", "aggregate/w5n1024/f32", {"n": _LARGE}, _PACKS | {"ROWS": 4}, _all_ends),
    End("aggregate/cuda.device", "aggregate/w5n1024/f32/update", {"n": _LARGE}, _PACKS | {"ROWS": 4}, _all_ends),
    End("aggregate/cuda.tree", "aggregate/w4n1024/f32", {"n": _LARGE}, _PACKS, _all_ends, {"partial": (2, 4096)}),
    End("aggregate/cuda.tree", "aggregate/w4n1024/f32/update", {"n": _LARGE}, _PACKS, _all_ends,
        {"partial": (2, 4096)}),
    End("aggregate/cuda.onebit", "aggregate/w4n2048/f32/ef", {"n": _LARGE}, _CODES, _all_ends, _ONE_BIT),
    End("aggregate/cuda.int8", "aggregate/w4n1024/f32/update/ef", {"n": _LARGE}, _CODES, _all_ends, _BYTES),
    End("conv/cuda.direct", "conv/n1c8h4w8k64r2s2/f32/nchw/dgrad", {"n": 3_200_000}),
    End("conv/cuda.direct", "conv/n1c32h2w4k512r2s2/f32/nhwc/dgrad", {"n": 2_800_000}),
    End("conv/cuda.direct_tiled", "conv/n1c64h33w33k32r1s1stride8/f32/nchw/fprop", {"n": 65535}),
    End("conv/cuda.direct_tiled", "conv/n1c64h33w33k32r1s1stride8/f32/nhwc/fprop", {"n": 65535}),
    End("conv/cuda.direct_tiled", "conv/n1c32h8w8k1040r1s1/f32/nchw/dgrad", {"n": 65535}),
    End("conv/cuda.depthwise", "conv/n1c4h46w46k4r1s1stride15/f32/nchw/fprop/g4",
        {"n": 65535, "c": 32, "k": 32, "groups": 32}),
    End("conv/cuda.depthwise", "conv/n1c32h46w46k32r1s1stride15/f32/nhwc/fprop/g32", {"n": 65535},
        choose=lambda planned: [last(planned[0], 4)]),
    End("conv/cuda.depthwise", "conv/n1c16h8w8k16r3s3pad1/f32/nchw/dgrad/g16",
        {"n": 65535, "c": 1056, "k": 1056, "groups": 1056}),
    End("conv/cuda.depthwise", "conv/n1c32h8w8k32r3s3pad1/f32/nhwc/dgrad/g32",
        {"n": 65535, "c": 1056, "k": 1056, "groups": 1056}, choose=lambda planned: [last(planned[0], 2)]),
    End("conv/cuda.implicit", "conv/n2c8h8w8k64r2s2/f32/nchw/dgrad", {"n": 1_400_000}),
    End("conv/cuda.implicit", "conv/n2c8h8w8k64r2s2/f32/nhwc/dgrad", {"n": 1_400_000}),
    End("conv/cuda.implicit_mma", "conv/n1c8h8w8k64r2s2/f16/nhwc/dgrad", {"n": 1_400_000}),
    End("conv/cuda.implicit_tf32", "conv/n1c8h8w8k64r2s2/f32/nhwc/dgrad", {"n": 1_400_000}),
    # The last pass or chunk is as small as the part. There are few earlier passes, since each must be planned.
    *(End("conv/cuda.im2col", f"conv/n1c8h9w9k4096r2s2/f32/{layout}/dgrad", {"n": 16 * 1024 + 1},
          SMALL | {"SLICE": 8, "KIB": 2**13}, choose=lambda planned: planned[-2:]) for layout in ("nchw", "nhwc")),
    End("conv/cuda.winograd", "conv/n1c64h16w8k32r3s3pad1/f32/nchw/fprop", {"n": 524_300}),
    End("conv/cuda.winograd", "conv/n1c32h16w8k64r3s3pad1/f32/nhwc/dgrad", {"n": 524_300}),
    # These two kernels address images by the code of winograd, so each is tested in only one variant.
    End("conv/cuda.winograd4", "conv/n4c256h16w8k4r3s3pad1/f32/nchw/fprop", {"n": 131_100}, SMALL | {"KIB": 2**14},
        choose=lambda planned: [planned[0], *planned[-3:]]),
    End("conv/cuda.winograd4_fused", "conv/n4c4h16w8k256r3s3pad1/f32/nhwc/dgrad", {"n": 131_092},
        {"STAGES": 3, "KIB": 2**14}, choose=lambda planned: [planned[0], *planned[-2:]]),
    End("conv/cuda.fft_tiled", "conv/n32c8h16w16k16r5s5/f32/nchw/fprop", {"n": 2_097_184}, _FFT_TILE, _images_spectra,
        {"spectrum_x": (144 * 8, 256), "spectrum_y": (144 * 16, 256)}),
    End("conv/cuda.fft_tiled", "conv/n1c16h16w16k16r9s9/f32/nchw/wgrad", {"c": 3_400_000}, _FFT_TILE, _channels_spectra,
        {"spectrum_x": (144, 128), "spectrum_w": (144, 2048)}),
    End("conv/cuda.fft_fused", "conv/n2c8h16w16k8r5s5/f32/nchw/fprop", {"n": 2_097_184}, {"T": 16, "BLOCKS": 1}),
)  # fmt: skip


_ROW = ("common.cuh", "size_t(row) * ld + col :", "row * ld + col :")
_PLACE = ("conv/geometry.cuh", "((size_t(a) * channels + b)", "((a * channels + b)")
_FEED = ("conv/implicit_feed.cuh", "static_cast<long long>(first) * map.image", "int(first) * map.image")
_CODED = ("aggregate/quantised.cuh", "g += blockIdx.y * n;", "g += unsigned(blockIdx.y * n);")
_PATCH = ("conv/winograd.cuh", "x + at.image * images.image()", "x + unsigned(at.image * images.image())")
_PIXEL = ("conv/fft_tiled_cut.cuh", "size_t pixel = at.image", "unsigned pixel = at.image")
OVERFLOWS = (
    *(Overflow(*_ROW, f"transpose/{name}.cu") for name in ("tiled", "vectorised", "square_inplace")),
    Overflow("transpose/batched.cu", "b += size_t(matrix)", "b += matrix"),
    Overflow("roofline/copy.cu", "first = size_t(blockIdx.x)", "first = blockIdx.x"),
    Overflow("transfer/work.cu", "first = size_t(blockIdx.x)", "first = blockIdx.x"),
    Overflow("fft/small.cu", "first = size_t(tile_number<Real, T>()) * T", "first = tile_number<Real, T>() * T"),
    Overflow("aggregate/sum.cu", "g + (row + i) * n", "g + unsigned((row + i) * n)"),
    Overflow("aggregate/tree.cu", "from + (blockIdx.y + half) * n", "from + unsigned((blockIdx.y + half) * n)"),
    *(Overflow(*_CODED, f"aggregate/{name}.cu") for name in ("onebit", "int8")),
    *(Overflow(*_PLACE, f"conv/{name}.cu") for name in ("direct", "direct_tiled", "depthwise")),
    *(Overflow(*_FEED, f"conv/{name}.cu") for name in ("implicit", "implicit_mma")),
    *(Overflow(*_PATCH, f"conv/{name}.cu") for name in ("winograd", "winograd4", "winograd4_fused")),
    *(Overflow(*_PIXEL, f"conv/{name}.cu") for name in ("fft_tiled", "fft_tiled_fused")),
    Overflow("conv/fft_tiled.cu", "c + matrix * m * ldb", "c + unsigned(matrix * m * ldb)"),
)


@pytest.mark.parametrize("end", first_short(ENDS, lambda end: end.id))
def test_the_end_of_large_operands_is_right(end: End) -> None:
    assert not end.faults()


@pytest.mark.long
@pytest.mark.parametrize("planted", OVERFLOWS, ids=lambda planted: planted.compiled)
def test_an_overflow_at_the_end_of_large_operands_is_found(planted: Overflow) -> None:
    end = next(end for end in ENDS if end.case.kernel.source == planted.compiled)
    assert end.faults(planted.folder())


def test_launch_of_more_threads_than_the_emulator_numbers_is_refused() -> None:
    naive = End("transpose/cuda.naive", "transpose/m8n32/f32/out", {"m": 65600, "n": 65600})
    with pytest.raises(WorkerError, match=r"transpose_naive.*: the emulator numbers at most 2\^31-1 threads"):
        naive.faults()


W = 8  # columns of a stripe
DTYPES = {2: "f16", 4: "f32"}  # storage type by bytes


def _moved(sides: tuple[int, int], back: bool, entry: str, values: Array, places: Array, stages: int = 1) -> Array:
    """Run the last block of one pass on the elements at `places`, the only ones in memory; return their new values."""
    rows, cols = sides
    assert rows * cols > 2**32
    m, n = (cols, rows) if back else (rows, cols)
    problem = discover().problem(f"transpose/m{m}n{n}/{DTYPES[values.itemsize]}/in")
    device = replace(H100, multiprocessors=2**20)  # one stripe per block of a ring
    tile = tile_on(device, {"SCRATCH": 0, "W": W, "STAGES": stages})
    case = EmulatedCase(KERNELS["transpose/cuda.c2r"], problem, tile, device)
    planned = launches(case, {}, lambda wanted: Buffer("scratch", np.empty(0)))
    (launch,) = (last(launch) for launch in planned if launch.entry.startswith(entry))
    at = tuple((places.astype(np.int64) * values.itemsize).tolist())
    buffers = {"a": Buffer("inout", values.ravel(), values.size, 0, at)}
    worker = program(CUDA / case.kernel.source, program_entries([case]), include=CUDA)
    (outcome,) = run(worker, buffers, [launch], orders=("forward",))
    assert not [str(report) for report in unwaived(outcome.reports)]
    return outcome.outputs["a"].reshape(values.shape)


def _drawn(*shape: int, bits: type[np.unsignedinteger[Any]] = np.uint16) -> Array:
    return np.random.default_rng(1).integers(0, 2**16, shape, bits)


@pytest.mark.long
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("sides", [(40000, 110000), (40000, 110080)], ids=["short runs", "long runs"])
def test_the_last_row_is_permuted(sides: tuple[int, int], back: bool) -> None:
    rows, cols = sides
    i, j, b, row = rows - 1, np.arange(cols), cols // gcd(*sides), _drawn(cols)
    goes_to = ((i + j // b) % rows + j * rows) % cols
    wanted = np.empty_like(row)
    if back:
        wanted = row[goes_to]
    else:
        wanted[goes_to] = row
    assert np.array_equal(_moved(sides, back, "c2r_rows<", row, np.array([i * cols])), wanted)


@pytest.mark.long
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("step", ["ROTATE", "PERMUTE"])
@pytest.mark.parametrize(("sides", "stages"), [((14400, 300000), 1), ((3600, 1200400), 2)])
def test_the_last_stripe_is_permuted(sides: tuple[int, int], stages: int, step: str, back: bool) -> None:
    rows, cols = sides
    a, b = (side // gcd(*sides) for side in sides)
    i, j = np.arange(rows)[:, None], np.arange(cols - W, cols)
    stripe = _drawn(rows, W, bits=np.uint16 if stages == 1 else np.uint32)
    comes_from = (i + j // b if step == "ROTATE" else i * cols + j - i // a) % rows
    wanted = np.empty_like(stripe)
    if back:
        np.put_along_axis(wanted, comes_from, stripe, 0)
    else:
        wanted = np.take_along_axis(stripe, comes_from, 0)
    entry = f"c2r_columns{'' if stages == 1 else '_by_ring'}<bits::{DTYPES[stripe.itemsize]}, {W}, Step::{step}"
    assert np.array_equal(_moved(sides, back, entry, stripe, i.ravel() * cols + cols - W, stages), wanted)


#: The factor by which images are enlarged, to over 2^32 elements; a tile covers less than 2^31, as kernels require.
FACTOR = 800
MAGNIFIED = (
    ("conv/cuda.direct", "conv/n16c8h9w9k8r2s2/f32/nchw/fprop"),
    ("conv/cuda.direct", "conv/n16c8h9w9k8r2s2/f32/nhwc/wgrad"),
    ("conv/cuda.depthwise", "conv/n16c8h9w9k8r2s2/f32/nchw/wgrad/g8"),
    ("conv/cuda.depthwise", "conv/n16c8h9w9k8r2s2/f32/nhwc/wgrad/g8"),
    ("conv/cuda.im2col", "conv/n16c8h9w9k8r2s2/f32/nchw/wgrad"),
    ("conv/cuda.im2col", "conv/n16c8h9w9k8r2s2/f32/nhwc/fprop"),
    ("conv/cuda.implicit", "conv/n16c8h9w9k8r2s2/f32/nchw/fprop"),
    ("conv/cuda.implicit", "conv/n16c8h9w9k8r2s2/f32/nhwc/fprop"),
    ("conv/cuda.implicit_mma", "conv/n16c8h9w9k8r2s2/f16/nhwc/fprop"),
)


def _pixels(data: Array, shape: tuple[int, ...], layout: str) -> Buffer:
    """Return a buffer of x enlarged to `shape`, of which only the pixels (in nchw, elements) of the small x exist."""
    *axes, size = data.shape if layout == "nhwc" else (*data.shape, 1)
    steps = (1, FACTOR, FACTOR) if layout == "nhwc" else (1, 1, FACTOR, FACTOR)
    at = np.ravel_multi_index(np.indices(axes) * np.reshape(steps, (-1, *[1] * len(axes))), shape[: len(axes)])
    return Buffer("in", data.ravel(), 0, 0, tuple((at.ravel() * size * data.itemsize).tolist()))


def _magnified_faults(kernel: str, text: str, cuda: Path = CUDA) -> list[str]:
    problem = discover().problem(text)
    sides = {side: (getattr(problem, side) - 1) * FACTOR + 1 for side in ("h", "w")}
    case = case_of(kernel, msgspec.structs.replace(problem, **sides, stride=FACTOR, dilation=FACTOR))
    (x,) = (operand for operand in case.problem.operands() if operand.name == "x")
    assert x.elements > 2**32
    values = drawn(problem)
    buffers = {o.name: Buffer(o.role, values[o.name].ravel()) for o in problem.operands()}
    buffers["x"] = _pixels(values["x"], x.shape, problem.layout)
    return faults(case, problem, values, buffers, cuda)


@pytest.mark.parametrize("named", first_short(MAGNIFIED, " ".join))
def test_convolution_of_large_images_is_right(named: tuple[str, str]) -> None:
    assert not _magnified_faults(*named)


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "planted"), [(0, Overflow(*_PLACE, "conv/direct.cu")), (6, Overflow(*_FEED, "conv/implicit.cu"))]
)
def test_overflow_in_a_convolution_of_large_images_is_found(place: int, planted: Overflow) -> None:
    assert _magnified_faults(*MAGNIFIED[place], planted.folder())
