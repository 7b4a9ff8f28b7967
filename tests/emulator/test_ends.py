"""Operands of more than 2^32 elements: offsets that need 33 bits are right, and overflows planted in them are found."""

import pytest

from bench.emulator.worker import WorkerError
from emulator.ends import End
from emulator.ends_listed import ENDS
from emulator.overflows import Overflow

#: By the kernel whose end is looked at, and an end's place among those.
OVERFLOWS = (
    (
        "transpose/cuda.tiled",
        0,
        Overflow("common.cuh", "size_t(row) * ld + col :", "row * ld + col :", "transpose/tiled.cu"),
    ),
    (
        "transpose/cuda.vectorised",
        0,
        Overflow("common.cuh", "size_t(row) * ld + col :", "row * ld + col :", "transpose/vectorised.cu"),
    ),
    (
        "transpose/cuda.tiled_inplace",
        0,
        Overflow("common.cuh", "size_t(row) * ld + col :", "row * ld + col :", "transpose/square_inplace.cu"),
    ),
    ("transpose/cuda.batched", 0, Overflow("transpose/batched.cu", "b += size_t(matrix)", "b += matrix")),
    (
        "fft/cuda.small",
        0,
        Overflow(
            "fft/small.cu",
            "const size_t count = size_t(b) * LENGTH<shape, T>, first = size_t(tile",
            "const size_t count = size_t(b) * LENGTH<shape, T>, first = (tile",
        ),
    ),
    ("aggregate/cuda.device", 0, Overflow("aggregate/sum.cu", "g + (row + i) * n", "g + unsigned((row + i) * n)")),
    (
        "aggregate/cuda.tree",
        0,
        Overflow("aggregate/tree.cu", "from + (blockIdx.y + half) * n", "from + unsigned((blockIdx.y + half) * n)"),
    ),
    (
        "aggregate/cuda.onebit",
        0,
        Overflow(
            "aggregate/quantised.cuh", "g += blockIdx.y * n;", "g += unsigned(blockIdx.y * n);", "aggregate/onebit.cu"
        ),
    ),
    *(
        (
            f"conv/cuda.{name}",
            0,
            Overflow("conv/geometry.cuh", "((size_t(a) * channels + b)", "((a * channels + b)", f"conv/{name}.cu"),
        )
        for name in ("direct", "direct_tiled", "depthwise")
    ),
    (
        "conv/cuda.winograd",
        0,
        Overflow(
            "conv/winograd.cuh",
            "first = x + at.image * images.image()",
            "first = x + unsigned(at.image * images.image())",
            "conv/winograd.cu",
        ),
    ),
    (
        "conv/cuda.winograd4",
        1,
        Overflow(
            "conv/winograd.cuh",
            "first = x + at.image * images.image()",
            "first = x + unsigned(at.image * images.image())",
            "conv/winograd4.cu",
        ),
    ),
    *(
        (
            f"conv/cuda.{kernel}",
            0,
            Overflow(
                "conv/fft_tiled_cut.cuh", "size_t pixel = at.image", "unsigned pixel = at.image", f"conv/{source}.cu"
            ),
        )
        for kernel, source in (("fft_tiled", "fft_tiled"), ("fft_fused", "fft_tiled_fused"))
    ),
    ("conv/cuda.fft_tiled", 0, Overflow("conv/fft_tiled.cu", "c + matrix * m * ldb", "c + unsigned(matrix * m * ldb)")),
)


@pytest.mark.parametrize(
    "end", [pytest.param(end, id=end.id, marks=pytest.mark.long if i else ()) for i, end in enumerate(ENDS)]
)
def test_the_end_of_large_operands_is_right(end: End) -> None:
    assert not end.faults()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kernel", "place", "planted"), OVERFLOWS, ids=lambda value: value.compiled if isinstance(value, Overflow) else ""
)
def test_an_overflow_at_the_end_of_large_operands_is_found(kernel: str, place: int, planted: Overflow) -> None:
    end = [end for end in ENDS if end.kernel == kernel][place]
    assert end.faults(planted.folder())


def test_launch_of_more_threads_than_the_emulator_numbers_is_refused() -> None:
    naive = End("transpose/cuda.naive", "transpose/m8n32/f32/out", {"m": 65600, "n": 65600})
    with pytest.raises(WorkerError, match=r"transpose_naive.*: the emulator numbers at most 2\^31-1 threads"):
        naive.faults()
