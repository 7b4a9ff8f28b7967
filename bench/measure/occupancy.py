"""Theoretical occupancy: how many blocks of a kernel fit on a multiprocessor, and what limits them.

Allocation rules from NVIDIA's occupancy calculator (cuda_occupancy.h of CUDA 13.0, with which tests compare). Needs no
GPU. The shared memory carve-out is the largest, which launches ask for if they rely on it.
"""

import re
from typing import Literal

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.limits import TYPICAL, DeviceLimits

Limiter = Literal["warps", "blocks", "registers", "shared memory", "does not fit"]

WARP = 32
REGISTERS = 65536  # of a multiprocessor, on all of these
REGISTER_GRANULARITY = 256  # a warp's registers are rounded up to this
PARTITIONS = 4  # a warp lives in one quarter of the multiprocessor, with a quarter of its registers
MAX_THREADS = 1024
STATIC_LIMIT = 48 * 1024  # bytes; dynamic shared memory beyond this must be asked for


class Occupancy(msgspec.Struct, frozen=True):
    """Blocks on a multiprocessor, their warps as a share of its maximum (0 to 1), and what limits them."""

    blocks_per_sm: int
    occupancy: float
    limiter: Limiter


def typical(arch: str) -> DeviceLimits:
    """Return a device of 9.0 for `sm_90a`. Raises UsageError if the limits are not known."""
    match = re.fullmatch(r"sm_(\d{2,3})[af]?", arch)
    if not match or int(match[1]) not in TYPICAL:
        known = ", ".join(f"sm_{number}" for number in TYPICAL)
        raise UsageError(f"arch {arch!r}: its limits are not known; expected one of {known}")
    return TYPICAL[int(match[1])]


def occupancy(device: DeviceLimits, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Return the occupancy of blocks of these threads, registers a thread and bytes of shared memory.

    shared_bytes: static and dynamic. Of two equal limits the first is named, in the order warps, blocks, registers,
    shared memory.
    """
    warps, max_warps = -(-threads // WARP), device.sm_threads // WARP
    a_warp = -(-registers * WARP // REGISTER_GRANULARITY) * REGISTER_GRANULARITY
    fits: dict[Limiter, int] = {
        "warps": max_warps // warps,
        "blocks": device.sm_blocks,
        "registers": REGISTERS // PARTITIONS // a_warp * PARTITIONS // warps if registers else device.sm_blocks,
        "shared memory": device.blocks_by_shared(shared_bytes),
    }
    blocks = min(fits.values())
    if threads > MAX_THREADS or blocks == 0:
        return Occupancy(0, 0.0, "does not fit")
    return Occupancy(blocks, blocks * warps / max_warps, min(fits, key=lambda name: fits[name]))
