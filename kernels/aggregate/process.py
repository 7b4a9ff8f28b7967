"""Aggregation by real processes, one a worker, over memory that all of them have mapped."""

from typing import Any

from kernelmark import Launch, kernel
from kernelmark.kernels.aggregate import _plans, _wire
from kernelmark.kernels.aggregate._processes import beyond_cpus, in_processes
from kernelmark.kernels.aggregate.cpu import EXCHANGES, SHARED, Exchange
from kernelmark.kernels.aggregate.problem import AggregateOperands, AggregateProblem

PROCESS: dict[str, Any] = {**SHARED, "provider": "process", "threaded": True}


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
