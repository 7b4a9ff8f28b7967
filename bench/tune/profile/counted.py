"""Count in the emulator what a kernel does on a problem, by source line and in total, and model the L2 cache.

The model assumes that blocks run in waves, in the order of their numbers. A wave reads each sector from memory at most
once. A sector stays in the cache until later waves have touched more bytes than the cache holds. A sector that was
written is then written back once. A block that did not run is assumed to touch the sectors of a sampled block,
shifted in proportion to the block's index; this assumption is tested on the blocks that ran.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kernelmark.bench.emulator.build import CUDA, missing_tool
from kernelmark.bench.emulator.counters import cannot_count
from kernelmark.bench.emulator.counts import (
    SECTOR,
    Footprint,
    InstructionCount,
    Sampled,
    Site,
    Tallies,
    Widths,
    described,
    tallies,
)
from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.emulator.worker import WorkerError
from kernelmark.bench.measure.compile import with_includes
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Kernel
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.bench.report.contest import grouped

Array = np.ndarray[Any, Any]
Key = tuple[str, bool]
#: The place of a block: the x of its cluster, its own y and z, and its rank in the cluster.
Place = tuple[int, int, int, int]
#: The sectors that a block touches, by buffer and direction: the sectors of a block that ran, and an offset to add.
Touched = list[tuple[Key, Array, int]]
#: The maximum number of a launch's blocks in the model; each takes some microseconds of computation.
MOST_BLOCKS = 200_000


class Waves(msgspec.Struct, frozen=True):
    """The bytes that the model reads from and writes to memory. blocks: the blocks per wave of each launch."""

    blocks: tuple[int, ...]
    bytes_read: int
    bytes_written: int


class NoModelError(Exception):
    """The footprints of the blocks that ran do not predict the other blocks' footprints; the message says why."""


