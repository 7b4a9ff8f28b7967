"""Counts of a kernel on a problem from the emulator, for each source line and in all."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from kernelmark.bench.emulator.build import CUDA, missing_tool
from kernelmark.bench.emulator.counts import SECTOR, InstructionCount, Sampled, Site, Tallies, described, tallies
from kernelmark.bench.emulator.multiply_adds import cannot_count
from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.emulator.worker import WorkerError
from kernelmark.bench.measure.compile import with_includes
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Kernel, Tile
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.bench.tune.profile.waves import NoModelError, Waves, modelled


class LineCounts(msgspec.Struct, frozen=True):
    """What the instructions of one source line do: accesses to memory, multiply-adds, collectives and barriers.

    active_lanes: summed over the warp instructions. sectors: of 32 bytes, in global memory. wavefronts: of shared
    memory. least: what the same lanes and bytes take at least. wavefronts_by, conflicts_by: wavefronts, and those above
    the least, by what takes them: load, store, atomic, matrix, copy (cp.async), box (TMA). bytes_read, bytes_written:
    in whole sectors, from and to the L2 cache if nothing is found in the L1 cache. fma: warp instructions; None where
    they cannot be counted. loads, stores, copies: warp instructions by space and bytes of a lane (`shared 16`); a copy
    is a cp.async or a box of the TMA, an atomic is a store. others: warp instructions that are collectives, barriers
    and products of wgmma.
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


class LaunchCounts(msgspec.Struct, frozen=True):
    """A launch: its function, its blocks, how many of them ran, and which clusters stand for how many."""

    entry: str
    blocks: int
    run_blocks: int
    sample: tuple[str, ...]


class Counts(msgspec.Struct, frozen=True):
    """What the launches of a kernel do on a problem, as planned for a device of the architecture.

    total: of all lines. block_bytes_read, block_bytes_written: each sector once for each block that touches it: what an
    L1 cache that keeps all of a block's sectors leaves. bytes_read_once, bytes_written_once: each sector once, what an
    L2 cache that keeps everything leaves; None unless all blocks ran. waves: bytes from and to memory by
    the model of the L2 cache in waves.py, in the smallest waves and the largest; empty where it does not apply.
    traffic_bytes: of the operation, at least.
    missing: what could not be counted, and why.
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
    """Return the kernel, if it can be counted here. Raises UsageError, also where there is no compiler."""
    if not isinstance(kernel, CudaKernel):
        raise UsageError(
            f"{kernel.id}: comes without a .cu file, and only such kernels are counted; `kernelmark inspect` lists them"
        )
    if kernel.emulated:
        raise UsageError(f"{kernel.id}: cannot be emulated, so it cannot be counted: {kernel.emulated}")
    if reason := missing_tool():
        raise UsageError(f"{kernel.id}: {reason}")
    return kernel


def count(kernel: CudaKernel, problem: Problem, tile: Tile, device: DeviceLimits, every_block: bool = False) -> Counts:
    """Return the counts of a kernel on a problem. every_block: no sample of blocks stands for the others.

    Raises UsageError where the kernel fails in the emulator, and CompileError where it does not compile there.
    """
    case = EmulatedCase(kernel, problem, tile, device)
    try:
        found = tallies(case, every_block)
    except WorkerError as error:
        raise UsageError(f"{kernel.id} on {problem.id}: cannot be counted: {error}") from None
    waves: tuple[Waves, ...] = ()
    missing = [*_missing(case, found)]
    try:
        waves = tuple(modelled(found, device))
    except NoModelError as error:
        missing.append(f"bytes from and to memory by waves: {error}")
    is_whole = not any(sampled.clusters for sampled in found.sampled)
    lines = _lines(found)
    return Counts(
        kernel=kernel.base_id,
        problem=problem.id,
        tile=tile_text(vars(tile)),
        arch=device.arch,
        launches=tuple(_launch(sampled) for sampled in found.sampled),
        lines=lines,
        total=_total(lines),
        block_bytes_read=found.traffic.block_read,
        block_bytes_written=found.traffic.block_written,
        bytes_read_once=found.traffic.read_once if is_whole else None,
        bytes_written_once=found.traffic.written_once if is_whole else None,
        waves=waves,
        traffic_bytes=problem.traffic_bytes,
        missing=tuple(missing),
    )


def _missing(case: EmulatedCase, found: Tallies) -> Iterator[str]:
    if reason := cannot_count():
        yield reason
    if any(site.does == "product" for site in found.sites):
        yield "what wgmma reads of shared memory"
    if any(b"<mma.h>" in text for text in with_includes(CUDA / case.kernel.source, CUDA).values()):
        yield "how wmma moves fragments, which is unspecified: here each lane moves its elements one by one"


def _launch(sampled: Sampled) -> LaunchCounts:
    return LaunchCounts(sampled.launch.entry, sampled.blocks, sampled.run_blocks, tuple(described(sampled)))


def _lines(found: Tallies) -> tuple[LineCounts, ...]:
    places: dict[tuple[str, int], list[tuple[Site, InstructionCount]]] = {}
    for site, tally in found.sites.items():
        places.setdefault((site.file, site.line), []).append((site, tally))
    return tuple(_line(_short(file), line, those) for (file, line), those in sorted(places.items()))


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(CUDA)) if path.is_relative_to(CUDA) else file


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
    )


def _writes(site: Site) -> bool:
    return site.does in ("store", "atomic") or (site.does == "box" and site.bytes == 1)


def _by_width(those: Iterable[tuple[Site, InstructionCount]], kinds: tuple[str, ...]) -> dict[str, int]:
    """Return warp instructions by what they do: `shared 16`, `matrix 16`, `box load`, `barrier`."""
    return _sums(_widths(those, kinds))


def _widths(those: Iterable[tuple[Site, InstructionCount]], kinds: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for site, tally in those:
        if site.does not in kinds:
            continue
        plain = site.does in ("load", "store")
        words = [site.space if plain else site.does, str(site.bytes) if site.bytes or plain else ""]
        if site.does == "box":
            words[1] = "store" if site.bytes else "load"
        # ldmatrix is among the collectives as an instruction, and here by its requests
        yield " ".join(filter(None, words)), tally.requests if site.does == "matrix" else tally.instructions


def _sums(numbers: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the sums of numbers with one key, except those of 0."""
    found: dict[str, int] = {}
    for key, number in numbers:
        if number:
            found[key] = found.get(key, 0) + number
    return found


def _total(lines: Iterable[LineCounts]) -> LineCounts:
    """Return the sums over all lines, with no line of its own."""
    values = [msgspec.structs.asdict(line) for line in lines]
    sums: dict[str, object] = {"file": "", "line": 0}
    for name, default in msgspec.structs.asdict(LineCounts("", 0)).items():
        if name in sums:
            continue
        if isinstance(default, dict):
            keys = sorted({key for value in values for key in value[name]})
            sums[name] = {key: sum(value[name].get(key, 0) for value in values) for key in keys}
        else:
            parts = [value[name] for value in values]
            sums[name] = None if None in parts else sum(parts)
    return msgspec.convert(sums, LineCounts)
