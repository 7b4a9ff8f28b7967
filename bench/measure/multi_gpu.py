"""Arrays whose parts lie on several GPUs, each of which can read and write the others' memory."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np

from kernelmark.bench.measure.device import Memory
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.errors import Unsupported


class Spread:
    """A flat array in consecutive parts, each on a different GPU; parts: CuPy arrays of one type."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    @property
    def nbytes(self) -> int:
        return sum(int(part.nbytes) for part in self.parts)

    def view(self, dtype: Any) -> "Spread":
        return Spread([part.view(dtype) for part in self.parts])

    def fill(self, value: int) -> None:
        """Set all bytes to a value; this is complete on return."""
        for part in self.parts:
            with part.device:
                part.fill(value)
                part.device.synchronize()

    def __getitem__(self, span: slice) -> "Spread":
        first, last, _ = span.indices(sum(part.size for part in self.parts))
        parts = [part[max(0, first - at) : max(0, last - at)] for at, part in self.placed()]
        return Spread([part for part in parts if part.size])

    def placed(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of elements before each part, and the part."""
        at = 0
        for part in self.parts:
            yield at, part
            at += part.size


def parts_of(array: Any) -> list[Any]:
    """Return the parts of an array; an array on one GPU is its only part."""
    return array.parts if isinstance(array, Spread) else [array]


class Peers:
    """Memory of several GPUs. Each has an equal part of an array; the first and the last have `edge` more bytes."""

    def __init__(self, memory: Memory, gpus: tuple[int, ...], edge: int) -> None:
        self._memory, self._gpus, self._edge = memory, gpus, edge
        self.dtype = memory.dtype

    def bytes(self, nbytes: int) -> Spread:
        """Return uninitialised memory. Raises CuPy's OutOfMemoryError."""
        import cupy

        share = (nbytes - 2 * self._edge) // len(self._gpus)
        sizes, parts = [share] * len(self._gpus), []
        sizes[0] += self._edge
        sizes[-1] += self._edge
        for gpu, size in zip(self._gpus, sizes, strict=True):
            with cupy.cuda.Device(gpu):
                parts.append(cupy.empty(size, cupy.uint8))
        return Spread(parts)

    def upload(self, target: Spread, source: Array) -> None:
        """Copy an array from the host to the GPUs; the copy is complete on return."""
        for at, part in target.placed():
            with part.device:
                part.set(source[at : at + part.size].view(part.dtype))
                part.device.synchronize()

    def scatter(self, target: Spread, places: Array, values: Array) -> None:
        """Write single elements from the host to the GPUs; the writes are complete on return."""
        for at, part in target.placed():
            inside = (places >= at) & (places < at + part.size)
            with part.device:
                for place, value in zip((places[inside] - at).tolist(), values[inside].view(part.dtype), strict=True):
                    part[place : place + 1].set(np.array([value]))
                part.device.synchronize()

    def download(self, source: Spread) -> Array:
        """Copy an array from the GPUs to the host; the copy is complete on return."""
        parts = []
        for part in source.parts:
            with part.device:
                part.device.synchronize()
                parts.append(np.asarray(part.get()))
        return np.concatenate(parts)

    def holds(self, array: Spread, name: str, draw: Draw) -> bool:
        return draw.is_held(self.download(array), name)


def join_peers(count: int) -> None:
    """Let each of the first `count` GPUs read and write the memory of the others. Raises Unsupported."""
    import cupy

    there = cupy.cuda.runtime.getDeviceCount()
    if there < count:
        raise Unsupported(f"this needs {count} GPUs that can read each other's memory; this process sees {there}")
    for gpu, peer in permutations(range(count), 2):
        _join(gpu, peer)


@lru_cache
def _join(gpu: int, peer: int) -> None:
    import cupy

    runtime = cupy.cuda.runtime
    if not runtime.deviceCanAccessPeer(gpu, peer):
        raise Unsupported(f"GPU {gpu} cannot read the memory of GPU {peer}; `nvidia-smi topo -p2p r` shows which can")
    with cupy.cuda.Device(gpu):
        try:
            runtime.deviceEnablePeerAccess(peer)
        except runtime.CUDARuntimeError as error:
            if error.status != 704:  # cudaErrorPeerAccessAlreadyEnabled
                raise
