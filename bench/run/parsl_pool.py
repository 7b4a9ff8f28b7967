"""Parsl's executors, as a file configures them."""

import runpy
import warnings
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.errors import UsageError, message
from kernelmark.bench.run.station import measure
from kernelmark.bench.run.task import TaskReply, failed

#: Errors of a task whose worker or whose node was lost, by Parsl's names; any other ends the executor for us.
LOST = ("ManagerLost", "WorkerLost")
#: Workers of an executor that does not count them.
WORKERS = 16


def load_config(path: str) -> Any:
    """Return `config` of a file. Raises UsageError where there is none that Parsl could use."""
    if reason := module_missing("parsl"):
        raise UsageError(f"--executor {path}: {reason}")
    import parsl

    try:
        found = runpy.run_path(path).get("config")
    except (Exception, SystemExit) as error:
        text = " ".join(message(error).split())
        raise UsageError(f"--executor {path}: cannot be run: {type(error).__name__}: {text}") from None
    if not isinstance(found, parsl.Config):
        what = "defines no `config`" if found is None else f"its `config` is of type {type(found).__name__}"
        raise UsageError(f"--executor {path}: {what}, expected `config = parsl.Config(...)`; see docs/cluster.md")
    return found


class ParslPool:
    """Parsl's executors, of which any measures any task. What fails is not tried again: the run decides on that."""

    def __init__(self, path: str) -> None:
        """Raises UsageError for a file that cannot be used, and for executors that do not begin to start."""
        config = load_config(str(Path(path)))
        config.retries = 0
        import parsl

        warnings.simplefilter("ignore")
        try:
            self._kernel = parsl.DataFlowKernel(config)
        except Exception as error:
            raise UsageError(f"--executor {path}: {failed(error).ended}") from None
        self._measure = parsl.python_app(measure, data_flow_kernel=self._kernel, cache=False)
        self._executors = [own for label, own in self._kernel.executors.items() if label != "_parsl_internal"]

    def submit(self, data: bytes) -> "Future[bytes]":
        """Measure a task by one of the executors."""
        found: Future[bytes] = self._measure(data)
        return found

    def answer(self, error: BaseException) -> TaskReply:
        """Return what an error of a task means."""
        if type(error).__name__ in LOST:
            return TaskReply(lost=" ".join(message(error).split()))
        return failed(error)

    def state(self) -> TaskReply:
        """Return how many workers are there, and what has become of the blocks."""
        states = "; ".join(f"{own.label}: {_state(own)}" for own in self._executors)
        return TaskReply(workers=sum(map(_workers, self._executors)), state=states)

    def close(self) -> None:
        """End what the executors have started, wherever it is."""
        self._kernel.cleanup()


def _workers(executor: Any) -> int:
    """Return how many workers are connected, as far as an executor counts them."""
    if hasattr(executor, "connected_managers"):
        with suppress(Exception):  # it does not answer while it starts or ends
            return sum(manager["worker_count"] for manager in executor.connected_managers())
        return 0
    return int(getattr(executor, "max_threads", WORKERS))


def _state(executor: Any) -> str:
    """Return the states of an executor's blocks, with the last line that one printed to standard error."""
    found = []
    for name, status in getattr(executor, "status_facade", {}).items():
        lines = (status.message or status.stderr_summary or "").strip().splitlines()
        found.append(f"block {name} is {status.state.name}" + (f" ({lines[-1].strip()})" if lines else ""))
    return ", ".join(found) or "no block has been asked for"
