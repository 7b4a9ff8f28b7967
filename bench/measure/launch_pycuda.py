"""Launching by PyCUDA, in the device's primary context, on a stream of its own."""

import atexit
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from bench.measure.cuda import device_id
from bench.measure.tensormap import extents
from bench.plan.errors import Unsupported
from bench.plan.kernel import CudaKernel, KernelCall, Launch, TensorMap

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class Function(NamedTuple):
    """A kernel of a cubin, and the attributes to set before its first launch, by the driver's names."""

    code: bytes
    symbol: str
    settings: Mapping[str, int]


def with_pycuda(kernel: CudaKernel, loaded: Function, call: KernelCall, arguments: list[Any], stream: Any) -> Launch:
    """Return what launches the kernel once. Raises Unsupported for what PyCUDA cannot launch."""
    if what := beyond_pycuda(kernel, call):
        raise Unsupported(f"PyCUDA launches no {what}; take --launcher cuda-core")
    own = pycuda_stream(device_id())
    function = _pycuda_function(loaded.code, loaded.symbol)
    function.prepare("".join(map(_format, arguments)))
    arguments = [value.tobytes() if isinstance(value, np.void) else value for value in arguments]
    if loaded.settings:
        from pycuda.driver import function_attribute

        for name, value in loaded.settings.items():
            function.set_attribute(getattr(function_attribute, name), value)
    grid, block = extents(call.grid), extents(call.block)
    run = partial(function.prepared_async_call, grid, block, own, *arguments, shared_size=call.shared_bytes)
    return run if stream.ptr == own.handle else _bridged(run, own.handle, stream)


def _format(value: Any) -> str:
    """How `struct` packs an argument: an address, a scalar, or a struct's bytes where its alignment puts them."""
    if isinstance(value, np.void):
        return f"0{np.dtype(f'u{value.dtype.alignment}').char}{value.dtype.itemsize}s"
    return value.dtype.char if isinstance(value, np.generic) else "P"


def beyond_pycuda(kernel: CudaKernel, call: KernelCall) -> str | None:
    """Return what of the launch PyCUDA has no words for, or None."""
    if kernel.cooperative:
        return "cooperative kernels"
    if call.cluster > 1:
        return "clusters"
    return "tensor maps" if any(isinstance(value, TensorMap) for value in call.args) else None


def _bridged(run: Launch, own: int, stream: Any) -> Launch:
    """PyCUDA cannot adopt a stream: its own is forked from `stream` and joined to it again, by events."""
    import cupy

    side = cupy.cuda.ExternalStream(own)
    fork, join = cupy.cuda.Event(disable_timing=True), cupy.cuda.Event(disable_timing=True)

    def launch() -> None:
        fork.record(stream)
        side.wait_event(fork)
        run()
        join.record(side)
        stream.wait_event(join)

    return launch


@lru_cache
def pycuda_stream(device: int) -> Any:
    """PyCUDA's stream in the device's primary context, one a process.

    Where measuring runs on `cupy.cuda.ExternalStream(pycuda_stream(0).handle)`, launches need no bridge of events.
    Raises Unsupported where PyCUDA is not installed.
    """
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise Unsupported(f"PyCUDA is not usable ({error}); pip install 'kernelmark[pycuda]'") from None
    driver.init()
    context = driver.Device(device).retain_primary_context()
    context.push()
    stream = driver.Stream(NON_BLOCKING)
    atexit.register(_leave_pycuda, context)
    return stream


def _leave_pycuda(context: Any) -> None:
    """PyCUDA aborts the process where a context is still pushed at exit."""
    _pycuda_function.cache_clear()
    pycuda_stream.cache_clear()
    context.pop()


@lru_cache(maxsize=256)
def _pycuda_function(code: bytes, symbol: str) -> Any:
    from pycuda.driver import module_from_buffer

    return module_from_buffer(code).get_function(symbol)
