"""Cases beyond the sweep's: small problems that reach code which the sweep's shapes and its device do not.

`make mutants` runs both.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from emulator.proof import included
from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.tiles import Tile


@dataclass(frozen=True)
class Corner:
    """A kernel, a problem, and values of the tunables of its tile; multiprocessors of the device it is planned for.

    more: values that no tile has which the kernel prefers.
    """

    kernel: str
    problem: str
    tile: dict[str, int] = field(default_factory=dict)
    multiprocessors: int = H100.multiprocessors
    more: dict[str, int] = field(default_factory=dict)

    def case(self, registry: Registry) -> EmulatedCase:
        """Return the case, with the first tile of the kernel that has these values."""
        kernel = registry.kernels[self.kernel]
        assert isinstance(kernel, CudaKernel)
        device = replace(H100, multiprocessors=self.multiprocessors)
        tiles = (tile for tile in kernel.tiles(device) if self.tile.items() <= vars(tile).items())
        tile = Tile(**{**vars(next(tiles)), **self.more})
        return EmulatedCase(kernel, registry.problem(self.problem), tile, device)


WGMMA = "conv/cuda.implicit_wgmma"
CORNERS = (
    # A persistent grid of one cluster, whose blocks take one tile after another.
    Corner("gemm/cuda.wgmma_persistent", "gemm/m264n136k8/f16/NT", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    Corner("gemm/cuda.wgmma_tf32", "gemm/m136n72k8/f32/NT", {"BN": 64, "CLUSTER": 1}, multiprocessors=1),
    # More than eight rows of tiles: the order has a second band.
    Corner("gemm/cuda.mma", "gemm/m577n65k8/f16/NN", {"BM": 64}),
    # More taps than a mask has bits.
    *(
        Corner("conv/cuda.implicit", f"conv/n1c3h9w8k5r7s7pad3/f32/{layout}/{direction}")
        for layout in ("nchw", "nhwc")
        for direction in ("fprop", "dgrad")
    ),
    Corner("conv/cuda.implicit_mma", "conv/n1c8h9w8k16r7s7pad3/f16/nhwc/fprop"),
    Corner("conv/cuda.implicit_mma", "conv/n1c8h9w8k16r7s7pad3/f16/nhwc/dgrad"),
    # Runs of columns so long that a warp moves parts of them: more runs than warps, more parts than one, in waves.
    *(
        Corner(f"transpose/cuda.{name}", f"transpose/{problem}/in", tile, multiprocessors=2)
        for name, tile in (("c2r", {"SCRATCH": 0}), ("c2r", {"SCRATCH": 1}), ("c2r_fused", {}))
        for problem in ("m20n516/f32", "m14n510/f16", "m510n14/f32", "m516n20/f64")
    ),
    # Rings of stripes, of which each block has several; rows of whole vectors and others, in both directions.
    *(
        Corner("transpose/cuda.c2r", f"transpose/{problem}/in", {"W": 8}, multiprocessors=1, more={"STAGES": stages})
        for problem, stages in (("m20n516/f32", 2), ("m517n22/f32", 2), ("m22n517/f64", 3), ("m516n20/f64", 3))
    ),
    # The same, and rows that wait for those before them alone.
    *(
        Corner("transpose/cuda.c2r_fused", f"transpose/{problem}/in", {"W": 8}, multiprocessors=1, more=more)
        for problem, more in (
            ("m20n516/f32", {"STAGES": 3, "ORDERED": 1}),
            ("m519n21/f32", {"STAGES": 2, "ORDERED": 1}),
        )
    ),
    # Groups of pairs of tiles, an odd and an even number of them, the last ones partly past the edge.
    Corner("transpose/cuda.tiled_inplace", "transpose/m270n270/f32/in", {"GROUP": 4}),
    Corner("transpose/cuda.tiled_inplace", "transpose/m240n240/f16/in", {"GROUP": 4}),
    Corner("transpose/cuda.vectorised_inplace", "transpose/m333n333/f32/in", {"GROUP": 4}),
    # Columns enough for the widest tile, and a k that is divided between two blocks.
    Corner("gemm/cuda.splitk", "gemm/m33n200k523/f32/NT", {"BN": 256}),
    Corner("gemm/cuda.streamk", "gemm/m33n200k523/f32/NT", {"BN": 256}),
    # Several slices of several columns, the last of them an element short of whole steps.
    Corner(
        "gemm/cuda.skinny", "gemm/m7n270k255/f32/NT/alpha2/beta0.5/batch2/lda+1/ldb+2/ldc+3", {"WARPS": 2, "COLS": 16}
    ),
    Corner("gemm/cuda.skinny", "gemm/m13n72k264/f16/NN", {"WARPS": 2}),
    # Tiles of several channels' steps in turn by a cluster that shares the plain operand, or the gathered one.
    Corner(WGMMA, "conv/n2c72h9w10k136r3s2pad1/f16/nhwc/fprop", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    Corner(WGMMA, "conv/n2c136h9w10k128r2s3pad0x1/bf16/nhwc/dgrad", {"BN": 256, "CLUSTER": 2}, multiprocessors=2),
    Corner(
        WGMMA, "conv/n18c136h9w3k72r2s1pad1x0stride2x1/f16/nhwc/wgrad", {"BN": 128, "CLUSTER": 2}, multiprocessors=2
    ),
    # wgmma with rows in registers: steps enough to use each set of them twice, in both layouts.
    Corner("gemm/cuda.wgmma_tf32_registers", "gemm/m72n136k104/f32/NN", {"BN": 64, "CLUSTER": 1}, multiprocessors=1),
    Corner("gemm/cuda.wgmma_tf32_registers", "gemm/m264n136k104/f32/TT", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    # An odd number of them; and the widest tile, whose results take turns in the buffers, where C is read.
    Corner("gemm/cuda.wgmma_tf32_registers", "gemm/m16n24k136/f32/NN/beta0.5", {"BN": 256}, multiprocessors=2),
    # More accumulators than a block has.
    Corner("fma/cuda.ffma_fed", "fma/n33000k9/f32/fed"),
    # wgmma with columns turned in shared memory: several tiles in turn, shared by a cluster and not.
    Corner("gemm/cuda.wgmma_tf32_turned", "gemm/m520n136k104/f32/TN", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    Corner("gemm/cuda.wgmma_tf32_turned", "gemm/m264n72k136/f32/TN/beta0.5", {"BN": 64}, multiprocessors=1),
    # Scales of several blocks of k, an odd and an even number of them, and of columns; padded rows of scales.
    Corner(
        *("gemm/cuda.wgmma_fp8_blocks", "gemm/m70n136k528/e4m3.f32/NT/batch2/scale-blocks"),
        *({"BN": 64, "CLUSTER": 1}, 1),
    ),
    Corner(
        *("gemm/cuda.wgmma_fp8_blocks", "gemm/m262n136k400/e4m3.bf16/NT/beta0.5/scale-blocks"),
        *({"BN": 128, "CLUSTER": 2}, 2),
    ),
    # A block without an empty filter or tile.
    Corner("conv/cuda.winograd4_fused", "conv/n3c2h15w15k64r3s3pad1/f32/nchw/fprop"),
    # The widest tile with results of 32 bits, which have fewer buffers than parts.
    Corner("gemm/cuda.wgmma_int8", "gemm/m264n264k144/s8.s32/NT", {"BN": 256, "CLUSTER": 2}, multiprocessors=2),
    # Three steps along k, of which the promoted sums of two are in turn.
    Corner("gemm/cuda.wgmma_fp8", "gemm/m16n16k384/e4m3.f32/NT"),
    # Groups whose ends lie within tiles and within 64 rows, of several tiles, and some without rows.
    Corner(
        *("gemm/cuda.wgmma_grouped", "gemm/m700n136k72/bf16/NT/groups5-skewed", {"BN": 128, "CLUSTER": 2}),
        multiprocessors=2,
    ),
    Corner(
        "gemm/cuda.wgmma_grouped", "gemm/m200n72k40/f16.f32/NN/beta0.5/groups9-equal", {"BN": 64}, multiprocessors=1
    ),
    Corner("gemm/cuda.wgmma_grouped", "gemm/m254n72k40/bf16/NT/beta0.5/groups2-equal", {"BN": 64}, multiprocessors=1),
    Corner("gemm/cuda.wgmma_grouped", "gemm/m7n264k16/bf16/NT/groups20-skewed", {"BN": 256}),
)


def corners(file: str) -> Iterator[EmulatedCase]:
    """Yield the cases that meet a source or a header."""
    for corner in CORNERS:
        case = corner.case(discover())
        if file in included(case.kernel.source):
            yield case
