"""The broker, a separate process that passes tasks to an executor and returns their results.

Its first argument is the file that configures Parsl's executors. If this is "", the other arguments are the UUIDs of
GPUs, and each GPU gets a thread. A keeper (family.py) ends every process that the broker has started, so that nothing
on this host outlives the run. Interrupts from the terminal do not reach an executor.
"""

import os
import runpy
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.errors import UsageError, message
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.run.child import Channel, to_parent
from kernelmark.bench.run.station import measure

#: Seconds between two reports of the state of the executors.
TICK_S = 0.5
#: Parsl's names for the errors of a task whose worker or node was lost. Any other error ends the run.
LOST = ("ManagerLost", "WorkerLost")
#: The assumed number of workers of an executor that does not count them.
WORKERS = 16


class TaskReply(msgspec.Struct):
    """The result of a task, or the state of the executors.

    lost: why the task's worker gave no answer; the task can be repeated. ended: why no further task can be measured.
    workers: the number of workers that have started. state: the states of the executors' blocks.
    """

    data: bytes = b""
    lost: str = ""
    ended: str = ""
    workers: int = 0
    state: str = ""


class GpuPool:
    """A thread with a `Station` for each GPU of this machine; a task goes to the next free GPU."""

    def __init__(self, gpus: list[str]) -> None:
        """gpus: the UUIDs of the GPUs."""
        left, self._local, self._count = iter(gpus), threading.local(), len(gpus)
        self._threads = ThreadPoolExecutor(len(gpus), initializer=lambda: setattr(self._local, "gpu", next(left)))

    def submit(self, data: bytes) -> "Future[bytes]":
        return self._threads.submit(lambda: measure(data, self._local.gpu))

    def state(self) -> TaskReply:
        return TaskReply(workers=self._count)

    def close(self) -> None:
        """Drop the waiting tasks; the keeper ends the running ones."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def load_config(path: str) -> Any:
    """Return the variable `config` of a file. Raises UsageError if Parsl cannot use it."""
    if reason := module_missing("parsl"):
        raise UsageError(f"--executor {path}: {reason}")
    import parsl

    try:
        config = runpy.run_path(path).get("config")
    except (Exception, SystemExit) as error:
        text = " ".join(message(error).split())
        raise UsageError(f"--executor {path}: cannot be run: {type(error).__name__}: {text}") from None
    if not isinstance(config, parsl.Config):
        what = "defines no `config`" if config is None else f"its `config` is of type {type(config).__name__}"
        raise UsageError(f"--executor {path}: {what}, expected `config = parsl.Config(...)`; see docs/cluster.md")
    return config


class ParslPool:
    """Parsl's executors, each of which can measure any task. Failed tasks are repeated by the run, not by Parsl."""

    def __init__(self, path: str) -> None:
        """Start the executors that a file configures. Raises UsageError if the file is invalid or they do not start."""
        config = load_config(str(Path(path)))
        config.retries = 0
        import parsl

        warnings.simplefilter("ignore")
        try:
            self._kernel = parsl.DataFlowKernel(config)
        except Exception as error:
            raise UsageError(f"--executor {path}: {failed(error).ended}") from None
        self._measure = parsl.python_app(measure, data_flow_kernel=self._kernel, cache=False)
        self._executors = [executor for label, executor in self._kernel.executors.items() if label != "_parsl_internal"]

    def submit(self, data: bytes) -> "Future[bytes]":
        future: Future[bytes] = self._measure(data)
        return future

    def state(self) -> TaskReply:
        """Return the number of workers and the states of the blocks."""
        states = "; ".join(f"{executor.label}: {_state(executor)}" for executor in self._executors)
        return TaskReply(workers=sum(map(_workers, self._executors)), state=states)

    def close(self) -> None:
        """End all processes that the executors have started, on any host."""
        self._kernel.cleanup()


def _workers(executor: Any) -> int:
    """Return the number of an executor's connected workers, or an assumed number if it does not count them."""
    if hasattr(executor, "connected_managers"):
        with suppress(Exception):  # an executor does not answer while it starts or ends
            return sum(manager["worker_count"] for manager in executor.connected_managers())
        return 0
    return int(getattr(executor, "max_threads", WORKERS))


def _state(executor: Any) -> str:
    words = []
    for name, status in getattr(executor, "status_facade", {}).items():
        lines = (status.message or status.stderr_summary or "").strip().splitlines()
        words.append(f"block {name} is {status.state.name}" + (f" ({lines[-1].strip()})" if lines else ""))
    return ", ".join(words) or "no block has been requested"


def failed(error: BaseException) -> TaskReply:
    """Return the reply for an error, with the reason: either the task's worker was lost, or the run must end."""
    name, text = type(error).__name__, " ".join(message(error).split())
    return TaskReply(lost=text) if name in LOST else TaskReply(ended=one_line(f"{name}: {text}"))


def main(parent: Channel, config: str, gpus: list[str]) -> None:
    """Submit the parent's tasks and send back the results, until the parent closes the channel."""
    writer = ThreadPoolExecutor(1)  # a full pipe must not keep a task waiting

    def answer(number: int, reply: TaskReply) -> None:
        writer.submit(parent.send, number, reply)

    try:
        pool = ParslPool(config) if config else GpuPool(gpus)
    except UsageError as error:
        answer(0, TaskReply(ended=str(error)))
    else:
        with suppress(EOFError):
            _serve(pool, parent, answer)
        pool.close()
    writer.shutdown()
    os._exit(0)  # a normal exit would wait for the thread of a task that is being measured


def _serve(pool: GpuPool | ParslPool, parent: Channel, answer: Callable[[int, TaskReply], None]) -> None:
    due_s = 0.0
    while True:
        if now() >= due_s:
            answer(0, pool.state())
            due_s = now() + TICK_S
        if task := parent.receive(max(0.0, due_s - now())):
            try:
                pool.submit(bytes(task.body)).add_done_callback(partial(_done, task.number, answer))
            except Exception as error:
                answer(task.number, failed(error))


def _done(number: int, answer: Callable[[int, TaskReply], None], future: "Future[bytes]") -> None:
    error = future.exception()
    answer(number, failed(error) if error else TaskReply(future.result()))


if __name__ == "__main__":
    main(to_parent(), sys.argv[3], sys.argv[4:])
