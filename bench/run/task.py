"""What crosses between a run, its broker and the stations that measure for it.

A task is a comparison group. It goes to the broker as an order and from there to a station; what that has found comes
back as an answer.
"""

from typing import Any

import msgspec

from kernelmark.bench.measure.ceiling import Ceiling
from kernelmark.bench.measure.host import Host
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Plan, PlannedJob
from kernelmark.bench.plan.errors import message
from kernelmark.bench.plan.text import one_line


class Expected(msgspec.Struct):
    """The part of a task that every version of kernelmark reads: what its host must have alike, None for anything."""

    host: Host | None = None


class Task(Expected):
    """The jobs of a comparison group, all measured on one host; without jobs it asks for a plan.

    asked: the options of the plan, from which the station makes one for its machine; None where there is one.
    """

    plan: Plan | None = None
    jobs: list[PlannedJob] = []
    suites: list[str] = []
    asked: dict[str, Any] | None = None


class StationRows(msgspec.Struct):
    """What a station found: the rows of each job, the ceilings that they stand on, each with why it does not hold.

    refused: why nothing was measured, in one line.
    """

    host: Host
    rows: list[list[Measurement]] = []
    ceilings: list[tuple[Ceiling, str]] = []
    plan: Plan | None = None
    refused: str = ""


class Order(msgspec.Struct):
    """A task by its number."""

    number: int
    data: bytes


class TaskReply(msgspec.Struct):
    """What came of the task of a number, or with none the state of the executors.

    lost: why its worker gave no answer; another may. ended: why no task can be measured any more. workers: those that
    wait for tasks or measure. state: of what has not started, in words.
    """

    number: int | None = None
    data: bytes = b""
    lost: str = ""
    ended: str = ""
    workers: int = 0
    state: str = ""


def failed(error: BaseException) -> TaskReply:
    """Return that an executor goes on no more, with the reason in a line."""
    return TaskReply(ended=one_line(f"{type(error).__name__}: {' '.join(message(error).split())}"))
