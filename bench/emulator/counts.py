"""Run blocks of a kernel in a counting program, and return the counts of each instruction by source line.

Operands are zeros, which take no memory, so that problems of any size fit; only bounds and alignment are checked.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.report import lines_of
from kernelmark.bench.emulator.sweep import EmulatedCase, entries, launches
from kernelmark.bench.emulator.worker import Array, Buffer, Launch, Outcome, WorkerError, run
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.dtypes import DTYPES, bits_dtype
from kernelmark.bench.plan.kernel import Scratch
from kernelmark.bench.plan.operation import Operand

#: Launches of up to this many clusters are run whole; of larger ones, a sample is run. counter.cpp has the same number.
WHOLE = 27
#: Launches with up to this many accesses, including those to local variables, are run whole, too, which takes a second.
CHEAP = 50_000_000
#: Clusters in a sample between the first and the last, if the grid extends only along x and hides where edges are.
BETWEEN = 7
#: Seconds of processor time for one worker.
LIMIT_S = 300
SECTOR = 32


class Site(NamedTuple):
    """An instruction of the source. does: its kind, as in counter.cpp; space: `global`, `shared` or "".

    bytes: the bytes per lane; for a TMA copy, instead 0 for a load and 1 for a store.
    """

    file: str
    line: int
    does: str
    space: str
    bytes: int


class InstructionCount(NamedTuple):
    """The counts of an instruction. cost: sectors of global memory or wavefronts of shared memory.

    least: the least possible cost. serial: for atomics, a warp's lanes that change the same word, summed over requests.
    """

    instructions: int
    lanes: int
    requests: int
    cost: int
    least: int
    serial: int


#: The bytes per lane of the machine code's loads and stores, by kind and space.
Widths = Mapping[tuple[str, str], frozenset[int]]


class Traffic(NamedTuple):
    """Bytes in whole sectors. block_*: each block that touches a sector counts it; *_once: only the first counts it."""

    block_read: int
    block_written: int
    read_once: int
    written_once: int


#: The sectors that a block touches, as ascending numbers from the buffer's start; by buffer and whether written.
Footprint = dict[tuple[str, bool], Array]


@dataclass(frozen=True)
class Sampled:
    """A launch, its clusters to run, and how many clusters each represents. If `clusters` is empty, all are run."""

    launch: Launch
    clusters: Mapping[int, int]

    @property
    def blocks(self) -> int:
        return math.prod(extents(self.launch.grid))

    @property
    def run_blocks(self) -> int:
        return len(self.clusters) * self.launch.cluster or self.blocks


@dataclass(frozen=True)
class Tallies:
    """The counts of all launches of a case, each launch as if all its blocks had run.

    footprints: the sectors of each sampled block, or of every block of a small launch (WHOLE), by launch and block.
    """

    sites: Mapping[Site, InstructionCount]
    traffic: Traffic
    sampled: tuple[Sampled, ...]
    footprints: Mapping[tuple[int, int], Footprint]


def tallies(case: EmulatedCase, every_block: bool = False, widths: Widths | None = None) -> Tallies:
    """Return the counts of a case. every_block: run all blocks, even if that is slow.

    widths: the machine code's access widths. Accesses of other widths are split or joined to match. Raises
    HostCompileError, and WorkerError if the launch fails or ends in a report.
    """
    buffers = {operand.name: _empty(operand) for operand in case.problem.operands()}
    planned = list(launches(case, buffers, _empty_scratch))
    arch = case.device.capability * 10
    worker = program(CUDA / case.kernel.source, entries([case]), counts=True, arch=arch)
    sampled = tuple(Sampled(launch, {} if every_block else sample(launch)) for launch in planned)
    return _counted(worker, buffers, sampled, widths)


def tallies_of(worker: Path, buffers: Mapping[str, Buffer], launch: Launch, widths: Widths | None = None) -> Tallies:
    """Return the counts of one launch of a program that counts. Raises as `tallies` does."""
    return _counted(worker, buffers, (Sampled(launch, {}),), widths)


def _counted(
    worker: Path, buffers: Mapping[str, Buffer], sampled: tuple[Sampled, ...], widths: Widths | None
) -> Tallies:
    """Return the counts of the sampled blocks, or of all if that is cheap, with accesses of the given `widths`."""
    outcomes = _outcomes(worker, buffers, sampled)
    footprints = _footprints(outcomes, sampled)
    scale = max(s.blocks / s.run_blocks for s in sampled)
    if scale > 1 and scale * sum(outcome.accesses for outcome in outcomes) <= CHEAP:
        sampled = tuple(Sampled(s.launch, {}) for s in sampled)
        outcomes = _outcomes(worker, buffers, sampled)
    if widths and (other_widths := _other_widths(worker, outcomes, widths)):
        outcomes = _outcomes(worker, buffers, sampled, other_widths)
    lines = [line for outcome in outcomes for line in outcome.counts]
    counted = [words for verb, *words in lines if verb == "count"]
    places = lines_of(worker, sorted({pc for pc, *_ in counted if pc != "0"}))
    sites: Counter[tuple[Site, int]] = Counter()
    for pc, file, line, does, space, width, *numbers in counted:
        file, number = places.get(pc, (file, int(line)))
        for i, figure in enumerate(numbers):
            sites[Site(file, number, does, space, int(width)), i] += int(figure)
    figures = {site: InstructionCount(*(sites[site, i] for i in range(6))) for site, _ in sites}
    traffic = zip(*(map(int, words) for verb, *words in lines if verb == "traffic"), strict=True)
    return Tallies(figures, Traffic(*(SECTOR * sum(column) for column in traffic)), sampled, footprints)


def _other_widths(worker: Path, outcomes: Sequence[Outcome], widths: Widths) -> list[tuple[str, int, int]]:
    """Return all accesses of each kind whose widths in the machine code differ from the counted widths.

    A kind is an operation and a memory space. Widths differ if a counted width is not in `widths`, or if `widths` has a
    wider one. Each access is given by its address, a number for its source line, and the sum of the machine code's
    widths for its kind.
    """
    counted = [words for outcome in outcomes for verb, *words in outcome.counts if verb == "count"]
    per_access: dict[tuple[str, str], dict[str, int]] = {}
    for pc, _, _, does, space, width, *_ in counted:
        per_access.setdefault((does, space), {})[pc] = int(width)
    other = {
        kind: wanted
        for kind, wanted in widths.items()
        if wanted and (seen := {*per_access.get(kind, {}).values()}) and (seen - wanted or max(wanted) > max(seen))
    }
    places = lines_of(worker, sorted({pc for kind in other for pc in per_access[kind]}))
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places.values()))}
    return [(pc, numbers[places[pc]], sum(wanted)) for kind, wanted in other.items() for pc in per_access[kind]]


def _outcomes(
    worker: Path,
    buffers: Mapping[str, Buffer],
    sampled: Sequence[Sampled],
    widths: Sequence[tuple[str, int, int]] = (),
) -> list[Outcome]:
    """Run the clusters of each sample, divided among processes, one process for each processor."""
    processes = cpu_count() if any(s.clusters for s in sampled) else 1

    def share(number: int) -> Outcome:
        parts = [part for s in sampled if (part := _share(s, number, processes)) is not None]
        outcome = run(worker, buffers, parts, orders=("forward",), limit_s=LIMIT_S, widths=widths)[0]
        for report in outcome.reports:
            raise WorkerError(str(report))
        return outcome

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(share, range(processes)))


def _share(sampled: Sampled, number: int, processes: int) -> Launch | None:
    """Return a process's part of a launch, if any; a launch without a sample is run whole by the first process."""
    if not sampled.clusters:
        return sampled.launch if number == 0 else None
    clusters = dict(list(sampled.clusters.items())[number::processes])
    return replace(sampled.launch, sample=clusters) if clusters else None


