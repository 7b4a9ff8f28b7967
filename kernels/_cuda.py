"""Limits that hold on every CUDA device, and requirements of the TMA, for planning launches."""

from collections.abc import Callable
from functools import cache

from kernelmark import DTYPES, DeviceLimits, Operand, Problem

GRID_LIMIT = 65535  # blocks along y and z, on every compute capability
INT_LIMIT = 2**31 - 1  # sizes and leading dimensions are C ints
STATIC_BYTES = 48 * 1024  # limit of statically declared shared memory, on every compute capability
BLOCK_THREADS, SM_REGISTERS, THREAD_REGISTERS = 1024, 2**16, 255  # on every compute capability
OTHER_REGISTERS = 24  # the fewest registers that a thread needs in addition to its sums


def ceil_div(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def multiprocessors(device: DeviceLimits) -> int:
    """Return the value of the tunable SMS: the number of the device's multiprocessors."""
    return device.multiprocessors


@cache
def blocks_on_each(count: int) -> Callable[[DeviceLimits], int]:
    """Return a function that computes a tunable's value: `count` blocks for each multiprocessor of a device."""
    return lambda device: count * device.multiprocessors


def beyond_static(nbytes: int) -> str | None:
    """Return why a block cannot declare this much static shared memory on any device, or None."""
    if nbytes <= STATIC_BYTES:
        return None
    return f"a block declares {nbytes} bytes of shared memory, expected at most {STATIC_BYTES}"


def beyond_block(threads: int, sums: int, blocks: int = 1) -> str | None:
    """Return why a block cannot have this many threads with this many values in registers each, or None.

    blocks: the number of blocks per multiprocessor that the compiler must leave registers for.
    """
    if not 32 <= threads <= BLOCK_THREADS:
        return f"a block has {threads} threads, expected 32 to {BLOCK_THREADS}"
    registers = max(0, min(THREAD_REGISTERS, SM_REGISTERS // (threads * blocks)) - OTHER_REGISTERS)
    return None if sums <= registers else f"a thread keeps {sums} values, expected at most {registers} in registers"


def rows_of_16_bytes(p: Problem) -> str | None:
    """Return why operands are not aligned as tensor maps (and some libraries) require, or None."""
    for operand in p.operands():
        pitch = operand.ld * DTYPES[operand.dtype].itemsize
        if pitch % 16:
            return f"rows of {operand.name} begin every {pitch} bytes, expected a multiple of 16"
    return None


def whole_16_bytes(operand: Operand) -> str | None:
    """Return why the TMA, which writes global memory in units of 16 bytes, cannot store an operand, or None."""
    nbytes = operand.shape[-1] * DTYPES[operand.dtype].itemsize
    if nbytes % 16:
        return f"a row of {operand.name} has {nbytes} bytes, expected a multiple of 16: the TMA's unit of writing"
    return None