def modelled(tallied: Tallies, device: DeviceLimits) -> tuple[Waves, ...]:
    """Return the memory traffic of all launches together, for the smallest and for the largest waves.

    A multiprocessor holds at least one block, and at most as many as its threads and dynamic shared memory allow. The
    true number depends on registers, which the emulator does not have. Raises NoModelError.
    """
    largest = []
    for launch in (sampled.launch for sampled in tallied.sampled):
        by_threads = min(device.sm_threads // int(np.prod(launch.block)), device.sm_blocks)
        most = max(1, min(by_threads, device.blocks_by_shared(launch.shared_bytes)))
        largest.append(device.multiprocessors * most)
    smallest = (device.multiprocessors,) * len(largest)
    return tuple(_in_waves(tallied, device, sizes) for sizes in dict.fromkeys((smallest, tuple(largest))))


def _in_waves(tallied: Tallies, device: DeviceLimits, sizes: tuple[int, ...]) -> Waves:
    (first, *more), traffic = tallied.sampled, tallied.traffic
    if not more and not first.clusters and first.blocks <= sizes[0]:
        return Waves(sizes, traffic.read_once, traffic.written_once)
    cache = _Cache(device.l2_bytes)
    for number, (sampled, size) in enumerate(zip(tallied.sampled, sizes, strict=True)):
        footprints = {block: footprint for (launch, block), footprint in tallied.footprints.items() if launch == number}
        blocks = _blocks(sampled, footprints)
        while wave := list(islice(blocks, size)):
            cache.run(wave)
    return Waves(sizes, SECTOR * cache.read, SECTOR * cache.written)


def _blocks(sampled: Sampled, footprints: Mapping[int, Footprint]) -> Iterator[Touched]:
    if sampled.blocks == len(footprints):
        return ([(key, sectors, 0) for key, sectors in footprints[block].items()] for block in range(sampled.blocks))
    if not footprints:
        raise NoModelError(f"its {sampled.blocks:,} blocks ran all at once, so no block's own accesses are known")
    if sampled.blocks > MOST_BLOCKS:
        raise NoModelError(f"it has {sampled.blocks:,} blocks, but the cache's model takes at most {MOST_BLOCKS:,}")
    return _shifted(sampled, footprints)


def _shifted(sampled: Sampled, footprints: Mapping[int, Footprint]) -> Iterator[Touched]:
    x, y, z = extents(sampled.launch.grid)
    cluster = sampled.launch.cluster

    def place(block: int) -> Place:
        return block % x // cluster, block // x % y, block // x // y, block % x % cluster

    sizes, known = (x // cluster, y, z), {place(block): footprint for block, footprint in footprints.items()}
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
    """Return, for each buffer's reads and writes, the distance in sectors between blocks that are adjacent on an axis.

    Raises NoModelError if this distance is not constant.
    """
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
    """A model of the L2 cache that simulates whole waves, which are counted from 1."""

    def __init__(self, nbytes: int) -> None:
        self.read = self.written = 0  # sectors
        self._holds = nbytes
        self._bytes = [0]  # by wave, the bytes touched by it and all earlier ones
        self._touched: dict[str, Array] = {}  # by buffer, the last wave that touched each sector
        self._changed: dict[str, Array] = {}

    def run(self, wave: list[Touched]) -> None:
        """Simulate a wave: all its blocks read, then all of them write."""
        now, sectors = len(self._bytes), 0
        oldest = now  # the first wave whose sectors are all still in the cache
        while oldest > 1 and self._bytes[-1] - self._bytes[oldest - 2] <= self._holds:
            oldest -= 1
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


def _grown(waves: dict[str, Array], buffer: str, size: int) -> Array:
    old = waves.get(buffer, np.zeros(0, np.int32))
    waves[buffer] = np.pad(old, (0, size - old.size)) if old.size < size else old
    return waves[buffer]


class LineCounts(msgspec.Struct, frozen=True):
    """The counts of a source line: memory accesses, multiply-adds, collectives and barriers.

    active_lanes: the sum over all warp instructions. sectors: 32-byte sectors of global memory. wavefronts: of
    shared memory. least_sectors, least_wavefronts: the fewest possible for the same lanes and bytes. serial_lanes: the
    lanes of a warp whose atomics are serialised since they change the same word, summed over warp instructions.
    wavefronts_by: wavefronts by kind, which is load, store, atomic, matrix, copy (cp.async) or box (TMA). conflicts_by:
    wavefronts above the least, by kind. bytes_read, bytes_written: whole sectors from and to the L2 cache, if the L1
    cache never hits. fma: multiply-adds, as warp instructions; None if they cannot be counted. loads, stores, copies:
    warp instructions by space and bytes per lane (`shared 16`). Atomics count as stores; cp.async and TMA boxes count
    as copies. others: warp instructions by kind: collectives, barriers and products of wgmma.
    """

    file: str
    line: int
    warp_instructions: int = 0
    active_lanes: int = 0
    global_requests: int = 0
    sectors: int = 0
    least_sectors: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    least_wavefronts: int = 0
    wavefronts_by: Mapping[str, int] = {}
    conflicts_by: Mapping[str, int] = {}
    bytes_read: int = 0
    bytes_written: int = 0
    fma: int | None = 0
    loads: Mapping[str, int] = {}
    stores: Mapping[str, int] = {}
    copies: Mapping[str, int] = {}
    others: Mapping[str, int] = {}
    serial_lanes: int = 0


class LaunchCounts(msgspec.Struct, frozen=True):
    """A launch: its function, its blocks, and how many of them ran.

    sample: text that names each cluster that ran and how many it represents; empty if all blocks ran.
    """

    entry: str
    blocks: int
    run_blocks: int
    sample: tuple[str, ...]


class Counts(msgspec.Struct, frozen=True):
    """The counts of a kernel's launches on a problem, planned for a device of the architecture.

    total: the sum over all lines. block_bytes_read, block_bytes_written: the traffic between L1 and L2 if L1 keeps all
    of a block's sectors, so that each block moves each sector once. bytes_read_once, bytes_written_once: the traffic
    with memory if L2 keeps everything, so that each sector moves once; None unless all blocks ran. waves: the traffic
    with memory in the model of the L2 cache, for the smallest and for the largest waves; empty if the model does not
    apply. traffic_bytes: the operation's compulsory traffic. missing: counts that are not available, with reasons.
    """

    kernel: str
    problem: str
    tile: str
    arch: str
    launches: tuple[LaunchCounts, ...]
    lines: tuple[LineCounts, ...]
    total: LineCounts
    block_bytes_read: int
    block_bytes_written: int
    bytes_read_once: int | None
    bytes_written_once: int | None
    waves: tuple[Waves, ...]
    traffic_bytes: int
    missing: tuple[str, ...]


def counted_kernel(kernel: Kernel) -> CudaKernel:
    """Return the kernel. Raises UsageError if the emulator cannot count it here, for instance without a compiler."""
    if not isinstance(kernel, CudaKernel):
        raise UsageError(f"{kernel.id}: has no .cu file; expected one of the kernels that `kernelmark inspect` lists")
    if kernel.emulated:
        raise UsageError(f"{kernel.id}: cannot be emulated, so it cannot be counted: {kernel.emulated}")
    if reason := missing_tool():
        raise UsageError(f"{kernel.id}: {reason}")
    return kernel


def counts_of(case: EmulatedCase, every_block: bool = False, widths: Widths | None = None) -> Counts:
    """Return the counts of a kernel on a problem. every_block: run all blocks, not a sample.

    widths: the bytes per lane of the machine code's loads and stores; counted accesses are split or joined to match.
    Raises UsageError if the kernel fails in the emulator, and CompileError if it does not compile for the emulator.
    """
    try:
        tallied = tallies(case, every_block, widths)
    except WorkerError as error:
        raise UsageError(f"{case.kernel.id} on {case.problem.id}: cannot be counted: {error}") from None
    waves: tuple[Waves, ...] = ()
    missing = [reason] if (reason := cannot_count()) else []
    if any(site.does == "product" for site in tallied.sites):
        missing.append("reads of shared memory by wgmma")
    if any(b"<mma.h>" in text for text in with_includes(CUDA / case.kernel.source, CUDA).values()):
        moves = "the true moves of fragments by wmma, which are unspecified"
        missing.append(f"{moves}: here each lane moves its elements one by one")
    try:
        waves = modelled(tallied, case.device)
    except NoModelError as error:
        missing.append(f"bytes from and to memory by waves: {error}")
    is_whole = not any(sampled.clusters for sampled in tallied.sampled)
    return Counts(
        kernel=case.kernel.base_id,
        problem=case.problem.id,
        tile=tile_text(vars(case.tile)),
        arch=case.device.arch,
        launches=tuple(
            LaunchCounts(sampled.launch.entry, sampled.blocks, sampled.run_blocks, tuple(described(sampled)))
            for sampled in tallied.sampled
        ),
        lines=_lines(tallied),
        total=_total(tallied),
        block_bytes_read=tallied.traffic.block_read,
        block_bytes_written=tallied.traffic.block_written,
        bytes_read_once=tallied.traffic.read_once if is_whole else None,
        bytes_written_once=tallied.traffic.written_once if is_whole else None,
        waves=waves,
        traffic_bytes=case.problem.traffic_bytes,
        missing=tuple(missing),
    )


def _lines(tallied: Tallies) -> tuple[LineCounts, ...]:
    places = grouped(tallied.sites.items(), lambda pair: (pair[0].file, pair[0].line))
    return tuple(
        _line(str(Path(file).relative_to(CUDA)) if Path(file).is_relative_to(CUDA) else file, line, those)
        for (file, line), those in sorted(places.items())
    )


def _line(file: str, line: int, those: list[tuple[Site, InstructionCount]]) -> LineCounts:
    in_global = [(site, tally) for site, tally in those if site.space == "global"]
    in_shared = [(site, tally) for site, tally in those if site.space == "shared"]
    multiply_adds = sum(tally.instructions for site, tally in those if site.does == "multiply-add")
    return LineCounts(
        file=file,
        line=line,
        warp_instructions=sum(tally.instructions for _, tally in those),
        active_lanes=sum(tally.lanes for _, tally in those),
        global_requests=sum(tally.requests for _, tally in in_global),
        sectors=sum(tally.cost for _, tally in in_global),
        least_sectors=sum(tally.least for _, tally in in_global),
        shared_requests=sum(tally.requests for _, tally in in_shared),
        wavefronts=sum(tally.cost for _, tally in in_shared),
        least_wavefronts=sum(tally.least for _, tally in in_shared),
        wavefronts_by=_sums((site.does, tally.cost) for site, tally in in_shared),
        conflicts_by=_sums((site.does, tally.cost - tally.least) for site, tally in in_shared),
        bytes_read=SECTOR * sum(tally.cost for site, tally in in_global if not _writes(site)),
        bytes_written=SECTOR * sum(tally.cost for site, tally in in_global if _writes(site)),
        fma=None if cannot_count() else multiply_adds,
        loads=_by_width(those, ("load", "matrix")),
        stores=_by_width(those, ("store", "atomic")),
        copies=_by_width(those, ("copy", "box")),
        others=_by_width(those, ("collective", "barrier", "product")),
        serial_lanes=sum(tally.serial for _, tally in those),
    )


def _writes(site: Site) -> bool:
    return site.does in ("store", "atomic") or (site.does == "box" and site.bytes == 1)


def _by_width(those: Iterable[tuple[Site, InstructionCount]], kinds: tuple[str, ...]) -> dict[str, int]:
    # ldmatrix is counted by its requests here; its instructions are counted among the collectives.
    return _sums(
        (_name(site), tally.requests if site.does == "matrix" else tally.instructions)
        for site, tally in those
        if site.does in kinds
    )


def _name(site: Site) -> str:
    """Return the name under which an instruction is counted: `shared 16`, `matrix 16`, `box load`, `barrier`."""
    if site.does == "box":
        return "box store" if site.bytes else "box load"
    if site.does in ("load", "store"):
        return f"{site.space} {site.bytes}".lstrip()
    return f"{site.does} {site.bytes}" if site.bytes else site.does


def _sums(numbers: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the sum of the numbers of each key; zeros are left out."""
    sums = Counter[str]()
    for key, number in numbers:
        sums[key] += number
    return dict(+sums)


def _total(tallied: Tallies) -> LineCounts:
    total = _line("", 0, list(tallied.sites.items()))
    by_kind = {k: dict(sorted(v.items())) for k, v in msgspec.structs.asdict(total).items() if isinstance(v, dict)}
    return msgspec.structs.replace(total, **by_kind)
