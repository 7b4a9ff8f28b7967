"""Compiling .cu files to cubins, without a GPU or a driver, with the resources that the compiler reports for them.

Cubins are cached on disk by content, wherever the sources and the compiler's headers lie: in `$XDG_CACHE_HOME`, and in
`build/cubins` of the checkout, which a copy of it brings along.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

import kernelmark
from kernelmark.bench.measure.compilers import (
    BuildFailed,
    compiler,
    cuda_sources,
    header_version,
    with_nvcc,
    with_nvrtc,
)
from kernelmark.bench.measure.resources import Resources, resources_of
from kernelmark.bench.plan.errors import UsageError

#: The architectures that every kernel is compiled for, as far as it supports them.
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
_FORMAT = 2  # of the cached file
#: Cubins that were compiled beforehand, for a machine that the checkout is copied to.
AHEAD = Path(kernelmark.__file__).parents[1] / "build" / "cubins"
Wanted = TypeVar("Wanted")
Made = TypeVar("Made")


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


class Program(NamedTuple):
    """A program to compile: the .cu, the name expressions of its kernels, and the id of a kernel for messages."""

    source: str
    entries: tuple[str, ...]
    kernel: str


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
    name = f"{_key(path, entries, arch, found)}.cubin"
    for folder in (_cache_folder(), AHEAD):
        if (cubin := _load(folder / name)) is not None:
            return cubin
    build = with_nvrtc if found.startswith("NVRTC") else with_nvcc
    try:
        code, symbols, log = build(path, source, entries, arch)
    except BuildFailed as error:
        raise CompileError(f"{subject}: {path} does not compile for {arch} ({found})\n{error}") from None
    resources = {entry: resources_of(code, symbol, log) for entry, symbol in symbols.items()}
    cubin = Cubin(code, arch, found, symbols, resources, log)
    _store(_cache_folder() / name, cubin)
    return cubin


def compile_ahead(programs: Iterable[Program], arch: str, folder: Path = AHEAD) -> list[str]:
    """Compile programs on all processors into a folder where compile_cubin looks; return a line for each that fails.

    Cubins are found again by the same version of the compiler. Raises Unsupported where there is none, OSError where
    the folder cannot be written.
    """
    found = compiler()
    folder.mkdir(parents=True, exist_ok=True)

    def compiled(program: Program) -> str | None:
        try:
            cubin = compile_cubin(*program[:2], arch, program.kernel)
        except UsageError as error:
            return str(error).splitlines()[0]
        name = _key(cuda_sources() / program.source, program.entries, arch, found)
        _write(folder / f"{name}.cubin", cubin)
        return None

    return [line for line in in_parallel(compiled, list(dict.fromkeys(programs))) if line]


def in_parallel(compiled: Callable[[Wanted], Made], wanted: Sequence[Wanted]) -> list[Made]:
    """Compile on all processors, and return what came of each in their order.

    The first is compiled alone: threads that import the compiler at once fail.
    """
    found = [compiled(words) for words in wanted[:1]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return found + list(pool.map(compiled, wanted[1:]))


def _key(path: Path, entries: Sequence[str], arch: str, compiler_: str) -> str:
    """Return a hash of everything that the cubin follows from, but for places: the same sources anywhere have one."""
    digest = hashlib.sha256(repr((_FORMAT, tuple(entries), arch, compiler_, header_version())).encode())
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
            place = included(name.decode(), file, path, include)
            waiting += [place] if place and place not in texts else []
    return texts


def included(name: str, file: Path, path: Path, include: Path) -> Path | None:
    """Return the header that `file` includes by this name: beside it, beside the .cu `path`, or in `include`."""
    places = (folder / name for folder in (file.parent, path.parent, include))
    return next((place for place in places if place.is_file()), None)


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelmark"


def _load(file: Path) -> Cubin | None:
    """Return a cached cubin, or None where the file is absent or damaged."""
    with suppress(OSError, msgspec.MsgspecError):
        content = file.read_bytes()
        if hashlib.sha256(content[32:]).digest() == content[:32]:
            return msgspec.msgpack.decode(content[32:], type=Cubin)
    return None


def _store(file: Path, cubin: Cubin) -> None:
    """Write a cubin into the cache. A folder that refuses costs only time."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(file, cubin)


def _write(file: Path, cubin: Cubin) -> None:
    """Write beside and rename, so that no reader sees half of it."""
    content = msgspec.msgpack.encode(cubin)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".writing-")
    with os.fdopen(handle, "wb") as out:
        out.write(hashlib.sha256(content).digest() + content)
    Path(name).replace(file)
