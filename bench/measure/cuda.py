"""A CUDA device: memory as CuPy arrays, time between events, limits and UUIDs."""

import ctypes
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np

from kernelmark.bench.measure.cpu import PAGES, HostMemory
from kernelmark.bench.measure.device import Clock, Memory, Monitor
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.memory import whole_bytes
from kernelmark.bench.measure.multi_gpu import Peers, join_peers
from kernelmark.bench.measure.nvml import GpuMonitor
from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.measure.timing import CudaClock
from kernelmark.bench.plan.dtypes import ML_DTYPES, Array, bits_dtype, numpy_dtype
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.limits import DeviceLimits

#: The share of the host's memory that may be page-locked at a time, since the system cannot reclaim such pages.
LOCKED_SHARE = 0.25
#: The flags (cuda.h) of each kind of page-locked memory; with unified addressing the driver maps all of it.
LOCKED = {"pinned": 0, "mapped": 2, "write_combined": 4}


class Cuda:
    """A CUDA device with a stream, and memory as CuPy arrays; bfloat16 and FP8 are stored as integers."""

    name = "cuda"
    warm_up_s = 2.0

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self.device_uuid = next(iter(gpu_uuids()), "")
        device = cupy.cuda.Device(0)
        device.use()
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        self.device_name = properties["name"].decode()
        self.llc_bytes = int(properties["l2CacheSize"])
        #: The GPUs in use, each with the buffer that evicts its cache.
        self._evictions: dict[int, Any] = {0: None}
        self._driver_memory = DriverMemory()
        #: For each input, the state of the last draw that was uploaded, and its values on the device.
        self._copies: dict[str, tuple[object, Any]] = {}
        self.stream: Any = cupy.cuda.Stream(non_blocking=True)
        self.stream.__enter__()

    def run_on(self, stream: Any) -> None:
        """Run all work on this CuPy stream; call it before any kernel is set up."""
        self.synchronize()
        self.stream.__exit__(None, None, None)
        self.stream = stream
        # Enter the stream and never leave it: at the end of a kernel's `with`, CuPy returns to the last stream that was
        # entered, not to one set by `use()`.
        self.stream.__enter__()

    def strayed(self) -> str | None:
        """Make the device's stream, which has the timing events, current; return a complaint if it was not."""
        current = self._cupy.cuda.get_current_stream()
        if current.ptr == self.stream.ptr:
            return None
        self.stream.use()
        complaint = f"CuPy's current stream is {current.ptr:#x}, expected {self.stream.ptr:#x}"
        return f"{complaint}, which has the timing events; a kernel may change the stream only by `with stream:`"

    def forget_persisting(self) -> None:
        """Reset L2 lines that a kernel made persistent. Errors are ignored, since older devices have no such lines."""
        from cuda.bindings import driver

        driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)
        driver.cuCtxResetPersistingL2Cache()

    def clock(self, hold: bool) -> Clock:
        """Return a clock of time between events; hold: keep the stream waiting until a batch is queued."""
        return CudaClock(self, hold)

    def host_memory(self, kind: str) -> Memory:
        """Return host memory of this kind from the driver; "" is memory from NumPy."""
        return HostMemory(partial(self._driver_memory.allocate, kind))

    def peers(self, gpus: tuple[int, ...], edge: int = 0) -> Memory:
        """Return the joint memory of these GPUs. Raises Unsupported if they cannot access each other's memory."""
        join_peers(max(gpus) + 1)
        self._evictions |= dict.fromkeys(set(gpus) - self._evictions.keys())
        return Peers(self, gpus, edge)

    def bytes(self, nbytes: int) -> Any:
        """Return uninitialised device memory, aligned to 512 bytes. Raises CuPy's OutOfMemoryError."""
        return self._cupy.empty(nbytes, self._cupy.uint8)

    def dtype(self, storage: str) -> Any:
        return bits_dtype(storage) if storage in ML_DTYPES else numpy_dtype(storage)

    def upload(self, target: Any, source: Array) -> None:
        """Copy a contiguous array from host to device; the copy is complete on return."""
        target.set(source.view(target.dtype), stream=self.stream)
        self.stream.synchronize()

    def scatter(self, target: Any, places: Array, values: Array) -> None:
        """Write single elements from host to device; the writes are complete on return."""
        bits = values.view(target.dtype)
        for i, place in enumerate(places.tolist()):
            target[place : place + 1].set(bits[i : i + 1], stream=self.stream)
        self.stream.synchronize()

    def download(self, source: Any) -> Array:
        """Copy an array from device to host; the copy is complete on return."""
        self.synchronize()
        return np.asarray(source.get())

    def holds(self, array: Any, name: str, draw: Draw) -> bool:
        """Return whether an input has the drawn bits, compared with a device copy that is uploaded once per draw.

        The input is downloaded and compared on the host if the device has little free memory. This is also done if
        input and copy differ, because a kernel may have written to the copy.
        """
        drawn = draw.flat[name]
        bits = f"u{drawn.itemsize}"
        if 4 * drawn.nbytes <= self._cupy.cuda.runtime.memGetInfo()[0]:
            state, copy = self._copies.pop(name, (None, None))
            if state is not draw.state:
                copy = self.bytes(drawn.nbytes).view(bits)
                self.upload(copy, drawn)
            if self._cupy.array_equal(array.view(bits), copy):
                self._copies[name] = draw.state, copy
                return True
        return draw.is_held(self.download(array), name)

    def evict(self) -> None:
        """Reset persistent lines, and write twice the L2 cache's size on each GPU in use, before the clock starts."""
        self.forget_persisting()
        for gpu, buffer in self._evictions.items():
            with self._cupy.cuda.Device(gpu):
                if buffer is None:
                    self._evictions[gpu] = buffer = self._cupy.empty(2 * self.llc_bytes, self._cupy.uint8)
                buffer.fill(1)

    def synchronize(self) -> None:
        """Wait for all streams of the GPUs in use, including streams that kernels created."""
        for gpu in self._evictions:
            self._cupy.cuda.Device(gpu).synchronize()

    def broken(self) -> str | None:
        """Return the error that every call reports because a kernel has corrupted the context, or None."""
        try:
            self.synchronize()
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            return str(error).split("\n")[0]
        return None

    def release(self) -> None:
        """Return the memory of the last job to the driver."""
        self._copies.clear()
        for gpu in self._evictions:
            with self._cupy.cuda.Device(gpu):
                self._evictions[gpu] = None
                self._cupy.get_default_memory_pool().free_all_blocks()

    def monitor(self) -> Monitor:
        """Return a monitor that reads the GPU's state through NVML, if its bindings are installed."""
        return GpuMonitor(self._cupy.cuda.Device(0).pci_bus_id)


