"""A report of a GPU on the fake device, with a stage between two others that does what GPU_FAULT names.

As a plug-in it replaces the stages in their processes; run by itself it replaces them here and begins the report.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import gpu_stages
from gpu_stages import Stage
from gpu_task import Task

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


FAULTS: MappingProxyType[str, Callable[[], object]] = MappingProxyType(
    {
        "hang": hangs,
        "raise": raises,
        "oom": runs_out_of_memory,
        "crash": os.abort,
        "exit": lambda: os._exit(0),
        "term": is_terminated,
        "none": lambda: None,
    }
)


def faulty(task: Task) -> str:
    task.folder.write("begun.md", "the faulty stage has begun\n")
    FAULTS[os.environ["GPU_FAULT"]]()
    return "no fault"


#: Of a report of 540 s; the faulty one may take twelve seconds of the report of four minutes that most tests ask for.
gpu_stages.STAGES = {  # type: ignore[misc]
    "first": Stage(gpu_stages.once, 180),
    "faulty": Stage(faulty, float(os.environ.get("GPU_FAULT_LIMIT_S", "27"))),
    "last": Stage(gpu_stages.once, 180),
}

if __name__ == "__main__":
    os.environ["GPU_REPORT_PID"] = str(os.getpid())
    import gpu

    plugins = ("--plugin", str(HERE.with_name("fake_device.py")), "--plugin", str(HERE))
    sys.exit(gpu.main(["--device", "fake", "--suites", "copy/m3n5/f32", *plugins, *sys.argv[1:]]))
