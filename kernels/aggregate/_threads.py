"""Execute a plan on threads, phase after phase; each step is cut into bands, one per thread."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernelmark import Array, Launch
from kernelmark.kernels._launches import in_bands, in_turn
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.aggregate._steps import Part, Plan, Step
from kernelmark.kernels.aggregate.problem import AggregateOperands, AggregateProblem

Arrays = Mapping[str, Array]


@threads_that_pay()
def on_threads(problem: AggregateProblem, x: AggregateOperands, plan: Plan) -> Launch:
    """Return a launch that executes a plan on `x.threads` threads."""
    arrays = {name: np.asarray(array) for name, array in operands_of(problem, x, plan).items()}
    return in_turn(*(_phase(phase, arrays, x.threads) for phase in plan.phases))


def operands_of(problem: AggregateProblem, x: AggregateOperands, plan: Plan) -> dict[str, Array]:
    """Return the operands and scratch arrays of a plan, by name."""
    arrays = {operand.name: getattr(x, operand.name) for operand in problem.operands()}
    for name, room in plan.rooms.items():
        dtype = np.dtype(room.dtype)
        raw = x.scratch((room.rows, -(-room.length * dtype.itemsize // 4)), "f32")
        arrays[name] = raw.view(dtype)[:, : room.length]
    return arrays


def call_of(step: Step, arrays: Arrays, start: int, stop: int) -> Launch:
    """Return a compiled call of a step's function on the elements start:stop."""
    from kernelmark.kernels._numba import bind

    return bind(_function(step.function), *(_given(arrays, each) for each in step.arguments), start, stop)


def _function(name: str) -> Callable[..., None]:
    from kernelmark.kernels.aggregate import _blocks, _numba

    function: Callable[..., None] = getattr(_numba if hasattr(_numba, name) else _blocks, name)
    return function


def _given(arrays: Arrays, argument: Any) -> Any:
    if isinstance(argument, Part):
        array = arrays[argument.name]
        return (array if argument.row is None else array[argument.row])[argument.first : argument.last]
    return tuple(_given(arrays, each) for each in argument) if isinstance(argument, tuple) else argument


def _phase(phase: list[Step], arrays: Arrays, threads: int) -> Launch:
    def band(first: int, last: int) -> Launch:
        return in_turn(*(call for i in range(first, last) for call in _bands(phase, arrays, i, threads)))

    return in_bands(threads, threads, band)


def _bands(phase: list[Step], arrays: Arrays, i: int, threads: int) -> list[Launch]:
    """Return thread i's share of each step of a phase."""
    launches = []
    for step in phase:
        start, stop = ends(step, i, threads)
        if start < stop:
            launches.append(call_of(step, arrays, start, stop))
    return launches


def ends(step: Step, i: int, parts: int) -> tuple[int, int]:
    """Return the first and the end element of band i if a step is cut into `parts` bands at multiples of its grain."""
    grains = -(-(step.stop - step.start) // step.grain)
    first, last = (min(step.stop, step.start + grains * k // parts * step.grain) for k in (i, i + 1))
    return first, last
