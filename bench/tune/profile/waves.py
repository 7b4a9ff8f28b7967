"""A model of the L2 cache: what blocks read from memory and write to it, wave after wave.

Its assumptions: blocks run in the order of their numbers, in waves; within a wave each sector comes from memory once;
it stays in the cache until the waves that followed have touched more bytes than the cache holds; what is written is
written back once for each such stay. Blocks that did not run touch what those of their sample touch, shifted in
proportion to the block's index; this is tested on the blocks that ran.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from kernelmark.bench.emulator.counts import SECTOR, Footprint, Sampled, Tallies
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.limits import DeviceLimits

Array = np.ndarray[Any, Any]
Key = tuple[str, bool]
#: A block's cluster along x, its place along y and z, and its rank in the cluster.
Place = tuple[int, int, int, int]
#: What a block touches: by buffer and whether it writes, the sectors of a block that ran, and how far from these.
Touched = list[tuple[Key, Array, int]]
#: Each block takes some microseconds.
MOST_BLOCKS = 200_000


class Waves(msgspec.Struct, frozen=True):
    """Bytes from memory and to it, if waves have as many blocks: of each launch."""

    blocks: tuple[int, ...]
    bytes_read: int
    bytes_written: int


class NoModelError(Exception):
    """The footprints of a launch do not follow from those of the blocks that ran; the message is the reason."""


def modelled(found: Tallies, device: DeviceLimits) -> list[Waves]:
    """Return what all launches, one after the other, move: in the smallest waves and in the largest.

    A multiprocessor holds one block at least, and no more than it has threads and dynamic shared memory for; in
    between, registers decide, which the emulator does not have. Raises NoModelError.
    """
    smallest = (device.multiprocessors,) * len(found.sampled)
    largest = tuple(device.multiprocessors * _most(sampled, device) for sampled in found.sampled)
    return [_in_waves(found, device, sizes) for sizes in dict.fromkeys((smallest, largest))]


def _most(sampled: Sampled, device: DeviceLimits) -> int:
    by_threads = min(device.sm_threads // int(np.prod(sampled.launch.block)), device.sm_blocks)
    return max(1, min(by_threads, device.blocks_by_shared(sampled.launch.shared_bytes)))


def _in_waves(found: Tallies, device: DeviceLimits, sizes: tuple[int, ...]) -> Waves:
    (first, *more), traffic = found.sampled, found.traffic
    if not more and not first.clusters and first.blocks <= sizes[0]:
        return Waves(sizes, traffic.read_once, traffic.written_once)
    cache = _Cache(device.l2_bytes)
    for number, (sampled, size) in enumerate(zip(found.sampled, sizes, strict=True)):
        own = {block: footprint for (launch, block), footprint in found.footprints.items() if launch == number}
        blocks = _blocks(sampled, own)
        while wave := list(islice(blocks, size)):
            cache.run(wave)
    return Waves(sizes, SECTOR * cache.read, SECTOR * cache.written)


def _blocks(sampled: Sampled, own: Mapping[int, Footprint]) -> Iterator[Touched]:
    """Yield what each block touches, in the order of their numbers."""
    if sampled.blocks == len(own):
        return ([(key, sectors, 0) for key, sectors in own[block].items()] for block in range(sampled.blocks))
    if not own or sampled.blocks > MOST_BLOCKS:
        raise NoModelError(f"all of {sampled.blocks:,} blocks ran at once or are too many")
    return _shifted(sampled, own)


def _shifted(sampled: Sampled, own: Mapping[int, Footprint]) -> Iterator[Touched]:
    x, y, z = extents(sampled.launch.grid)
    cluster = sampled.launch.cluster

    def place(block: int) -> Place:
        return block % x // cluster, block // x % y, block // x // y, block % x % cluster

    sizes, known = (x // cluster, y, z), {place(block): footprint for block, footprint in own.items()}
    inner = [sorted({at[axis] for at in known} - {0, sizes[axis] - 1}) for axis in range(3)]
    rates = [_rates(known, axis, set(inner[axis])) for axis in range(3)]
    for block in range(sampled.blocks):
        *at, rank = place(block)
        near = [a if a in (0, size - 1) else mid[0] for a, size, mid in zip(at, sizes, inner, strict=True)]
        yield [
            (key, sectors, sum((a - b) * rate.get(key, 0) for a, b, rate in zip(at, near, rates, strict=True)))
            for key, sectors in known[near[0], near[1], near[2], rank].items()
        ]


def _rates(known: Mapping[Place, Footprint], axis: int, inner: set[int]) -> dict[Key, int]:
    """Return by how many sectors a footprint moves from one block to the next along an axis. Raises NoModelError."""
    rates: dict[Key, int] = {}
    for at, footprint in known.items():
        if at[axis] not in inner:
            continue
        first = known[at[:axis] + (0,) + at[axis + 1 :]]  # type: ignore[index]  # noqa: RUF005  # a place
        if first.keys() != footprint.keys():
            raise NoModelError("blocks of one launch touch different buffers")
        for key, sectors in footprint.items():
            same = first[key].size == sectors.size and np.ptp(sectors - first[key]) == 0
            rate, rest = divmod(int(sectors[0] - first[key][0]), at[axis])
            if not same or rest or rates.setdefault(key, rate) != rate:
                raise NoModelError(f"blocks do not touch {key[0]} at regular distances")
    return rates


class _Cache:
    """The L2 cache at the granularity of waves, which are counted from 1."""

    def __init__(self, nbytes: int) -> None:
        self.read = self.written = 0  # sectors
        self._holds = nbytes
        self._bytes = [0]  # touched by all waves up to each
        self._touched: dict[str, Array] = {}  # by buffer, the last wave that touched each sector
        self._changed: dict[str, Array] = {}

    def run(self, wave: list[Touched]) -> None:
        """Let the blocks of a wave read, then write."""
        now, oldest, sectors = len(self._bytes), self._oldest(), 0
        parts: dict[Key, list[tuple[Array, int]]] = {}
        for block in wave:
            for key, base, shift in block:
                parts.setdefault(key, []).append((base, shift))
        for (buffer, is_write), those in sorted(parts.items(), key=lambda item: item[0][1]):
            marked = np.zeros(1 + max(int(base[-1]) + shift for base, shift in those), bool)
            for base, shift in those:
                marked[base + shift] = True
            chosen = np.flatnonzero(marked)
            touched, changed = (_grown(waves, buffer, marked.size) for waves in (self._touched, self._changed))
            if is_write:
                self.written += int((changed[chosen] < oldest).sum())
                changed[chosen] = now
            else:
                self.read += int((touched[chosen] < oldest).sum())
            touched[chosen] = now
            sectors += chosen.size
        self._bytes.append(self._bytes[-1] + SECTOR * sectors)

    def _oldest(self) -> int:
        """Return the first wave of which everything is still there."""
        oldest = len(self._bytes)
        while oldest > 1 and self._bytes[-1] - self._bytes[oldest - 2] <= self._holds:
            oldest -= 1
        return oldest


def _grown(waves: dict[str, Array], buffer: str, size: int) -> Array:
    old = waves.get(buffer, np.zeros(0, np.int32))
    if old.size < size:
        waves[buffer] = np.concatenate([old, np.zeros(size - old.size, np.int32)])
    return waves.setdefault(buffer, old)
