"""A stand-in for a GPU: cupy, cuda.core and the driver are replaced by a record of their calls."""

import ctypes
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np

from support.kernels import CUDA, REGISTRY

TILED = CUDA["gemm/cuda.tiled"]
CLUSTERED = REGISTRY.named("gemm/cuda.wgmma_persistent@CLUSTER=2")
PADDED = REGISTRY.problem("gemm/m40n50k60/f32/NT/ldb+4")
HALVES = REGISTRY.problem("gemm/m520n264k72/bf16/NN/batch9/lda+8/alpha2")

LIMIT_OF = {
    "COMPUTE_CAPABILITY_MAJOR": "capability",
    "COMPUTE_CAPABILITY_MINOR": "capability",
    "MULTIPROCESSOR_COUNT": "multiprocessors",
    "MAX_THREADS_PER_MULTIPROCESSOR": "sm_threads",
    "MAX_BLOCKS_PER_MULTIPROCESSOR": "sm_blocks",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": "sm_shared_bytes",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": "block_shared_bytes",
    "RESERVED_SHARED_MEMORY_PER_BLOCK": "reserved_shared_bytes",
    "L2_CACHE_SIZE": "l2_bytes",
}


def planned(kernel, **changes):
    return replace(kernel, plan=lambda p, t, device: [replace(call, **changes) for call in kernel.plan(p, t, device)])


class Gpu:
    """Stands for cupy, cuda.core and the driver's functions: keeps a record of what was loaded, encoded, launched."""

    def __init__(self, limits):
        self.limits = limits
        self.set = []
        self.loaded = []
        self.launched = []
        self.encoded = []
        self.driven = []
        self.refuses = False
        device = SimpleNamespace(id=0, set_current=lambda: None)
        cupy, core = ModuleType("cupy"), ModuleType("cuda.core")
        cupy.cuda = SimpleNamespace(Device=lambda: device)
        core.Device = lambda number: device
        core.LaunchConfig = lambda **options: options
        core.Stream = SimpleNamespace(from_handle=lambda pointer: pointer)
        core.ObjectCode = SimpleNamespace(from_cubin=self.load)
        core.launch = lambda *arguments: self.launched.append(arguments)
        self.modules = {"cupy": cupy, "cuda.core": core}

    def load(self, code):
        self.loaded.append(code)
        return SimpleNamespace(get_kernel=lambda symbol: SimpleNamespace(symbol=symbol, handle=4711))

    def attribute(self, kind, device):
        from cuda.bindings import driver

        value = getattr(self.limits, LIMIT_OF[kind.name.removeprefix("CU_DEVICE_ATTRIBUTE_")])
        part = {"MAJOR": value // 10, "MINOR": value % 10}
        return driver.CUresult.CUDA_SUCCESS, part.get(kind.name.rpartition("_")[2], value)

    @property
    def status(self):
        from cuda.bindings import driver

        return driver.CUresult.CUDA_ERROR_INVALID_VALUE if self.refuses else driver.CUresult.CUDA_SUCCESS

    def set_attribute(self, kind, value, kernel, device):
        self.set.append((kind.name.removeprefix("CU_FUNC_ATTRIBUTE_"), value))
        return (self.status,)

    def encode(self, descriptor, *arguments):
        """Fill a descriptor with bytes that all tell how many there were before."""
        ctypes.memset(descriptor, len(self.encoded), 128)
        self.encoded.append(arguments)
        return self.status

    def drive(self, *arguments):
        self.driven.append(arguments[:3])
        return (self.status,)


def operands(**pointers):
    arrays = {name: SimpleNamespace(data=SimpleNamespace(ptr=pointer)) for name, pointer in pointers.items()}
    return SimpleNamespace(stream=SimpleNamespace(ptr=99), **arrays)


def device_arrays(problem, base=4096):
    """Operands of the problem as a GPU would hold them, bfloat16 in 16-bit integers, from this address on."""
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
