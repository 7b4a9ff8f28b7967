"""Theoretical occupancy: how many blocks of a kernel fit on a multiprocessor, and what limits them.

Limits from the CUDA C++ Programming Guide's table of technical specifications per compute capability, allocation rules
from NVIDIA's occupancy calculator (cuda_occupancy.h of CUDA 13.0, with which tests compare). Needs no GPU. The shared
memory carve-out is taken at its largest, which the driver chooses where a kernel can use it.
"""

import re
from typing import Literal, NamedTuple

import msgspec

from bench.plan.errors import UsageError

Limiter = Literal["warps", "blocks", "registers", "shared memory", "does not fit"]

WARP = 32
REGISTERS = 65536  # of a multiprocessor, on all of these
REGISTER_GRANULARITY = 256  # a warp's registers are rounded up to this
PARTITIONS = 4  # a warp lives in one quarter of the multiprocessor, with a quarter of its registers
MAX_THREADS = 1024
STATIC_LIMIT = 48 * 1024  # bytes; dynamic shared memory beyond this must be asked for


class SmLimits(NamedTuple):
    """A multiprocessor: warps and blocks it holds; shared memory in bytes, in all, for a block, reserved a block."""

    warps: int
    blocks: int
    shared_bytes: int
    shared_bytes_a_block: int
    shared_reserved_bytes: int
    shared_granularity: int


_KIB = 1024
LIMITS = {
    75: SmLimits(32, 16, 64 * _KIB, 64 * _KIB, 0, 256),
    80: SmLimits(64, 32, 164 * _KIB, 163 * _KIB, _KIB, 128),
    86: SmLimits(48, 16, 100 * _KIB, 99 * _KIB, _KIB, 128),
    89: SmLimits(48, 24, 100 * _KIB, 99 * _KIB, _KIB, 128),
    90: SmLimits(64, 32, 228 * _KIB, 227 * _KIB, _KIB, 128),
    100: SmLimits(64, 32, 228 * _KIB, 227 * _KIB, _KIB, 128),
    120: SmLimits(48, 24, 100 * _KIB, 99 * _KIB, _KIB, 128),
}


class Occupancy(msgspec.Struct, frozen=True):
    """Blocks on a multiprocessor, their warps as a share of what it holds (0 to 1), and what limits them."""

    blocks_per_sm: int
    occupancy: float
    limiter: Limiter


def capability(arch: str) -> int:
    """90 for `sm_90a`. Raises UsageError where the limits are not known."""
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if not match or int(match[1]) not in LIMITS:
        known = ", ".join(f"sm_{number}" for number in LIMITS)
        raise UsageError(f"arch {arch!r}: its limits are not known; expected one of {known}")
    return int(match[1])


def occupancy(arch: str, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Occupancy of blocks of `threads` threads with `registers` each and `shared_bytes` (static and dynamic) a block.

    Of two limits that are equal the first is named, in the order warps, blocks, registers, shared memory.
    """
    sm = LIMITS[capability(arch)]
    warps = -(-threads // WARP)
    fits: dict[Limiter, int] = {
        "warps": sm.warps // warps,
        "blocks": sm.blocks,
        "registers": _by_registers(registers, warps, sm.blocks),
        "shared memory": _by_shared_memory(shared_bytes, sm),
    }
    blocks = min(fits.values())
    if threads > MAX_THREADS or blocks == 0:
        return Occupancy(0, 0.0, "does not fit")
    return Occupancy(blocks, blocks * warps / sm.warps, min(fits, key=lambda name: fits[name]))


def _by_registers(registers: int, warps: int, unlimited: int) -> int:
    if registers == 0:
        return unlimited
    a_warp = _round_up(registers * WARP, REGISTER_GRANULARITY)
    return REGISTERS // PARTITIONS // a_warp * PARTITIONS // warps


def _by_shared_memory(nbytes: int, sm: SmLimits) -> int:
    allocated = _round_up(nbytes + sm.shared_reserved_bytes, sm.shared_granularity)
    if nbytes > sm.shared_bytes_a_block:
        return 0
    return sm.shared_bytes // allocated if allocated else sm.blocks


def _round_up(value: int, granularity: int) -> int:
    return -(-value // granularity) * granularity
