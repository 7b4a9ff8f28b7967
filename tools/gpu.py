"""`make gpu` measures an NVIDIA GPU by its agenda, and `make gpu-plan` prints what it would do, without a GPU.

The report is `${OUT:-reports}/<device>/` and grows: each slot continues where the last one ended. Tasks run in a
separate process, which this one watches without touching the device. The agenda is saved after each task. At SIGTERM or
the deadline, the results so far are published. The exit status is 0 if no task failed and no row counts against its
kernel, 1 if one did, 2 if there is no GPU or the tree is dirty, 143 after SIGTERM.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tabulate import tabulate

import agenda
import gpu_report
from agenda import Agenda, Answer, Task
from gpu_slot import Question, Reply, Settings
from gpu_tasks import BATCHED, Tasks, without
from kernelmark.bench.measure.compile import compile_ahead
from kernelmark.bench.measure.launch import programs
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.report.format import count
from kernelmark.bench.report.publish import folder_name
from kernelmark.bench.run.child import Lost, answers
from kernelmark.bench.run.commit import git_commit, write_commit_file

ROOT = Path(__file__).resolve().parents[1]
MADE = ROOT / "build" / "tasks.json"
DEADLINE_S = 540.0
#: Seconds reserved for publishing. A task is ended after SLACK times its expected seconds plus LEAST_S.
PUBLISH_S, SLACK, LEAST_S = 20.0, 3.0, 20.0
DEVICE_S = 60.0
#: Kinds of tasks whose parts run in separate watched processes, and the additional seconds until such a task is ended.
WATCHED, WATCHED_S = ("clocks", "emulator"), 100.0
#: The most tasks and expected seconds in a question, since a slot that is cut off loses its current question. The most
#: questions in a slot, since they are arguments of a command.
MOST, MOST_S, QUESTIONS = 40, 70.0, 300


def main(words: Sequence[str] = ()) -> int:
    options = _options(words)
    try:
        if options.plan:
            print(planned_text(options))
            return 0
        if git_commit().endswith("-dirty") and not options.dirty:
            raise UsageError("the tree has changes that are not committed; commit them, or measure with --dirty")
        return measure(options)
    except UsageError as error:
        print(f"make gpu: {error}", file=sys.stderr)
        return 2


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu", description="Measure a GPU by its agenda.")
    parser.add_argument("--plan", action="store_true", help="print what a slot would do, and compile for it")
    parser.add_argument("--out", type=Path, default=os.environ.get("OUT") or ROOT / "reports", help="folder of reports")
    parser.add_argument("--deadline", type=float, default=DEADLINE_S, help="seconds until the report is written")
    parser.add_argument("--device", default="cuda", help="the device to measure")
    parser.add_argument("--name", default="NVIDIA H200", help="the device whose agenda --plan reads")
    parser.add_argument("--only", action="append", metavar="WORDS", help="only tasks whose names contain these words")
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE.py", help="a file with more kernels")
    parser.add_argument("--dirty", action="store_true", help="measure a tree that has changes; the report shows it")
    parser.add_argument("--identify", action="store_true", help="keep host names, user names and UUIDs")
    return parser.parse_args(words)


class Made(msgspec.Struct):
    """Tasks that `--plan` has made for a commit and a device's limits, since making them takes seconds of a slot."""

    commit: str
    limits: dict[str, int]
    tasks: list[Task]


def tasks_of(options: argparse.Namespace, limits: DeviceLimits, agenda_: Agenda) -> list[Task]:
    """Return the tasks of a device, with the seconds that they took before, if known."""
    commit, made, globs = git_commit(), None, barred(agenda_)
    if not (options.plan or globs or options.plugin or commit.endswith("-dirty")) and MADE.is_file():
        made = msgspec.json.decode(MADE.read_bytes(), type=Made)
    if made is None or (made.commit, made.limits) != (commit, vars(limits)):
        making = Tasks(without(discover(options.plugin), globs), limits, options.device)
        made = Made(commit, vars(limits), making.all())
        print("".join(f"make gpu: {line}\n" for line in making.refused), end="", file=sys.stderr)
        if options.plan:
            MADE.parent.mkdir(parents=True, exist_ok=True)
            MADE.write_bytes(msgspec.json.encode(made))
    return agenda.timed(made.tasks, agenda_)


def wanted(tasks: Sequence[Task], options: argparse.Namespace) -> list[Task]:
    return [task for task in tasks if any(words in task.name for words in options.only or [""])]


