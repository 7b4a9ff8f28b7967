"""Launching hand-written kernels: the same cubin by cuda-core (the default) or by PyCUDA.

Everything is resolved at set-up; the closure only launches. The operands must outlive it.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from bench.measure.compile import Cubin, compile_cubin
from bench.measure.cuda import device_id
from bench.measure.launch_pycuda import with_pycuda
from bench.measure.occupancy import STATIC_LIMIT, occupancy
from bench.measure.tensormap import encode, extents, is_struct, launch_with_structs
from bench.plan.errors import Unsupported, UsageError
from bench.plan.kernel import CudaKernel, KernelCall, Launch, Scratch, TensorMap, Tile
from bench.plan.operation import Problem

INT_RANGE = range(-(2**31), 2**31)
FLOAT_MAX = float(np.finfo(np.float32).max)


def cuda_launch(
    kernel: CudaKernel, problem: Problem, x: Any, launcher: str = "cuda-core", tile: Tile | None = None
) -> Launch:
    """Compile for the present device, load, resolve the arguments and return what launches the plan on `x.stream`.

    Raises Unsupported where device or launcher cannot, CompileError where the .cu does not compile, UsageError where
    an argument fits no C type.
    """
    if launcher not in _LAUNCHERS:
        raise UsageError(f"launcher {launcher!r}; expected one of {', '.join(_LAUNCHERS)}")
    tile = tile or kernel.tile_for(problem)
    if tile is None:
        raise Unsupported(kernel.refuses(problem) or f"{kernel.id}: no tile is valid")
    calls = kernel.calls(problem, tile)
    entries = tuple(dict.fromkeys(entry for entry, _ in calls))
    cubin = compile_cubin(kernel.source, entries, _arch(kernel), kernel.id)
    scratch: dict[str, Any] = {}
    launches = []
    for entry, call in calls:
        _check(kernel, call, cubin, entry)
        arguments = [_argument(kernel, value, x, scratch) for value in call.args]
        launches.append(_LAUNCHERS[launcher](kernel, cubin, cubin.symbols[entry], call, arguments, x.stream))
    return launches[0] if len(launches) == 1 else partial(_in_turn, tuple(launches))


def _in_turn(launches: tuple[Launch, ...]) -> None:
    for launch in launches:
        launch()


def _arch(kernel: CudaKernel) -> str:
    """The present device's architecture; on Hopper with its own instructions."""
    import cupy

    capability = cupy.cuda.Device().compute_capability
    if int(capability) < kernel.min_arch:
        raise Unsupported(
            f"{kernel.id} needs compute capability {kernel.min_arch / 10}, this is {int(capability) / 10}"
        )
    arch = f"sm_{capability}a" if capability == "90" else f"sm_{capability}"
    if not kernel.runs_on(arch):
        raise Unsupported(f"{kernel.id} has instructions of {', '.join(kernel.archs)} alone, this is {arch}")
    return arch


def _check(kernel: CudaKernel, call: KernelCall, cubin: Cubin, entry: str) -> None:
    """Refuse what the driver would refuse with `invalid argument`."""
    import cupy

    if extents(call.grid)[0] % call.cluster:
        raise UsageError(f"{kernel.id}: a grid of {call.grid} blocks has no whole clusters of {call.cluster}")

    resources, threads = cubin.resources[entry], math.prod(extents(call.block))
    if threads > resources.max_threads:
        raise UsageError(
            f"{kernel.id}: {entry} is launched with {threads} threads a block, its bound is {resources.max_threads}"
        )
    limit = cupy.cuda.Device().attributes.get("MaxSharedMemoryPerBlockOptin")
    wanted = resources.static_shared_bytes + call.shared_bytes
    if limit and wanted > limit:
        raise Unsupported(f"{kernel.id} needs {wanted} bytes of shared memory a block, the device has {limit}")
    blocks, sms = math.prod(extents(call.grid)), cupy.cuda.Device().attributes.get("MultiProcessorCount")
    if kernel.cooperative and sms:
        resident = sms * occupancy(cubin.arch, threads, resources.registers, wanted).blocks_per_sm
        if blocks > resident:
            raise Unsupported(
                f"{kernel.id} synchronises {blocks} blocks, of which the device's {sms} multiprocessors hold {resident}"
            )


