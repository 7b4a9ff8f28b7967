"""Which GPU kernels a call launches: read from the nodes of a CUDA graph, into which the call is captured."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from kernelmark.bench.plan.kernel import Launch

#: A name is cut after this number of characters; those of CUTLASS have thousands.
NAME = 120
#: Of more launches than this, the rest are counted.
LAUNCHES = 8


def launched(launch: Launch, stream: Any) -> str:
    """Return `name<<<gx,gy,gz x bx,by,bz>>>` of each kernel that a call launches, without running any.

    Return "" where the call cannot be captured, for whatever reason its library has.
    """
    with suppress(Exception), _captured(launch, stream) as graph:
        kernels = list(_kernels(graph))
        rest = [f"and {len(kernels) - LAUNCHES} more"] if len(kernels) > LAUNCHES else []
        return "; ".join([*kernels[:LAUNCHES], *rest])
    return ""


@contextmanager
def _captured(launch: Launch, stream: Any) -> Iterator[Any]:
    """The graph of a call, which is destroyed at the end, also where the call fails."""
    from cuda.bindings import driver

    _result(*driver.cuStreamBeginCapture(stream.ptr, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    graph = None
    try:
        try:
            launch()
        finally:
            graph = _result(*driver.cuStreamEndCapture(stream.ptr))  # else the stream would refuse every other use
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
    """Return the name of a kernel without its return type and parameters, at most NAME characters of it."""
    name = _demangled(symbol)
    if name.endswith(")"):
        depth, at = 1, len(name) - 1
        while depth:
            at -= 1
            depth += (name[at] == ")") - (name[at] == "(")
        name = name[:at].removeprefix("void ")
    return name if len(name) <= NAME else f"{name[: NAME - 3]}..."


def _demangled(symbol: bytes) -> str:
    if (library := _cxx()) is None or not (text := library.__cxa_demangle(symbol, None, None, None)):
        return symbol.decode()
    found = ctypes.string_at(text).decode()
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return found


@lru_cache
def _cxx() -> Any | None:
    """Return the C++ library, or None where there is none."""
    with suppress(OSError):
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        return library
    return None
