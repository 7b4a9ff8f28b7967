"""Launch hand-written kernels; cuda-core (the default) and PyCUDA launch the same cubin.

All arguments are resolved at set-up, so the returned function only launches. The operands must outlive it.
"""

import ctypes
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np

from kernelmark.bench.measure.compile import Program, compile_cubin
from kernelmark.bench.measure.cubin import Resources
from kernelmark.bench.measure.cuda import device_id, present_limits
from kernelmark.bench.measure.launch_pycuda import CubinFunction, with_pycuda
from kernelmark.bench.measure.occupancy import STATIC_LIMIT, occupancy
from kernelmark.bench.measure.tensormap import encode, extents, launch_with_structs
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Im2colMap, KernelCall, Launch, Scratch, TensorMap, Tile
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem

#: Names are cut to this number of characters; CUTLASS has names of thousands of characters.
NAME = 120
#: At most this many launches are listed; the rest are counted.
LAUNCHES = 8


def cuda_launch(
    kernel: CudaKernel, problem: Problem, x: Any, launcher: str = "cuda-core", tile: Tile | None = None
) -> Launch:
    """Compile a kernel for the current device, load it, and return a function that launches it on `x.stream`.

    Raises Unsupported if the device or the launcher cannot run the kernel, CompileError if the .cu file does not
    compile, UsageError if an argument fits no C type.
    """
    if launcher not in _LAUNCHERS:
        raise UsageError(f"launcher {launcher!r}; expected one of {', '.join(_LAUNCHERS)}")
    device = present_limits()
    if reason := _beyond(kernel, device) or kernel.refuses(problem, device):
        raise Unsupported(reason)
    tile = tile or kernel.default_tile(problem, device)
    calls = kernel.calls(problem, tile, device)
    cubin = compile_cubin(kernel.source, entries_of(calls), device.arch, kernel.id)
    scratch: dict[str, Any] = {}
    launches = []
    for entry, call in calls:
        _check(kernel, call, cubin.resources[entry], device)
        arguments = [_argument(kernel, value, x, scratch) for value in call.args]
        settings = shared_settings(call, cubin.resources[entry], device)
        function = CubinFunction(cubin.code, cubin.symbols[entry], settings)
        launches.append(_LAUNCHERS[launcher](kernel, function, call, arguments, x.stream))
    return launches[0] if len(launches) == 1 else partial(_in_turn, tuple(launches))


def entries_of(calls: list[tuple[str, KernelCall]]) -> tuple[str, ...]:
    """Return the name expressions of all kernels that the launches use."""
    return tuple(dict.fromkeys(entry for entry, _ in calls))


def programs(kernels: Iterable[tuple[CudaKernel, Iterable[Problem]]], limits: DeviceLimits) -> list[Program]:
    """Return the distinct programs that cuda_launch compiles for these kernels and the problems that they accept."""
    taken = (
        (kernel, kernel.calls(problem, tile, limits))
        for kernel, problems in kernels
        for problem in problems
        if not (_beyond(kernel, limits) or kernel.refuses(problem, limits))
        and (tile := kernel.tile_for(problem, limits))
    )
    return list(dict.fromkeys(Program(kernel.source, entries_of(calls), kernel.id) for kernel, calls in taken))


def _in_turn(launches: tuple[Launch, ...]) -> None:
    for launch in launches:
        launch()


def _beyond(kernel: CudaKernel, device: DeviceLimits) -> str | None:
    if device.capability < kernel.min_arch:
        return f"{kernel.id} needs compute capability {kernel.min_arch / 10}; this GPU has {device.capability / 10}"
    if not kernel.runs_on(device.arch):
        return f"{kernel.id} uses instructions that only {', '.join(kernel.archs)} has; this is {device.arch}"
    return None


