"""NCCL's sums of gradients on several GPUs, one worker per GPU, by CuPy's binding in a single process."""

import warnings
from functools import lru_cache
from typing import Any

from kernelmark import Launch, Unsupported, kernel
from kernelmark.kernels._gpus import Gpus
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.aggregate import _wire
from kernelmark.kernels.aggregate.problem import AggregateOperands, AggregateProblem


def _library() -> Any:
    """Return CuPy's binding of NCCL. Raises Unsupported if CuPy finds no NCCL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns if NCCL is missing; the error below says so in one line
        from cupy.cuda import nccl
    if not nccl.available:
        raise Unsupported("CuPy finds no NCCL (libnccl.so.2); pip install 'kernelmark[nccl]'")
    return nccl


def _version(_: AggregateProblem) -> str:
    """Return NCCL's version from its number: 10000 times the first part, 100 times the second, plus the third."""
    major, rest = divmod(int(_library().get_version()), 10_000)
    return f"nccl {major}.{rest // 100}.{rest % 100}"


NCCL: dict[str, Any] = {
    "provider": "nccl",
    "device": "cuda",
    "modules": ("cupy",),
    "spread": True,
    "wire": _wire.between_workers,
    "library_version": _version,
}


@lru_cache
def _communicators(count: int) -> list[Any]:
    """Return a communicator for each of the first `count` GPUs; each process creates one set."""
    return list(_library().NcclCommunicator.initAll(count))


@lru_cache
def _stepped() -> Any:
    """Return a kernel that subtracts lr times a sum from the weights, on CuPy's current stream."""
    import cupy

    return cupy.ElementwiseKernel("T s, T lr", "T weights", "weights -= lr * s", "aggregate_step")


class _Ranks:
    """A rank on each GPU of a set-up: its communicator, and the addresses of its gradient and of its stream."""

    def __init__(self, problem: AggregateProblem, x: AggregateOperands) -> None:
        x.chose(devices=problem.w)
        self._nccl, self._gpus = _library(), Gpus(problem.w, x.stream)
        self.kind = self._nccl.NCCL_FLOAT64 if problem.dtype == "f64" else self._nccl.NCCL_FLOAT32
        self.add = self._nccl.NCCL_SUM
        gradients, streams = (g.data.ptr for g in x.g), (stream.ptr for stream in self._gpus.streams)
        self.each = list(zip(_communicators(problem.w), gradients, streams, strict=True))

    def collective(self, calls: list[Launch]) -> list[Launch]:
        """Return the steps that issue the calls of all ranks in one group."""
        return [self._nccl.groupStart, *calls, self._nccl.groupEnd]

    def whole(self, steps: list[Launch]) -> Launch:
        """Return the steps as one launch, which begins and ends on the timed stream."""
        return in_turn(*self._gpus.around(steps))


@kernel("aggregate", **NCCL, steps=("sum",))
def allreduce(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """NCCL's all-reduce: every GPU gets the sum."""
    n, others = problem.n, range(1, problem.w)
    sums = [x.s, *(x.scratch((n,), problem.dtype, gpu=gpu) for gpu in others)]
    ranks, to = _Ranks(problem, x), [s.data.ptr for s in sums]

    def call(rank: Any, g: int, stream: int, s: int) -> Launch:
        return lambda: rank.allReduce(g, s, n, ranks.kind, ranks.add, stream)

    return ranks.whole(ranks.collective([call(*each, s) for each, s in zip(ranks.each, to, strict=True)]))


@kernel("aggregate", **NCCL)
def reduce(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """NCCL's reduce: the first GPU gets the sum, or updates the weights, which NCCL broadcasts to all."""
    n, ranks, summed = problem.n, _Ranks(problem, x), problem.step == "sum"
    target = x.s if summed else x.scratch((n,), problem.dtype)
    s = target.data.ptr

    def call(rank: Any, g: int, stream: int) -> Launch:
        return lambda: rank.reduce(g, s, n, ranks.kind, ranks.add, 0, stream)

    steps = ranks.collective([call(*each) for each in ranks.each])
    return ranks.whole(steps if summed else [*steps, *_delivered(problem, x, ranks, target)])


def _delivered(problem: AggregateProblem, x: AggregateOperands, ranks: _Ranks, s: Any) -> list[Launch]:
    """Return launches that update the weights on the first GPU with the sum `s` and broadcast them to all replicas."""
    n, weights, step, lr = problem.n, x.weights, _stepped(), problem.lr
    sources = [weights, *x.replicas[1:]]  # NCCL reads only the first GPU's source

    def call(rank: Any, stream: int, source: int, copy: int) -> Launch:
        return lambda: rank.broadcast(source, copy, n, ranks.kind, 0, stream)

    calls = [
        call(rank, stream, source.data.ptr, copy.data.ptr)
        for (rank, _, stream), source, copy in zip(ranks.each, sources, x.replicas, strict=True)
    ]
    return [lambda: step(s, lr, weights), *ranks.collective(calls)]
