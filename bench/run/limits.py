"""How long foreign code may take, how much memory it must leave, and how soon to look at it again."""

from kernelmark.bench.measure.board import IMPORT, OF_OPERATION
from kernelmark.bench.plan.case import Job

#: Compiling and planning may take this many times what a call may, and so may the code of an operation,
SLOW_FACTOR = 10
#: which has this long at least, since what it takes does not depend on the kernel; and so has an import.
LEAST_S, LEAST_IMPORT_S = 10.0, 10.0
#: A whole job may take the time of this many calls for each contender and of this many budgets, and this long at least.
CALLS, BUDGETS, LEAST_JOB_S = 100, 10, 60.0
#: This share of the memory must stay free, and this much at least: beyond it the system would choose whom to kill.
FLOOR_SHARE, LEAST_FLOOR_BYTES = 0.03, 128 * 2**20
#: How often a worker at work is looked at: seldom enough not to disturb what it measures; sooner where memory is short,
POLL_S, SOONEST_S = 0.25, 5e-3
#: since a process fills it as fast as that.
FILL_BYTES_PER_S = 20e9


def call_limit_s(stage: str, timeout_s: float) -> float:
    """Return what one call of foreign code may take where a call of a kernel may take `timeout_s`."""
    if stage == IMPORT:
        return max(LEAST_IMPORT_S, timeout_s)
    if stage in OF_OPERATION:
        return max(LEAST_S, SLOW_FACTOR * timeout_s)
    return SLOW_FACTOR * timeout_s if stage == "set-up" else timeout_s


def job_limit_s(job: Job) -> float:
    """Return what a whole job may take, whatever it does between the calls that are watched one by one."""
    each_s = CALLS * job.timeout_s + BUDGETS * job.budget.max_time_s
    return max(LEAST_JOB_S, len(job.entrants) * each_s)


def floor_bytes(whole_bytes: int) -> float:
    """Return the memory that must stay free, of all that there is."""
    return max(FLOOR_SHARE * whole_bytes, LEAST_FLOOR_BYTES)


def next_look_s(spare_bytes: float | None) -> float:
    """Return when to look at a worker again that may still take so much before it reaches the floor."""
    return POLL_S if spare_bytes is None else min(POLL_S, max(SOONEST_S, spare_bytes / FILL_BYTES_PER_S))
