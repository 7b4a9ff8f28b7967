"""Adopted tiles as a header of C constants, for programs that compile such a kernel themselves."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.plan.tiles import parse_tile
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.format import count
from kernelmark.bench.tune.tuned import TileFile, TileRecord, read, tiles_in

GUARD = "KERNELMARK_TUNED_H"
_REMEDY = "`kernelmark tune KERNEL PROBLEM` finds tiles"


class Adopted(NamedTuple):
    """A tile of a kernel on a problem, with the device that it was found on."""

    device: str
    entry: TileRecord


def adopted(files: Sequence[TileFile], named: bool, selection: Selection, run_id: str | None = None) -> list[Adopted]:
    """Return the tiles of files, only those that a race decided if its run is given.

    named: the file was asked for, and may be of another device. Raises UsageError, also where there is none.
    """
    found = [
        Adopted(device, entry)
        for file in files
        for device, entries in [_held(file, named)]
        for entry in entries
        if run_id in (None, entry.run)
        and selection.takes(entry.kernel, entry.kernel.partition("/")[0], entry.problem, "ok")
    ]
    if not found:
        where = " and ".join(str(file.path) for file in files)
        wanted = f"of run {run_id}" * (run_id is not None) or "that was asked for" * any(selection)
        raise UsageError(f"{where}: {' '.join(filter(None, ('has no tile', wanted)))}; {_REMEDY}")
    return found


def _held(file: TileFile, named: bool) -> tuple[str, Sequence[TileRecord]]:
    if not named:
        return file.device, tiles_in(file)
    held = read(file.path)
    return held.device, held.tiles


def header(tiles: Sequence[Adopted]) -> str:
    """Return a header that defines a constant for each tunable of each tile. Raises UsageError for what is no tile."""
    parts = [f"#ifndef {GUARD}\n#define {GUARD}", *_definitions(tiles), f"#endif /* {GUARD} */"]
    return "\n\n".join(parts) + "\n"


def _definitions(tiles: Sequence[Adopted]) -> list[str]:
    """Return what is defined of each tile; ids that differ in punctuation alone are numbered."""
    used: Counter[str] = Counter()
    parts = []
    for device, entry in tiles:
        words = entry.kernel, entry.problem.partition("/")[2], f"t{entry.threads}"
        name = "KERNELMARK_" + "_".join(map(_macro, words))
        used[name] += 1
        parts.append(_defined(device, entry, name if used[name] == 1 else f"{name}_{used[name]}"))
    return parts


def _defined(device: str, entry: TileRecord, name: str) -> str:
    """Return the constants of a tile below the comments that state where it is from."""
    found = (
        f"{entry.kernel} on {entry.problem}, {count(entry.threads, 'thread')}, {entry.mode}",
        f"{device}; {entry.versions}; source {entry.digest}",
        f"{Ratio(entry.ratio, entry.low, entry.high)} as fast as {entry.default} over {entry.processes} processes, "
        f"run {entry.run} of {entry.tuned_at}",
    )
    values = parse_tile(entry.tile, f"{entry.kernel} on {entry.problem}: tile {entry.tile!r}")
    lines = [f"#define {name}_{_macro(tunable)} {value}" for tunable, value in values.items()]
    return "\n".join([*map(_comment, found), *lines])


def _macro(text: str) -> str:
    """Return a text as a part of a macro's name."""
    return re.sub(r"[^A-Z0-9]+", "_", text.upper())


def _comment(text: str) -> str:
    """Return a comment that no text of others ends early."""
    return f"/* {one_line(text).replace('*/', '* /').replace('/*', '/ *')} */"
