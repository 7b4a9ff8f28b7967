"""`make gpu` on the stub driver, with an agenda of a few kernels, through the real cuda-core and the emulator.

GPU_FAULTS is JSON with the device's fault in each task: its name in tests/stub/driver/faults.cpp, and its place. As a
plug-in, this module removes all other kernels from the process that carries out tasks, and causes the faults. As a
program, it runs one slot of `make gpu`.
"""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec

import agreement
import gpu_slot
import gpu_tasks
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.selftest import clocks

#: The kernels of the agenda: plain, with scalars and much shared memory, in place, and without shared memory.
KERNEL_IDS = ("gemm/cuda.tiled", "gemm/cuda.async", "transpose/cuda.tiled_inplace", "copy/cuda.vectorised")
GEMM, COPY = "gemm/m33n31k17/f32/NT", "copy/m3n5/f32"
TILES = ("BM=64,BN=64,BK=8,WM=32,WN=32,TM=4,TN=8,STAGES=2", "BM=32,BN=64,BK=8,WM=32,WN=32,TM=4,TN=8,STAGES=2")
FAULTS = json.loads(os.environ.get("GPU_FAULTS", "{}"))
HANGS = any(fault == "hang" for fault, _ in FAULTS.values())


class FewTasks(gpu_tasks.Tasks):
    """Every kind of task that the stub can carry out. The task `clocks` comes last, since it may exclude kernels."""

    def all(self):
        launched = ("verify", "pycuda") if find_spec("pycuda") else ("verify",)
        compared = ("emulator gemm/cuda.async", "emulator copy/cuda.vectorised")
        tasks = [task for task in self._verified() if task.name.split()[0] in launched or task.name in compared]
        tasks += [*self._timings(), *(task for task in self._tools() if task.kind == "clocks")]
        values = {"verify": 9.0, "time": 8.0, "tune": 7.0, "emulator": 6.0, "clocks": 5.0}
        return [msgspec.structs.replace(task, value=values[task.kind], seconds=1.0) for task in tasks]

    def _timings(self):
        more = {"max_time_s": 0.05, "baseline": KERNEL_IDS[0], "processes": 2, "group": "Products"}
        yield from self._task("time gemm", "time", "problem", (GEMM,), KERNEL_IDS[:2], **more)
        yield from self._task("time copy", "time", "problem", (COPY,), KERNEL_IDS[3:], max_time_s=0.05, group="Copy")
        tiles = [f"{KERNEL_IDS[1]}@{tile}" for tile in TILES]
        more = {"max_time_s": 0.05, "baseline": tiles[0], "group": "Tiles", "detail": KERNEL_IDS[1]}
        yield from self._task("tiles", "tune", "tune", (GEMM,), tiles, **more)


def without_ceilings(*words, **more):
    """Return a plan without ceilings, whose kernels would take minutes in the emulator."""
    return Plan(*words, **{**more, "ceilings": False})


carry_out = gpu_slot.Slot.carry_out


def faulty(slot, question):
    """Carry out tasks in new workers, on a device with the tasks' fault, if any, from the start."""
    faults = [FAULTS[task.name] for task in question.tasks if task.name in FAULTS]
    slot._workers.close()
    for name, value in zip(("KM_STUB_FAULT", "KM_STUB_FAULT_AT"), faults[0] if faults else ("", ""), strict=True):
        os.environ[name] = value
    return carry_out(slot, question)


gpu_slot.Slot.carry_out = faulty
gpu_tasks.Plan = without_ceilings
# The limits allow for slow emulation on a busy machine.
gpu_tasks.TIMEOUT_S = agreement.SILENCE_S = clocks.SILENCE_S = 10.0 if HANGS else 60.0
KERNELS = discover().kernels
for id_ in set(KERNELS) - set(KERNEL_IDS):
    del KERNELS[id_]

if __name__ == "__main__":
    import gpu
    import gpu_report

    gpu_report.find_spec = lambda name: None  # no figures, which take longer than the rest
    gpu.Tasks, gpu.LEAST_S, gpu.WATCHED_S = FewTasks, 120.0, 0.0
    sys.exit(gpu.main(["--dirty", "--plugin", str(Path(__file__).resolve()), *sys.argv[1:]]))
