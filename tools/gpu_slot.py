"""The process that carries out tasks on the device: `gpu.py` watches it, and starts another if it is lost.

All tasks share one set of workers, so that only tasks that need a fresh process start one. A task that may not end
before the slot does is skipped. A task that is cut off keeps its rows, but has no answer.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

import cudnn_table
import gpu_tasks
from agenda import Task
from agreement import NOT_FINISHED, compare
from counters import counters, sanitizer
from counters import table as table_of_counters
from kernelmark.bench.claims.evidence import planned
from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.lock import exclusive
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Entrant, Plan, PlannedJob
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.tables import status_line
from kernelmark.bench.run.ceilings import Known
from kernelmark.bench.run.crashes import Wary, Workers
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.session import Session, run_passes
from kernelmark.bench.selftest import clocks
from kernelmark.bench.selftest.finding import table

STORE = "results.db"


class Settings(msgspec.Struct, frozen=True):
    """The settings of a slot. left_out and barred: kernels that get no rows, by ids and by globs."""

    folder: str
    device: str = "cuda"
    plugins: tuple[str, ...] = ()
    left_out: dict[str, str] = {}
    barred: tuple[str, ...] = ()


class Question(msgspec.Struct, frozen=True):
    """Tasks of one kind for one run, or, without tasks, a question about the device.

    until_s: when the tasks have to end (monotonic clock). limit_s: seconds after which a silent process is ended.
    """

    settings: Settings
    until_s: float
    tasks: tuple[Task, ...] = ()
    limit_s: float = 60.0

    @property
    def answer_s(self) -> float:
        """Return the time when the answer is due: early, to keep finished parts if a later part takes too long."""
        return min(self.until_s, now() + 0.8 * self.limit_s)


class Reply(msgspec.Struct):
    """The reply to a question. done: a line per answered task; passed: no time to begin; cut: no time to finish."""

    done: dict[str, str] = {}
    failed: dict[str, str] = {}
    run: str = ""
    passed: bool = False
    cut: bool = False
    left_out: dict[str, str] = {}
    disagreeing: dict[str, str] = {}
    device: str = ""
    limits: dict[str, int] = {}


class _Cut(Exception):
    """The deadline came during a job."""


class _Deadline(Progress):
    """Raises _Cut at the deadline while a job waits for its worker; the worker and the job's rows are lost."""

    until_s = float("inf")

    def calls(self, entrant: Entrant, stage: str) -> None:
        if now() >= self.until_s:
            raise _Cut


