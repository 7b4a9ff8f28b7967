"""Where operands live: memory, transfers, eviction and the device's last-level cache, for the CPU and for CUDA."""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bench.measure.memory import refuse_what_does_not_fit
from bench.plan.dtypes import bits_dtype, numpy_dtype
from bench.plan.errors import Unsupported, UsageError
from bench.plan.operation import Array

if TYPE_CHECKING:  # clocks and monitors import the devices
    from bench.measure.monitor import Monitor
    from bench.measure.timing import Clock

ALIGNMENT = 4096
#: Where the system does not tell its last-level cache: large enough for the desktop and server parts of 2026.
LLC_IF_UNKNOWN = 64 * 2**20


class DeviceLost(Exception):
    """A kernel has left a device in a state in which it answers nothing any more."""

    def __init__(self, kernel: str, reason: str) -> None:
        super().__init__(f"{kernel}: {reason}")
        self.kernel, self.reason = kernel, reason


class Device(Protocol):
    """What measuring needs of a device. Arrays are flat and typed by the device's own array library.

    warm_up_s: how long its clock may take to settle.
    """

    name: str
    device_name: str
    llc_bytes: int
    warm_up_s: float
    stream: Any

    def clock(self, hold: bool) -> "Clock": ...
    def bytes(self, nbytes: int) -> Any: ...
    def dtype(self, storage: str) -> Any: ...
    def upload(self, target: Any, source: Array) -> None: ...
    def download(self, source: Any) -> Array: ...
    def evict(self) -> None: ...
    def synchronize(self) -> None: ...
    def monitor(self) -> "Monitor": ...
    def release(self) -> None: ...
    def broken(self) -> str | None: ...


class Cpu:
    """Host memory in NumPy arrays aligned to pages."""

    name = "cpu"
    stream = None
    warm_up_s = 0.5

    def __init__(self) -> None:
        self.device_name = cpu_name()
        self.llc_bytes = last_level_cache_bytes()
        self._eviction: Array | None = None

    def clock(self, hold: bool) -> "Clock":
        """Wall-clock time."""
        from bench.measure.timing import CpuClock

        return CpuClock()

    def bytes(self, nbytes: int) -> Array:
        """Uninitialised bytes, aligned to a page. Raises MemoryError."""
        refuse_what_does_not_fit(nbytes, "a buffer needs")
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + nbytes]

    def dtype(self, storage: str) -> "np.dtype[Any]":
        return numpy_dtype(storage)

    def upload(self, target: Array, source: Array) -> None:
        np.copyto(target, source)

    def download(self, source: Array) -> Array:
        return source

    def evict(self) -> None:
        """Read and write twice the last-level cache, so that nothing of the operands stays in it."""
        if self._eviction is None:
            self._eviction = np.ones(2 * self.llc_bytes // 8, np.uint64)
        np.add(self._eviction, 1, out=self._eviction)

    def synchronize(self) -> None:
        """Calls on the CPU return when they are done."""

    def monitor(self) -> "Monitor":
        """Clock, load and steal time of the CPUs that this process may use now."""
        from bench.measure.monitor import CpuMonitor

        return CpuMonitor()

    def release(self) -> None:
        """NumPy gives memory back by itself."""

    def broken(self) -> str | None:
        """What would break a CPU breaks the process."""
        return None


class Cuda:
    """Device memory in CuPy arrays, on a stream of its own. bfloat16 stands in arrays of 16-bit integers."""

    name = "cuda"
    warm_up_s = 2.0

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        device = cupy.cuda.Device(0)
        device.use()
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        self.device_name = properties["name"].decode()
        self.llc_bytes = int(properties["l2CacheSize"])
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()  # kernels written with CuPy's own functions then run where the events are
        self._eviction: Any = None

    def clock(self, hold: bool) -> "Clock":
        """Time between events; `hold` keeps the stream back until a batch is queued."""
        from bench.measure.timing import CudaClock

        return CudaClock(self, hold)

    def bytes(self, nbytes: int) -> Any:
        """Uninitialised device memory, aligned to 512 bytes. Raises cupy's OutOfMemoryError."""
        return self._cupy.empty(nbytes, self._cupy.uint8)

    def dtype(self, storage: str) -> Any:
        return bits_dtype(storage) if storage == "bf16" else numpy_dtype(storage)

    def upload(self, target: Any, source: Array) -> None:
        """Host to device, contiguous, complete when it returns."""
        with self.stream:
            target.set(source.view(target.dtype), stream=self.stream)
        self.stream.synchronize()

    def download(self, source: Any) -> Array:
        """Device to host, complete when it returns."""
        self.synchronize()
        return np.asarray(source.get())

    def evict(self) -> None:
        """Write twice the L2 cache on the stream."""
        with self.stream:
            if self._eviction is None:
                self._eviction = self._cupy.empty(2 * self.llc_bytes, self._cupy.uint8)
            self._eviction.fill(1)

    def synchronize(self) -> None:
        """Wait for all streams of the device, those that a kernel may have made for itself too."""
        self._cupy.cuda.Device(0).synchronize()

    def broken(self) -> str | None:
        """The error that the context answers every call with since a kernel has corrupted it, or None."""
        try:
            self.synchronize()
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            return str(error).split("\n")[0]
        return None

    def release(self) -> None:
        """Give the memory of the last job back to the driver."""
        self._eviction = None
        self._cupy.get_default_memory_pool().free_all_blocks()

    def monitor(self) -> "Monitor":
        """What NVML tells, where its bindings are."""
        from bench.measure.nvml import GpuMonitor

        return GpuMonitor(self._cupy.cuda.Device(0).pci_bus_id)


def _cuda() -> Device:
    if reason := cuda_missing():
        raise Unsupported(reason)
    return Cuda()


#: What makes each device; the tests add one that is a fake.
DEVICES: dict[str, Callable[[], Device]] = {"cpu": Cpu, "cuda": _cuda}


@lru_cache
def get_device(name: str) -> Device:
    """The device of this name, one a process. Raises Unsupported."""
    return DEVICES[name]()


@lru_cache
def cuda_missing() -> str | None:
    """Why there is no CUDA device here, or None; asks the driver alone, which takes no Python package."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver here (libcuda.so.1); install one on a machine with an NVIDIA GPU"
    count = ctypes.c_int(0)
    if (status := driver.cuInit(0)) or (status := driver.cuDeviceGetCount(ctypes.byref(count))):
        return f"the NVIDIA driver does not start (CUDA error {status}); see nvidia-smi"
    return None if count.value else "the NVIDIA driver sees no GPU; see nvidia-smi"


def devices_present() -> tuple[str, ...]:
    """`cpu`, and `cuda` where a GPU answers."""
    return ("cpu",) if cuda_missing() else ("cpu", "cuda")


def choose_devices(choice: str, option: str = "--device") -> tuple[str, ...]:
    """`auto` is what is there; `cpu` and `cuda` as named. Raises UsageError where no GPU answers."""
    if choice == "cuda" and (reason := cuda_missing()):
        raise UsageError(f"{option} cuda: {reason}; `kernelmark doctor` says what is usable")
    return devices_present() if choice == "auto" else (choice,)


def cpu_count() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache
def cpu_name() -> str:
    """The processor's name as the system gives it."""
    import platform

    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@lru_cache
def last_level_cache_bytes() -> int:
    """Size of the largest cache of CPU 0."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1))
    return max(sizes, default=LLC_IF_UNKNOWN)


def device_id() -> int:
    """The number of the present CUDA device."""
    import cupy

    return int(cupy.cuda.Device().id)
