"""Theoretical occupancy: how many blocks of a kernel fit on a multiprocessor, and what limits them.

The allocation rules come from NVIDIA's occupancy calculator (cuda_occupancy.h of CUDA 13.0); tests compare them with
it. No GPU is needed. The largest shared memory carve-out is assumed, as launches request it if needed.
"""

import re
from typing import Literal

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.limits import TYPICAL, DeviceLimits

Limiter = Literal["warps", "blocks", "registers", "shared memory", "does not fit"]

WARP = 32
REGISTERS = 65536  # per multiprocessor, on all supported devices
REGISTER_GRANULARITY = 256  # a warp's registers are rounded up to this
PARTITIONS = 4  # a warp runs in one quarter of the multiprocessor, which has a quarter of the registers
MAX_THREADS = 1024
STATIC_LIMIT = 48 * 1024  # bytes; more dynamic shared memory must be requested


class Occupancy(msgspec.Struct, frozen=True):
    """The blocks on a multiprocessor, their warps as a share of its maximum (0 to 1), and the limiting resource."""

    blocks_per_sm: int
    occupancy: float
    limiter: Limiter


def typical(arch: str) -> DeviceLimits:
    """Return typical limits of an architecture, such as `sm_90a`. Raises UsageError if they are not known."""
    match = re.fullmatch(r"sm_(\d{2,3})[af]?", arch)
    if not match or int(match[1]) not in TYPICAL:
        known = ", ".join(f"sm_{number}" for number in TYPICAL)
        raise UsageError(f"arch {arch!r}: its limits are not known; expected one of {known}")
    return TYPICAL[int(match[1])]


def occupancy(device: DeviceLimits, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Return the occupancy for these threads per block, registers per thread and bytes of shared memory per block.

    shared_bytes: static and dynamic. If several limits are equal, the first is returned, in the order warps, blocks,
    registers, shared memory.
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
