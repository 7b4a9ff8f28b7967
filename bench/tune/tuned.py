"""The file of a device's tuned tiles: reading and writing it, its use in runs, and its export as a C header.

An entry is stale if the kernel's source, its compiler or its tunables have changed.
"""

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure.compile import compiler, cuda_sources, with_includes
from kernelmark.bench.measure.cpu import cpu_name
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.present import module_version
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.files import readable, replacing
from kernelmark.bench.plan.kernel import CudaKernel, Kernel
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.plan.tiles import parse_tile
from kernelmark.bench.plan.tuned import TunedTile
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.record.store import default_store
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.format import count
from kernelmark.bench.tune.search import limits_here

#: The option value that means the file of this machine's device.
AUTO = "auto"
_FORMAT = 1
_ANOTHER = "--tuned FILE names another"


class TileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A tile that was certainly faster than the default of its kernel on a problem.

    digest: hash of the kernel's source. versions: its compiler and libraries. tile: such as `BM=64,BN=32`. ratio, low,
    high: the tile's speed relative to the default's, with an interval over processes. run: the id of the race.
    """

    kernel: str
    problem: str
    threads: int
    mode: str
    digest: str
    versions: str
    tile: str
    default: str
    ratio: float
    low: float
    high: float
    processes: int
    run: str
    tuned_at: str

    @property
    def key(self) -> tuple[str, str, int]:
        """Return the key of the entry; no two entries share a key."""
        return self.kernel, self.problem, self.threads


class Tuned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of a file of tuned tiles, which are all for one device."""

    format: int = _FORMAT
    device: str
    tiles: tuple[TileRecord, ...] = ()


class TileFile(NamedTuple):
    """The file with the tiles of a device."""

    path: Path
    device: str


def device_name(device: str) -> str:
    """Return the model of this machine's CPU or GPU; `device` is `cpu` or `cuda`. Raises Unsupported."""
    return cpu_name() if device == "cpu" else get_device(device).device_name


def file_of(where: str, device: str) -> TileFile:
    """Return the file of a device: `where`, or if it is `auto`, `$XDG_DATA_HOME/kernelmark/tuned/<device>.json`."""
    name = device_name(device)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or device
    return TileFile(default_store().parent / "tuned" / f"{slug}.json" if where == AUTO else Path(where), name)


def opened(where: str, device: str) -> TileFile:
    """Return the file of a device. Raises UsageError, before any tuning, if it cannot be read or replaced."""
    file = file_of(where, device)
    tiles_in(file)
    with replacing(file.path, _ANOTHER, only_try=True):
        return file


def tiles_in(file: TileFile) -> tuple[TileRecord, ...]:
    """Return a file's entries, or () without a file. Raises UsageError, for instance for a file of another device."""
    if not file.path.exists():
        return ()
    tuned = read(file.path)
    if tuned.device != file.device:
        raise UsageError(f"{file.path}: is for {tuned.device}, not {file.device}; name another file, or tune here")
    return tuned.tiles


def read(path: Path) -> Tuned:
    """Return the contents of a file. Raises UsageError."""
    with readable(path, "; `kernelmark tune` writes one"):
        try:
            contents = msgspec.json.decode(path.read_bytes(), type=Tuned)
        except msgspec.MsgspecError as error:
            remedy = "remove it, or name another file"
            raise UsageError(f"{path}: is not a file of tuned tiles: {error}; {remedy}") from None
    if contents.format != _FORMAT:
        raise UsageError(f"{path}: has format {contents.format}, expected {_FORMAT}; tune again with this kernelmark")
    return contents


def keep(file: TileFile, key: tuple[str, str, int], entry: TileRecord | None) -> None:
    """Replace the entry with this key, or remove it if `entry` is None. Raises UsageError."""
    before = tiles_in(file)
    tiles = [*(tile for tile in before if tile.key != key), *filter(None, [entry])]
    if entry is not None or len(tiles) < len(before):
        with replacing(file.path, _ANOTHER) as beside:
            tuned = Tuned(device=file.device, tiles=tuple(sorted(tiles, key=lambda tile: tile.key)))
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(tuned), indent=2) + b"\n")


def with_tuned(plan: Plan, where: str, registry: Registry) -> tuple[Plan, list[str]]:
    """Return the plan with tiles from a file (`auto`: from the files of the plan's devices), and remarks.

    Raises UsageError for a file that does not exist, is not a file of tiles, or is for another device.
    """
    where = where if where == AUTO else str(Path(where).absolute())
    files = [file_of(where, device) for device in plan.devices]
    if where != AUTO:
        device = read(Path(where)).device
        files = [next((file for file in files if file.device == device), files[0])]
    good, remarks = list[TunedTile](), []
    for file in files:
        tiles, stale = usable(tiles_in(file), registry)
        good += tiles
        if stale:
            what = f"{count(len(stale), 'tile')} of {file.path} not used: {stale[0]}"
            remarks.append(f"tuned: {what}; `kernelmark doctor` lists all")
    if not good:
        names = " and ".join(file.device for file in files)
        remarks.append(f"tuned: no tile for {names}; `kernelmark tune` finds some")
    return msgspec.structs.replace(plan, tuned=where, tiles=tuple(good)), remarks


