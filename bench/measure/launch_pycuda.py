"""Launch kernels with PyCUDA in the device's primary context, on a stream that PyCUDA creates and CuPy also uses.

PyCUDA cannot use a stream of another library. Events that synchronise its stream with another one would add their cost
to each timed launch.
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


class CubinFunction(NamedTuple):
    """A kernel in a cubin, and the attributes to set before its first launch, by the driver's names."""

    code: bytes
    symbol: str
    settings: Mapping[str, int]


def with_pycuda(kernel: CudaKernel, cubin: CubinFunction, call: KernelCall, args: list[Any], stream: Any) -> Launch:
    """Return a function that launches the kernel. Raises Unsupported if PyCUDA cannot launch it.

    Raises RuntimeError if `stream` is not PyCUDA's stream, which `take_stream` makes the device's stream.
    """
    if what := beyond_pycuda(kernel, call):
        raise Unsupported(f"PyCUDA cannot launch {what}; use --launcher cuda-core")
    ours = pycuda_stream(device_id())
    if stream.ptr != ours.handle:
        raise RuntimeError(
            f"PyCUDA launches only on its stream {ours.handle:#x}, not on {stream.ptr:#x}; call take_stream() first"
        )
    function = _pycuda_function(cubin.code, cubin.symbol)
    function.prepare("".join(map(_format, args)))
    args = [value.tobytes() if isinstance(value, np.void) else value for value in args]
    if cubin.settings:
        from pycuda.driver import function_attribute

        for name, value in cubin.settings.items():
            function.set_attribute(getattr(function_attribute, name), value)
    grid, block = extents(call.grid), extents(call.block)
    return partial(function.prepared_async_call, grid, block, ours, *args, shared_size=call.shared_bytes)


def _format(value: Any) -> str:
    """Return the `struct` format of an argument: an address, a scalar, or the bytes of an aligned struct."""
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
    """PyCUDA's stream as an object with `__cuda_stream__`; a library that uses it does not keep the stream alive."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def take_stream(device: Any) -> None:
    """Run all work of this CUDA device on PyCUDA's stream; call it before any kernel is set up. Raises Unsupported."""
    import cupy

    stream = pycuda_stream(device_id())
    if device.stream.ptr != stream.handle:
        device.run_on(cupy.cuda.Stream.from_external(_Handle(int(stream.handle))))


@lru_cache
def pycuda_stream(device: int) -> Any:
    """Return PyCUDA's stream in the device's primary context, one per process. Raises Unsupported without PyCUDA."""
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise Unsupported(f"PyCUDA is not usable ({error}); pip install 'kernelmark[pycuda]'") from None
    driver.init()
    context = driver.Device(device).retain_primary_context()
    context.push()
    atexit.register(_leave_pycuda, context)
    return driver.Stream(1)  # CU_STREAM_NON_BLOCKING


def _leave_pycuda(context: Any) -> None:
    """Release modules and stream, then the context, since PyCUDA can only release them while it has the context.

    PyCUDA aborts the process if a context is still pushed at exit, and its destructor would release a primary context
    with the wrong function.
    """
    _pycuda_function.cache_clear()
    pycuda_stream.cache_clear()
    context.detach()


@lru_cache(maxsize=256)
def _pycuda_function(code: bytes, symbol: str) -> Any:
    from pycuda.driver import module_from_buffer

    return module_from_buffer(code).get_function(symbol)
