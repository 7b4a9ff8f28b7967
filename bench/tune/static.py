"""Tiles of a CUDA kernel ranked by what the compiler reports of them, where there is no GPU. Nothing is timed."""

import random
from typing import NamedTuple

from bench.measure.compile import CompileError
from bench.measure.cuda import cuda_missing
from bench.plan.errors import Unsupported, UsageError
from bench.plan.kernel import CudaKernel, Kernel
from bench.plan.options import BUDGET
from bench.plan.tiles import Tile
from bench.record.versions import Resources
from bench.report.format import count
from bench.report.layout import paragraph
from bench.report.searched import size_words
from bench.tune.inspect import InspectRow, in_parallel, launch_rows, render
from bench.tune.listing import limits_here
from bench.tune.search import Config
from bench.tune.subject import Subject

#: Tiles that are shown.
SHOWN = 10
ARCH = "sm_90a"


class Ranked(NamedTuple):
    """Tiles that compiled without spilling, the highest occupancy first, as rows of `inspect`; how many did not."""

    rows: list[list[InspectRow]]
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
    found = in_parallel(lambda config: _launches(subject, kernel, config, arch), chosen)
    built = [rows for rows in found if rows]
    good = [rows for rows in built if not any(row.spill_bytes for row in rows)]
    good.sort(key=lambda rows: -min(row.occupancy for row in rows))
    return Ranked(good, len(chosen), len(built) - len(good), len(chosen) - len(built))


def arch_here(kernel: Kernel) -> str:
    """Return the architecture that a kernel's tiles are compiled for: of the GPU here, or else `ARCH`."""
    return ARCH if cuda_missing() else limits_here(kernel).arch


def resources(subject: Subject, config: Config) -> Resources | None:
    """Return what a tile takes of a GPU at most; None for a kernel of the CPU, and where it does not compile."""
    kernel = subject.kernel
    launches = _launches(subject, kernel, config, arch_here(kernel)) if isinstance(kernel, CudaKernel) else []
    if not launches:
        return None
    return Resources(max(row.registers for row in launches), max(row.spill_bytes for row in launches))


def _launches(subject: Subject, kernel: CudaKernel, config: Config, arch: str) -> list[InspectRow]:
    """Return what each launch of a tile takes; nothing where it does not compile."""
    try:
        return launch_rows(kernel, subject.problem, Tile(**subject.tile(config)), arch, limits_here(kernel))
    except (CompileError, Unsupported):  # the latter: no compiler is here
        return []


def words(subject: Subject, ranked: Ranked, arch: str) -> str:
    """Return the table of the best, and what was dropped."""
    shown = [row for rows in ranked.rows[:SHOWN] for row in rows]
    dropped = f"{ranked.spilling} spill, {ranked.failed} do not compile"
    tried = f"{count(ranked.tried, 'tile')} compiled for {arch}"
    head = f"{subject.kernel.id} on {subject.problem.id}: {size_words(subject.space)}; {tried}"
    note = "NOTHING WAS TIMED: ranked by occupancy, which does not decide alone how fast a tile is"
    texts = (paragraph(f"{head}: {dropped}", rest=""), render(shown, "table"), paragraph(note, rest=""))
    return "\n\n".join(texts)
