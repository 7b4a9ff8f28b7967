"""Measure a run with an executor: pass each comparison group of jobs to the broker as a task, and store the rows.

Only this process writes to the store, one job at a time, so that stored rows survive if a worker is killed.
"""

import os
import sys
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from kernelmark.bench.measure.host import Host
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import PlannedJob
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.shards import group_of
from kernelmark.bench.plan.signals import interruptible
from kernelmark.bench.record.store import Store, resuming
from kernelmark.bench.run.broker import TaskReply
from kernelmark.bench.run.child import Child
from kernelmark.bench.run.crashes import KILLS
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.run.session import Notify, Session, ignore_row
from kernelmark.bench.run.station import StationRows, Task

#: The longest time, in seconds, until an interrupt is noticed, and until an executor has shut down.
TICK_S, CLOSE_S = 0.25, 20.0


class Broker(AbstractContextManager["Broker", None]):
    """The process that passes tasks to an executor; it takes tasks in order, and answers in any order."""

    def __init__(self, config: str, gpus: Sequence[str]) -> None:
        """config: the file that configures Parsl's executors, or "" for a worker on each of these GPUs."""
        self.workers, self.state = 0, "has not answered"
        # Parsl looks for its scripts on PATH, which lacks a virtual environment's folder unless it is activated.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        self._child = Child("kernelmark.bench.run.broker", config, *gpus, variables={"PATH": path})

    def __exit__(self, *_: object) -> None:
        self._child.close(CLOSE_S)

    def ask(self, task: Task) -> int:
        return self._child.ask(task)

    def answer(self, within_s: float) -> tuple[int, TaskReply] | None:
        """Return an answer and its task's number, or None after `within_s`. Raises UsageError if the broker ended."""
        until_s = now() + within_s
        while True:
            try:
                message = self._child.receive(max(0.0, until_s - now()))
                if message is None:
                    return None
                answer = msgspec.msgpack.decode(message.body, type=TaskReply)
            except (EOFError, msgspec.DecodeError):
                raise UsageError(f"the executor's process has ended{self._child.said()}") from None
            if answer.ended:
                raise UsageError(answer.ended)
            if message.number:
                return message.number, answer
            self.workers, self.state = answer.workers, answer.state


def first_answer(broker: Broker, task: Task, within_s: float) -> StationRows:
    """Return the answer of an executor's first worker. Raises UsageError if none answers in time."""
    broker.ask(task)
    answer = broker.answer(within_s)
    if answer is None:
        remedy = "--start-timeout allows more"
        raise UsageError(f"no worker of the executor has started within {within_s:g} s: {broker.state}; {remedy}")
    return _rows_in(answer[1])


def _rows_in(answer: TaskReply) -> StationRows:
    if answer.lost:
        raise UsageError(f"the executor's first worker was lost: {answer.lost}")
    try:
        rows = msgspec.msgpack.decode(answer.data, type=StationRows)
    except msgspec.ValidationError as error:
        raise UsageError(f"a host seems to have another version of kernelmark: {error}") from None
    if rows.refused:
        raise UsageError(f"host {rows.host.host}: {rows.refused}")
    return rows


class Dispatch:
    """Measures a run with the workers of a broker."""

    def __init__(self, session: Session, store: Store, broker: Broker) -> None:
        self._session, self._store, self._broker = session, store, broker
        self._hosts = {host.host for host in store.hosts(session.run_id)}
        #: The jobs of each comparison group as planned, each with the part of it that has no row yet.
        self._groups: list[list[tuple[PlannedJob, PlannedJob]]] = []
        self._losses: Counter[int] = Counter()
        self._lost = ""

    def run(
        self,
        jobs: Iterable[PlannedJob],
        expected: Host,
        notify: Notify = ignore_row,
        progress: Progress | None = None,
    ) -> bool:
        """Measure everything; return True unless interrupted. After a signal, groups that have begun are finished.

        expected: the properties that all hosts must share. Raises UsageError if the executor has ended.
        """
        progress = progress or Progress()
        self._plan_groups(jobs, progress)
        try:
            with interruptible(finish_s=0) as interrupted:
                waiting, at_work = deque(range(len(self._groups))), dict[int, int]()
                while at_work or (waiting and not interrupted()):
                    while waiting and not interrupted() and len(at_work) <= 2 * self._broker.workers:
                        group = waiting.popleft()
                        left = [part for _, part in self._groups[group]]
                        for planned in left:
                            progress.begins(planned, 1)
                        at_work[self._broker.ask(Task(expected, self._session.plan, left))] = group
                    if answered := self._broker.answer(TICK_S):
                        group = at_work.pop(answered[0])
                        if not self._take(group, answered[1], notify, progress):
                            waiting.appendleft(group)
                if given_up := sum(losses >= KILLS for losses in self._losses.values()):
                    raise UsageError(f"{given_up} comparison groups lost their worker {KILLS} times: {self._lost}")
                if not waiting:
                    self._session.finish()
                return not waiting
        except UsageError as error:
            remedy = f"rows recorded so far are safe: {resuming(self._session.run_id, self._store.path)}"
            raise UsageError(f"{error}; {remedy}") from None

    def _plan_groups(self, jobs: Iterable[PlannedJob], progress: Progress) -> None:
        groups: dict[str, list[tuple[PlannedJob, PlannedJob]]] = {}
        for planned in jobs:
            self._session.note(planned)
            left = self._session.missing(planned)
            if left is None:
                progress.ends(planned, 1)
                continue
            groups.setdefault(group_of(planned.job.problems[0]), []).append((planned, left))
        self._groups = list(groups.values())

    def _take(self, group: int, answer: TaskReply, notify: Notify, progress: Progress) -> bool:
        """Record the rows of a group; return False if its worker was lost and the group must be measured again."""
        if answer.lost:
            self._losses[group] += 1
            self._lost = answer.lost
            return self._losses[group] >= KILLS
        answered = _rows_in(answer)
        if answered.host.host not in self._hosts:
            self._store.add_host(self._session.run_id, answered.host)
            self._hosts.add(answered.host.host)
        for ceiling, doubt in answered.ceilings:
            self._store.add_ceiling(self._session.run_id, ceiling)
            if doubt:
                self._store.doubt_ceiling(self._session.run_id, ceiling, doubt)
        for (whole, left), rows in zip(self._groups[group], answered.rows, strict=True):
            for result, _ in self._session.record(left, rows):
                notify(result)
            progress.ends(whole, 1)
        return True
