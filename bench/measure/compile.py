"""Compiling .cu files to cubins, without a GPU or a driver, with the resources that the compiler reports for them.

Cubins are cached on disk by content.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from kernelmark.bench.measure.compilers import (
    BuildFailed,
    compiler,
    cuda_sources,
    header_folders,
    with_nvcc,
    with_nvrtc,
)
from kernelmark.bench.measure.resources import Resources, resources_of
from kernelmark.bench.plan.errors import UsageError

#: The architectures that every kernel is compiled for, as far as it supports them.
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
_FORMAT = 1  # of the cached file


class CompileError(UsageError):
    """A .cu file does not compile: kernel, file and architecture in the first line, then the compiler's log."""


class Cubin(msgspec.Struct, frozen=True):
    """Machine code for one architecture; lowered symbols and resources by name expression; the compiler and its log."""

    code: bytes
    arch: str
    compiler: str
    symbols: dict[str, str]
    resources: dict[str, Resources]
    log: str


def compile_cubin(source: str, entries: Sequence[str], arch: str, kernel: str = "") -> Cubin:
    """The cubin of `source` (below `cuda/`, or absolute) with the kernels that `entries` (name expressions) name.

    arch is `sm_90a` or the like, `kernel` the id for error messages. Raises CompileError, Unsupported where there is no
    compiler, UsageError where the file or the architecture is none.
    """
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise UsageError(f"arch {arch!r}: expected sm_ and the compute capability, such as sm_90a")
    subject, path = kernel or source, cuda_sources() / source
    if not path.is_file():
        raise UsageError(f"{subject}: there is no file {path}; `source` is a path below {cuda_sources()}")
    found = compiler()
    cached = _cache_folder() / f"{_key(path, entries, arch, found)}.cubin.msgpack"
    if (cubin := _load(cached)) is not None:
        return cubin
    build = with_nvrtc if found.startswith("NVRTC") else with_nvcc
    try:
        code, symbols, log = build(path, source, entries, arch)
    except BuildFailed as error:
        raise CompileError(f"{subject}: {path} does not compile for {arch} ({found})\n{error}") from None
    resources = {entry: resources_of(code, symbol, log) for entry, symbol in symbols.items()}
    cubin = Cubin(code, arch, found, symbols, resources, log)
    _store(cached, cubin)
    return cubin


def _key(path: Path, entries: Sequence[str], arch: str, compiler_: str) -> str:
    """Hash of everything that the cubin follows from."""
    digest = hashlib.sha256(repr((_FORMAT, path.name, tuple(entries), arch, compiler_, header_folders())).encode())
    for text in with_includes(path, cuda_sources()).values():
        digest.update(hashlib.sha256(text).digest())
    return digest.hexdigest()[:32]


def with_includes(path: Path, include: Path) -> dict[Path, bytes]:
    """The file and every file that it includes from beside it and from `include`, with their contents.

    The headers of CUDA are not among them: they go with the compiler's version.
    """
    texts: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        texts[file] = file.read_bytes()
        for name in re.findall(rb'^\s*#\s*include\s*["<]([^">]+)[">]', texts[file], re.MULTILINE):
            places = (folder / name.decode() for folder in (file.parent, path.parent, include))
            waiting += [place for place in places if place.is_file() and place not in texts][:1]
    return texts


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelmark"


def _load(file: Path) -> Cubin | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.msgpack.decode(file.read_bytes(), type=Cubin)
    return None


def _store(file: Path, cubin: Cubin) -> None:
    """Write beside and rename, so that a reader never sees half of it. A folder that refuses costs only time."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".writing-")
        with os.fdopen(handle, "wb") as out:
            out.write(msgspec.msgpack.encode(cubin))
        Path(name).replace(file)
