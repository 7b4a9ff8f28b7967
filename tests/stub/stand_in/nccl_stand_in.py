"""Stands in for cupy.cuda.nccl: collectives of one process on all GPUs, carried out on the host when a group ends.

The stub's device memory is the host's.
"""

import ctypes
from collections import namedtuple

import numpy as np
from cuda.bindings import driver

available = True
NCCL_SUM, NCCL_FLOAT32, NCCL_FLOAT64 = 0, 7, 8
_TYPES = {NCCL_FLOAT32: np.float32, NCCL_FLOAT64: np.float64}
EVERYWHERE = -1


#: A collective queued by one GPU; root: the GPU that gets the sum, or whose array is broadcast.
Call = namedtuple("Call", "name sent received count kind root stream")


class _Group:
    """The number of GPUs, and the calls of the open group, or None; a call outside of a group fails."""

    gpus, calls = 0, None


def get_version():
    return 22707


def groupStart():
    assert _Group.calls is None, "a group within a group"
    _Group.calls = []


def groupEnd():
    """Carry out the one collective of the group, of which each GPU has a call. Raises AssertionError for any other."""
    calls, _Group.calls = _Group.calls or [], None
    assert len(calls) == _Group.gpus, f"{len(calls)} calls in a group of {_Group.gpus} GPUs"
    assert len({(call.name, call.count, call.kind, call.root) for call in calls}) == 1, "the calls of a group differ"
    for call in calls:
        (status,) = driver.cuStreamSynchronize(call.stream)
        assert status == driver.CUresult.CUDA_SUCCESS
    name, root = calls[0].name, calls[0].root
    sent = [_array(call.sent, call) for call in (calls[root : root + 1] if name == "broadcast" else calls)]
    total = np.add.reduce(sent)
    for gpu, call in enumerate(calls):
        if name == "broadcast" or root in (EVERYWHERE, gpu):
            _array(call.received, call)[:] = total


def _array(address, call):
    scalar = np.dtype(_TYPES[call.kind])
    return np.frombuffer((ctypes.c_ubyte * (call.count * scalar.itemsize)).from_address(address), scalar)


class NcclCommunicator:
    """A GPU's part of the group."""

    @staticmethod
    def initAll(devices):
        _Group.gpus = devices
        return [NcclCommunicator() for _ in range(devices)]

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        assert op == NCCL_SUM
        _Group.calls.append(Call("allReduce", sendbuf, recvbuf, count, datatype, EVERYWHERE, stream))

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        assert op == NCCL_SUM
        _Group.calls.append(Call("reduce", sendbuf, recvbuf, count, datatype, root, stream))

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        _Group.calls.append(Call("broadcast", sendbuff, recvbuff, count, datatype, root, stream))


class ElementwiseKernel:
    """A kernel whose statement reads the same in C++ and in NumPy, run on the host once its stream is done."""

    def __init__(self, in_params, out_params, operation, name):
        given = (*in_params.split(","), *out_params.split(","))
        self._names, self._code = [parameter.split()[-1] for parameter in given], compile(operation, name, "exec")

    def __call__(self, *args):
        import cupy

        (status,) = driver.cuStreamSynchronize(cupy.cuda.get_current_stream().ptr)
        assert status == driver.CUresult.CUDA_SUCCESS
        exec(self._code, dict(zip(self._names, map(_on_host, args), strict=True)))


def _on_host(x):
    """Return a NumPy array on the same memory, or a scalar unchanged."""
    if isinstance(x, float):
        return x
    return np.frombuffer((ctypes.c_ubyte * x.nbytes).from_address(x.data.ptr), x.dtype)
