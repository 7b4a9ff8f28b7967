"""A user's kernel as `kernelmark watch` sees it: texts of its source, the plug-in that declares it, and versions."""

from kernelmark.bench.tune.watch.source import keep

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
#: Lanes read what others write, without a barrier, in the tile that no run of the problem takes.
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
    """A version of the user's source, as if it had been saved."""
    files = {"turned.cu": text, **{f"{name}.cuh": content for name, content in (headers or {}).items()}}
    return keep({name: content.encode() for name, content in files.items()}, folder / "turned.cu", folder, number)
