"""Aggregation by real processes, one a worker, over memory that all of them have mapped."""

from typing import Any

from kernelmark import Launch, kernel
from kernels.aggregate import _plans, _wire
from kernels.aggregate._processes import beyond_cpus, in_processes
from kernels.aggregate.cpu import SHARED, compressing
from kernels.aggregate.problem import AggregateOperands, AggregateProblem

PROCESS: dict[str, Any] = {**SHARED, "provider": "process", "threaded": True}
EXACT: dict[str, Any] = {**PROCESS, "supports": beyond_cpus}


def _compressing(name: str) -> dict[str, Any]:
    found = compressing(name)
    return {**found, "supports": lambda problem: beyond_cpus(problem) or found["supports"](problem)}


@kernel("aggregate", wire=_wire.by_host, **EXACT)
def parallel(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """Each process sums its stripe of all gradients in one pass."""
    return in_processes(problem, x, _plans.fused(problem))


@kernel("aggregate", wire=_wire.between_workers, **EXACT)
def tree(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """Sums of pairs, then of pairs of pairs, by one process of each pair."""
    return in_processes(problem, x, _plans.tree(problem))


@kernel("aggregate", wire=_wire.between_workers, **EXACT)
def ring(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """A ring of processes: stripes go round, and each process adds its own."""
    return in_processes(problem, x, _plans.ring(problem))


@kernel("aggregate", **PROCESS, **_compressing("onebit"))
def onebit(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """A bit an element and two means a block between processes, with error feedback."""
    return in_processes(problem, x, _plans.compressed(problem, "onebit"))


@kernel("aggregate", **PROCESS, **_compressing("int8"))
def int8(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """A byte an element and a scale a block between processes, with error feedback."""
    return in_processes(problem, x, _plans.compressed(problem, "int8"))
