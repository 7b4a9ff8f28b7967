"""Rank tiles of a CUDA kernel by their machine code, without a GPU. Nothing is timed.

Tiles are ranked by a lower bound on their time from a GPU's published limits. Tiles with equal bounds are run in the
emulator, and ranked by the bound from its counts, then by warp instructions, then by occupancy.
"""

import math
import random
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from kernelmark.bench.measure.compile import CompileError, in_parallel
from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Kernel
from kernelmark.bench.plan.options import BUDGET
from kernelmark.bench.plan.tiles import Tile
from kernelmark.bench.record.versions import LaunchResources
from kernelmark.bench.report.format import count, seconds
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.tuning import size_words
from kernelmark.bench.tune.inspect import COLUMNS, InspectRow, cells, launch_rows
from kernelmark.bench.tune.profile.counted import counted_kernel
from kernelmark.bench.tune.profile.machine import Published, Work, bounds, usual
from kernelmark.bench.tune.profile.sass import analyse
from kernelmark.bench.tune.profile.view import profiled
from kernelmark.bench.tune.search import Config, Subject, limits_here

#: The maximum number of tiles that are printed, and of tiles with equal bounds that are run in the emulator.
SHOWN = 10
ARCH = "sm_90a"


class CompiledTile(NamedTuple):
    """A compiled tile: a row of `inspect` for each launch, and a lower bound on its time in seconds, if known."""

    launches: list[InspectRow]
    bound_s: float | None
    config: Config = ()
    counted: tuple[float, int] = (math.inf, 0)  # the bound with counts, in seconds, and warp instructions

    @property
    def least(self) -> InspectRow:
        """Return the launch with the lowest occupancy."""
        return min(self.launches, key=lambda row: row.occupancy)

    @property
    def order(self) -> tuple[float, tuple[float, int], float]:
        return self.bound_s or math.inf, self.counted, -self.least.occupancy


class Ranked(NamedTuple):
    """Tiles that compiled without spilling, the best first, and the numbers of tried, spilling and failed tiles.

    gpu: the GPU whose limits give the bounds. counted: the number of tiles with equal bounds that the emulator ran.
    """

    tiles: list[CompiledTile]
    gpu: Published | None
    tried: int
    spilling: int
    failed: int
    counted: int = 0


def rank(subject: Subject, arch: str, budget: int | None, seed: int) -> Ranked:
    """Compile the default and other tiles (all, or as many as the budget allows) in parallel, and rank them.

    Raises UsageError for a CPU kernel.
    """
    kernel = subject.kernel
    if not isinstance(kernel, CudaKernel):
        raise UsageError(f"--static: {kernel.id} is not a CUDA kernel; omit --static to time its tiles")
    if not kernel.runs_on(arch):
        needed = " or ".join(kernel.archs) or f"sm_{kernel.min_arch} or newer"
        raise UsageError(f"--static: {kernel.id} does not run on {arch}, expected {needed}")
    most = budget or BUDGET
    others = [config for config in subject.tiles.configs if config != subject.tiles.default]
    drawn = others if len(others) < most else random.Random(seed).sample(others, most - 1)
    chosen = [subject.tiles.default, *drawn]
    gpu = usual(arch)
    compiled = in_parallel(lambda config: _built(subject, kernel, config, arch, gpu), chosen)
    built = [tile for tile in compiled if tile]
    good = sorted((t for t in built if not any(row.spill_bytes for row in t.launches)), key=lambda tile: tile.order)
    tied = Counter(tile.bound_s for tile in good)
    equal = [tile for tile in good[: 2 * SHOWN] if tile.bound_s and tied[tile.bound_s] > 1][:SHOWN]
    counted = in_parallel(lambda tile: _counted(subject, kernel, tile, arch, gpu), equal) if gpu else []
    good = sorted([*counted, *(tile for tile in good if tile not in equal)] if counted else good, key=lambda t: t.order)
    return Ranked(good, gpu, len(chosen), len(built) - len(good), len(chosen) - len(built), len(counted))


