"""`make gpu` on the stub driver, with a few kernels: its stages, through the real cuda-core and the emulator.

GPU_FAULTS has the fault of the device in each stage, as JSON: its name in tests/stub/driver/faults.cpp, and where it
comes. GPU_STAGES lists the stages, without it all; GPU_FIGURES=none draws no figures and measures no ceilings for them.
As a plug-in this module leaves those kernels in the processes of the stages; run by itself it begins the report.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

import gpu_stages
from gpu_stages import Stage
from gpu_task import Task
from kernelmark.bench.plan.discovery import discover
from stub import few_bars  # noqa: F401  # in place of bars whose problems are too large for an emulator

#: Kernels whose launches differ: plain, with scalars, with much shared memory, in place, and the baseline.
KEPT = (
    "gemm/cuda.tiled",
    "gemm/cuda.async",
    "transpose/cuda.tiled_inplace",
    "copy/cuda.vectorised",
    "gemm/numpy.matmul",
)
SUITES = "gemm/m33n31k17/f32/NT,copy/m3n5/f32"
FAULTS: dict[str, tuple[str, str]] = json.loads(os.environ.get("GPU_FAULTS", "{}"))


def faulty(name: str, stage: Stage) -> Stage:
    """Return a stage in whose processes the device has the fault that is asked for, if any."""

    def run(task: Task) -> str:
        if name in FAULTS:
            os.environ["KM_STUB_FAULT"], os.environ["KM_STUB_FAULT_AT"] = FAULTS[name]
        return stage.run(task)

    return Stage(run, stage.limit_s)


STAGES = {
    **gpu_stages.STAGES,
    "bars": Stage(gpu_stages.bars, 20),  # one that hangs is silent for no longer
}
wanted = json.loads(os.environ.get("GPU_STAGES", "null")) or list(STAGES)
gpu_stages.STAGES = {name: faulty(name, STAGES[name]) for name in wanted}  # type: ignore[misc]
gpu_stages.MAX_TIME_S = 0.05
if not any(fault == "hang" for fault, _ in FAULTS.values()):  # a busy machine takes its time to emulate a launch
    gpu_stages.FIRST_S = gpu_stages.TIMEOUT_S = 60.0
if os.environ.get("GPU_FIGURES") == "none":
    gpu_stages.Plan = partial(gpu_stages.Plan, ceilings=False)  # type: ignore[misc]
KERNELS = discover().kernels
for id_ in set(KERNELS) - set(KEPT):
    del KERNELS[id_]

if __name__ == "__main__":
    import gpu
    import gpu_folder

    if os.environ.get("GPU_FIGURES") == "none":  # they take longer than all else that is published
        gpu_folder.find_spec = lambda name: None  # type: ignore[assignment,misc]

    sys.exit(gpu.main(["--suites", SUITES, "--plugin", str(Path(__file__).resolve()), *sys.argv[1:]]))
