"""What is counted follows NVIDIA's rules, to the last sector and wavefront."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from emulator import published_counts
from emulator.fixtures import read, written
from emulator.known_counts import KNOWN, Known, source
from emulator.published_counts import PUBLISHED, Published
from kernelmark.bench.emulator.build import CUDA, compiler, program, source_folder
from kernelmark.bench.emulator.counts import Tallies, sample, tallies_of
from kernelmark.bench.emulator.multiply_adds import FLAGS, cannot_count, counted
from kernelmark.bench.emulator.worker import EmulatedTensorMap, Launch

BYTES = 64 * 1024


@pytest.fixture(scope="module")
def worker() -> Path:
    """The program of all known kernels."""
    folder = source_folder({"known.cu": source()})
    return program(folder / "known.cu", [known.name for known in KNOWN], include=CUDA, counts=True)


def counts_of(worker: Path, name: str, threads: int = 32) -> Tallies:
    buffers = {"a": read(np.zeros(BYTES // 4, np.float32)), "out": written(BYTES // 4)}
    return tallies_of(worker, buffers, Launch(name, 1, threads, ("a", "out")))


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.name}: {known.what}")
def test_known_kernel_counts_what_the_documentation_gives(worker: Path, known: Known) -> None:
    if known.what == "multiply-add" and cannot_count():
        pytest.skip(str(cannot_count()))
    does, _, space = known.what.partition(" ")
    found = counts_of(worker, known.name).sites.items()
    those = [tally for site, tally in found if site.does == does and space in ("", site.space)]
    figures = [(t.cost, t.least) if space else (t.instructions, t.lanes) for t in those]
    assert [sum(column) for column in zip(*figures, strict=True)] == [known.cost, known.least], known.source


def test_enough_kernels_are_known() -> None:
    assert len(KNOWN) >= 30
    assert all(known.source for known in KNOWN)


@pytest.fixture(scope="module")
def profiled() -> Path:
    """The program of all kernels with published counters."""
    folder = source_folder({"published.cu": published_counts.source()})
    return program(folder / "published.cu", [each.name for each in PUBLISHED], include=CUDA, counts=True)


@pytest.mark.parametrize("each", PUBLISHED, ids=lambda each: each.name)
def test_kernel_counts_what_nsight_compute_has_counted_of_it_on_a_gpu(profiled: Path, each: Published) -> None:
    buffers = {"a": read(np.zeros(32 * 16384)), "out": written(32 * 4096, np.float64)}
    found = tallies_of(profiled, buffers, Launch(each.name, 1, each.block, ("a", "out"))).sites.items()

    def total(figure: str, does: str, space: str) -> int:
        return sum(getattr(tally, figure) for site, tally in found if (site.does, site.space) == (does, space))

    counted = {
        f"t_{name}_pipe_lsu_mem_global_op_{short}": total(figure, does, "global") * each.stands_for
        for name, figure in {"requests": "requests", "sectors": "cost"}.items()
        for short, does in {"ld": "load", "st": "store"}.items()
    }
    counted[published_counts.SECTORS_A_LOAD] = total("cost", "load", "global") / total("requests", "load", "global")
    counted[published_counts.WAVEFRONTS_LOADED] = total("cost", "load", "shared") * each.stands_for
    shared = [(site, tally) for site, tally in found if site.space == "shared"]
    moved = sum(tally.lanes * site.bytes for site, tally in shared)
    if shared:
        percent = 100 * moved / (128 * sum(tally.cost for _, tally in shared))
        counted[published_counts.BYTES_A_WAVEFRONT] = round(percent, 2)
    assert {name: counted[name] for name in each.counters} == each.counters, each.source


@pytest.mark.parametrize("tuning", ["generic", "znver3"])
def test_sums_over_a_loop_are_fused_whatever_the_compiler_takes_to_be_fast(tuning: str) -> None:
    if reason := cannot_count():
        pytest.skip(reason)
    sum_over = (
        "float f(const float *a, int n) { float s = 0; for (int i = 0; i < n; ++i) s += a[i] * a[n - i]; return s; }"
    )
    command = [compiler(), "-O1", f"-mtune={tuning}", *FLAGS, "-x", "c++", "-S", "-", "-o", "-"]
    assembly = subprocess.run(command, input=sum_over, capture_output=True, text=True, check=True).stdout
    assert ".Lemu_multiply_add_0:" in counted(assembly)


def test_warps_are_counted_one_by_one(worker: Path) -> None:
    (site, tally), *_ = [(s, t) for s, t in counts_of(worker, "stores", 80).sites.items() if s.does == "store"]
    assert tally.instructions == 3, "the last warp has 16 lanes"
    assert (tally.lanes, tally.cost) == (80, 10)
    assert site.line > 0
    assert site.file.endswith("known.cu")


BOX = """#include "ptx_hopper.cuh"
__global__ void box(const __grid_constant__ TensorMap map, float *out) {
  __shared__ __align__(128) float s[32 * 32];
  __shared__ unsigned long long arrived;
  const unsigned barrier = ptx::smem_address(&arrived);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(barrier, sizeof s);
    ptx::tma_load(ptx::smem_address(s), &map, COLUMN, 0, 0, barrier);
  }
  __syncthreads();
  ptx::mbarrier_wait(barrier, 0);
  out[threadIdx.x] = s[threadIdx.x];
}
"""


@pytest.mark.parametrize(("column", "sectors"), [(0, 32 * 4), (4, 32 * 5), (48, 32 * 2)])
def test_box_of_the_tma_takes_the_sectors_of_its_rows(column: int, sectors: int) -> None:
    """A row of 128 bytes, one that begins in the middle of a sector, and one that half lies outside the tensor."""
    folder = source_folder({"box.cu": BOX})
    worker = program(folder / "box.cu", ["box"], include=CUDA, defines=[f"COLUMN={column}"], counts=True)
    buffers = {"a": read(np.zeros(64 * 32, np.float32)), "out": written(32)}
    maps = EmulatedTensorMap("a", (64, 32, 1), (256, 256 * 32), (32, 32), 4)
    found = tallies_of(worker, buffers, Launch("box", 1, 32, (maps, "out"))).sites
    boxes = {site.space: tally for site, tally in found.items() if site.does == "box"}
    assert boxes["global"].cost == sectors
    assert boxes["global"].instructions == 1
    assert boxes["shared"].cost == 32


@pytest.mark.parametrize("grid", [28, (40, 30), (6, 5, 4), (2, 1000), 10_007, (64, 1, 7)])
@pytest.mark.parametrize("cluster", [1, 2])
def test_sample_stands_for_every_block(grid: int | tuple[int, ...], cluster: int) -> None:
    launch = Launch("k", grid, 32, (), cluster=cluster)
    wide = int(np.prod(grid)) // cluster
    chosen = sample(launch)
    if not chosen:
        assert wide <= 27
        return
    assert sum(chosen.values()) == wide
    assert all(0 <= number < wide for number in chosen)
    assert {0, wide - 1} <= set(chosen)


def test_blocks_that_wait_for_each_other_are_all_run() -> None:
    assert not sample(Launch("k", 1000, 32, (), cooperative=True))
