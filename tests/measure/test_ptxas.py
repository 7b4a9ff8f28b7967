"""The lines of ptxas's log that fail a test, each from a source that has the fault."""

from pathlib import Path

import pytest

from kernelmark.bench.measure.compile import compile_cubin
from support.kernels import losses

# One sum is changed while products are in flight, so that the compiler waits for each.
SERIALISED = """#include "ptx_hopper.cuh"
extern "C" __global__ void __launch_bounds__(128)
f(float *c, unsigned long long a, unsigned long long b, int n) {
  float d[32];
  for (int i = 0; i < 32; ++i) d[i] = 0.0f;
  for (int i = 0; i < n; ++i) {
    ptx::wgmma_fence();
    ptx::wgmma_f16<0, 0>(d, a + i, b, 1);
    ptx::wgmma_commit();
    CHANGE
    ptx::wgmma_wait<0>();
  }
  for (int i = 0; i < 32; ++i) c[threadIdx.x * 32 + i] = d[i];
}
"""
REGISTERS = """#include "ptx_hopper.cuh"
extern "C" __global__ void BOUND f(float *c) {
  if (threadIdx.x < 128) ptx::setmaxnreg_dec<40>();
  else ptx::setmaxnreg_inc<232>();
  c[threadIdx.x] = 1.0f;
}
"""
SPILLED = """
extern "C" __global__ void __launch_bounds__(1024) f(float *a, int n) {
  float held[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) held[i] = a[i * n + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) a[threadIdx.x * n + i] = held[i] * held[COUNT - 1 - i];
}
"""


@pytest.mark.parametrize(
    ("source", "word", "faulty", "sound", "said"),
    [
        (SERIALISED, "CHANGE", "d[i % 2 ? 3 : 5] += 1.0f;", "", "wgmma.mma_async instructions are serialized"),
        (REGISTERS, "BOUND", "", "__launch_bounds__(384, 1)", "'setmaxnreg' ignored"),
        (SPILLED, "COUNT", "140", "20", "bytes spill stores"),
    ],
    ids=["wgmma-serialised", "setmaxnreg-ignored", "spills"],
)
@pytest.mark.usefixtures("cuda_compiler")
def test_loss_is_reported_for_the_faulty_source_alone(
    source: str, word: str, faulty: str, sound: str, said: str, tmp_path: Path
) -> None:
    found = []
    for number, text in enumerate((faulty, sound)):
        file = tmp_path / f"planted{number}.cu"
        file.write_text(source.replace(word, text))
        found.append(losses(compile_cubin(str(file), ["f"], "sm_90a").log))
    assert any(said in line for line in found[0])
    assert found[1] == []
