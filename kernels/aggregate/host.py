"""Sums on the host of gradients on a GPU: all gradients cross PCIe, and the result crosses back.

One GPU represents the GPUs of w workers, so their gradients share one link; the row has `devices=1`.
"""

import os
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np

from kernelmark import Launch, kernel
from kernelmark.kernels.aggregate import _plans, _wire
from kernelmark.kernels.aggregate._threads import on_threads
from kernelmark.kernels.aggregate.problem import AggregateOperands, AggregateProblem

#: These kernels wait for their copies (`synchronises`), so the stream cannot be held back.
GPU: dict[str, Any] = {
    "device": "cuda",
    "provider": "cuda",
    "modules": ("cupy", "numba"),
    "host_memory": "pinned",
    "synchronises": True,
    "wire": _wire.by_host,
}


@kernel("aggregate", **GPU)
def host_serial(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """TensorFlow's strategy: gradients are copied to the host, where one thread adds them in one pass."""
    return _across(problem, x, 1)


@kernel("aggregate", **GPU)
def host_parallel(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """Torch's strategy: gradients are copied to the host, where all threads add them."""
    return _across(problem, x, len(os.sched_getaffinity(0)))


def _across(problem: AggregateProblem, x: AggregateOperands, threads: int) -> Launch:
    """Return a launch that copies gradients to pinned memory, sums them on `threads` threads, and copies sums back."""
    x.chose(devices=1, threads=threads)
    plain = msgspec.structs.replace(problem, feedback="plain")  # an exact sum leaves residuals as they are
    host = {operand.name: np.asarray(x.host_scratch(operand.shape, plain.dtype)) for operand in plain.operands()}
    beside = cast(AggregateOperands, SimpleNamespace(**host, threads=threads))
    add = on_threads(plain, beside, _plans.fused(plain))
    down = [(getattr(x, o.name), host[o.name]) for o in plain.operands() if o.role != "out"]
    up = [(getattr(x, o.name), host[o.name]) for o in plain.operands() if o.role != "in"]
    stream = x.stream

    def launch() -> None:
        for source, target in down:
            source.get(stream=stream, out=target)
        add()
        for target, source in up:
            target.set(source, stream=stream)
        stream.synchronize()

    return launch
