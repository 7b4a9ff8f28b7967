"""Tiles of a CUDA kernel ranked by what the compiler made of them, where there is no GPU. Nothing is timed.

The first is the one whose machine code published limits of a GPU leave the least time; of equals, the one with the
highest occupancy.
"""

import math
import random
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
from kernelmark.bench.tune.profile.devices import Published, usual
from kernelmark.bench.tune.profile.machine import Work, bounds
from kernelmark.bench.tune.profile.sass import analyse
from kernelmark.bench.tune.search import Config
from kernelmark.bench.tune.subject import Subject, limits_here

#: Tiles that are shown.
SHOWN = 10
ARCH = "sm_90a"


class CompiledTile(NamedTuple):
    """A tile that compiles: a row of `inspect` for each launch, and the least time of its code in seconds, if known."""

    launches: list[InspectRow]
    bound_s: float | None

    @property
    def spills(self) -> bool:
        return any(row.spill_bytes for row in self.launches)

    @property
    def order(self) -> tuple[float, float]:
        return self.bound_s or math.inf, -min(row.occupancy for row in self.launches)


class Ranked(NamedTuple):
    """Tiles that compiled without spilling, in their order, on which GPU, and how many did not."""

    tiles: list[CompiledTile]
    gpu: Published | None
    tried: int
    spilling: int
    failed: int


def rank(subject: Subject, arch: str, budget: int | None, seed: int) -> Ranked:
    """Compile tiles in parallel, all of a space or as many as the budget has. Raises UsageError for a CPU kernel."""
    kernel = subject.kernel
    if not isinstance(kernel, CudaKernel):
        raise UsageError(f"--static: {kernel.id} is no CUDA kernel; leave --static out, which times its tiles")
    if not kernel.runs_on(arch):
        raise UsageError(f"--static: {kernel.id} does not run on {arch}; it is for {kernel.archs or kernel.min_arch}")
    configs = subject.tiles.configs
    most = budget or BUDGET
    chosen = configs if len(configs) <= most else random.Random(seed).sample(configs, most)
    gpu = usual(arch)
    found = in_parallel(lambda config: _built(subject, kernel, config, arch, gpu), chosen)
    built = [tile for tile in found if tile]
    good = sorted((tile for tile in built if not tile.spills), key=lambda tile: tile.order)
    return Ranked(good, gpu, len(chosen), len(built) - len(good), len(chosen) - len(built))


def arch_here(kernel: Kernel) -> str:
    """Return the architecture that a kernel's tiles are compiled for: of the GPU here, or else `ARCH`."""
    return ARCH if cuda_missing() else limits_here(kernel).arch


def resources(subject: Subject, config: Config) -> LaunchResources | None:
    """Return what a tile takes of a GPU at most; None for a kernel of the CPU, and where it does not compile."""
    kernel = subject.kernel
    launches = _launches(subject, kernel, config, arch_here(kernel)) if isinstance(kernel, CudaKernel) else []
    if not launches:
        return None
    return LaunchResources(max(row.registers for row in launches), max(row.spill_bytes for row in launches))


def _launches(subject: Subject, kernel: CudaKernel, config: Config, arch: str) -> list[InspectRow]:
    try:
        return launch_rows(kernel, subject.problem, Tile(**subject.tile(config)), arch, limits_here(kernel))
    except (CompileError, Unsupported):  # the latter: no compiler is here
        return []


def _built(
    subject: Subject, kernel: CudaKernel, config: Config, arch: str, gpu: Published | None
) -> CompiledTile | None:
    launches = _launches(subject, kernel, config, arch)
    return CompiledTile(launches, _bound_s(subject, kernel, config, arch, gpu)) if launches else None


def _bound_s(subject: Subject, kernel: CudaKernel, config: Config, arch: str, gpu: Published | None) -> float | None:
    """Return the least time of a tile's code; None where it cannot be disassembled, and on a GPU without limits."""
    problem, tile, planned = subject.problem, subject.tile(config), limits_here(kernel)
    if gpu is None:
        return None
    try:
        code = analyse(kernel, problem, Tile(**tile), arch, planned)
    except Unsupported:
        return None
    multiply_adds = kernel.with_tile(tile).executed_flop(problem, planned) // 2
    return bounds(Work(multiply_adds, dram_bytes=problem.traffic_bytes), code, gpu).time_s


def words(subject: Subject, ranked: Ranked, arch: str) -> str:
    """Return the table of the best, and what was dropped."""
    shown = ranked.tiles[:SHOWN]
    dropped = f"{ranked.spilling} spill, {ranked.failed} do not compile"
    tried = f"{count(ranked.tried, 'tile')} compiled for {arch}"
    head = f"{subject.kernel.id} on {subject.problem.id}: {size_words(subject.space)}; {tried}"
    by = "occupancy"
    if ranked.gpu and any(tile.bound_s for tile in shown):
        by = f"the least time that published limits of the {ranked.gpu.name} leave the code, then by occupancy"
    note = f"NOTHING WAS TIMED: ranked by {by}, which does not decide alone how fast a tile is"
    texts = (paragraph(f"{head}: {dropped}", rest=""), _table(shown), paragraph(note, rest=""))
    return "\n\n".join(texts)


def _table(tiles: list[CompiledTile]) -> str:
    first, *rest = COLUMNS
    bound = [seconds(tile.bound_s) if tile.bound_s else "" for tile in tiles for _ in tile.launches]
    own = cells([row for tile in tiles for row in tile.launches])
    rows = [(head, time, *others) for (head, *others), time in zip(own, bound, strict=True)]
    return table((first, TableColumn("bound", "right"), *rest), rows, titled=True)
