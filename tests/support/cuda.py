"""Kernels and problems for tests of launches, and fake operands at given addresses of a GPU."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from support.kernels import CUDA, REGISTRY

TILED = CUDA["gemm/cuda.tiled"]
CLUSTERED = REGISTRY.named("gemm/cuda.wgmma_persistent@CLUSTER=2")
PADDED = REGISTRY.problem("gemm/m40n50k60/f32/NT/ldb+4")
HALVES = REGISTRY.problem("gemm/m520n264k72/bf16/NN/batch9/lda+8/alpha2")


def planned(kernel, **changes):
    return replace(kernel, plan=lambda p, t, device: [replace(call, **changes) for call in kernel.plan(p, t, device)])


def operands(**pointers):
    arrays = {name: SimpleNamespace(data=SimpleNamespace(ptr=pointer)) for name, pointer in pointers.items()}
    return SimpleNamespace(stream=SimpleNamespace(ptr=99), **arrays)


def device_arrays(problem, base=4096):
    """Return fake device arrays for a problem's bfloat16 operands, as 16-bit integers, from address `base` on."""
    arrays = {}
    for index, operand in enumerate(problem.operands()):
        dtype = np.dtype(np.uint16)
        rows = operand.shape[-2]
        strides = (rows * operand.ld * 2, operand.ld * 2, 2)[-len(operand.shape) :]
        pointer = SimpleNamespace(ptr=base + index * 2**20)
        arrays[operand.name] = SimpleNamespace(
            data=pointer, shape=operand.shape, ndim=len(operand.shape), strides=strides, dtype=dtype
        )
    return SimpleNamespace(stream=SimpleNamespace(ptr=99), **arrays)
