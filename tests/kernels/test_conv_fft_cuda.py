"""Convolution by transforms on a GPU: every tile is right in every direction, and cuFFT is asked for the problem."""

import ctypes
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase, entries
from kernelmark.bench.plan.kernel import CudaKernel, Scratch
from kernelmark.bench.plan.limits import H100
from kernelmark.kernels.conv.fft._tiling import cuts, executed
from kernelmark.kernels.conv.vendor import cufft
from kernelmark.kernels.gemm import _cublas
from support.blas import HostOperands, blas_stand_in
from support.emulated import host_compiler, wrong_in_emulator
from support.kernels import CUDA, DIRECTIONS, REGISTRY, lean
from support.kernels import cases as cases_of

#: One tile and several, in the image and out of it, padding on one side, one group and more; then what each tile takes:
#: few channels and images, which leave most of a product's tile empty, and enough of both to fill it.
TILED = (
    *("n2c3h14w11k5r3s2pad1", "n1c4h33w25k6r5s7pad0-2x3-1/g2", "n3c2h7w1k3r7s1pad0x1-0", "n1c3h29w9k2r11s9pad6x8"),
    *("n5c35h5w14k67r3s3pad1", "n1c9h40w31k20r4s15pad3x7"),
    *("n33c1h3w4k49r3s3", "n33c49h3w4k1r3s3", "n1c49h3w4k33r3s3"),
)
FUSED = (
    *("n2c3h14w11k5r3s2pad1", "n1c4h33w25k6r5s7pad0-2x3-1/g2", "n3c2h7w1k3r7s1pad0x1-0", "n1c3h29w9k2r11s9pad6x8"),
    *(
        "n3c8h13w27k19r3s3",
        "n2c4h40w31k3r17s5pad16x2",
        "n1c6h9w50k6r3s3pad1/g6",
        "n1c1h1w1k1r1s1",
        "n9c2h3w4k17r2s2pad1",
    ),
)
L1, L2, L3 = "n128c3h128w128k96r11s11", "n128c64h64w64k128r9s9", "n128c128h32w32k128r9s9"


def kernel(name: str) -> CudaKernel:
    return CUDA[f"conv/cuda.{name}"]


def problem(sizes: str, direction: str):
    sizes, slash, options = sizes.partition("/")
    return REGISTRY.problem(f"conv/{sizes}/f32/nchw/{direction}{slash}{options}")


def cases(name: str, sizes: tuple[str, ...], direction: str) -> list[EmulatedCase]:
    """Each problem that the kernel takes, under each tile that takes it."""
    return cases_of(f"conv/cuda.{name}", *(problem(text, direction) for text in sizes))


@pytest.mark.long  # the sweep has the tiles on smaller problems
@pytest.mark.parametrize("every", [cases("fft_tiled", TILED, direction) for direction in DIRECTIONS], ids=DIRECTIONS)
def test_every_tile_is_right_in_every_direction(every: list[EmulatedCase]) -> None:
    assert {case.tile.T for case in every} == {16, 32}
    assert {case.tile.BM for case in every} == {64, 32, 16}
    assert not wrong_in_emulator(every)


@pytest.mark.long
@pytest.mark.parametrize(
    "every", [cases("fft_fused", FUSED, direction) for direction in ("fprop", "dgrad")], ids=("fprop", "dgrad")
)
def test_the_fused_kernel_is_right_with_as_many_channels_as_a_block_has_tiles_and_with_fewer(every) -> None:
    assert {case.tile.T for case in every} == {16, 32}
    assert not wrong_in_emulator(every)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("sizes", [*TILED, L1, L2, L3])
