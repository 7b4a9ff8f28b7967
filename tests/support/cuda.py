"""Stand-ins for a GPU: CuPy as far as streams go, cuda.core and the driver as a record of what they were asked."""

import ctypes
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from kernelmark.bench.plan.limits import DeviceLimits
from support.kernels import CUDA, REGISTRY


class Device(SimpleNamespace):
    """The only GPU, which is current inside `with` and outside."""

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Stream:
    """A stream with a number, by which work is recorded."""

    def __init__(self, fake: "FakeCupy", ptr: int) -> None:
        self._fake, self.ptr = fake, ptr

    def __enter__(self) -> "Stream":
        self._fake.stack.append(self)
        self._fake.current = self
        return self

    def __exit__(self, *error: object) -> None:
        self._fake.stack.pop()
        self._fake.current = self._fake.stack[-1]

    def use(self) -> "Stream":
        self._fake.current = self
        return self

    def synchronize(self) -> None:
        pass


class Array(np.ndarray):
    """Host memory in the place of the device's; what CuPy would launch is recorded with its stream."""

    fake: "FakeCupy"

    def __array_finalize__(self, source: Any) -> None:
        self.fake = getattr(source, "fake", None)  # type: ignore[assignment]

    def set(self, values: Any, stream: Stream | None = None) -> None:
        self.fake.log.append(("set", (stream or self.fake.current).ptr))
        self[...] = values

    def get(self) -> Any:
        self.fake.launch("get")
        return np.array(self)

    def fill(self, value: Any) -> None:
        self.fake.launch("fill")
        super().fill(value)


class FakeCupy(ModuleType):
    """The module, with a log of what was launched on which stream.

    CuPy keeps a stack of the streams that `with` has entered. Leaving one makes the stream below it current; `use()`
    makes a stream current without a place on the stack, so that the next `with` forgets it (cupy/cupy issue 8377).
    """

    def __init__(self) -> None:
        super().__init__("cupy")
        null = Stream(self, 0)
        self.stack, self.current = [null], null
        self.log: list[tuple[str, int]] = []
        self.uint8 = np.uint8
        self._count = 0
        properties = {"name": b"a fake", "l2CacheSize": 4096}
        runtime = SimpleNamespace(
            getDeviceProperties=lambda device: properties,
            memGetInfo=lambda: (2**30, 2**30),
            CUDARuntimeError=RuntimeError,
        )
        device = Device(use=lambda: None, synchronize=lambda: None, id=0, pci_bus_id="0000:00:00.0")
        self.cuda = SimpleNamespace(
            Device=lambda *number: device,
            Stream=self.stream_type(),
            get_current_stream=lambda: self.current,
            runtime=runtime,
        )

    def stream_type(self) -> Any:
        """What makes streams: called, or from another library's."""

        def make(non_blocking: bool = False) -> Stream:
            self._count += 1
            return Stream(self, 16 * self._count)

        make.from_external = lambda other: Stream(self, other.__cuda_stream__()[1])  # type: ignore[attr-defined]
        return make

    def empty(self, count: int, dtype: Any) -> Array:
        array = np.zeros(count, dtype).view(Array)
        array.fake = self
        return array

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=lambda: None)

    def array_equal(self, a: Array, b: Array) -> bool:
        self.launch("array_equal")
        return np.array_equal(a, b)

    def launch(self, name: str) -> None:
        """Do what CuPy's own functions, RawKernel and cuFFT do: launch on the current stream."""
        self.log.append((name, self.current.ptr))


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


class Gpu:
    """Stands for cupy, cuda.core and the driver's functions: keeps a record of what was loaded, encoded, launched."""

    def __init__(self, limits: DeviceLimits) -> None:
        self.limits = limits
        self.set: list[tuple[str, int]] = []
        self.loaded: list[bytes] = []
        self.launched: list[tuple[Any, ...]] = []
        self.encoded: list[tuple[Any, ...]] = []
        self.driven: list[tuple[Any, Any, int]] = []
        self.refuses = False
        device = SimpleNamespace(id=0, set_current=lambda: None)
        cupy, core = ModuleType("cupy"), ModuleType("cuda.core")
        cupy.cuda = SimpleNamespace(Device=lambda: device)  # type: ignore[attr-defined]
        core.Device = lambda number: device  # type: ignore[attr-defined]
        core.LaunchConfig = lambda **options: options  # type: ignore[attr-defined]
        core.Stream = SimpleNamespace(from_handle=lambda pointer: pointer)  # type: ignore[attr-defined]
        core.ObjectCode = SimpleNamespace(from_cubin=self.load)  # type: ignore[attr-defined]
        core.launch = lambda *arguments: self.launched.append(arguments)  # type: ignore[attr-defined]
        self.modules = {"cupy": cupy, "cuda.core": core}

    def load(self, code: bytes) -> Any:
        self.loaded.append(code)
        return SimpleNamespace(get_kernel=lambda symbol: SimpleNamespace(symbol=symbol, handle=4711))

    def attribute(self, kind: Any, device: Any) -> tuple[Any, int]:
        """Answer what the driver is asked for the limits of the device."""
        from cuda.bindings import driver

        value = getattr(self.limits, LIMIT_OF[kind.name.removeprefix("CU_DEVICE_ATTRIBUTE_")])
        part = {"MAJOR": value // 10, "MINOR": value % 10}
        return driver.CUresult.CUDA_SUCCESS, part.get(kind.name.rpartition("_")[2], value)

    def set_attribute(self, kind: Any, value: int, kernel: Any, device: Any) -> tuple[Any]:
        """Keep a record of an attribute that a kernel was given."""
        from cuda.bindings import driver

        self.set.append((kind.name.removeprefix("CU_FUNC_ATTRIBUTE_"), value))
        return (driver.CUresult.CUDA_ERROR_INVALID_VALUE if self.refuses else driver.CUresult.CUDA_SUCCESS,)

    def encode(self, descriptor: int, *arguments: Any) -> int:
        """Fill a descriptor with bytes that all tell how many there were before."""
        from cuda.bindings import driver

        ctypes.memset(descriptor, len(self.encoded), 128)
        self.encoded.append(arguments)
        return driver.CUresult.CUDA_ERROR_INVALID_VALUE if self.refuses else driver.CUresult.CUDA_SUCCESS

    def drive(self, *arguments: Any) -> tuple[Any]:
        from cuda.bindings import driver

        self.driven.append(arguments[:3])
        return (driver.CUresult.CUDA_ERROR_INVALID_VALUE if self.refuses else driver.CUresult.CUDA_SUCCESS,)


def operands(**pointers: int) -> Any:
    """Operands at these addresses, on stream 99."""
    arrays = {name: SimpleNamespace(data=SimpleNamespace(ptr=pointer)) for name, pointer in pointers.items()}
    return SimpleNamespace(stream=SimpleNamespace(ptr=99), **arrays)


def device_arrays(problem: Any, base: int = 4096) -> Any:
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
