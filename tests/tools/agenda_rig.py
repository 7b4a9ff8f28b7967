"""Run one slot of `make gpu` on the fake device, with an agenda of eight small tasks.

AGENDA_CHANGED names a kernel whose digest has changed. AGENDA_FAULT names a task: the process that is to carry it out
has the fault in FAULTS that AGENDA_WHAT names. At most AGENDA_MOST tasks share a run. This module is also a plug-in,
which brings the fault to the process that carries out tasks.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import gpu
import gpu_slot
from agenda import Task
from kernelmark.bench.plan.modes import Mode
from support.plugins import FAKE

KERNELS = ("copy/fake.noop", "copy/fake.base", "copy/fake.other")
PROBLEMS = ("copy/m3n5/f32", "copy/m7n2/f32")
#: The expected seconds of a task: so many that the second slot is killed before it has finished.
SECONDS = 0.5
FAULTS = {"hang": lambda: time.sleep(1000), "crash": os.abort, "raise": lambda: 1 / 0, "exit": lambda: os._exit(0)}


class FewTasks:
    """The tasks of the fake device: verify each kernel, time pairs of kernels on two problems, and tune tiles."""

    refused = ()

    def __init__(self, registry: object, limits: object, device: str) -> None:
        self._device = device

    def all(self) -> list[Task]:
        tasks = [self._task(f"verify {k}", "verify", 8.0, PROBLEMS[:1], (k,), mode=Mode.VERIFY) for k in KERNELS]
        more: dict[str, Any] = {"baseline": KERNELS[0]}
        for number, problem in enumerate(PROBLEMS):
            for other in KERNELS[1:]:
                how = {"processes": 2, "group": "Copy", **more}
                name, pair = f"copy {other} {problem}", (KERNELS[0], other)
                tasks.append(self._task(name, "time", 4.0 - number, (problem,), pair, **how))
        return [*tasks, self._task("tiles", "tune", 1.0, PROBLEMS[:1], KERNELS[:2], group="Tiles", **more)]

    def _task(self, name: str, kind: str, value: float, problems: tuple[str, ...], kernels: Any, **more: Any) -> Task:
        digest = "+".join(kernel + "!" * (kernel == os.environ.get("AGENDA_CHANGED")) for kernel in kernels)
        where = {"problems": problems, "kernels": kernels}
        return Task(name=name, kind=kind, value=value, digest=digest, seconds=SECONDS, **where, **more)


if fault := os.environ.get("AGENDA_FAULT"):
    carry_out = gpu_slot.Slot.carry_out

    def faulty(slot: gpu_slot.Slot, question: gpu_slot.Question) -> gpu_slot.Reply:
        if any(task.name == fault for task in question.tasks):
            FAULTS[os.environ["AGENDA_WHAT"]]()
        return carry_out(slot, question)

    gpu_slot.Slot.carry_out = faulty  # type: ignore[method-assign]

if __name__ == "__main__":
    gpu.Tasks = FewTasks  # type: ignore[assignment,misc]
    gpu.LEAST_S, gpu.MOST = 20.0, int(os.environ.get("AGENDA_MOST", "2"))
    plugins = ("--plugin", FAKE, "--plugin", str(Path(__file__).resolve()))
    sys.exit(gpu.main(["--device", "fake", "--dirty", *plugins, *sys.argv[1:]]))
