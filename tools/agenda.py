"""The agenda of a device: the tasks to be measured, their values, and their answers.

`reports/<device>/agenda.json` holds the answers; the tasks are generated from the sources each time (gpu_tasks.py). A
task is open until its digest (of the code that it measures) has an answer, so a changed kernel opens only its tasks.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import readable, replacing
from kernelmark.bench.plan.text import indented

SCHEMA = 1
FILE = "agenda.json"
#: How often a task may fail at one digest before it counts as answered.
TRIES = 2
#: The share of its value that a task keeps if an earlier answer, at an unknown digest, exists.
SEEN = 0.25


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the agenda. value: relative worth of its answer; seconds: expected device time.

    kind: selects the code that carries it out. basis: the source of `seconds`; assumed: whether `basis` is a rule, not
    an earlier run. problems, kernels, processes, mode, max_time_s: the jobs, if jobs measure it. baseline: the kernel
    that the others are compared with. group: the heading of its rows in the report. detail: data for its kind.
    """

    name: str
    kind: str
    value: float
    digest: str
    seconds: float
    basis: str = ""
    assumed: bool = True
    problems: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    mode: str = "hot"
    processes: int = 1
    max_time_s: float = 0.15
    baseline: str = ""
    launcher: str = "cuda-core"
    group: str = ""
    detail: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a task. state: `done`, or `failed` with the reason in `text`; run: the run with its rows, or "".

    digest: the task's digest when it was carried out, or "" if that is unknown, which leaves the task open.
    """

    digest: str
    state: Literal["done", "failed"] = "done"
    run: str = ""
    at: str = ""
    seconds: float = 0.0
    expected_s: float = 0.0
    assumed: bool = True
    text: str = ""
    tries: int = 1


class LeftOut(msgspec.Struct, frozen=True):
    """Why a kernel is not called again. task, digest: the task in which it crashed workers, and the task's digest."""

    reason: str
    task: str
    digest: str


class Agenda(msgspec.Struct, kw_only=True):
    """The state of all tasks of a device.

    limits: the device's limits, for the digests of tasks that are planned without the device. left_out: kernels that
    crashed two workers, with the reason. disagreeing: the ways of launching whose timing is wrong, with globs of the
    kernels that they launch. notes: handwritten notes at the top of the report.
    """

    schema: int = SCHEMA
    device: str = ""
    limits: dict[str, int] = {}
    answers: dict[str, Answer] = {}
    left_out: dict[str, LeftOut] = {}
    disagreeing: dict[str, str] = {}
    notes: list[str] = []


def read(folder: Path, device: str = "") -> Agenda:
    """Return the agenda of a report's folder, or an empty one if the folder has none. Raises UsageError."""
    path = folder / FILE
    if not path.exists():
        return Agenda(device=device)
    with readable(path):
        data = path.read_bytes()
    try:
        schema = msgspec.json.decode(data, type=dict[str, object]).get("schema")
        if schema != SCHEMA:
            raise UsageError(f"{path}: its schema is {schema}, expected {SCHEMA}; use the version that wrote it")
        agenda = msgspec.json.decode(data, type=Agenda)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {error}; expected an agenda as `make gpu` writes it") from None
    if device and agenda.device != device:
        raise UsageError(f"{path}: is for {agenda.device}, expected {device}; --out names another folder for reports")
    return agenda


def save(folder: Path, agenda: Agenda) -> None:
    with replacing(folder / FILE, "--out names another folder for reports") as beside:
        beside.write_text(indented(agenda, 1) + "\n", encoding="utf-8")


def is_open(task: Task, agenda: Agenda) -> bool:
    """Return whether a task has no answer at its digest and has not failed TRIES times."""
    last = agenda.answers.get(task.name)
    if last is None or last.digest != task.digest:
        return True
    return last.state == "failed" and last.tries < TRIES


def timed(tasks: Iterable[Task], agenda: Agenda) -> list[Task]:
    """Return the tasks, with `seconds` replaced by the time that a task took before, if it was measured."""
    known = {name: a.seconds for name, a in agenda.answers.items() if a.state == "done" and a.seconds}
    return [
        msgspec.structs.replace(task, seconds=known[task.name], assumed=False, basis="the time that it took before")
        if task.name in known
        else task
        for task in tasks
    ]


class Slot(NamedTuple):
    """The open tasks chosen for a given time on a device, and those that do not fit, sorted by value per second."""

    chosen: list[Task]
    left: list[Task]

    @property
    def seconds(self) -> float:
        return sum(task.seconds for task in self.chosen)


def slot(tasks: Sequence[Task], agenda: Agenda, seconds: float) -> Slot:
    chosen: list[Task] = []
    left: list[Task] = []
    for task in ordered(tasks, agenda):
        fits = task.seconds <= seconds
        (chosen if fits else left).append(task)
        seconds -= task.seconds * fits
    return Slot(chosen, left)


def ordered(tasks: Sequence[Task], agenda: Agenda) -> list[Task]:
    def worth(task: Task) -> float:
        last = agenda.answers.get(task.name)
        share = SEEN if last is not None and not last.digest else 1.0
        return share * task.value / max(task.seconds, 1e-3)

    return sorted((task for task in tasks if is_open(task, agenda)), key=lambda task: (-worth(task), task.name))


def answer(agenda: Agenda, task: Task, text: str, failed: bool = False, run: str = "", seconds: float = 0.0) -> Answer:
    """Record the outcome of a task that took some seconds, and count its failures at one digest."""
    before = agenda.answers.get(task.name)
    failures = before.tries if before and (before.digest, before.state) == (task.digest, "failed") else 0
    agenda.answers[task.name] = Answer(
        digest=task.digest, state="failed" if failed else "done", run=run, at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        seconds=round(seconds, 2), expected_s=round(task.seconds, 2), assumed=task.assumed, text=text,
        tries=failures + 1 if failed else 1,
    )  # fmt: skip
    return agenda.answers[task.name]


def leave_out(agenda: Agenda, tasks: Sequence[Task], reasons: Mapping[str, str]) -> None:
    """Note kernels that crashed in one of these tasks; a kernel that is already noted keeps its first reason."""
    for kernel, reason in reasons.items():
        if kernel not in agenda.left_out:
            task = next((task for task in tasks if kernel in task.kernels), tasks[0])
            agenda.left_out[kernel] = LeftOut(reason, task.name, task.digest)


def left_out(tasks: Iterable[Task], agenda: Agenda) -> dict[str, str]:
    """Forget left-out kernels whose task has a new digest; return the others, with the reasons."""
    present = {task.name: task.digest for task in tasks}
    for kernel, crash in list(agenda.left_out.items()):
        if present.get(crash.task, crash.digest) != crash.digest:
            del agenda.left_out[kernel]
    return {kernel: crash.reason for kernel, crash in agenda.left_out.items()}


def tally(tasks: Sequence[Task], agenda: Agenda) -> Mapping[str, int]:
    counts = {"answered": 0, "failed": 0, "open": 0}
    for task in tasks:
        last = agenda.answers.get(task.name)
        state = "open" if is_open(task, agenda) else "failed" if last and last.state == "failed" else "answered"
        counts[state] += 1
    return counts