def sample(launch: Launch) -> dict[int, int]:
    """Return the clusters to run and how many clusters each represents; empty to run all.

    The first, the middle and the last cluster along each axis are run: corners, edges and inside. In a grid with one
    axis, further clusters, spread between the first and the last, are run. Cooperative launches are run whole.
    """
    x, y, z = extents(launch.grid)
    sizes = (x // launch.cluster, y, z)
    if launch.cooperative or math.prod(sizes) <= WHOLE:
        return {}
    if y == z == 1:
        return {0: 1, **_spread(sizes[0] - 2), sizes[0] - 1: 1}
    along = [_ends_and_middle(size) for size in sizes]
    return {
        (k * sizes[1] + j) * sizes[0] + i: in_x * in_y * in_z
        for k, in_z in along[2].items()
        for j, in_y in along[1].items()
        for i, in_x in along[0].items()
    }


def _ends_and_middle(size: int) -> dict[int, int]:
    return {0: 1, size // 2: size - 2, size - 1: 1} if size > 2 else dict.fromkeys(range(size), 1)


def _spread(count: int) -> dict[int, int]:
    """Return some of clusters 1 to `count`, at steps of the golden ratio, so that they follow no period of the grid."""
    golden = (math.sqrt(5) - 1) / 2
    chosen = [1 + int(count * (golden * (i + 1) % 1)) for i in range(BETWEEN)]
    return {cluster: count // BETWEEN + (i < count % BETWEEN) for i, cluster in enumerate(chosen)}


def _empty(operand: Operand) -> Buffer:
    itemsize = DTYPES[operand.dtype].itemsize
    data = np.zeros(1, bits_dtype(operand.dtype))
    return Buffer(operand.role, data, operand.shape[-1], operand.pad, (operand.nbytes - itemsize,))


def _empty_scratch(wanted: Scratch) -> Buffer:
    return Buffer("scratch", np.zeros(min(wanted.nbytes, 1), np.uint8), places=(max(wanted.nbytes - 1, 0),))


def _footprints(outcomes: Sequence[Outcome], sampled: Sequence[Sampled]) -> dict[tuple[int, int], Footprint]:
    """Return the footprints by launch and block, with each process's launch numbers converted to those of `sampled`."""
    footprints: dict[tuple[int, int], Footprint] = {}
    for process, outcome in enumerate(outcomes):
        shared = [i for i, s in enumerate(sampled) if _share(s, process, len(outcomes)) is not None]
        for verb, *words in outcome.counts:
            if verb == "footprint":
                launch, block, buffer, is_write, runs = words
                begins, lengths = np.fromstring(runs, np.int64, sep=" ").reshape(-1, 2).T
                sectors = np.repeat(begins - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
                footprints.setdefault((shared[int(launch)], int(block)), {})[buffer, is_write == "1"] = sectors
    return footprints


def described(sampled: Sampled) -> Iterator[str]:
    """Yield each cluster that ran and the number that it represents: `(0, 1, 0) for 30`."""
    x, y, _ = extents(sampled.launch.grid)
    across = x // sampled.launch.cluster
    for number, weight in sampled.clusters.items():
        place = (number % across * sampled.launch.cluster, number // across % y, number // across // y)
        yield f"{place} for {weight}"
