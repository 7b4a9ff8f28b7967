"""Launch by PyCUDA, in the device's primary context, on a stream of its own, which CuPy takes over.

PyCUDA can adopt no stream. If its stream were joined to another by events, these would be timed as part of each launch.
"""

import atexit
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.measure.cuda import device_id
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import CudaKernel, Im2colMap, KernelCall, Launch, TensorMap

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class CubinFunction(NamedTuple):
    """A kernel of a cubin, and the attributes to set before its first launch, by the driver's names."""

    code: bytes
    symbol: str
    settings: Mapping[str, int]


def with_pycuda(
    kernel: CudaKernel, loaded: CubinFunction, call: KernelCall, arguments: list[Any], stream: Any
) -> Launch:
    """Return a launcher of the kernel. Raises Unsupported if PyCUDA cannot launch it.

    Raises RuntimeError if `stream` is not PyCUDA's own: `take_stream` makes it the device's.
    """
    if what := beyond_pycuda(kernel, call):
        raise Unsupported(f"PyCUDA launches no {what}; take --launcher cuda-core")
    ours = pycuda_stream(device_id())
    if stream.ptr != ours.handle:
        raise RuntimeError(
            f"PyCUDA launches on its stream {ours.handle:#x} alone, not on {stream.ptr:#x}; take_stream() comes first"
        )
    function = _pycuda_function(loaded.code, loaded.symbol)
    function.prepare("".join(map(_format, arguments)))
    arguments = [value.tobytes() if isinstance(value, np.void) else value for value in arguments]
    if loaded.settings:
        from pycuda.driver import function_attribute

        for name, value in loaded.settings.items():
            function.set_attribute(getattr(function_attribute, name), value)
    grid, block = extents(call.grid), extents(call.block)
    return partial(function.prepared_async_call, grid, block, ours, *arguments, shared_size=call.shared_bytes)


def _format(value: Any) -> str:
    """How `struct` packs an argument: an address, a scalar, or a struct's bytes where its alignment puts them."""
    if isinstance(value, np.void):
        return f"0{np.dtype(f'u{value.dtype.alignment}').char}{value.dtype.itemsize}s"
    return value.dtype.char if isinstance(value, np.generic) else "P"


def beyond_pycuda(kernel: CudaKernel, call: KernelCall) -> str | None:
    """Return the part of the launch that PyCUDA cannot express, or None."""
    if kernel.cooperative:
        return "cooperative kernels"
    if call.cluster > 1:
        return "clusters"
    return "tensor maps" if any(isinstance(value, TensorMap | Im2colMap) for value in call.args) else None


class _Handle(NamedTuple):
    """PyCUDA's stream by the protocol that other libraries take streams by; they do not keep it alive."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def take_stream(device: Any) -> None:
    """Run all work of this CUDA device on PyCUDA's stream, before any kernel is set up.

    Raises Unsupported if PyCUDA is not usable.
    """
    import cupy

    stream = pycuda_stream(device_id())
    if device.stream.ptr != stream.handle:
        device.run_on(cupy.cuda.Stream.from_external(_Handle(int(stream.handle))))


@lru_cache
def pycuda_stream(device: int) -> Any:
    """PyCUDA's stream in the device's primary context, one per process.

    Raises Unsupported if PyCUDA is not installed.
    """
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise Unsupported(f"PyCUDA is not usable ({error}); pip install 'kernelmark[pycuda]'") from None
    driver.init()
    context = driver.Device(device).retain_primary_context()
    context.push()
    atexit.register(_leave_pycuda, context)
    return driver.Stream(NON_BLOCKING)


def _leave_pycuda(context: Any) -> None:
    """Release modules and stream, then the context, in which alone PyCUDA can release them.

    PyCUDA aborts the process where a context is still pushed at exit, and releases a primary context by the wrong
    function where it is left to a destructor.
    """
    _pycuda_function.cache_clear()
    pycuda_stream.cache_clear()
    context.detach()


@lru_cache(maxsize=256)
def _pycuda_function(code: bytes, symbol: str) -> Any:
    from pycuda.driver import module_from_buffer

    return module_from_buffer(code).get_function(symbol)
