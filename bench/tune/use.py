"""A run with tuned tiles: which entries of a file hold for the kernels as they are now, and which are stale."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure.compile import compiler, cuda_sources, with_includes
from kernelmark.bench.measure.present import module_version
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Kernel
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.tiles import parse_tile
from kernelmark.bench.plan.tuned import TunedTile
from kernelmark.bench.report.format import count
from kernelmark.bench.tune.listing import limits_here
from kernelmark.bench.tune.tuned import AUTO, TileFile, TileRecord, file_of, read, tiles_in


class Stale(NamedTuple):
    """An entry that is not used, and why."""

    entry: TileRecord
    reason: str

    def __str__(self) -> str:
        return f"{self.entry.kernel}@{self.entry.tile} on {self.entry.problem}: {self.reason}"


def with_tuned(plan: Plan, where: str, registry: Registry) -> tuple[Plan, list[str]]:
    """Return the plan with the tiles of a file, or of the files of its devices (`auto`), and remarks.

    Raises UsageError for a file that is not there, is none, or is of another device.
    """
    where = where if where == AUTO else str(Path(where).absolute())
    good: list[TunedTile] = []
    remarks, files = [], _files(plan, where)
    for file in files:
        tiles, stale = usable(tiles_in(file), registry)
        good += tiles
        if stale:
            what = f"{count(len(stale), 'tile')} of {file.path} not used: {stale[0]}"
            remarks.append(f"tuned: {what}; `kernelmark doctor` lists all")
    if not good:
        remarks.append(
            f"tuned: no tile for {' and '.join(file.device for file in files)}; `kernelmark tune` finds some"
        )
    return msgspec.structs.replace(plan, tuned=where, tiles=tuple(good)), remarks


def _files(plan: Plan, where: str) -> list[TileFile]:
    """Return the file of each device, or the one that is named, which is of one of the devices."""
    files = [file_of(where, device) for device in plan.devices]
    if where == AUTO:
        return files
    device = read(Path(where)).device
    return [next((file for file in files if file.device == device), files[0])]


def usable(entries: Sequence[TileRecord], registry: Registry) -> tuple[list[TunedTile], list[Stale]]:
    """Return the tiles that hold for the kernels as they are, and the entries that do not."""
    good, stale = [], []
    for entry in entries:
        if reason := _staleness(entry, registry):
            stale.append(Stale(entry, reason))
        else:
            good.append(TunedTile(entry.kernel, entry.problem, entry.threads, entry.tile, entry.run))
    return good, stale


def _staleness(entry: TileRecord, registry: Registry) -> str | None:
    if entry.kernel not in registry.kernels:
        return "there is no such kernel; --plugin names the file that declares one"
    kernel = registry.kernels[entry.kernel]
    try:
        pinned, problem = kernel.with_tile(parse_tile(entry.tile, entry.kernel)), registry.problem(entry.problem)
    except UsageError as error:
        return str(error)
    if reason := pinned.refuses(problem, limits_here(kernel)):
        return reason
    if entry.digest != source_digest(kernel):
        return "its source has changed since it was tuned"
    if entry.versions != (now := versions(kernel)):
        return f"it was tuned with {entry.versions}, here is {now}"
    return None


def source_digest(kernel: Kernel) -> str:
    """Return a hash of what a kernel's speed follows from: the module that declares it, its .cu file, their headers.

    Of a CPU kernel, the modules beside it whose names begin with an underscore count too, and those above them. Files
    of tuned tiles and recorded runs have it, so it stays as it is, though bench/measure/sources.py has a digest that
    formatting and moved files leave alone.
    """
    digest = hashlib.sha256()
    for file in (_module(kernel), *_parts(kernel)):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def sources_of(kernel: Kernel) -> dict[str, bytes]:
    """Return the files that hold a kernel's code, by their names: the .cu file with its headers, or Python modules."""
    files = _parts(kernel) if isinstance(kernel, CudaKernel) else [_module(kernel), *_parts(kernel)]
    return {file.name: file.read_bytes() for file in reversed(files)}  # of two with one name, the nearer one


def _module(kernel: Kernel) -> Path:
    return Path(sys.modules[kernel.module].__file__ or "")


def _parts(kernel: Kernel) -> list[Path]:
    if isinstance(kernel, CudaKernel):
        return sorted(with_includes(cuda_sources() / kernel.source, cuda_sources()))
    folders = _module(kernel).parents[: kernel.module.removeprefix("kernelmark.").count(".")]
    return [file for folder in folders for file in sorted(folder.glob("_*.py"))]


def versions(kernel: Kernel) -> str:
    """Return `numba 0.62.1`: what compiles and runs the kernel."""
    found = [f"{module} {version}" for module in kernel.modules if (version := module_version(module))]
    if isinstance(kernel, CudaKernel):
        try:
            found.append(compiler())
        except Unsupported as error:
            found.append(str(error))
    return "; ".join(found)
