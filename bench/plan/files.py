"""Find folders, check that a path is a file (reading a pipe would wait for another process), and replace files."""

import hashlib
import math
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kernelmark.bench.plan.errors import UsageError

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_KINDS |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")


def data_folder() -> Path:
    """Return `$XDG_DATA_HOME/kernelmark`. Raises UsageError for a user without a home."""
    try:
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "kernelmark"
    except RuntimeError:
        what = f"user {os.getuid()} has no home, and HOME is not set"
        raise UsageError(f"results: {what}; set XDG_DATA_HOME to a folder, or give --db FILE") from None


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/kernelmark`; for a user without a home, a path below /dev/null, which caches nothing."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelmark"
    except RuntimeError:
        return Path(os.devnull) / "kernelmark"


def require_file(path: Path, most_bytes: float = math.inf) -> None:
    """Raise UsageError if the path is not a regular file, or the file is too large; a missing file passes."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise UsageError(f"{path}: is {_KINDS.get(kind, 'of an unknown kind')}, expected a file")
    if status.st_size > most_bytes:
        raise UsageError(f"{path}: has {status.st_size / 1e6:.3g} MB, expected at most {most_bytes / 1e6:g}")


@contextmanager
def readable(path: Path, remedy: str = "", most_bytes: float = math.inf) -> Iterator[None]:
    """Check `path` as `require_file` does, and raise UsageError if reading it within the context fails."""
    require_file(path, most_bytes)
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}{remedy}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file. Raises UsageError."""
    import tomllib  # not at the top: listing kernels starts faster without it

    with readable(path):
        try:
            return tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}: is not TOML: {error}") from None


@contextmanager
def replacing(path: Path, remedy: str = "name another file", only_try: bool = False) -> Iterator[Path]:
    """Yield a temporary file in the same folder that replaces `path` on success, so that no reader sees half of it.

    If the disk is full, the old file stays. only_try: check that `path` can be written, but do not replace it. Raises
    UsageError.
    """
    require_file(path)
    target = path.resolve()  # a link stays a link
    beside = target.with_name(f".writing-{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.touch()
        if target.exists():
            mode = target.stat().st_mode
            if not (mode & 0o222 and os.access(target, os.W_OK)):  # a rename would replace even a read-only file
                raise UsageError(f"{path}: is read-only; make it writable, or {remedy}")
            beside.chmod(mode)
        yield beside
        if not only_try:
            beside.replace(target)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; {remedy}") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def kept_plugin(text: str) -> Path:
    """Write a generated plug-in to a file that workers and a resumed run can load. Raises UsageError."""
    path = data_folder() / "plugins" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    if not path.exists():
        with replacing(path, "set XDG_DATA_HOME to a folder that can be written") as beside:
            beside.write_text(text, encoding="utf-8")
    return path


@contextmanager
def only_utf8() -> Iterator[None]:
    """Raise UsageError if a text to be recorded, such as a file name, is not UTF-8."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise UsageError(f"{error.object}: is not UTF-8, expected a name that a run can record; rename it") from None
