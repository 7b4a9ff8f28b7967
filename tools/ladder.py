"""The ladder as a page: `make ladder` writes docs/ladder.md from the declarations, the compiler and published reports.

Ideas are the labels of the kernels, resources are those of `kernelmark inspect`, rates come from `reports/`: where no
report of a GPU is published, there are none.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from kernelmark.bench.measure.compile import compiler
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.report.layout import github_table
from kernelmark.bench.tune.inspect import InspectRow, sample_problem, tile_rows

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ladder.md"
#: The rungs from plain to fast; kernels that are in none are listed as "Others".
LADDERS = {
    "GEMM in FP32": (
        "gemm",
        *("naive", "coalesced", "tiled", "blocktile1d", "blocktile2d"),
        *("vectorised", "warptile", "async", "splitk", "streamk"),
    ),
    "GEMM on tensor cores": (
        "gemm",
        *("wmma", "mma", "mma_int8", "mma_tf32", "mma_3xtf32", "mma_f64"),
        *("wgmma", "wgmma_persistent", "wgmma_grouped", "wgmma_splitk", "wgmma_tf32", "wgmma_tf32_registers"),
        *("wgmma_tf32_turned", "wgmma_3xtf32", "wgmma_fp8", "wgmma_fp8_blocks", "wgmma_int8"),
    ),
    "GEMM of few rows, and of many small products": ("gemm", "skinny", "batched"),
    "GEMM with an epilogue": ("gemm", "async_two_step", "async_fused"),
    "Transposition out of place": ("transpose", "naive", "unpadded", "tiled", "vectorised", "tma", "batched"),
    "Transposition in place": ("transpose", "tiled_inplace", "vectorised_inplace", "c2r", "c2r_fused"),
    "Convolution": (
        "conv",
        *(
            "direct",
            "direct_tiled",
            "depthwise",
            "im2col",
            "implicit",
            "implicit_mma",
            "implicit_wgmma",
            "implicit_tf32",
        ),
        *("implicit_3xtf32", "winograd", "winograd4", "winograd4_fused", "fft_tiled", "fft_fused"),
    ),
}
ARCHS = ("sm_80", "sm_90a")
HEADERS = ("kernel", "idea", "threads", "registers", "shared", "blocks/SM", "occupancy")
INTRODUCTION = """# The ladder

Each kernel is one idea in one file below `cuda/`. The comment at the top of the file gives the owner of each tile, the
preconditions, and what limits the kernel. `make ladder` writes this page. The resources are those that `kernelmark
inspect` reports for the launch with the most registers: threads and bytes of shared memory per block, registers per
thread, and theoretical occupancy, for sm_80 / sm_90a where they differ. The tile is the one that is chosen for
problems of 4096 in each dimension (for convolution, 32 images of VGG's conv3 if the kernel supports it)."""
LARGE = 4096


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(discover()), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


def page(registry: Registry) -> str:
    """The whole text."""
    parts = [f"{INTRODUCTION} Compiled by {compiler()}."]
    reports = dict(published())
    for title, kernels in rungs(registry).items():
        rows = [rung(registry, kernel) for kernel in kernels]
        parts += [f"## {title}", github_table(HEADERS, rows)]
        parts += rates([kernel.id for kernel in kernels], reports)
    if not reports:
        parts.append("Rates follow once `make gpu` has published a report in `reports/`; there is none yet.")
    return "\n\n".join(parts) + "\n"


def rungs(registry: Registry) -> dict[str, list[CudaKernel]]:
    """The ladders with the kernels that exist, then those that stand in none."""
    left = {k.id: k for k in registry.kernels.values() if isinstance(k, CudaKernel) and k.is_ours}
    found = {}
    for title, (op, *names) in LADDERS.items():
        ids = (f"{op}/cuda.{name}" for name in names)
        found[title] = [left.pop(name) for name in ids if name in left]
    return found | {"Others": list(left.values())}


def rung(registry: Registry, kernel: CudaKernel) -> tuple[str, ...]:
    """The cells of a kernel: its label, and the resources of its default tile."""
    chosen = tile_rows(kernel, _large(registry, kernel), ARCHS)
    heaviest = max(chosen, key=lambda row: row.registers).entry  # of several launches
    default = list({row.arch: row for row in chosen if row.entry == heaviest}.values())
    name = f"[{kernel.id}](../cuda/{kernel.source})"
    return name, kernel.label, *(_shared(cells) for cells in zip(*map(_resources, default), strict=True))


def _large(registry: Registry, kernel: CudaKernel) -> Problem:
    sample = sample_problem(kernel, registry.problem_class(kernel.op, kernel.id))
    large = msgspec.structs.replace(sample, **dict.fromkeys(sample.sizes, LARGE))
    return large if kernel.refuses(large) is None else sample


def _resources(row: InspectRow) -> tuple[str, ...]:
    shared = row.static_shared_bytes + row.dynamic_shared_bytes
    return str(row.threads), str(row.registers), str(shared), str(row.blocks_per_sm), f"{row.occupancy:.0%}"


def _shared(cells: Sequence[str]) -> str:
    return " / ".join(dict.fromkeys(cells))


def published() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The rows of each published report, by the name of its folder."""
    for path in sorted(ROOT.glob("reports/*/results.csv")):
        if path.parent.name != "local":
            with path.open(newline="", encoding="utf-8") as rows:
                yield path.parent.name, list(csv.DictReader(rows))


def rates(names: Sequence[str], reports: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    """Yield a table for each report and mode: kernels x problems on which at least two of them were timed.

    Of the runs of a report, the last one counts.
    """
    for report, rows in reports.items():
        timed = [row for row in rows if row["kernel"] in names and row["time_s_median"]]
        for mode in dict.fromkeys(row["mode"] for row in timed):
            found = {(row["kernel"], row["problem"]): _rate(row) for row in timed if row["mode"] == mode}
            counts = Counter(problem for _, problem in found)
            problems = [problem for problem, count in sorted(counts.items()) if count > 1]
            kernels = [name for name in names if any((name, problem) in found for problem in problems)]
            if problems:
                unit = "GFLOP/s" if any(row["gflop_per_s"] for row in timed) else "GB/s"
                yield f"{unit}, {mode}, [{report}](../reports/{report}/README.md):"
                cells = [(name, *(found.get((name, problem), "") for problem in problems)) for name in kernels]
                heads = ("kernel", *(problem.partition("/")[2] for problem in problems))
                yield github_table(heads, cells)


def _rate(row: dict[str, str]) -> str:
    rate = float(row["gflop_per_s"] or row["gbyte_per_s"])
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


if __name__ == "__main__":
    sys.exit(main())
