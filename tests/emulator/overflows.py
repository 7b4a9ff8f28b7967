"""Overflows of 32 bits planted in the kernels: one changed line each, in which an offset loses its upper half."""

from dataclasses import dataclass
from pathlib import Path

from emulator.proof import included
from kernelmark.bench.emulator.build import source_folder


@dataclass(frozen=True)
class Overflow:
    """A part of a file below `cuda/` that occurs once, what stands in its place, and a source that compiles it."""

    file: str
    was: str
    into: str
    source: str = ""

    @property
    def compiled(self) -> str:
        """Return the .cu that is compiled: the file itself, or the one that includes it."""
        return self.source or self.file

    @property
    def id(self) -> str:
        return f"{self.file}: {self.was} -> {self.into}".replace(" ", "")

    def folder(self) -> Path:
        """Return a folder with the changed source and its headers. Raises ValueError where the part is not there."""
        texts = included(self.compiled)
        if texts[self.file].count(self.was) != 1:
            raise ValueError(f"{self.file}: {self.was!r} occurs {texts[self.file].count(self.was)} times, expected 1")
        return source_folder(texts | {self.file: texts[self.file].replace(self.was, self.into)})


#: Found by clang-tidy.
STATIC = (
    Overflow("common.cuh", "size_t(row) * ld + col :", "row * ld + col :", "gemm/naive.cu"),
    Overflow("common.cuh", "size_t(col) * ld + row", "size_t(col * ld) + row", "gemm/naive.cu"),
    Overflow("common.cuh", "size_t offset(", "unsigned offset(", "gemm/naive.cu"),
    Overflow("gemm/mma.cuh", "c += blockIdx.z * stride_c", "c += int(blockIdx.z * stride_c)", "gemm/mma_tf32.cu"),
    Overflow("transpose/c2r.cuh", "product(size_t(x) * factor", "product(x * factor", "transpose/c2r.cu"),
    Overflow("transpose/c2r.cuh", "x[offset<Op::N>(i, col, cols)];", "x[i * cols + col];", "transpose/c2r.cu"),
    Overflow("transpose/c2r.cu", "scratch + size_t(blockIdx.x) * cols", "scratch + blockIdx.x * cols"),
    Overflow("conv/implicit.cu", "out += block.slice * elements", "out += int(block.slice * elements)"),
    Overflow("conv/implicit.cu", "size_t across[TN / V]", "unsigned across[TN / V]"),
    Overflow("conv/implicit_feed.cuh", "size_t(w) * map.plain_step()", "w * map.plain_step()", "conv/implicit.cu"),
    Overflow("conv/lowering.cuh", "static_cast<long long>(d.mid) * mid", "int(d.mid) * mid", "conv/implicit.cu"),
    Overflow("gemm/splitk.cu", "size_t(blockIdx.z) * slices * m", "blockIdx.z * slices * m"),
    Overflow("gemm/batched.cu", "b + product * stride_b", "b + product * unsigned(stride_b)"),
    Overflow("gemm/fragment.cuh", "size_t(row(i) - row(0)) * ldc", "(row(i) - row(0)) * ldc", "gemm/warptile.cu"),
    Overflow("conv/columns.cuh", "(size_t(first_slice + slice)", "((first_slice + slice)", "conv/im2col.cu"),
    Overflow("conv/geometry.cuh", "((size_t(a) * channels + b)", "((a * channels + b)", "conv/direct.cu"),
    Overflow("conv/im2col.cu", "const size_t pixels", "const unsigned pixels"),
    Overflow("conv/depthwise.cu", "size_t(filter) * taps", "filter * taps"),
    Overflow("conv/depthwise_wgrad.cuh", "size_t(blockIdx.z) * g.k", "blockIdx.z * g.k", "conv/depthwise.cu"),
    Overflow("conv/winograd.cuh", "size_t(channels) * height", "channels * height", "conv/winograd.cu"),
    Overflow("conv/fft_tiled_cut.cuh", "size_t(y) * cut.w", "y * cut.w", "conv/fft_tiled.cu"),
    Overflow("conv/fft_tiled.cu", "const size_t matrix = f", "const unsigned matrix = f"),
    Overflow("conv/sum.cuh", "const long long element", "const unsigned element", "conv/implicit.cu"),
    Overflow("fft/small.cu", "first = size_t(tile_number<Real, T>()) * T", "first = tile_number<Real, T>() * T"),
    Overflow("roofline/copy.cu", "round = size_t(gridDim.x) * THREADS", "round = gridDim.x * THREADS"),
    Overflow("roofline/copy.cu", "first = size_t(blockIdx.x) * THREADS", "first = blockIdx.x * THREADS"),
)

#: Found by a run whose rows lie far apart.
APART = (
    Overflow("panel_share.cuh", "size_t(Panel::ROWS) * ld", "Panel::ROWS * ld", "gemm/blocktile1d.cu"),
    Overflow("common.cuh", "size_t(row) * ld + col :", "row * ld + col :", "gemm/naive.cu"),
    Overflow("gemm/fragment.cuh", "size_t(row(i) - row(0)) * ldc", "(row(i) - row(0)) * ldc", "gemm/warptile.cu"),
    Overflow("gemm/mma.cuh", "c += blockIdx.z * stride_c", "c += int(blockIdx.z * stride_c)", "gemm/mma_tf32.cu"),
    Overflow("gemm/batched.cu", "b + product * stride_b", "b + unsigned(product * stride_b)"),
    Overflow("gemm/store.cuh", "product * Base::stride", "int(product * Base::stride)", "gemm/wgmma_persistent.cu"),
)