def barred(agenda_: Agenda) -> tuple[str, ...]:
    """Return globs of the kernels whose way of launching has wrong timing."""
    return tuple(glob for globs in agenda_.disagreeing.values() for glob in globs.split())


def planned_text(options: argparse.Namespace) -> str:
    """Return the tasks of a slot in order, as text, and compile their kernels ahead of time."""
    agenda_ = agenda.read(options.out / folder_name(options.name), options.name)
    limits = DeviceLimits(**agenda_.limits) if agenda_.limits else H100
    tasks = wanted(tasks_of(options, limits, agenda_), options)
    slot = agenda.slot(tasks, agenda_, options.deadline - PUBLISH_S)
    lines = list(map(_line, _questions(slot.chosen, agenda_)))
    shown = tabulate(lines, ("task", "time", "by", "value"), tablefmt="plain", disable_numparse=True)
    counts = ", ".join(f"{n} {state}" for state, n in agenda.tally(tasks, agenda_).items())
    left = f"{len(slot.left)} more are left: {sum(task.seconds for task in slot.left) / 60:.0f} minutes"
    head = f"{options.name}, a slot of {options.deadline:g} s: {len(slot.chosen)} tasks, {slot.seconds:.0f} s"
    return f"{head}; {counts}\n\n{shown}\n\n{left}\n{_prepared(slot.chosen, limits)}"


def _line(batch: Sequence[Task]) -> tuple[str, ...]:
    """Return a line on tasks that share a question: names, time, the basis of the first task's time, and value."""
    first, *others = batch
    name = first.name + f" and {len(others)} more" * bool(others)
    value, seconds = (sum(getattr(task, field) for task in batch) for field in ("value", "seconds"))
    return name, f"{seconds:.1f} s", "assumed: " * first.assumed + first.basis, f"{value:g}"


def _prepared(tasks: Sequence[Task], limits: DeviceLimits) -> str:
    """Compile the tasks' kernels into build/cubins, write the commit's file, and return a line on both."""
    compiled, failed = _compiled(tasks, limits)
    commit = write_commit_file(ROOT)
    lines = [f"{count(compiled, 'program')} for {limits.arch} are in build/cubins."]
    return "\n".join([*lines, f"Copy build/cubins, build/tasks.json and build/commit ({commit[:12]}), too.", *failed])


def _compiled(tasks: Sequence[Task], limits: DeviceLimits) -> tuple[int, list[str]]:
    registry = discover()
    named = ((name, registry.named(name)) for name in dict.fromkeys(k for task in tasks for k in task.kernels))
    kernels = {name: kernel for name, kernel in named if isinstance(kernel, CudaKernel)}
    pairs = dict.fromkeys((k, p) for task in tasks for k in task.kernels for p in task.problems if k in kernels)
    taken = ((kernels[k], registry.problem(p)) for k, p in pairs)
    builds = programs([(kernel, [problem]) for kernel, problem in taken if kernel.op == problem.op], limits)
    return len(builds), compile_ahead(builds, limits.arch)