def _argument(kernel: CudaKernel, value: Any, x: Any, scratch: dict[str, Any]) -> Any:
    """A device address as int, a scalar as the NumPy scalar of its C type, or a tensor map."""
    if isinstance(value, str):
        return _address(kernel, value, x)
    if isinstance(value, Scratch):
        if value.name not in scratch:
            scratch[value.name] = x.scratch((-(-value.nbytes // 2),), "f16")
        return int(scratch[value.name].data.ptr)
    if isinstance(value, TensorMap):
        return encode(value, getattr(x, value.operand), kernel.id)
    return c_scalar(value, kernel.id)


def _address(kernel: CudaKernel, name: str, x: Any) -> int:
    pointer = int(getattr(x, name).data.ptr)
    if pointer % kernel.alignment:
        raise Unsupported(
            f"{kernel.id}: operand {name} lies at address {pointer}, expected a multiple of {kernel.alignment} bytes"
        )
    return pointer


def c_scalar(value: Any, subject: str) -> Any:
    """An int as C `int`, a float as C `float`, NumPy scalars as they are. Raises UsageError where it does not fit."""
    if isinstance(value, np.generic):
        return value
    if isinstance(value, int):
        if value not in INT_RANGE:
            raise UsageError(f"{subject}: argument {value} does not fit a C int; pass numpy.int64 and take long long")
        return np.int32(value)
    if isinstance(value, float):
        if abs(value) > FLOAT_MAX:
            raise UsageError(f"{subject}: argument {value} does not fit a C float; pass numpy.float64 and take double")
        return np.float32(value)
    raise UsageError(f"{subject}: argument {value!r}; expected an operand's name, a number, Scratch or TensorMap")


def _with_cuda_core(
    kernel: CudaKernel, cubin: Cubin, symbol: str, call: KernelCall, arguments: list[Any], stream: Any
) -> Launch:
    import cuda.core as core

    core.Device(device_id()).set_current()
    function = _cuda_core_kernel(cubin.code, symbol)
    if call.shared_bytes > STATIC_LIMIT:
        _allow_shared(function, call.shared_bytes)
    if any(is_struct(argument) for argument in arguments):
        return launch_with_structs(int(function.handle), call, arguments, stream.ptr)
    options: dict[str, Any] = {"is_cooperative": True} if kernel.cooperative else {}
    width, *rest = extents(call.grid)
    if call.cluster > 1:  # cuda-core then counts the grid in clusters
        options["cluster"] = (call.cluster, 1, 1)
    config = core.LaunchConfig(
        grid=(width // call.cluster, *rest), block=extents(call.block), shmem_size=call.shared_bytes, **options
    )
    return partial(core.launch, core.Stream.from_handle(stream.ptr), config, function, *arguments)


@lru_cache(maxsize=256)
def _cuda_core_kernel(code: bytes, symbol: str) -> Any:
    """The loaded kernel; the operand sets of a case share it."""
    from cuda.core import ObjectCode

    return ObjectCode.from_cubin(code).get_kernel(symbol)


def _allow_shared(function: Any, nbytes: int) -> None:
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, nbytes, function.handle, driver.CUdevice(device_id()))
    if status != driver.CUresult.CUDA_SUCCESS:
        raise Unsupported(f"the driver gives no {nbytes} bytes of dynamic shared memory: {status.name}")


_Launcher = Callable[[CudaKernel, Cubin, str, KernelCall, list[Any], Any], Launch]
_LAUNCHERS: Mapping[str, _Launcher] = {"cuda-core": _with_cuda_core, "pycuda": with_pycuda}
