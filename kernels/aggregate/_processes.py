"""Execute a plan in processes, one per worker, on arrays that all of them map."""

import numpy as np

from kernelmark import Array, Launch
from kernelmark.kernels.aggregate._steps import Plan, Step
from kernelmark.kernels.aggregate._team import Mapped, Order, Team, team_of
from kernelmark.kernels.aggregate._threads import Arrays, call_of, operands_of
from kernelmark.kernels.aggregate.problem import AggregateOperands, AggregateProblem


def in_processes(problem: AggregateProblem, x: AggregateOperands, plan: Plan) -> Launch:
    """Return a launch that executes a plan in w processes, including this one."""
    return _Carried(team_of(problem.w), operands_of(problem, x, plan), plan, problem.w)


class _Carried:
    """A launch of a plan; a team of processes keeps the plan and its arrays while this object lives."""

    def __init__(self, team: Team, arrays: Arrays, plan: Plan, w: int) -> None:
        self._team = team
        self._files, self._mapped = _mapped(arrays)
        self._arrays = arrays
        by_process = [[_step_of(phase, i) for phase in plan.phases] for i in range(w)]
        plain = {name: np.asarray(array) for name, array in arrays.items()}
        self._calls = [step and call_of(step, plain, step.start, step.stop) for step in by_process[0]]
        self._orders = [Order(self._mapped, steps) for steps in by_process[1:]]
        self._others = [[i for i, steps in enumerate(by_process[1:]) if steps[k]] for k in range(len(plan.phases))]
        self._number, self._generation = -1, 0
        self._introduce()

    def _introduce(self) -> None:
        self._number = self._team.take(self._orders, self._files)
        self._generation = self._team.generation

    def __call__(self) -> None:
        if not self._team.pids or self._generation != self._team.generation:
            self._introduce()
        for phase, call in enumerate(self._calls):
            self._team.begin(self._number, phase, self._others[phase])
            if call:
                call()
            self._team.wait(self._others[phase])

    def __del__(self) -> None:
        self._team.drop(self._number, self._generation)


def _step_of(phase: list[Step], i: int) -> Step | None:
    return phase[i] if i < len(phase) and phase[i].start < phase[i].stop else None


def _mapped(arrays: Arrays) -> tuple[list[int], dict[str, Mapped]]:
    """Return the descriptors of the files that contain the arrays, and each array's location."""
    files: list[int] = []
    places = {}
    for name, array in arrays.items():
        file, offset = _place(array)
        if file not in files:
            files.append(file)
        places[name] = Mapped(files.index(file), offset, array.shape, array.dtype.str)
    return files, places


def _place(array: Array) -> tuple[int, int]:
    """Return the file of an array in shared memory, and its offset in bytes."""
    file = array.file  # type: ignore[attr-defined]  # arrays of host_memory="shared" have one
    return file.fd, array.ctypes.data - file.base
