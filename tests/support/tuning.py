"""Helpers for tests of tuning: a user's kernel, adopted tiles, rows of `inspect`, runs with known winners."""

import random

from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.tune.inspect import InspectRow
from kernelmark.bench.tune.tuned import TileRecord
from kernelmark.bench.tune.watch.versions import keep
from support.rows import begin, put

CONV = "conv/n1c{c}h{side}w{side}k{k}r{r}s{r}pad{pad}/f32/nchw/{direction}"
IM2COL, DIRECT = "conv/cpu.im2col", "conv/numba.direct"
SIZES = (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
FIRST, SECOND = "gemm/numpy.matmul", "gemm/scipy.sgemm"


def at(factor=1.0):
    return lambda m, n, k: factor * 1e-9 * m * n * k


def shapes():
    return [(m, n, 256) for m in SIZES for n in SIZES]


def bordered(border, gain=1.5):
    """Return two kernels; the second is `gain` times as fast if m exceeds `border`, and as much slower otherwise."""
    return {FIRST: at(), SECOND: lambda m, n, k: 1e-9 * m * n * k * (1 / gain if m > border else gain)}


def plant(store, kernels, chosen=(), run_id="planted", processes=4, noise=0.01, layout="NT", **values):
    """Add a run of each kernel on each shape, in several processes whose times scatter by the share `noise`."""
    begin(store, run_id)
    rng = random.Random(run_id)
    for m, n, k in chosen or shapes():
        problem, dims = f"gemm/m{m}n{n}k{k}/f32/{layout}", {"m": m, "n": n, "k": k}
        for kernel, took in kernels.items():
            seconds = took(m, n, k)
            if seconds is not None:
                medians = [seconds * (1 + noise * rng.uniform(-1, 1)) for _ in range(processes)]
                parts = [ProcessPart(10, median) for median in medians]
                taken = [median for median in medians for _ in range(10)]
                columns = {"layout": layout, "run_id": run_id, "processes": processes, **values}
                put(store, problem, kernel, seconds, dims, taken, parts, **columns)


def convolutions(store, count=160, noise=0.0):
    """Add a run of convolutions whose fastest kernel depends on direction, filter size, channels and image size."""
    begin(store, "conv")
    rng = random.Random(5)
    for i in range(count):
        c, k, side, r = rng.randint(1, 300), rng.randint(1, 300), rng.randint(8, 80), rng.choice((1, 3, 5, 7))
        direction = ("fprop", "dgrad", "wgrad")[i % 3]
        problem = CONV.format(c=c, k=k, side=side, r=r, pad=r // 2, direction=direction)
        base = 1e-12 * c * k * side * side * r * r
        gain = (2 if c * r * r > 400 else 0.7) * (0.3 if direction == "dgrad" else 1) * (4 if side < 30 else 1)
        for kernel, exact in ((IM2COL, base), (DIRECT, base / gain)):
            seconds = exact * (1 + noise * rng.uniform(-1, 1) if noise else 1)
            put(store, problem, kernel, seconds, run_id="conv", taken=[seconds] * 10)


PROBLEM = "transpose/m61n47/f32/out"
SOURCE = """#include "common.cuh"

template <typename T, int H> __global__ void turned(const T *a, T *b, int m, int n) {
  const int i = blockIdx.y * H + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
  if (i < m && j < n) b[j * m + i] = a[i * n + j];
}
"""
STAGED = SOURCE.replace("  if (i", "  __shared__ T tile[H][32];\n  if (i").replace(
    "b[j * m + i] = a[i * n + j]",
    "{ tile[threadIdx.y][threadIdx.x] = a[i * n + j]; b[j * m + i] = tile[threadIdx.y][threadIdx.x]; }",
)
UNGUARDED = SOURCE.replace("if (i < m && j < n) ", "")
#: Lanes read elements that other lanes write, without a barrier, but only with a tile that no run of PROBLEM uses.
RACING = STAGED.replace(
    "= tile[threadIdx.y][threadIdx.x];", "= tile[threadIdx.y][H == 4 ? threadIdx.x ^ 1 : threadIdx.x];"
)
BROKEN = SOURCE.replace("b[j * m + i]", "c[j * m + i]")
PLUGIN = """from pathlib import Path

from kernelmark import KernelCall, cuda_kernel


@cuda_kernel(
    "transpose", source=str(Path(__file__).with_name("turned.cu")), entry="turned<bits::{dtype}, {H}>", dtypes=("f32",),
    places=("out",), batchs=(1,), tunables={"H": (8, 4)},
)
def turned(p, t, device):
    \"\"\"One thread an element.\"\"\"
    return [KernelCall((-(-p.n // 32), -(-p.m // t.H)), (32, t.H), ("a", "b", p.m, p.n))]
"""


def version(folder, number, text, headers=None):
    files = {"turned.cu": text, **{f"{name}.cuh": content for name, content in (headers or {}).items()}}
    return keep({name: content.encode() for name, content in files.items()}, folder / "turned.cu", folder, number)


def entry(**values):
    usual = {"threads": 1, "mode": "cold", "digest": "c0ffee", "versions": "numba 0.62.1", "processes": 5}
    usual |= {"run": "race-1", "tuned_at": "2026-01-01T00:00:00"}
    return TileRecord(**{**usual, **values})


def row(**values):
    identity = {"kernel": "k", "tunables": "", "arch": "sm_80", "entry": "f", "problem": "p", "compiler": "c"}
    used = {"registers": 32, "static_shared_bytes": 0, "dynamic_shared_bytes": 0, "spill_bytes": 0, "stack_bytes": 0}
    fits = {"threads": 256, "blocks_per_sm": 8, "occupancy": 1.0, "limiter": "warps"}
    return InspectRow(**{**identity, **used, **fits, **values})