def _check(kernel: CudaKernel, call: KernelCall, used: Resources, device: DeviceLimits) -> None:
    """Raise Unsupported or UsageError for a launch that the driver would refuse with `invalid argument`."""
    if extents(call.grid)[0] % call.cluster:
        raise UsageError(f"{kernel.id}: a grid of {call.grid} blocks cannot be divided into clusters of {call.cluster}")
    threads = math.prod(extents(call.block))
    if threads > used.max_threads:
        expected = f"expected at most its launch bound of {used.max_threads}"
        raise UsageError(f"{kernel.id}: a launch has {threads} threads per block, {expected}")
    wanted, limit = used.static_shared_bytes + call.shared_bytes, device.block_shared_bytes
    if wanted > limit:
        raise Unsupported(f"{kernel.id} needs {wanted} bytes of shared memory per block, the device has {limit}")
    blocks, sms = math.prod(extents(call.grid)), device.multiprocessors
    resident = sms * resident_blocks(call, used, device)
    if kernel.cooperative and blocks > resident:
        held = f"the device's {sms} multiprocessors hold only {resident}"
        raise Unsupported(f"{kernel.id} synchronises {blocks} blocks, but {held}")


def resident_blocks(call: KernelCall, used: Resources, device: DeviceLimits) -> int:
    """Return the number of a launch's blocks that are resident on a multiprocessor."""
    shared = used.static_shared_bytes + call.shared_bytes
    return occupancy(device, math.prod(extents(call.block)), used.registers, shared).blocks_per_sm


def shared_settings(call: KernelCall, used: Resources, device: DeviceLimits) -> dict[str, int]:
    """Return the function attributes for static and dynamic shared memory, by the driver's names.

    If the resident blocks together use more shared memory than one block may use without opting in, the largest
    carve-out is requested. It shrinks the L1 cache, but with less shared memory fewer blocks would be resident.
    """
    wanted, settings = used.static_shared_bytes + call.shared_bytes, {}
    if wanted > STATIC_LIMIT:
        settings["MAX_DYNAMIC_SHARED_SIZE_BYTES"] = call.shared_bytes
    if wanted * resident_blocks(call, used, device) > STATIC_LIMIT:
        settings["PREFERRED_SHARED_MEMORY_CARVEOUT"] = 100  # per cent: CU_SHAREDMEM_CARVEOUT_MAX_SHARED
    return settings


