"""The limits of a device, present or assumed, for plans of CUDA launches."""

from dataclasses import dataclass

_KIB, _MIB = 2**10, 2**20


@dataclass(frozen=True, kw_only=True)
class DeviceLimits:
    """The limits of a device that a plan of launches may use.

    capability: compute capability times ten. sm_threads, sm_blocks, sm_shared_bytes: limits of a multiprocessor.
    block_shared_bytes: a block's limit of shared memory, static and dynamic. reserved_shared_bytes: shared memory that
    the system reserves for each block.
    """

    capability: int
    multiprocessors: int
    sm_threads: int
    sm_blocks: int
    sm_shared_bytes: int
    block_shared_bytes: int
    reserved_shared_bytes: int
    l2_bytes: int

    @property
    def arch(self) -> str:
        """Return the architecture: `sm_80`, or on Hopper `sm_90a`, which has additional instructions."""
        return f"sm_{self.capability}a" if self.capability == 90 else f"sm_{self.capability}"

    def blocks_by_shared(self, nbytes: int) -> int:
        """Return how many blocks with `nbytes` of shared memory, static and dynamic, fit on a multiprocessor."""
        if nbytes > self.block_shared_bytes:
            return 0
        unit = 256 if self.capability < 80 else 128  # bytes; a block's shared memory is rounded up to it
        allocated = -(-(nbytes + self.reserved_shared_bytes) // unit) * unit
        return min(self.sm_blocks, self.sm_shared_bytes // allocated) if allocated else self.sm_blocks


def _limits(capability: int, multiprocessors: int, threads: int, blocks: int, sm_kib: int, l2_mib: int) -> DeviceLimits:
    reserved = _KIB if capability >= 80 else 0  # for each block
    return DeviceLimits(
        capability=capability,
        multiprocessors=multiprocessors,
        sm_threads=threads,
        sm_blocks=blocks,
        sm_shared_bytes=sm_kib * _KIB,
        block_shared_bytes=sm_kib * _KIB - reserved,
        reserved_shared_bytes=reserved,
        l2_bytes=l2_mib * _MIB,
    )


#: The device that is assumed without a GPU: an H100 SXM.
H100 = _limits(90, 132, 2048, 32, 228, 50)
#: A device of each compute capability, from NVIDIA's table of technical specifications per compute capability and the
#: architectures' white papers: T4, A100, RTX 3090, RTX 4090, H100, B200, RTX 5090.
TYPICAL = {
    limits.capability: limits
    for limits in (
        _limits(75, 40, 1024, 16, 64, 4),
        _limits(80, 108, 2048, 32, 164, 40),
        _limits(86, 82, 1536, 16, 100, 6),
        _limits(89, 128, 1536, 24, 100, 72),
        H100,
        _limits(100, 148, 2048, 32, 228, 126),
        _limits(120, 170, 1536, 24, 100, 96),
    )
}
