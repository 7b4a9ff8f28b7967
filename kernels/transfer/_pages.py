"""Give pages of host memory back to the system, and bind pages to a NUMA node."""

import ctypes
import mmap
import os
import platform
from functools import partial
from pathlib import Path
from typing import Any

from kernelmark import Launch, Unsupported

NODES = Path("/sys/devices/system/node")
#: The system call numbers of mbind(2), for which the C library has no function, and its policy and flag
#: (linux/mempolicy.h).
MBIND = {"x86_64": 237, "aarch64": 235}
_BIND, _MOVE = 2, 2
_MASK_BITS = 1024
_libc = ctypes.CDLL(None, use_errno=True)


def whole_pages(array: Any) -> tuple[int, int]:
    """Return the address and the size in bytes of the pages that lie wholly within an array."""
    first = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (array.ctypes.data + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    return first, max(0, last - first)


def give_back(array: Any) -> Launch:
    """Return a launch that gives the whole pages of an array back to the system; the next stores get new pages."""
    start, nbytes = whole_pages(array)
    return partial(_madvise, ctypes.c_void_p(start), ctypes.c_size_t(nbytes), mmap.MADV_DONTNEED)


def _madvise(*arguments: Any) -> None:
    if _libc.madvise(*arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def bind_to_node(array: Any, node: int | None) -> None:
    """Move the pages of an array to a NUMA node. Raises Unsupported if the node does not exist or cannot hold them."""
    if node is None:
        return
    _nodes_with(node)
    start, nbytes = whole_pages(array)
    if nbytes and (reason := _bound(start, nbytes, node)):
        raise Unsupported(f"memory cannot be bound to NUMA node {node}: {reason}")


def require_node(node: int | None) -> None:
    """Raise Unsupported if the driver's pages, which cannot be moved, may lie on a NUMA node other than `node`."""
    if node is not None and len(_nodes_with(node)) > 1:
        raise Unsupported(
            "the driver has placed these pages, which cannot be moved; transfer/cuda.pageable moves its own"
        )


def _nodes_with(node: int) -> list[int]:
    """Return the NUMA nodes of this machine. Raises Unsupported if `node` is not among them."""
    nodes = sorted(int(path.name.removeprefix("node")) for path in NODES.glob("node[0-9]*"))
    if node not in nodes:
        names = ", ".join(map(str, nodes)) or "none that the system lists"
        raise Unsupported(f"NUMA node {node} does not exist; nodes of this machine: {names}")
    return nodes


def _bound(start: int, nbytes: int, node: int) -> str | None:
    """Return why the system does not bind pages to a node, or None."""
    number = MBIND.get(platform.machine())
    if number is None:
        return f"the system call number of mbind is not known on {platform.machine()}"
    mask = (ctypes.c_ulong * (_MASK_BITS // 64))()
    mask[node // 64] = 1 << node % 64
    arguments = (ctypes.c_long(number), ctypes.c_void_p(start), ctypes.c_ulong(nbytes), ctypes.c_long(_BIND))
    if _libc.syscall(*arguments, mask, ctypes.c_ulong(_MASK_BITS), ctypes.c_ulong(_MOVE)):
        return os.strerror(ctypes.get_errno())
    return None