def _argument(kernel: CudaKernel, value: Any, x: Any, scratch: dict[str, Any]) -> Any:
    """Return an argument: a device address as int, a scalar as the NumPy scalar of its C type, or a tensor map."""
    if isinstance(value, str):
        pointer = int(getattr(x, value).data.ptr)
        if pointer % kernel.alignment:
            expected = f"expected a multiple of {kernel.alignment} bytes"
            raise Unsupported(f"{kernel.id}: operand {value} lies at address {pointer}, {expected}")
        return pointer
    if isinstance(value, Scratch):
        if value.name not in scratch:
            scratch[value.name] = x.scratch((-(-value.nbytes // 2),), "f16")
        return int(scratch[value.name].data.ptr)
    if isinstance(value, TensorMap | Im2colMap):
        return encode(value, getattr(x, value.operand), kernel.id)
    return c_scalar(value, kernel.id)


def c_scalar(value: Any, subject: str) -> Any:
    """Return an int as C `int`, a float as C `float`, a NumPy scalar unchanged. Raises UsageError for other values."""
    if isinstance(value, np.generic):
        return value
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise UsageError(f"{subject}: argument {value} does not fit a C int; pass numpy.int64 to a long long")
        return np.int32(value)
    if isinstance(value, float):
        if abs(value) > float(np.finfo(np.float32).max):
            raise UsageError(f"{subject}: argument {value} does not fit a C float; pass numpy.float64 to a double")
        return np.float32(value)
    raise UsageError(f"{subject}: argument {value!r}; expected an operand's name, a number, Scratch or a tensor map")


def _with_cuda_core(kernel: CudaKernel, cubin: CubinFunction, call: KernelCall, args: list[Any], stream: Any) -> Launch:
    import cuda.core as core

    core.Device(device_id()).set_current()
    function = _cuda_core_kernel(cubin.code, cubin.symbol)
    for name, value in cubin.settings.items():
        _set_attribute(function, name, value)
    if any(isinstance(argument, np.ndarray | np.void) for argument in args):  # cuda-core's launch takes no structs
        return launch_with_structs(int(function.handle), call, args, stream.ptr)
    options: dict[str, Any] = {"is_cooperative": True} if kernel.cooperative else {}
    width, *rest = extents(call.grid)
    if call.cluster > 1:  # in this case cuda-core expects the grid in clusters
        options["cluster"] = (call.cluster, 1, 1)
    config = core.LaunchConfig(
        grid=(width // call.cluster, *rest), block=extents(call.block), shmem_size=call.shared_bytes, **options
    )
    return partial(core.launch, core.Stream.from_handle(stream.ptr), config, function, *args)


@lru_cache(maxsize=256)
def _cuda_core_kernel(code: bytes, symbol: str) -> Any:
    """Return the loaded kernel; cached, since all operand sets of a case use it."""
    from cuda.core import ObjectCode

    return ObjectCode.from_cubin(code).get_kernel(symbol)


def _set_attribute(function: Any, name: str, value: int) -> None:
    from cuda.bindings import driver

    attribute = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
    (status,) = driver.cuKernelSetAttribute(attribute, value, function.handle, driver.CUdevice(device_id()))
    if status != driver.CUresult.CUDA_SUCCESS:
        raise Unsupported(f"the driver cannot set {name} to {value}: {status.name}")


_LAUNCHERS: dict[str, Callable[..., Launch]] = {"cuda-core": _with_cuda_core, "pycuda": with_pycuda}


def launched(launch: Launch, stream: Any) -> str:
    """Return `name<<<gx,gy,gz x bx,by,bz>>>` of each kernel that a call launches, without running it; "" if unknown."""
    with suppress(Exception), _captured(launch, stream) as graph:
        kernels = list(_kernels(graph))
        rest = [f"and {len(kernels) - LAUNCHES} more"] if len(kernels) > LAUNCHES else []
        return "; ".join([*kernels[:LAUNCHES], *rest])
    return ""


@contextmanager
def _captured(launch: Launch, stream: Any) -> Iterator[Any]:
    """Capture a call as a graph, which is destroyed at the end, even if the call fails."""
    from cuda.bindings import driver

    _result(*driver.cuStreamBeginCapture(stream.ptr, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    graph = None
    try:
        try:
            launch()
        finally:
            graph = _result(*driver.cuStreamEndCapture(stream.ptr))  # otherwise the stream would refuse every other use
        yield graph
    finally:
        if graph is not None:
            driver.cuGraphDestroy(graph)


def _kernels(graph: Any) -> Iterator[str]:
    from cuda.bindings import driver

    _, count = _result(*driver.cuGraphGetNodes(graph))
    nodes, _ = _result(*driver.cuGraphGetNodes(graph, count))
    for node in nodes:
        if _result(*driver.cuGraphNodeGetType(node)) != driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
            continue
        params = _result(*driver.cuGraphKernelNodeGetParams(node))
        function = params.func if int(params.func) else _result(*driver.cuKernelGetFunction(params.kern))
        name = _readable(_result(*driver.cuFuncGetName(function)))
        grid = f"{params.gridDimX},{params.gridDimY},{params.gridDimZ}"
        yield f"{name}<<<{grid} x {params.blockDimX},{params.blockDimY},{params.blockDimZ}>>>"


def _result(status: Any, *values: Any) -> Any:
    if status.value:
        raise RuntimeError(f"the driver refuses to capture: {status.name}")
    return values[0] if len(values) == 1 else values


def _readable(symbol: bytes) -> str:
    """Return the name of a kernel without return type and parameters, cut to NAME characters."""
    name = symbol.decode()
    if (library := _cxx()) and (text := library.__cxa_demangle(symbol, None, None, None)):
        name = ctypes.string_at(text).decode()
        ctypes.CDLL(None).free(ctypes.c_void_p(text))
    if name.endswith(")"):
        depth, at = 1, len(name) - 1
        while depth:
            at -= 1
            depth += (name[at] == ")") - (name[at] == "(")
        name = name[:at].removeprefix("void ")
    return name if len(name) <= NAME else f"{name[: NAME - 3]}..."


@lru_cache
def _cxx() -> Any | None:
    with suppress(OSError):
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        return library
    return None
