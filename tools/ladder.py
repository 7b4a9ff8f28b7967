"""Write docs/ladder.md, for `make ladder`, from the kernels' declarations and the compiler's output.

Ideas are the kernels' labels; resources are those that `kernelmark inspect` prints.
"""

import sys
from pathlib import Path

import msgspec

from kernelmark.bench.measure.compile import compiler
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.tune.inspect import InspectRow, sample_problems, tile_rows

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ladder.md"
#: By title, the operation and its rungs from plain to fast. Kernels that are in no list are listed as "Others".
LADDERS = {
    "GEMM in FP32": "gemm naive coalesced tiled blocktile1d blocktile2d vectorised warptile async splitk streamk",
    "GEMM on tensor cores": "gemm wmma mma mma_int8 mma_tf32 mma_3xtf32 mma_f64 wgmma wgmma_persistent wgmma_grouped "
    "wgmma_splitk wgmma_tf32 wgmma_tf32_registers wgmma_tf32_turned wgmma_3xtf32 wgmma_fp8 wgmma_fp8_blocks wgmma_int8",
    "GEMM of few rows, and of many small products": "gemm skinny batched",
    "GEMM with an epilogue": "gemm async_two_step async_fused",
    "Transposition out of place": "transpose naive unpadded tiled vectorised tma batched",
    "Transposition in place": "transpose tiled_inplace vectorised_inplace c2r c2r_fused",
    "Convolution": "conv direct direct_tiled depthwise im2col implicit implicit_mma implicit_wgmma implicit_tf32 "
    "implicit_3xtf32 winograd winograd4 winograd4_fused fft_tiled fft_fused",
}
ARCHS = ("sm_80", "sm_90a")
HEADERS = ("kernel", "idea", "threads", "registers", "shared", "occupancy")
INTRODUCTION = """# The ladder

Each kernel shows one idea, which the first comment of its file explains. `kernelmark inspect` gives the
numbers, at size 4096, for the launch with the most registers: threads and shared bytes per block, registers per thread,
occupancy. A pair of numbers is for sm_80 / sm_90a. Rates: [H200 report](../reports/nvidia-h200/tables.md)."""
LARGE = 4096


def main() -> int:
    PAGE.write_text(page(discover()), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


def page(registry: Registry) -> str:
    parts = [f"{INTRODUCTION}\nCompiled by {compiler()}."]
    for title, kernels in rungs(registry).items():
        rows = (HEADERS, ["---"] * len(HEADERS), *(rung(registry, kernel) for kernel in kernels))
        parts += [f"## {title}", "\n".join(f"| {' | '.join(row)} |" for row in rows)]
    return "\n\n".join(parts) + "\n"


def rungs(registry: Registry) -> dict[str, list[CudaKernel]]:
    left = {k.id: k for k in registry.kernels.values() if isinstance(k, CudaKernel) and k.is_ours}
    ladders = {}
    for title, words in LADDERS.items():
        op, *names = words.split()
        ids = (f"{op}/cuda.{name}" for name in names)
        ladders[title] = [left.pop(name) for name in ids if name in left]
    return ladders | {"Others": list(left.values())}


def rung(registry: Registry, kernel: CudaKernel) -> tuple[str, ...]:
    chosen = tile_rows(kernel, _large(registry, kernel), ARCHS)
    heaviest = max(chosen, key=lambda row: row.registers).entry  # the launch with the most registers
    default = list({row.arch: row for row in chosen if row.entry == heaviest}.values())
    name = f"[{kernel.id}](../cuda/{kernel.source})"
    cells = zip(*map(_resources, default), strict=True)
    return name, kernel.label, *(" / ".join(dict.fromkeys(cell)) for cell in cells)


def _large(registry: Registry, kernel: CudaKernel) -> Problem:
    sample = sample_problems(kernel, registry.problem_class(kernel.op, kernel.id))[0]
    large = msgspec.structs.replace(sample, **dict.fromkeys(sample.sizes, LARGE))
    return large if kernel.refuses(large) is None else sample


def _resources(row: InspectRow) -> tuple[str, ...]:
    shared = row.static_shared_bytes + row.dynamic_shared_bytes
    return str(row.threads), str(row.registers), str(shared), f"{row.occupancy:.0%}"


if __name__ == "__main__":
    sys.exit(main())
