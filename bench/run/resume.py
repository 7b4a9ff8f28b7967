"""Taking a run up again: only as it began, with the same plan on the same machine."""

from collections.abc import Iterator
from socket import gethostname
from typing import Any

import msgspec

from kernelmark.bench.measure.lock import held_run
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.store import Run, Store


def plan_of(store: Store, run_id: str) -> Plan:
    """Return what the run was asked for. Raises UsageError for a run that cannot be taken up."""
    found = store.run(run_id)
    _refuse_merged(found)
    try:
        plan = msgspec.convert(found.plan, Plan)
    except msgspec.ValidationError as error:
        raise UsageError(f"--resume {found.run_id}: its plan is damaged: {error}; start a new run") from None
    if plan.tunes:
        remedy = "the command that began the tuning goes on with it"
        raise UsageError(f"--resume {found.run_id}: is a run of `kernelmark tune`; {remedy}")
    if not plan.suites:
        raise UsageError(f"--resume {found.run_id}: the run has no record of its suites; name them")
    return plan


def taken_up(store: Store, run_id: str, now: Run, noisy_again: bool = False) -> Run:
    """The run of this id, if going on with it would measure the same thing in the same place. Raises UsageError.

    noisy_again: it then goes on with what was disturbed, too.
    """
    store.require_sound()
    before = store.run(run_id)
    _refuse_merged(before)
    _refuse_other_host(store, before)
    found = [
        *_differences("machine", before.machine, now.machine),
        *_differences("environment", before.environment, now.environment),
        *_differences("commit", before.git_commit, now.git_commit),
        *_differences("suites", list(before.suites), list(now.suites)),
        *_differences("plan", before.plan, now.plan),
    ]
    if found:
        what = "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
        raise UsageError(f"--resume {before.run_id}: {what}; a run goes on only as it began: start a new one")
    if noisy_again:
        with held_run(store.path, before.run_id, "start a run of your own"):  # whoever measures it would miss its rows
            store.remove_noisy(before.run_id)
    return before


def _refuse_merged(run: Run) -> None:
    if "shards" in run.plan:
        remedy = "go on with the shard where it was measured, and merge it again"
        raise UsageError(f"--resume {run.run_id}: is merged of shards; {remedy}")


def _refuse_other_host(store: Store, run: Run) -> None:
    """Refuse to pool processes of two hosts in one interval."""
    before, here = store.pending_host(run.run_id), gethostname()
    if before not in ("", here):
        what = f"has processes of host {before}, which are not pooled with those of {here}"
        raise UsageError(f"--resume {run.run_id}: {what}; go on with it there, or start a new run")


def _differences(name: str, before: Any, now: Any) -> Iterator[str]:
    """`machine.cpus was 2 and is 4`, for each leaf that differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from _differences(f"{name}.{key}", before.get(key), now.get(key))
    elif (was := _as_stored(before)) != (found := _as_stored(now)):
        yield f"{name} was {was} and is {found}"


def _as_stored(value: Any) -> Any:
    """Return what the store gives back: lists for tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))
