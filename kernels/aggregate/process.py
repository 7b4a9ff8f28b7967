"""Aggregation by processes, one per worker, on memory that all of them map."""

import os
from typing import Any

from kernelmark import Launch, kernel
from kernelmark.kernels.aggregate import _plans, _wire
from kernelmark.kernels.aggregate._steps import Plan
from kernelmark.kernels.aggregate.cpu import EXCHANGES, SHARED, Exchange
from kernelmark.kernels.aggregate.problem import AggregateOperands, AggregateProblem

PROCESS: dict[str, Any] = {**SHARED, "provider": "process", "threaded": True}


def beyond_cpus(problem: AggregateProblem) -> str | None:
    """Return why there is no CPU for each worker, or None."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return None if problem.w <= cpus else f"w is {problem.w}, expected at most {cpus}: a CPU for each process"


def in_processes(problem: AggregateProblem, x: AggregateOperands, plan: Plan) -> Launch:
    """Return a launch that performs a plan in w processes, including this one."""
    from kernelmark.kernels.aggregate import _processes

    return _processes.in_processes(problem, x, plan)


@kernel("aggregate", wire=_wire.by_host, supports=beyond_cpus, **PROCESS)
def parallel(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """Each process sums its stripe of all gradients in one pass."""
    return in_processes(problem, x, _plans.fused(problem))


def _declare(exchange: Exchange) -> None:
    also = exchange.declared.get("supports", lambda problem: None)
    declared = {**exchange.declared, "supports": lambda problem: beyond_cpus(problem) or also(problem)}

    @kernel("aggregate", name=exchange.name, label=exchange.processes, **PROCESS, **declared)
    def set_up(problem: AggregateProblem, x: AggregateOperands) -> Launch:
        return in_processes(problem, x, exchange.plan(problem))


for _exchange in EXCHANGES:
    _declare(_exchange)
