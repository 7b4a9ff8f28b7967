"""Divide the jobs of a plan into shards, for machines that do not communicate.

The unit is a comparison group: all jobs of an operation on the same sizes. All layouts, places, directions and storage
types of a problem stay on one machine, so their ratios are measured there. The division depends only on the suite, the
kernels and the limits, which all shards share. It does not use stored times: if stores differed, one group could be
measured twice and another not at all.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from heapq import heapreplace

import msgspec

from kernelmark.bench.plan.case import Plan, PlannedJob, Shard, case_count
from kernelmark.bench.plan.registry import Registry

MOST_SHARDS = 100_000
#: The assumed cost of a case, by which groups are balanced on any machine, is the time limit of its samples plus the
#: time of CALLS calls of its kernel at these rates.
CALLS, FLOP_PER_S, BYTES_PER_S = 20, 20e9, 10e9


def parse_shard(text: str) -> Shard:
    """Return the shard that `3/8` names. Raises ValueError."""
    match = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text)
    if not match or not int(match[1]) <= int(match[2]) <= MOST_SHARDS:
        raise ValueError(f"is {text!r}, expected I/N with I from 1 to N, such as 3/8, and N up to {MOST_SHARDS}")
    return Shard(int(match[1]), int(match[2]))


def group_of(problem: str) -> str:
    """Return the operation and the sizes of a problem's id: `gemm/m64n64k64` for `gemm/m64n64k64/f32/NT`."""
    return "/".join(problem.split("/", 2)[:2])


def owners(jobs: Iterable[PlannedJob], count: int, registry: Registry) -> dict[str, int]:
    """Return the shard of each comparison group. Groups, heaviest first, go to the shard that is lightest so far.

    The order of the jobs does not matter: groups of equal weight are sorted by hash.
    """
    weights: dict[str, int] = {}
    for planned in jobs:
        group = group_of(planned.job.problems[0])
        weights[group] = weights.get(group, 0) + weight(planned, registry)
    shards = [(0, index) for index in range(1, count + 1)]  # sorted, which makes it a heap
    shard_of = {}
    for group in sorted(weights, key=lambda group: (-weights[group], hashlib.sha256(group.encode()).digest(), group)):
        load, index = shards[0]
        heapreplace(shards, (load + weights[group], index))
        shard_of[group] = index
    return shard_of


def weight(planned: PlannedJob, registry: Registry) -> int:
    """Return the assumed cost of a job in whole microseconds; sums of integers do not depend on the order."""
    total = 0
    for name in planned.job.problems:
        problem = registry.problem(name)
        call_s = max(problem.flop / FLOP_PER_S, problem.traffic_bytes / BYTES_PER_S)
        total += round(1e6 * (planned.job.budget.max_time_s + CALLS * call_s))
    return total * len(planned.job.kernels)


def sharded(plan: Plan, shard: Shard, jobs: Sequence[PlannedJob], registry: Registry) -> tuple[Plan, list[PlannedJob]]:
    """Return the plan of one shard, and its jobs in order; a shard may get none if shards outnumber groups."""
    shards = owners(jobs, shard.count, registry)
    members = [planned for planned in jobs if shards[group_of(planned.job.problems[0])] == shard.index]
    whole = msgspec.structs.replace(shard, cases=case_count(jobs, registry))
    return msgspec.structs.replace(plan, shard=whole), members
