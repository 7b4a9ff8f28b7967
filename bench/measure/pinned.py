"""Host memory that the driver of a GPU allocates: pinned, write-combined, mapped, managed."""

import ctypes
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernelmark.bench.measure.memory import whole_bytes
from kernelmark.bench.measure.pages import PAGES
from kernelmark.bench.plan.dtypes import Array

#: The share of the host's memory that may be locked at a time: the system cannot take any of it back.
LOCKED_SHARE = 0.25
#: The flags of memory that is locked, by its kind (cuda.h); a driver with unified addresses maps all of it.
LOCKED = {"pinned": 0, "mapped": 2, "write_combined": 4}


class Addressed(np.ndarray[Any, Any]):
    """An array in the host's memory that has its address where arrays on a GPU have theirs, as `data.ptr`."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class DriverMemory:
    """Allocates host memory of each kind that kernels on a GPU may declare, and counts what of it is locked."""

    def __init__(self) -> None:
        self._locked_bytes = 0

    def allocate(self, kind: str, nbytes: int) -> Array:
        """Return bytes of a kind, "" for pages as NumPy gets them.

        Raises MemoryError beyond LOCKED_SHARE before anything is locked, and where the driver has no more.
        """
        if kind == "":
            return PAGES[kind](nbytes).view(Addressed)
        from cuda.bindings import driver

        locked = nbytes if kind in LOCKED else 0
        if kind in LOCKED:
            self._refuse_too_much(kind, nbytes)
            address, free = int(_result(*driver.cuMemHostAlloc(nbytes, LOCKED[kind]))), driver.cuMemFreeHost
        else:
            address, free = _managed(nbytes), driver.cuMemFree
        self._locked_bytes += locked
        block = (ctypes.c_ubyte * nbytes).from_address(address)
        weakref.finalize(block, self._free, free, address, locked).atexit = False
        return np.frombuffer(memoryview(block), np.uint8).view(Addressed)

    def _refuse_too_much(self, kind: str, nbytes: int) -> None:
        wanted, whole = self._locked_bytes + nbytes, whole_bytes()
        if whole is not None and wanted > LOCKED_SHARE * whole:
            expected = f"expected at most {LOCKED_SHARE * whole / 1e9:.3g} GB, a quarter of the host's memory"
            raise MemoryError(f"{kind} memory: {wanted / 1e9:.3g} GB would be locked; {expected}")

    def _free(self, free: Any, address: int, locked: int) -> None:
        self._locked_bytes -= locked
        free(address)


def _managed(nbytes: int) -> int:
    """Return the address of managed memory that stays with the host, whoever reads it."""
    from cuda.bindings import driver

    address = int(_result(*driver.cuMemAllocManaged(nbytes, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)))
    host = driver.CUmemLocation()
    host.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    advice = driver.CUmem_advise.CU_MEM_ADVISE_SET_PREFERRED_LOCATION
    _result(*driver.cuMemAdvise(address, nbytes, advice, host))
    return address


def _result(status: Any, value: Any = None) -> Any:
    """Return what a call of the driver results in. Raises MemoryError where it did not succeed."""
    if status.value:
        raise MemoryError(f"the driver refuses memory of the host: {status.name}")
    return value
