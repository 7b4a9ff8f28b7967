"""The tiles that tuning has found on a device, in a file: what it holds, and writing it at once or not at all."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure.cpu import cpu_name
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.record.store import default_store

#: Stands for the file of the device that is here.
AUTO = "auto"
_FORMAT = 1


class TileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A tile that was certainly faster than the default of its kernel on a problem.

    digest: of the kernel's source. versions: of what compiles and runs it. tile: `BM=64,BN=32`. ratio, low, high: how
    many times faster than the default, with the interval between processes. run: the race that decided it.
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
        """Return what there is one entry for."""
        return self.kernel, self.problem, self.threads


class Tuned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of entries, all of one device."""

    format: int = _FORMAT
    device: str
    tiles: tuple[TileRecord, ...] = ()


class TileFile(NamedTuple):
    """Where the tiles of a device are kept."""

    path: Path
    device: str


def device_name(device: str) -> str:
    """Return the name of the device `cpu` or `cuda` here. Raises Unsupported."""
    return cpu_name() if device == "cpu" else get_device(device).device_name


def file_of(where: str, device: str) -> TileFile:
    """Return the file of a device: of this name, or `$XDG_DATA_HOME/kernelmark/tuned/<device>.json` for `auto`."""
    name = device_name(device)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or device
    return TileFile(default_store().parent / "tuned" / f"{slug}.json" if where == AUTO else Path(where), name)


def opened(where: str, device: str) -> TileFile:
    """Return the file of a device, which can be read and replaced. Raises UsageError now, not after an hour."""
    file = file_of(where, device)
    tiles_in(file)
    with _writing(file.path):
        return file


def tiles_in(file: TileFile) -> tuple[TileRecord, ...]:
    """Return what a file holds, nothing where there is none. Raises UsageError, for a file of another device too."""
    if not file.path.exists():
        return ()
    found = read(file.path)
    if found.device != file.device:
        raise UsageError(f"{file.path}: is of {found.device}, here is {file.device}; name another file, or tune here")
    return found.tiles


def read(path: Path) -> Tuned:
    """Return what a file holds. Raises UsageError."""
    require_file(path)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Tuned)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; `kernelmark tune` writes one") from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}: is no file of tuned tiles: {error}; remove it, or name another file") from None
    if found.format != _FORMAT:
        raise UsageError(f"{path}: has format {found.format}, expected {_FORMAT}; tune again with this kernelmark")
    return found


def keep(file: TileFile, key: tuple[str, str, int], entry: TileRecord | None) -> None:
    """Put the entry in the place of that with its key, or only remove that. Raises UsageError."""
    before = tiles_in(file)
    others = [one for one in before if one.key != key]
    if entry is not None or len(others) < len(before):
        tiles = sorted([*others, *([entry] if entry else [])], key=lambda one: one.key)
        _write(file.path, Tuned(device=file.device, tiles=tuple(tiles)))


def _write(path: Path, found: Tuned) -> None:
    """Write beside and rename, so that no reader sees half of it."""
    with _writing(path) as beside:
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        beside.replace(path)


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    """Give a file beside it to write, which is removed unless it was renamed. Raises UsageError."""
    remedy = "--tuned FILE names another"
    if path.exists() and not path.stat().st_mode & 0o222:  # which a rename would not respect
        raise UsageError(f"{path}: is read-only; make it writable, or {remedy}")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.touch()
        yield beside
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; {remedy}") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
