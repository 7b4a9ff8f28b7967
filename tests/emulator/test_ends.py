"""Operands of more than 2^32 elements: offsets that need 33 bits are right, and overflows planted in them are found."""

import pytest

from emulator.ends import End
from emulator.ends_listed import ENDS
from emulator.overflows import Overflow
from kernelmark.bench.emulator.worker import WorkerError

_ROW = ("common.cuh", "size_t(row) * ld + col :", "row * ld + col :")
_PLACE = ("conv/geometry.cuh", "((size_t(a) * channels + b)", "((a * channels + b)")
_FEED = (
    "conv/implicit_feed.cuh",
    "static_cast<long long>(first) * map.image.image()",
    "int(first) * map.image.image()",
)
_PATCH = ("conv/winograd.cuh", "x + at.image * images.image()", "x + unsigned(at.image * images.image())")
_PIXEL = ("conv/fft_tiled_cut.cuh", "size_t pixel = at.image", "unsigned pixel = at.image")
_TILE_0 = (
    "LENGTH<shape, T>, first = size_t(tile_number<Real, T>()) * T * T",
    "LENGTH<shape, T>, first = tile_number<Real, T>() * T * T",
)
#: By the kernel of which the first end is looked at.
OVERFLOWS = (
    ("transpose/cuda.tiled", Overflow(*_ROW, "transpose/tiled.cu")),
    ("transpose/cuda.vectorised", Overflow(*_ROW, "transpose/vectorised.cu")),
    ("transpose/cuda.tiled_inplace", Overflow(*_ROW, "transpose/square_inplace.cu")),
    ("transpose/cuda.batched", Overflow("transpose/batched.cu", "b += size_t(matrix)", "b += matrix")),
    ("copy/cuda.vectorised", Overflow("roofline/copy.cu", "first = size_t(blockIdx.x)", "first = blockIdx.x")),
    ("transfer/cuda.arrived", Overflow("transfer/work.cu", "first = size_t(blockIdx.x)", "first = blockIdx.x")),
    ("fft/cuda.small", Overflow("fft/small.cu", *_TILE_0)),
    ("aggregate/cuda.device", Overflow("aggregate/sum.cu", "g + (row + i) * n", "g + unsigned((row + i) * n)")),
    (
        "aggregate/cuda.tree",
        Overflow("aggregate/tree.cu", "from + (blockIdx.y + half) * n", "from + unsigned((blockIdx.y + half) * n)"),
    ),
    *(
        (
            f"aggregate/cuda.{name}",
            Overflow(
                *("aggregate/quantised.cuh", "g += blockIdx.y * n;", "g += unsigned(blockIdx.y * n);"),
                f"aggregate/{name}.cu",
            ),
        )
        for name in ("onebit", "int8")
    ),
    *((f"conv/cuda.{name}", Overflow(*_PLACE, f"conv/{name}.cu")) for name in ("direct", "direct_tiled", "depthwise")),
    *((f"conv/cuda.{name}", Overflow(*_FEED, f"conv/{name}.cu")) for name in ("implicit", "implicit_mma")),
    *(
        (f"conv/cuda.{name}", Overflow(*_PATCH, f"conv/{name}.cu"))
        for name in ("winograd", "winograd4", "winograd4_fused")
    ),
    ("conv/cuda.fft_tiled", Overflow(*_PIXEL, "conv/fft_tiled.cu")),
    ("conv/cuda.fft_fused", Overflow(*_PIXEL, "conv/fft_tiled_fused.cu")),
    ("conv/cuda.fft_tiled", Overflow("conv/fft_tiled.cu", "c + matrix * m * ldb", "c + unsigned(matrix * m * ldb)")),
)


@pytest.mark.parametrize(
    "end", [pytest.param(end, id=end.id, marks=pytest.mark.long if i else ()) for i, end in enumerate(ENDS)]
)
def test_the_end_of_large_operands_is_right(end: End) -> None:
    assert not end.faults()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "planted"), OVERFLOWS, ids=lambda value: value.compiled if isinstance(value, Overflow) else ""
)
def test_an_overflow_at_the_end_of_large_operands_is_found(kernel: str, planted: Overflow) -> None:
    end = next(end for end in ENDS if end.kernel == kernel)
    assert end.faults(planted.folder())


def test_launch_of_more_threads_than_the_emulator_numbers_is_refused() -> None:
    naive = End("transpose/cuda.naive", "transpose/m8n32/f32/out", {"m": 65600, "n": 65600})
    with pytest.raises(WorkerError, match=r"transpose_naive.*: the emulator numbers at most 2\^31-1 threads"):
        naive.faults()
