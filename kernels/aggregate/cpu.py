"""Aggregation by the threads of a process, which read every worker's gradient in place."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kernelmark import Launch, kernel
from kernelmark.kernels.aggregate import _plans, _wire
from kernelmark.kernels.aggregate._steps import Plan
from kernelmark.kernels.aggregate._threads import on_threads
from kernelmark.kernels.aggregate.problem import AggregateOperands, AggregateProblem

#: Operands are in shared memory for threads, too, so that threads and processes have pages of the same kind.
SHARED: dict[str, Any] = {"device": "cpu", "modules": ("numba",), "host_memory": "shared"}
CPU: dict[str, Any] = {**SHARED, "provider": "cpu"}
THREADED: dict[str, Any] = {**CPU, "threaded": True}
#: The domain of a strategy that sends BF16: gradients are FP32, and rounding errors are not kept as residuals.
BF16: dict[str, Any] = {"numerics": "bf16", "dtypes": ("f32",), "steps": ("sum",), "feedbacks": ("plain",)}


class Exchange(NamedTuple):
    """A strategy with two kernels. threads, processes: the labels of the kernels for threads and for processes."""

    name: str
    plan: Callable[[AggregateProblem], Plan]
    threads: str
    processes: str
    declared: dict[str, Any]


EXCHANGES = (
    Exchange(
        "tree",
        _plans.tree,
        "Caffe's: sums of pairs, then of pairs of pairs, bucket by bucket.",
        "Sums of pairs, then of pairs of pairs, by one process of each pair.",
        {"wire": _wire.between_workers},
    ),
    Exchange(
        "ring",
        _plans.ring,
        "A ring, as in Horovod and NCCL: stripes go round, and each worker adds its gradient.",
        "A ring of processes: stripes go round, and each process adds its gradient.",
        {"wire": _wire.between_workers},
    ),
    Exchange(
        "onebit",
        partial(_plans.compressed, name="onebit"),
        "CNTK's: a bit per element and two means per block, with error feedback, also for the owners' sums.",
        "A bit per element and two means per block between processes, with error feedback.",
        _wire.compressing("onebit"),
    ),
    Exchange(
        "int8",
        partial(_plans.compressed, name="int8"),
        "Dettmers': a byte per element and a scale per block, with error feedback, also for the owners' sums.",
        "A byte per element and a scale per block between processes, with error feedback.",
        _wire.compressing("int8"),
    ),
)


@kernel("aggregate", wire=_wire.by_host, **CPU)
def host_serial(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """TensorFlow's strategy: one host thread adds all gradients in one pass."""
    return on_threads(problem, x, _plans.fused(problem))


@kernel("aggregate", wire=_wire.by_host, **THREADED)
def host_parallel(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """Torch's strategy: all host threads, each with one pass over its part of all gradients."""
    return on_threads(problem, x, _plans.fused(problem))


@kernel("aggregate", wire=_wire.by_host, **THREADED)
def local(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """MXNet's `local`: gradients are copied to the host, bucket by bucket, and summed there by all threads."""
    return on_threads(problem, x, _plans.local(problem))


@kernel("aggregate", wire=_wire.in_bf16, **THREADED, **BF16)
def bf16(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """BF16 on the wire in both directions, added in FP32 by the owner of each stripe."""
    return on_threads(problem, x, _plans.bf16(problem))


def _declare(exchange: Exchange) -> None:
    @kernel("aggregate", name=exchange.name, label=exchange.threads, **THREADED, **exchange.declared)
    def set_up(problem: AggregateProblem, x: AggregateOperands) -> Launch:
        return on_threads(problem, x, exchange.plan(problem))


for _exchange in EXCHANGES:
    _declare(_exchange)
