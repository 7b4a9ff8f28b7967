"""Reports on TMA copies, mbarriers and wgmmas that the device would refuse, or execute with a wrong result."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emulator.fixtures import intrinsic, outcomes_of, read, reports_of, written
from kernelmark.bench.emulator.build import CUDA
from kernelmark.bench.emulator.report import Diagnostic
from kernelmark.bench.emulator.worker import EmulatedTensorMap, Launch, WorkerError

X = np.arange(2 * 16 * 32, dtype=np.float32)
ROWS = EmulatedTensorMap("x", (32, 16, 2), (128, 2048), (32, 8), 4)
HEAD = """#include "ptx_hopper.cuh"
extern "C" __global__ void f(const __grid_constant__ TensorMap map, float *y) {
  __shared__ __align__(1024) float smem[512];
  __shared__ unsigned long long full;
  const unsigned barrier = ptx::smem_address(&full), to = ptx::smem_address(smem);
  if (threadIdx.x == 0) { ptx::mbarrier_init(barrier, 1); ptx::fence_mbarrier_init(); }
  __syncthreads();
"""
LINE = HEAD.count("\n") + 1


def _reports(body: str, tensor: EmulatedTensorMap = ROWS, threads: int = 32, cluster: int = 1) -> list[Diagnostic]:
    launch = Launch("f", cluster, threads, (tensor, "y"), cluster=cluster)
    return list(
        reports_of(f"{HEAD}{body}\n  y[threadIdx.x] = 0.0f;\n}}\n", launch, {"x": read(X), "y": written(threads)})
    )


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (
            EmulatedTensorMap("x", (31, 16, 1), (124, 1984), (28, 8), 4),
            "rows 124 bytes apart; expected a multiple of 16",
        ),
        (EmulatedTensorMap("x", (32, 16, 1), (128, 2048), (32, 257), 4), "a box with a side of 257; expected 1 to 256"),
        (
            EmulatedTensorMap("x", (32, 16, 1), (128, 2048), (3, 8), 4),
            "a box with rows of 12 bytes; expected a multiple of 16",
        ),
        (
            EmulatedTensorMap("x", (32, 16, 1), (128, 2048), (32, 8), 4, 64),
            "a box with rows of 128 bytes, swizzled over 64",
        ),
    ],
)
def test_map_that_the_driver_would_not_encode_is_refused(tensor: EmulatedTensorMap, said: str) -> None:
    launch = Launch("load_box", 1, 32, (tensor, "out", 0, 0, 0, 16))
    with pytest.raises(WorkerError, match=f"load_box: no tensor map has {re.escape(said)}"):
        intrinsic("hopper.cu", launch, {"x": read(X), "out": written(4, np.uint32)})


def test_grid_that_does_not_divide_into_clusters_is_refused() -> None:
    launch = Launch("named", 3, 128, ("x", "out"), cluster=2)
    with pytest.raises(WorkerError, match="no device divides a grid 3 blocks wide into clusters of 2; at most 8"):
        intrinsic("hopper.cu", launch, {"x": read(X), "out": written(384, np.int32)})


LOAD = "ptx::mbarrier_arrive_expect_tx(barrier, 1024); ptx::tma_load(to, &map, 0, 0, 0, barrier);"


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (
            "if (threadIdx.x == 0) ptx::tma_load(to + 16, &map, 0, 0, 0, barrier);",
            "misaligned",
            "not a multiple of 128",
        ),
        ("ptx::mbarrier_wait(barrier + 4, 0);", "mbarrier", "aligned to 8 bytes"),
        ("ptx::mbarrier_wait(to, 0);", "mbarrier", "no mbarrier has been initialised"),
        ("ptx::mbarrier_wait(barrier, 2);", "mbarrier", "a parity is 0 or 1"),
        ("if (threadIdx.x == 0) ptx::mbarrier_init(barrier, 0);", "mbarrier", "counts 1 to 2^20-1 arrivals"),
        ("if (threadIdx.x == 0) ptx::mbarrier_arrive_cluster(barrier, 1);", "mbarrier", "has no block of that rank"),
        (f"if (threadIdx.x == 0) {{ {LOAD} }}", "copy-not-waited-for", "the block ended with a TMA load"),
        ("if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(barrier, 64);", "mbarrier", "64 bytes announced"),
        ("ptx::mbarrier_wait(barrier, 0);", "deadlock", f"32 threads wait for each other at line {LINE}"),
        ("if (threadIdx.x < 9) ptx::named_barrier_sync(3, 32);", "deadlock", "9 threads wait for each other"),
        ("ptx::named_barrier_sync(0, 32);", "barrier-divergence", "one of 1 to 15"),
        ("float d[32]; ptx::wgmma_fence(); ptx::wgmma_f16<0, 0>(d, 0, 0, 0);", "wgmma", "no whole warpgroup"),
    ],
    ids=lambda value: value if " " not in value else "",
)
def test_misuse_is_named_with_its_line(body: str, kind: str, said: str) -> None:
    (report,) = (r for r in _reports("  " + body) if r.kind != "not-written")
    assert (report.kind, report.line) == (kind, LINE)
    assert said in report.message


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("", "", []),
        ("words[3] = 1;", "", [("wgmma", "no wgmma.fence stands between")]),
        ("", "words[3] = 1;", [("wgmma-in-flight", "from which a wgmma still reads A")]),
    ],
)
def test_registers_of_a_change_neither_after_the_fence_nor_before_the_wait(
    before: str, after: str, found: list[tuple[str, str]]
) -> None:
    body = f"""  for (unsigned i = threadIdx.x; i < 512; i += 128) smem[i] = 0.0f;
  ptx::fence_proxy_async();
  __syncthreads();
  float d[32];
  unsigned words[4] = {{}};
  ptx::wgmma_fence();
  {before}
  ptx::wgmma_tf32(d, words, (to & 0x3FFFF) >> 4 | 8ull << 16 | 16ull << 32, 0);
  ptx::wgmma_commit();
  {after}
  ptx::wgmma_wait<0>();
"""
    reports = _reports(body, threads=128)
    assert [r.kind for r in reports] == [kind for kind, _ in found]
    assert all(said in report.message for report, (_, said) in zip(reports, found, strict=True))


def test_checkout_elsewhere_that_shares_the_cache_names_the_same_line(tmp_path: Path) -> None:
    body = f"  if (threadIdx.x == 0) {{ {LOAD} }}"
    kinds = [(r.kind, r.line) for r in _reports(body)]
    here = Path(__file__).parent
    shutil.copytree(here, tmp_path / "tests" / "emulator")
    for name in ("bench", "cuda", "kernelmark"):
        shutil.copytree(CUDA.parent / name, tmp_path / name, symlinks=True)
    code = f"from emulator.test_hopper_reports import _reports; print([(r.kind, r.line) for r in _reports({body!r})])"
    command = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{tmp_path / 'tests'}"}
    elsewhere = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert elsewhere.stdout.strip() == str(kinds)


def test_bytes_that_were_not_announced_leave_a_later_wait_hanging() -> None:
    load = LOAD.replace("1024", "1040")
    body = f"  if (threadIdx.x == 0) {{ {load} }}\n  ptx::mbarrier_wait(barrier, 0);"
    (report,) = _reports(body)
    assert (report.kind, report.line) == ("deadlock", LINE + 1)
    assert "16 bytes and 0 arrivals" in report.message


def test_bytes_that_were_not_announced_are_counted_before_and_after_the_last_arrival() -> None:
    """Thread 1 arrives at `two` once `full` is complete, which the boxes reach in either order."""
    body = """  __shared__ unsigned long long two;
  const unsigned second = ptx::smem_address(&two);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(second, 2);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(second, 512);
    ptx::tma_load(to, &map, 0, 0, 0, second);
    ptx::mbarrier_arrive_expect_tx(barrier, 1024);
    ptx::tma_load(to + 1024, &map, 0, 8, 0, barrier);
  }
  __syncthreads();
  if (threadIdx.x == 1) { ptx::mbarrier_wait(barrier, 0); ptx::mbarrier_arrive(second); }
  ptx::mbarrier_wait(second, 0);
  y[threadIdx.x] = 0.0f;
}
"""
    outcomes = outcomes_of(HEAD + body, Launch("f", 1, 32, (ROWS, "y")), {"x": read(X), "y": written(32)})
    messages = [next(r.message for r in outcome.reports if r.kind == "mbarrier") for outcome in outcomes]
    assert set(messages) == {"512 bytes more have landed than the phase announced, and it can never end"}
    lines = {next(r.line for r in outcome.reports if r.kind == "mbarrier") - LINE for outcome in outcomes}
    assert lines == {6, 11}  # the load, and the last arrival


def test_load_that_was_not_waited_for_has_not_landed() -> None:
    body = f"  if (threadIdx.x == 0) {{ {LOAD} }}\n  __syncthreads();\n  y[32 + threadIdx.x] = smem[threadIdx.x];"
    launch = Launch("f", 1, 32, (ROWS, "y"))
    buffers = {"x": read(X), "y": written(64)}
    for outcome in outcomes_of(f"{HEAD}{body}\n  y[threadIdx.x] = 0.0f;\n}}\n", launch, buffers):
        assert {r.kind for r in outcome.reports} == {"copy-in-flight", "race", "copy-not-waited-for"}
        assert np.isnan(outcome.outputs["y"][32:]).all()


def test_address_of_shared_memory_is_no_better_aligned_behind_static_variables_than_on_the_device() -> None:
    text = """#include "common.cuh"
#include "ptx.cuh"
extern "C" __global__ void f(unsigned *y) {
  __shared__ unsigned some[9];
  DYN_SHARED(unsigned, smem);
  y[0] = ptx::smem_address(smem);
  y[1] = ptx::smem_address(some) % 4;
}
"""
    launch = Launch("f", 1, 1, ("y",), shared_bytes=64)
    (outcome,) = outcomes_of(text, launch, {"y": written(2, np.uint32)}, orders=("forward",))
    assert outcome.outputs["y"].tolist() == [1024 + 48, 0]