def test_tiles_cover_the_output_and_none_is_beyond_it(sizes: str, direction: str) -> None:
    parsed = problem(sizes, direction)
    for side in (16, 32):
        if max(parsed.r, parsed.s) < side:
            output = getattr(cuts(parsed, (side, side)), "x" if direction == "dgrad" else "y")
            for axis in (output.height, output.width):
                assert (axis.tiles - 1) * axis.step < axis.size <= axis.tiles * axis.step


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("sizes", TILED)
def test_a_spectrum_that_is_multiplied_is_as_large_as_was_written(sizes: str, direction: str) -> None:
    parsed = problem(sizes, direction)
    found = kernel("fft_tiled")
    for tile in found.tiles():
        if max(parsed.r, parsed.s) >= tile.T:
            continue
        *transforms, multiply, _ = found.plan(parsed, tile, H100)
        a, b, c, m, k, lda, ldb = multiply.args
        at_a_frequency = 8 * tile.T * (tile.T // 2 + 1) * parsed.groups
        assert [part.nbytes // at_a_frequency for part in (a, b, c)] == [k * lda, k * ldb, m * ldb]
        for call, read in zip(transforms, (a, b), strict=True):
            (written,) = (arg for arg in call.args if isinstance(arg, Scratch))
            blocks, groups = call.grid
            assert written == read
            assert written.nbytes == 8 * tile.T * (tile.T // 2 + 1) * blocks * groups * 2 * 128 // tile.T


@pytest.mark.parametrize(("sizes", "side"), [(L1, 32), (L2, 32), (L3, 32), ("n8c512h14w14k512r3s3pad1", 16)])
def test_the_side_is_the_one_with_fewest_frequencies(sizes: str, side: int) -> None:
    tile = kernel("fft_tiled").tile_for(problem(sizes, "fprop"))
    assert side == tile.T


@pytest.mark.parametrize("sizes", [L1, L2, L3])
def test_large_filters_take_a_tenth_of_direct_convolution_at_the_most(sizes: str) -> None:
    parsed = problem(sizes, "fprop")
    count = kernel("fft_fused" if sizes == L1 else "fft_tiled").executed_flop(parsed)
    assert 0 < count < parsed.flop / (4 if sizes == L1 else 10)


@pytest.mark.long
@pytest.mark.parametrize(("name", "sizes"), [("fft_tiled", (L2, *TILED)), ("fft_fused", (L1, *FUSED))])
@pytest.mark.usefixtures("cuda_compiler")
def test_no_entry_spills_registers_or_uses_stack(name: str, sizes: tuple[str, ...]) -> None:
    every = [case for direction in DIRECTIONS for case in cases(name, sizes, direction)]
    for arch in ("sm_80", "sm_90a"):
        lean(f"conv/cuda.{name}", entries(every), arch)


SHAPES = (
    "n2c3h37w21k5r3s5pad1x2",
    "n1c4h19w40k6r3s3pad0-1x2-0stride2x3/{}/{}/{}/g2",
    "n3c2h23w5k4r3s2pad2x1/{}/{}/{}/dil4x3",
    "n1c1h1w1k1r1s1",
    "n2c6h1w41k6r1s7pad0x3stride1x9/{}/{}/{}/g6",
    "n1c2h9w9k3r2s1stride4",
)
SHIM = """
struct Index { unsigned x; } blockIdx, blockDim, threadIdx;
#define __global__
"""
RUN = """
extern "C" void run_NAME(unsigned grid, unsigned block, const float* source, float* target) {
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) NAME(source, target);
}
"""


def _view(pointer: int, kind: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    size = np.dtype(kind).itemsize
    extent = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    raw = (ctypes.c_char * (extent * size)).from_address(pointer)
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw, kind), shape, [stride * size for stride in strides])


class Plan:
    """`cupy.cuda.cufft.PlanNd` of single-precision real transforms in two dimensions, by cuFFT's advanced layout."""

    def __init__(self, shape: Any, *layout: Any) -> None:
        inner, istride, idist, outer, ostride, odist, self.kind, batch, *_ = layout
        self.shape, half = shape, (shape[0], shape[1] // 2 + 1)
        read, written = (shape, half) if self.kind == 0x2A else (half, shape)
        self.read = (batch, *read), (idist, istride * inner[1], istride)
        self.written = (batch, *written), (odist, ostride * outer[1], ostride)
        self.work_area = SimpleNamespace(mem=SimpleNamespace(size=512))

    def fft(self, source: Any, target: Any, direction: int) -> None:
        forward = self.kind == 0x2A
        assert direction == (-1 if forward else 1)
        kinds = (np.float32, np.complex64) if forward else (np.complex64, np.float32)
        found, result = _view(source.data.ptr, kinds[0], *self.read), _view(target.data.ptr, kinds[1], *self.written)
        if forward:
            result[...] = np.fft.rfft2(found)
        else:
            result[...] = np.fft.irfft2(found, self.shape) * (self.shape[0] * self.shape[1])


class Blas:
    """cublasCgemm3mStridedBatched, with the three products of real matrices in single precision."""

    def set_stream(self, handle: int, stream: int) -> None: ...
    def set_workspace(self, handle: int, pointer: int, nbytes: int) -> None: ...

    def cgemm3m_strided_batched(self, handle: int, op_a: int, op_b: int, m: int, n: int, k: int, *rest: int) -> None:
        alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, batch = rest
        alpha, beta = (complex(_view(pointer, np.complex64, (1,), (1,))[0]) for pointer in (alpha, beta))
        assert beta == 0
        left = _operand(a, op_a, lda, stride_a, batch, m, k)
        right = _operand(b, op_b, ldb, stride_b, batch, k, n)
        result = _view(c, np.complex64, (batch, m, n), (stride_c, 1, ldc))
        real, imaginary = left.real @ right.real, left.imag @ right.imag
        mixed = (left.real + left.imag) @ (right.real + right.imag)
        result[...] = np.complex64(alpha) * ((real - imaginary) + 1j * (mixed - real - imaginary)).astype(np.complex64)


def _operand(pointer: int, op: int, ld: int, stride: int, batch: int, rows: int, columns: int) -> Any:
    if op == 0:
        return _view(pointer, np.complex64, (batch, rows, columns), (stride, 1, ld))
    assert op == 2
    return _view(pointer, np.complex64, (batch, rows, columns), (stride, ld, 1)).conj()


@pytest.fixture
def standins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy, of which there are a plan and a module here, and cuBLAS."""

    class Module:
        def __init__(self, code: str) -> None:
            names = [word.split("(")[0] for word in code.split() if word.startswith(("cut_", "paste_"))]
            path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
            source = SHIM + code + "".join(RUN.replace("NAME", name) for name in names)
            command = [host_compiler(), "-x", "c++", "-O1", "-shared", "-fPIC", "-Wno-narrowing", "-o", str(path), "-"]
            subprocess.run(command, input=source, text=True, check=True)
            self.library = ctypes.CDLL(str(path))

        def get_function(self, name: str) -> Any:
            run = self.library[f"run_{name}"]
            run.argtypes = (ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
            return lambda grid, block, arrays: run(*grid, *block, *(part.data.ptr for part in arrays))

    cupy, cuda, transforms = ModuleType("cupy"), ModuleType("cupy.cuda"), ModuleType("cupy.cuda.cufft")
    cupy.RawModule, cupy.cuda, cuda.cufft, transforms.PlanNd = Module, cuda, transforms, Plan
    for module in (cupy, cuda, transforms):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(_cublas, "_cublas", blas_stand_in(Blas()))
    cufft._plans.cache_clear()
    cufft._movers.cache_clear()


def _problems() -> list[Any]:
    texts = [shape if "/" in shape else shape + "/{}/{}/{}" for shape in SHAPES]
    return [
        REGISTRY.problem("conv/" + text.format("f32", layout, direction))
        for text in texts
        for layout in ("nchw", "nhwc")
        for direction in DIRECTIONS
    ]


def _complaint(problem: Any, run: Any) -> str | None:
    operands = HostOperands(problem)
    run(operands)()
    return operands.complaint(problem, "fft")


@pytest.mark.parametrize("problem", _problems(), ids=lambda problem: problem.id)
def test_the_convolution_comes_of_transforms_and_products(problem: Any, standins: None) -> None:
    for name in ("full", "tiled"):
        kernel = REGISTRY.kernels[f"conv/cufft.{name}"]
        assert kernel.refuses(problem) is None
        assert _complaint(problem, lambda x, kernel=kernel: kernel.setup(problem, x)) is None, name


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_small_and_oblong_tiles_join_up(direction: str, standins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = REGISTRY.problem(f"conv/n2c2h17w23k3r3s2pad1stride2x1/f32/nhwc/{direction}")
    for sides in ((3, 2), (4, 8), (7, 5), (16, 3)):
        monkeypatch.setattr(cufft, "chosen", lambda _, sides=sides: sides)
        assert _complaint(problem, lambda x: cufft.tiled(problem, x)) is None, sides


def test_the_rows_tell_the_tile_and_the_scratch(standins: None) -> None:
    problem = REGISTRY.problem("conv/n1c2h8w8k3r3s3/f32/nchw/fprop")
    operands = HostOperands(problem)
    cufft.full(problem, operands)
    assert operands.chosen == {"tile": "8x8"}
    tiles, x, w, y = (part.shape for part in operands.kept)
    assert (tiles, x, w, y) == ((6 * 64,), (40, 2, 2), (40, 6, 2), (40, 3, 2))
    assert REGISTRY.kernels["conv/cufft.full"].library_scratch(problem) == 3 * 512 + _cublas.WORKSPACE_BYTES


def test_tiles_execute_less_than_whole_images_where_filters_are_small() -> None:
    problem = REGISTRY.problem("conv/n128c64h64w64k128r9s9/f32/nchw/fprop")
    tiled, full = (REGISTRY.kernels[f"conv/cufft.{name}"].executed(problem) for name in ("tiled", "full"))
    assert tiled <= full < problem.flop
    small = cuts(REGISTRY.problem("conv/n1c1h8w8k1r1s1/f32/nchw/fprop"), (8, 8))
    assert executed(small, 6) == 3 * 2.5 * 64 * 6 + 6 * 40