def usable(entries: Sequence[TileRecord], registry: Registry) -> tuple[list[TunedTile], list[str]]:
    """Return the tiles that are valid for the present kernels, and a text for each stale entry with the reason."""
    good, stale = [], []
    for entry in entries:
        if reason := _staleness(entry, registry):
            stale.append(f"{entry.kernel}@{entry.tile} on {entry.problem}: {reason}")
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
        return f"it was tuned with {entry.versions}, but this machine has {now}"
    return None


def source_digest(kernel: Kernel) -> str:
    """Return a hash of the sources that determine a kernel's speed: its module, its .cu file and their headers.

    For a CPU kernel, modules `_*.py` in its folder and its parents are included. Stored tiles and recorded runs
    hold this hash, so its computation must not change. The digest of bench/measure/sources.py is better, since it
    ignores formatting and moved files.
    """
    files = (_module(kernel), *_parts(kernel))
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()[:16]


def sources_of(kernel: Kernel) -> dict[str, bytes]:
    """Return the files of a kernel's code by name: the .cu file with its headers, or Python modules."""
    files = _parts(kernel) if isinstance(kernel, CudaKernel) else [_module(kernel), *_parts(kernel)]
    return {file.name: file.read_bytes() for file in reversed(files)}  # of files with the same name, keep the nearest


def _module(kernel: Kernel) -> Path:
    return Path(sys.modules[kernel.module].__file__ or "")


def _parts(kernel: Kernel) -> list[Path]:
    if isinstance(kernel, CudaKernel):
        return sorted(with_includes(cuda_sources() / kernel.source, cuda_sources()))
    folders = _module(kernel).parents[: kernel.module.removeprefix("kernelmark.").count(".")]
    return [file for folder in folders for file in sorted(folder.glob("_*.py"))]


def versions(kernel: Kernel) -> str:
    """Return the versions of a kernel's compiler and libraries: `numba 0.62.1`."""
    listed = [f"{module} {version}" for module in kernel.modules if (version := module_version(module))]
    if isinstance(kernel, CudaKernel):
        try:
            listed.append(compiler())
        except Unsupported as error:
            listed.append(str(error))
    return "; ".join(listed)


def adopted(
    files: Sequence[TileFile], named: bool, selection: Selection, run_id: str | None = None
) -> list[tuple[str, TileRecord]]:
    """Return the adopted tiles that are selected, each with its device. run_id: select only the tiles of this race.

    named: whether the user named the file, which may then be for another device. Raises UsageError if there is no such
    tile, or no file.
    """
    contents = [read(f.path) if named else Tuned(device=f.device, tiles=tiles_in(f)) for f in files]
    selected = [
        (content.device, entry)
        for content in contents
        for entry in content.tiles
        if run_id in (None, entry.run)
        and selection.takes(entry.kernel, entry.kernel.partition("/")[0], entry.problem, "ok")
    ]
    if not selected:
        where = " and ".join(str(file.path) for file in files)
        wanted = f" of run {run_id}" * (run_id is not None) or " that was selected" * any(selection)
        raise UsageError(f"{where}: has no tile{wanted}; `kernelmark tune KERNEL PROBLEM` finds tiles")
    return selected


def header(tiles: Sequence[tuple[str, TileRecord]]) -> str:
    """Return a header that defines a constant for each tunable of each tile. Raises UsageError for an invalid tile."""
    used, parts = Counter[str](), ["#ifndef KERNELMARK_TUNED_H\n#define KERNELMARK_TUNED_H"]
    for device, entry in tiles:
        words = entry.kernel, entry.problem.partition("/")[2], f"t{entry.threads}"
        name = "KERNELMARK_" + "_".join(map(_macro, words))
        used[name] += 1  # ids that differ only in punctuation have the same macro name
        numbered = name if used[name] == 1 else f"{name}_{used[name]}"
        faster = f"{Ratio(entry.ratio, entry.low, entry.high)} as fast as {entry.default}"
        origin = (
            f"{entry.kernel} on {entry.problem}, {count(entry.threads, 'thread')}, {entry.mode}",
            f"{device}; {entry.versions}; source {entry.digest}",
            f"{faster} over {entry.processes} processes, run {entry.run} of {entry.tuned_at}",
        )
        values = parse_tile(entry.tile, f"{entry.kernel} on {entry.problem}: tile {entry.tile!r}")
        constants = [f"#define {numbered}_{_macro(tunable)} {value}" for tunable, value in values.items()]
        parts.append("\n".join([*map(_comment, origin), *constants]))
    return "\n\n".join([*parts, "#endif /* KERNELMARK_TUNED_H */"]) + "\n"


def _macro(text: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", text.upper())


def _comment(text: str) -> str:
    return f"/* {one_line(text).replace('*/', '* /').replace('/*', '/ *')} */"
