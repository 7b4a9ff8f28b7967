"""A report of a GPU on the fake device, of which some stages do what a fault names.

The faulty stage stands between two others and has the fault GPU_FAULT, or GPU_FAULTS names faults of the real stages,
as JSON. GPU_FIGURES=none draws no figures, and measures no ceilings for them unless a clock jumps. As a plug-in this
module replaces the stages in their processes; run by itself it replaces them here and begins the report.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from types import MappingProxyType

import gpu_stages
from gpu_stages import Stage
from gpu_task import Task
from kernelmark.bench.measure import timing

HERE = Path(__file__).resolve()


def hangs() -> None:
    time.sleep(1000)


def raises() -> None:
    raise RuntimeError("no luck\nat all")


def runs_out_of_memory() -> None:
    raise MemoryError("4 PB wanted")


def is_terminated() -> None:
    """Let the process that began the report be asked to end, in the midst of this stage."""
    os.kill(int(os.environ["GPU_REPORT_PID"]), signal.SIGTERM)
    hangs()


class JumpingTime:
    """Python's `time`, whose clock jumps by an hour to and fro."""

    _jumps = cycle((0.0, 3600.0, -3600.0))
    sleep = staticmethod(time.sleep)

    def perf_counter(self) -> float:
        return time.perf_counter() + next(self._jumps)


def has_a_jumping_clock() -> None:
    timing.time = JumpingTime()  # type: ignore[assignment]


FAULTS: MappingProxyType[str, Callable[[], object]] = MappingProxyType(
    {
        "hang": hangs,
        "raise": raises,
        "oom": runs_out_of_memory,
        "crash": os.abort,
        "exit": lambda: os._exit(0),
        "term": is_terminated,
        "clock": has_a_jumping_clock,
        "none": lambda: None,
    }
)


def middle(task: Task) -> str:
    """Do what GPU_FAULT names."""
    task.folder.write("begun.md", "the faulty stage has begun\n")
    FAULTS[os.environ["GPU_FAULT"]]()
    return "no fault"


def faulty(stage: Stage, fault: str) -> Stage:
    """Return a stage that does what the fault names, and then its work if it still can."""

    def run(task: Task) -> str:
        FAULTS[fault]()
        return stage.run(task)

    return Stage(run, LIMIT_S)


#: What a faulty stage may take of a report of 540 s: twelve seconds of the report of four minutes that most tests ask
#: for.
LIMIT_S = float(os.environ.get("GPU_FAULT_LIMIT_S", "27"))
if faults := json.loads(os.environ.get("GPU_FAULTS", "{}")):
    real = gpu_stages.STAGES
    gpu_stages.STAGES = {**real, **{name: faulty(real[name], fault) for name, fault in faults.items()}}  # type: ignore[misc]
else:
    gpu_stages.STAGES = {  # type: ignore[misc]
        "first": Stage(gpu_stages.once, 180),
        "faulty": Stage(middle, LIMIT_S),
        "last": Stage(gpu_stages.once, 180),
    }
if os.environ.get("GPU_FIGURES") == "none" and "clock" not in faults.values():
    gpu_stages.Plan = partial(gpu_stages.Plan, ceilings=False)  # type: ignore[misc]

if __name__ == "__main__":
    os.environ["GPU_REPORT_PID"] = str(os.getpid())
    import gpu
    import gpu_folder

    if os.environ.get("GPU_FIGURES") == "none":  # they take longer than all else that is published
        gpu_folder.find_spec = lambda name: None  # type: ignore[assignment,misc]

    plugins = ("--plugin", str(HERE.with_name("fake_device.py")), "--plugin", str(HERE))
    sys.exit(gpu.main(["--device", "fake", "--suites", "copy/m3n5/f32", *plugins, *sys.argv[1:]]))