def gpu_uuids() -> list[str]:
    """Return the UUIDs of the visible GPUs in order, as CUDA_VISIBLE_DEVICES takes them; "unknown" if not reported."""
    if cuda_missing():
        return []
    driver, uuids = ctypes.CDLL("libcuda.so.1"), []
    count, device = ctypes.c_int(0), ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    for ordinal in range(count.value):
        uuid = (ctypes.c_ubyte * 16)()
        failed = driver.cuDeviceGet(ctypes.byref(device), ordinal) or driver.cuDeviceGetUuid_v2(uuid, device)
        uuids.append("unknown" if failed else f"GPU-{UUID(bytes=bytes(uuid))}")
    return uuids


def device_id() -> int:
    """Return the number of the current CUDA device."""
    import cupy

    return int(cupy.cuda.Device().id)


def present_limits() -> DeviceLimits:
    """Return the limits of the current CUDA device, as its driver reports them. Raises Unsupported."""
    from cuda.bindings import driver

    device = driver.CUdevice(device_id())

    def limit(name: str) -> int:
        attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        status, value = driver.cuDeviceGetAttribute(attribute, device)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise Unsupported(f"the driver reports no {name} of the device: {status.name}")
        return int(value)

    return DeviceLimits(
        capability=10 * limit("COMPUTE_CAPABILITY_MAJOR") + limit("COMPUTE_CAPABILITY_MINOR"),
        multiprocessors=limit("MULTIPROCESSOR_COUNT"),
        sm_threads=limit("MAX_THREADS_PER_MULTIPROCESSOR"),
        sm_blocks=limit("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        sm_shared_bytes=limit("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        block_shared_bytes=limit("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        reserved_shared_bytes=limit("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        l2_bytes=limit("L2_CACHE_SIZE"),
    )


class Addressed(np.ndarray[Any, Any]):
    """An array in host memory that has its address in `data.ptr`, as an array on a GPU does."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class DriverMemory:
    """Allocates each kind of host memory that GPU kernels may declare, and counts the page-locked bytes."""

    def __init__(self) -> None:
        self._locked_bytes = 0

    def allocate(self, kind: str, nbytes: int) -> Array:
        """Return bytes of memory of a kind; "" is memory as NumPy allocates it.

        Raises MemoryError if more than LOCKED_SHARE of the memory would be page-locked (then nothing is locked), or if
        the driver has none left.
        """
        if kind == "":
            return PAGES[kind](nbytes).view(Addressed)
        from cuda.bindings import driver

        locked = nbytes if kind in LOCKED else 0
        if kind in LOCKED:
            wanted, whole = self._locked_bytes + nbytes, whole_bytes()
            if whole is not None and wanted > LOCKED_SHARE * whole:
                expected = f"expected at most {LOCKED_SHARE * whole / 1e9:.3g} GB, a quarter of the host's memory"
                raise MemoryError(f"{kind} memory: {wanted / 1e9:.3g} GB would be page-locked; {expected}")
            address, free = int(_result(*driver.cuMemHostAlloc(nbytes, LOCKED[kind]))), driver.cuMemFreeHost
        else:
            address = int(_result(*driver.cuMemAllocManaged(nbytes, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)))
            free = driver.cuMemFree
            host = driver.CUmemLocation()  # where the memory stays, whichever device reads it
            host.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
            advice = driver.CUmem_advise.CU_MEM_ADVISE_SET_PREFERRED_LOCATION
            _result(*driver.cuMemAdvise(address, nbytes, advice, host))
        self._locked_bytes += locked
        block = (ctypes.c_ubyte * nbytes).from_address(address)
        weakref.finalize(block, self._free, free, address, locked).atexit = False
        return np.frombuffer(memoryview(block), np.uint8).view(Addressed)

    def _free(self, free: Any, address: int, locked: int) -> None:
        self._locked_bytes -= locked
        free(address)


def _result(status: Any, value: Any = None) -> Any:
    if status.value:
        raise MemoryError(f"the driver refuses host memory: {status.name}")
    return value
