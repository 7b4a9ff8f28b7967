"""`make gpu` on the stub driver, with a few kernels: all of its stages, through the real cuda-core and the emulator.

As a plug-in this module leaves those kernels in the processes of the stages; run by itself it begins the report.
"""

import sys
from pathlib import Path

import gpu_stages
from bench.plan.discovery import discover
from gpu_stages import Stage

#: Kernels whose launches differ: plain, with scalars, with much shared memory, in place, and the baseline.
KEPT = (
    "gemm/cuda.tiled",
    "gemm/cuda.async",
    "transpose/cuda.tiled_inplace",
    "copy/cuda.vectorised",
    "gemm/numpy.matmul",
)
SUITES = "gemm/m33n31k17/f32/NT,copy/m3n5/f32"

gpu_stages.STAGES = {  # type: ignore[misc]
    **gpu_stages.STAGES,
    "bars": Stage(gpu_stages.bars, 20),  # their problems are too large for an emulator
}
KERNELS = discover().kernels
for name in set(KERNELS) - set(KEPT):
    del KERNELS[name]

if __name__ == "__main__":
    import gpu

    sys.exit(gpu.main(["--suites", SUITES, "--plugin", str(Path(__file__).resolve()), *sys.argv[1:]]))