class Measuring:
    """A slot: sends questions to the watched process one after another, and records the answers in the agenda."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.began, self.until_s = now(), now() + options.deadline - min(PUBLISH_S, 0.1 * options.deadline)
        self.stopped = False
        self.left: list[str] = []
        self.ended: dict[str, Answer] = {}
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)

    def _stop(self, *signal_: Any) -> None:
        self.stopped = True

    def device(self, settings: Settings) -> Reply:
        """Return the process's reply about the device. Raises UsageError if there is none."""
        for _, reply in self._ask([Question(settings, now() + DEVICE_S, limit_s=DEVICE_S)]):
            if "" in reply.failed:
                raise UsageError(reply.failed[""])
            return reply
        raise UsageError("no answer from the device")

    def use(self, folder: Path, settings: Settings, agenda_: Agenda, tasks: Sequence[Task]) -> bool:
        """Carry out the open tasks, those with the highest value per second first; save the agenda after each answer.

        Return False as soon as other ways of launching count as wrongly timed, since this changes the tasks; else True.
        """
        batches = _questions(agenda.ordered(tasks, agenda_), agenda_)[:QUESTIONS]
        questions = [Question(settings, self.until_s, tuple(batch), _limit_s(batch)) for batch in batches]
        began = now()
        for question, reply in self._ask(questions):
            seconds, began = now() - began, now()
            self._take(question, reply, seconds, agenda_)
            agenda.save(folder, agenda_)
            if barred(agenda_) != settings.barred:
                self.left.clear()  # the tasks are made anew
                return False
        told = {*self.ended, *self.left}
        self.left += [task.name for batch in batches for task in batch if task.name not in told]
        return True

    def _take(self, question: Question, reply: Reply, seconds: float, agenda_: Agenda) -> None:
        if reply.passed or reply.cut:
            self.left += [task.name for task in question.tasks if task.name not in reply.done | reply.failed]
        agenda.leave_out(agenda_, question.tasks, reply.left_out)
        if question.tasks[0].kind == "clocks" and reply.done:
            agenda_.disagreeing = reply.disagreeing  # ways that agree now are allowed again
        ended = [task for task in question.tasks if task.name in reply.done or task.name in reply.failed]
        # the time of a task that was cut off is unknown, and so are the times of the others
        share = 0.0 if reply.cut else seconds / max(sum(task.seconds for task in ended), 1e-3)
        for task in question.tasks:
            text = reply.done.get(task.name, reply.failed.get(task.name))
            if text is not None:
                failed, seconds_ = task.name not in reply.done, share * task.seconds
                self.ended[task.name] = agenda.answer(agenda_, task, text, failed, reply.run, seconds_)
        if not reply.passed:
            lines = reply.failed or reply.done
            first = next(iter(lines.items()), (question.tasks[0].name, "cut off at the deadline"))
            more = f" (+{len(lines) - 1})" if len(lines) > 1 else ""
            print(f"make gpu: {seconds:.1f} s: {': '.join(first)}{more}", flush=True)

    def _ask(self, questions: Sequence[Question]) -> Iterator[tuple[Question, Reply]]:
        """Yield each question with its reply; if the process is lost, the question's tasks have failed."""
        hard_s = self.until_s + 0.02 * self._options.deadline
        for question, reply in answers("gpu_slot", questions, lambda q: q.limit_s, hard_s, lambda: self.stopped):
            if isinstance(reply, Lost):
                ended = self.stopped or now() >= self.until_s
                names = [task.name for task in question.tasks] or [""]
                yield question, Reply(cut=True) if ended else Reply(failed=dict.fromkeys(names, reply.reason))
            else:
                yield question, msgspec.convert(reply, Reply)


def _limit_s(tasks: Sequence[Task]) -> float:
    return LEAST_S + SLACK * sum(task.seconds for task in tasks) + WATCHED_S * (tasks[0].kind in WATCHED)


def _questions(tasks: Sequence[Task], agenda_: Agenda) -> list[list[Task]]:
    """Return the tasks in order, in batches: each has a task and as many later tasks as fit and may share its run.

    A task that failed before is tried alone, since another task may have caused the failure.
    """

    def key(task: Task) -> str:
        before = agenda_.answers.get(task.name)
        if task.kind not in BATCHED or (before and before.state == "failed"):
            return task.name
        return f"{task.kind} {task.launcher} {task.mode} {task.processes} {task.max_time_s}"

    batches, last = list[list[Task]](), dict[str, list[Task]]()
    for task in tasks:
        batch = last.get(key(task))
        if not batch or len(batch) == MOST or sum(other.seconds for other in (*batch, task)) > MOST_S:
            batch = last[key(task)] = []
            batches.append(batch)
        batch.append(task)
    return batches


def measure(options: argparse.Namespace) -> int:
    measuring = Measuring(options)
    settings = Settings("", options.device, tuple(map(os.path.abspath, options.plugin)))
    device = measuring.device(settings)
    folder = Path(options.out, folder_name(device.device)).absolute()
    agenda_ = agenda.read(folder, device.device)
    agenda_.limits = device.limits
    agenda.save(folder, agenda_)
    print(f"make gpu: {folder}", flush=True)
    is_done = False
    while not is_done:
        every = tasks_of(options, DeviceLimits(**device.limits), agenda_)
        tasks = wanted(every, options)
        if options.device == "cuda":  # compile here on all CPUs, not one by one while the device waits
            _compiled(agenda.slot(tasks, agenda_, options.deadline).chosen, DeviceLimits(**device.limits))
        changes = {"folder": str(folder), "left_out": agenda.left_out(tasks, agenda_), "barred": barred(agenda_)}
        is_done = measuring.use(folder, msgspec.structs.replace(settings, **changes), agenda_, tasks)
    slot = gpu_report.SlotFacts(options.deadline, now() - measuring.began, list(measuring.ended), measuring.left)
    gpu_report.publish(folder, agenda_, every, slot, identify=options.identify)
    if measuring.stopped:
        return 128 + signal.SIGTERM
    return 1 if gpu_report.against(folder, agenda_) or any(a.state == "failed" for a in measuring.ended.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
