"""The worker process, which takes jobs from its parent and returns their rows until there are no more."""

import os
import sys
from contextlib import suppress
from functools import partial

import msgspec

from kernelmark.bench.measure.affinity import children_of, pin, set_keeper
from kernelmark.bench.measure.board import Board
from kernelmark.bench.measure.device import DeviceLost
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.monitor import OTHERS_CPUS, has_children
from kernelmark.bench.measure.timing import awake_cpus, now, pause
from kernelmark.bench.plan.case import Entrant, Job, WorkerKey
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import REGISTRY
from kernelmark.bench.plan.replaced import replaced
from kernelmark.bench.run.child import Channel, to_parent
from kernelmark.bench.run.job import Show, run_job
from kernelmark.bench.run.progress import Glimpse

#: Before a job is answered, processes that its calls have forked get this many seconds to end or to return.
FORKED_S, _PAUSE_S = 0.25, 2e-3


class Reply(msgspec.Struct):
    """A job's rows, or why it was refused, or which contender made the device unusable and how.

    glimpses: provisional times, sent before the final reply. replaced: the library functions that plug-ins have
    replaced. If there are any, the reply has no rows, and the contenders `ours` must be measured without plug-ins.
    is_awake: calls have left threads running, which would disturb the worker's next job.
    """

    rows: list[Measurement] = []
    refused: str = ""
    lost: tuple[Entrant, str] | None = None
    glimpses: list[Glimpse] = []
    replaced: str = ""
    ours: list[Entrant] = []
    is_awake: bool = False


def main(parent: Channel, board: Board, key: WorkerKey) -> None:
    """Run jobs until there are no more, or until a kernel has made the device unusable."""
    if key.device != "cuda":  # host threads of GPU kernels may run on any CPU
        pin(key.threads)
    set_keeper(os.getppid())
    known: set[str] = set()
    while message := parent.receive():
        job = msgspec.msgpack.decode(message.body, type=Job)
        reply = _answer(job, board, partial(_show, parent, message.number))
        reply.is_awake = bool(job.entrants) and awake_cpus() > OTHERS_CPUS
        known = _let_return(board, known)
        parent.send(message.number, reply)
        if reply.lost:
            os._exit(0)  # a normal exit would use the lost device again


def _let_return(board: Board, known: set[str]) -> set[str]:
    """Give forked children a moment to return from the call (the board records this); return those still running."""
    forked, until_s = set[str](), now() + FORKED_S
    while has_children() and not board.returned_twice():
        forked = set(children_of("self"))
        if forked <= known or now() > until_s:
            break
        pause(_PAUSE_S)
    return forked


def _show(parent: Channel, number: int, glimpses: list[Glimpse]) -> None:
    parent.send(number, Reply(glimpses=glimpses))


def _answer(job: Job, board: Board, show: Show) -> Reply:
    try:
        run_job(job.only(()), board)  # loads the plug-ins
        kernels = REGISTRY.kernels
        ours = [e for e in job.entrants if not job.ours and e.kernel in kernels and kernels[e.kernel].is_ours]
        if ours and (replacements := replaced()):
            return Reply(replaced=replacements, ours=ours)
        rows = run_job(job, board, show)
        if ours and (replacements := replaced()):  # a set-up or a call has replaced them
            return Reply(replaced=replacements, ours=ours)
        return Reply(rows)
    except UsageError as error:
        return Reply(refused=str(error))
    except DeviceLost as error:
        return Reply(lost=(error.entrant, error.reason))


if __name__ == "__main__":
    with suppress(EOFError):
        main(to_parent(), Board(int(sys.argv[3])), msgspec.json.decode(sys.argv[4], type=WorkerKey))