class Slot:
    """The context that the tasks of a process share: the registry, workers, and kernels that are left out."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.folder = settings, Path(settings.folder)
        self.registry = gpu_tasks.without(discover(settings.plugins), settings.barred)
        self._deadline = _Deadline()
        self._workers = Workers(self._deadline)
        self._wary = Wary(self._workers.run, settings.left_out)
        self._known: Known = {}

    def carry_out(self, question: Question) -> Reply:
        self._deadline.until_s = question.until_s
        return KINDS.get(question.tasks[0].kind, Slot._measured)(self, question)

    def _measured(self, question: Question) -> Reply:
        first = question.tasks[0]
        if first.kind == "claim":
            plan, jobs = planned(first.detail, self.registry, ("cpu", self.settings.device))
            plan = msgspec.structs.replace(plan, spread_s=0.0)
        else:
            plan, jobs = gpu_tasks.jobs_of(question.tasks, self.registry, self.settings.plugins, self.settings.device)
        run, counted, whole = self.run(first.name, plan, jobs, question.until_s)
        if len(question.tasks) == 1:
            return Reply({first.name: counted} if whole else {}, run=run, cut=not whole, left_out=self._wary.left_out)
        asked_rows = {planned.suite: [self._rows.get(entrant) for entrant in planned.job.entrants] for planned in jobs}
        done = {name: status_line(Counter(filter(None, rows))) for name, rows in asked_rows.items() if all(rows)}
        return Reply(done, run=run, cut=not whole, left_out=self._wary.left_out)

    def run(self, name: str, plan: Plan, jobs: list[PlannedJob], until_s: float) -> tuple[str, str, bool]:
        """Measure jobs as a separate run; return its id, its statuses, and whether it was measured completely."""
        whole, self._rows = False, dict[Entrant, str]()
        with Store(self.folder / STORE) as store:
            session = Session(store, [], plan, self._wary, known=self._known, command=f"make gpu: {name}")
            with suppress(_Cut):  # the reply reports it
                whole = run_passes(session, lambda: jobs, self._keep, interrupted=lambda: now() >= until_s)
            session.finish()
        return session.run_id, status_line(session.tally), whole

    def _keep(self, row: Result) -> None:
        self._rows[Entrant(row.problem, row.kernel)] = row.status

    def _tuned(self, question: Question) -> Reply:
        """Time a kernel's tiles in one process, then the best tiles and the default in two more processes."""
        (task,) = question.tasks
        first = self._measured(question)
        if first.cut:
            return first
        with Store(self.folder / STORE, create=False) as store:
            timed = [r for r, _ in store.results(first.run) if r.time_s_median]
        best = sorted(timed, key=lambda r: r.time_s_median or 0.0)[: gpu_tasks.AGAIN]
        names = tuple(dict.fromkeys((task.kernels[0], *(r.kernel for r in best))))
        again = msgspec.structs.replace(task, kernels=names, processes=2)
        plan, jobs = gpu_tasks.jobs_of([again], self.registry, self.settings.plugins, self.settings.device)
        run, counted, whole = self.run(task.name, plan, jobs, question.until_s)
        text = f"{first.done[task.name]} in run {first.run}; the best tiles again: {counted}"
        return Reply({task.name: text} if whole else {}, run=run, cut=not whole, left_out=self._wary.left_out)

    def time_ways(self, question: Question) -> Reply:
        """Time work of known length through each way of launching; kernels of ways that time it wrongly get no rows."""
        found = dict(clocks.findings(question.answer_s))
        bad = {name: " ".join(clocks.WAYS[name].serves) for name, each in found.items() if each.holds is False}
        self._write("clocks.md", f"# Clocks\n\n```\n{table([*found.values()])}\n```\n")
        whole = len(found) == len(clocks.WAYS) or now() < question.until_s
        text = f"{len(found)} of {len(clocks.WAYS)} ways, {len(bad)} disagree or fail"
        return Reply({question.tasks[0].name: text} if whole else {}, cut=not whole, disagreeing=bad)

    def compared(self, question: Question) -> Reply:
        """Compare the emulator with the device on one case of each kernel.

        A kernel that takes too long has failed, unless the end of the slot left it too little time.
        """
        names, until_s = {task.kernels[0]: task.name for task in question.tasks}, question.answer_s
        verdicts = dict(line.split(": ", 1) for line in compare(list(names), until_s))
        lost = {names[kernel]: text for kernel, text in verdicts.items() if text.startswith(NOT_FINISHED)}
        done = {names[kernel]: text for kernel, text in verdicts.items() if names[kernel] not in lost}
        lines = [f"- {kernel}: {text}" for kernel, text in verdicts.items() if names[kernel] in done]
        self._append("emulator.md", "# Emulator and device\n", lines)
        failed = lost if until_s < question.until_s else {}
        return Reply(done, failed, cut=len(done) + len(failed) < len(names))

    def ask_cudnn(self, question: Question) -> Reply:
        return self._by(question, cudnn_table.write(self.folder, self._workers.run, lambda: now() >= question.until_s))

    def counted(self, question: Question) -> Reply:
        rows = counters(question.until_s, self.folder)
        self._write("counters.md", table_of_counters(rows))
        return self._by(question, f"{sum(not row.reason for row in rows)} of {len(rows)} kernels counted")

    def sanitized(self, question: Question) -> Reply:
        cuda_kernels = [kernel.id for kernel in self.registry.kernels.values() if isinstance(kernel, CudaKernel)]
        checks = sanitizer(cuda_kernels, question.until_s)
        self._append("sanitizer.md", "# compute-sanitizer\n", [f"- {check.line}" for check in checks])
        return self._by(question, f"{sum(check.errors == 0 for check in checks)} of {len(checks)} checks found nothing")

    def _by(self, question: Question, text: str) -> Reply:
        whole = now() < question.until_s
        return Reply({question.tasks[0].name: text} if whole else {}, cut=not whole)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def _append(self, name: str, head: str, lines: Sequence[str]) -> None:
        """Add lines on kernels to a file, replacing its earlier lines on the same kernels."""
        path = self.folder / name
        old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        known = {line.partition(": ")[0]: line for line in [*old, *lines] if line.startswith("- ")}
        self._write(name, "\n".join([head, *sorted(known.values())]) + "\n")


#: The methods for tasks that are more than the jobs of one run, by kind.
KINDS: dict[str, Callable[[Slot, Question], Reply]] = {
    "clocks": Slot.time_ways,
    "emulator": Slot.compared,
    "cudnn": Slot.ask_cudnn,
    "counters": Slot.counted,
    "sanitizer": Slot.sanitized,
    "tune": Slot._tuned,
}


def replies(questions: Sequence[object]) -> Iterator[Reply]:
    """Yield the reply to each question; an exception fails its question, with the reason; the other questions go on."""
    slot: Slot | None = None
    for question in msgspec.convert(questions, list[Question]):
        try:
            slot = slot or Slot(question.settings)
            yield _reply(slot, question)
        except Unsupported as error:
            yield Reply(failed={"": str(error)})
        except Exception as error:  # any exception, so that the other tasks go on
            words = str(error).splitlines()[0] if str(error) else "no message"
            names = [task.name for task in question.tasks] or [""]
            yield Reply(failed=dict.fromkeys(names, f"{type(error).__name__}: {words}"))


def _reply(slot: Slot, question: Question) -> Reply:
    if not question.tasks:
        device = get_device(slot.settings.device)
        return Reply(device=device.device_name, limits=vars(present_limits() if device.name == "cuda" else H100))
    in_time, ends = list[Task](), now() + gpu_tasks.FIRST_S.get(question.tasks[0].kind, 0.0)
    for task in question.tasks:
        ends += task.seconds
        if ends > question.until_s:
            break
        in_time.append(task)
    if not in_time:
        return Reply(passed=True)
    question = msgspec.structs.replace(question, tasks=tuple(in_time))
    with exclusive((slot.settings.device,), shared=False):
        return slot.carry_out(question)