def _counted(subject: Subject, kernel: CudaKernel, tile: CompiledTile, arch: str, gpu: Published) -> CompiledTile:
    """Return the tile with its counts, or unchanged if it cannot be counted."""
    try:
        counted_kernel(kernel)
        profile = profiled(kernel.with_tile(subject.tile(tile.config)), subject.problem, arch, gpu, every_block=False)
    except UsageError:
        return tile
    bound = profile.machine.bound if profile.machine else None
    return tile._replace(counted=((bound and bound.time_s) or math.inf, profile.counts.total.warp_instructions))


def arch_here(kernel: Kernel) -> str:
    """Return the architecture to compile a kernel's tiles for: the GPU's or, without a GPU, `ARCH`."""
    return ARCH if cuda_missing() else limits_here(kernel).arch


def resources(subject: Subject, config: Config) -> LaunchResources | None:
    """Return a tile's highest register count and spill bytes; None for a CPU kernel, or if compiling fails."""
    kernel = subject.kernel
    launches = _launches(subject, kernel, config, arch_here(kernel)) if isinstance(kernel, CudaKernel) else []
    if not launches:
        return None
    return LaunchResources(max(row.registers for row in launches), max(row.spill_bytes for row in launches))


def _launches(subject: Subject, kernel: CudaKernel, config: Config, arch: str) -> list[InspectRow]:
    try:
        return launch_rows(kernel, [(subject.problem, Tile(**subject.tile(config)))], arch, limits_here(kernel))
    except (CompileError, Unsupported):  # Unsupported: this machine has no compiler
        return []


def _built(
    subject: Subject, kernel: CudaKernel, config: Config, arch: str, gpu: Published | None
) -> CompiledTile | None:
    """Return a compiled tile, or None. The bound is missing without a disassembler or the GPU's limits."""
    if not (launches := _launches(subject, kernel, config, arch)):
        return None
    problem, tile, planned, bound_s = subject.problem, subject.tile(config), limits_here(kernel), None
    if gpu is not None:
        with suppress(Unsupported):
            code = analyse(kernel, problem, Tile(**tile), arch, planned)
            multiply_adds = kernel.with_tile(tile).executed_flop(problem, planned) // 2
            bound_s = bounds(Work(multiply_adds, dram_bytes=problem.traffic_bytes), code, gpu).time_s
    return CompiledTile(launches, bound_s, config)


def words(subject: Subject, ranked: Ranked, arch: str) -> str:
    """Return text: how many tiles were dropped, and a table of the best, each with its launch of lowest occupancy."""
    shown = ranked.tiles[:SHOWN]
    dropped = f"{ranked.spilling} spill, {ranked.failed} do not compile"
    tried = f"{count(ranked.tried, 'tile')} compiled for {arch}"
    head = f"{subject.kernel.id} on {subject.problem.id}: {size_words(subject.space)}; {tried}"
    by = "occupancy"
    if ranked.gpu and any(tile.bound_s for tile in shown):
        equals = f", then (for {ranked.counted} equal tiles) by the emulator's counts" if ranked.counted else ""
        by = f"the code's least time under published limits of the {ranked.gpu.name}{equals}, then by occupancy"
    note = f"NOTHING WAS TIMED: ranked by {by}, which alone does not decide how fast a tile is"
    first, *others = COLUMNS
    texts = zip(cells([tile.least for tile in shown]), shown, strict=True)
    lines = [(name, seconds(tile.bound_s), *rest) for (name, *rest), tile in texts]
    ranking = table((first, TableColumn("bound", "right"), *others), lines, titled=True)
    below = (paragraph(text, rest="") for text in (_default(subject, ranked), note))
    return "\n\n".join((paragraph(f"{head}: {dropped}", rest=""), ranking, *below))


def _default(subject: Subject, ranked: Ranked) -> str:
    named = f"The default, {subject.text(subject.tiles.default)},"
    for place, tile in enumerate(ranked.tiles, 1):
        if tile.config == subject.tiles.default:
            bound = f", {seconds(tile.bound_s)}" if tile.bound_s else ""
            return f"{named} ranks {place} of {len(ranked.tiles)}{bound}"
    return f"{named} is not ranked: it spills or does not compile"
