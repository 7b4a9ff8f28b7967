"""Compiling .cu files to cubins, without a GPU or a driver, and what the compiler says that they need.

NVRTC through cuda-core; nvcc where only that is there. Cubins are cached on disk by content. Registers, shared memory,
stack and spills come from `ptxas -v` (spills stand nowhere else); launch bounds and constants from the cubin's ELF.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.measure.elf import EIATTR_MAX_THREADS, elf_attributes, elf_sections, pointees
from bench.plan.errors import Unsupported, UsageError

#: The architectures that every kernel is compiled for, as far as it supports them.
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
INSTALL = "pip install 'kernelmark[compile]'"
_FORMAT = 1  # of the cached file
_MAX_THREADS = 1024


class CompileError(UsageError):
    """A .cu file does not compile: kernel, file and architecture in the first line, then the compiler's log."""


class Resources(msgspec.Struct, frozen=True):
    """What one thread or block of a kernel takes. max_threads: its launch bound, or 1024.

    constant_bytes: `__constant__` variables and literals, without the parameters; spill_bytes: stores and loads.
    """

    registers: int
    static_shared_bytes: int
    stack_bytes: int
    spill_bytes: int
    constant_bytes: int
    max_threads: int


class Cubin(msgspec.Struct, frozen=True):
    """Machine code for one architecture; lowered symbols and resources by name expression; the compiler and its log."""

    code: bytes
    arch: str
    compiler: str
    symbols: dict[str, str]
    resources: dict[str, Resources]
    log: str


class _Built(NamedTuple):
    code: bytes
    symbols: dict[str, str]
    log: str


class _BuildFailed(Exception):
    """The compiler's log."""


def cuda_sources() -> Path:
    """The folder of the .cu files: `cuda/` in a checkout, `bench/_cuda` in a wheel. Raises UsageError."""
    bench = Path(__file__).resolve().parents[1]
    for folder in (bench.parent / "cuda", bench / "_cuda"):
        if (folder / "common.cuh").is_file():
            return folder
    raise UsageError(
        f"cuda: found no common.cuh in {bench.parent / 'cuda'} nor in {bench / '_cuda'}; reinstall kernelmark"
    )


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
    build = _nvrtc if found.startswith("NVRTC") else _nvcc
    try:
        code, symbols, log = build(path, source, entries, arch)
    except _BuildFailed as error:
        raise CompileError(f"{subject}: {path} does not compile for {arch} ({found})\n{error}") from None
    resources = {entry: _resources(code, symbol, log) for entry, symbol in symbols.items()}
    cubin = Cubin(code, arch, found, symbols, resources, log)
    _store(cached, cubin)
    return cubin


@lru_cache
def compiler() -> str:
    """The compiler in use with its version, such as `NVRTC 13.0.88`. Raises Unsupported where there is none."""
    try:
        import cuda.core  # noqa: F401
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # RuntimeError: the bindings are there and the library is not
        if nvcc := find_nvcc():
            return _nvcc_version(nvcc)
        reason = str(error).split("\n")[0]
        raise Unsupported(f"no CUDA compiler: found neither NVRTC ({reason}) nor nvcc; {INSTALL}") from None
    with suppress(importlib.metadata.PackageNotFoundError):
        return f"NVRTC {importlib.metadata.version('nvidia-cuda-nvrtc')}"
    return f"NVRTC {major}.{minor}"


def find_nvcc() -> str | None:
    """Path of nvcc, or None."""
    roots = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    return shutil.which("nvcc") or next((p for root in roots if root and (p := shutil.which(f"{root}/bin/nvcc"))), None)


def _nvcc_version(nvcc: str) -> str:
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    return f"nvcc {found[1] if found else hashlib.sha256(text.encode()).hexdigest()[:8]}"


@lru_cache
def header_folders() -> tuple[str, ...]:
    """Folders with CUDA's own headers: those of NVIDIA's wheels, else the toolkit's; none where neither is there."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(folder) / "cu13" for folder in (spec.submodule_search_locations or () if spec else ())]
    nvcc = find_nvcc()
    toolkits = [Path(nvcc).resolve().parents[1]] if nvcc else []
    toolkits += [Path(root) for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    for root in (*wheels, *toolkits):
        if (root / "include" / "cuda_runtime.h").is_file():
            cccl = root / "include" / "cccl"
            return (str(root / "include"), *((str(cccl),) if cccl.is_dir() else ()))
    return ()


def _nvrtc(path: Path, name: str, entries: Sequence[str], arch: str) -> _Built:
    from cuda.core import Program, ProgramOptions

    include = [str(cuda_sources()), str(path.parent), *header_folders()]
    options = ProgramOptions(
        name=name, arch=arch, std="c++17", lineinfo=True, include_path=include, ptxas_options=["-v"]
    )
    log = StringIO()
    try:
        compiled = Program(path.read_text(), "c++", options).compile("cubin", tuple(entries), logs=log)
    except Exception as error:  # cuda-core has no public name for its NVRTCError
        if type(error).__name__ != "NVRTCError":
            raise
        raise _BuildFailed(str(error).partition("compilation log:")[2].strip("\0 \n") or str(error)) from None
    code, lowered = compiled.code, compiled.symbol_mapping
    symbols = {entry: s.decode() if isinstance(s := lowered[entry], bytes) else s for entry in entries}
    return _Built(bytes(code), symbols, log.getvalue().rstrip("\0 \n"))


def _nvcc(path: Path, name: str, entries: Sequence[str], arch: str) -> _Built:
    """Nvcc has no name expressions: pointers to the kernels instantiate them, and their relocations name them."""
    number = arch.removeprefix("sm_")
    pointers = [f"__device__ const void *km_entry_{i} = (const void *){entry};" for i, entry in enumerate(entries)]
    with tempfile.TemporaryDirectory(prefix="kernelmark-") as folder:
        wrapper, out = Path(folder, "wrapper.cu"), Path(folder, "out.cubin")
        wrapper.write_text("\n".join([f'#include "{path}"', *pointers, ""]))
        command = [find_nvcc() or "nvcc", "-std=c++17", "-lineinfo", "-cubin", "-Xptxas", "-v"]
        command += [f"-gencode=arch=compute_{number},code=sm_{number}", f"-I{cuda_sources()}", f"-I{path.parent}"]
        done = subprocess.run([*command, "-o", str(out), str(wrapper)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise _BuildFailed((done.stderr + done.stdout).strip())
        code = out.read_bytes()
    return _Built(code, dict(zip(entries, pointees(code, len(entries)), strict=True)), done.stderr)


def _key(path: Path, entries: Sequence[str], arch: str, compiler_: str) -> str:
    """Hash of everything that the cubin follows from."""
    digest = hashlib.sha256(repr((_FORMAT, path.name, tuple(entries), arch, compiler_, header_folders())).encode())
    for text in _with_includes(path):
        digest.update(hashlib.sha256(text).digest())
    return digest.hexdigest()[:32]


def _with_includes(path: Path) -> list[bytes]:
    """The file and every file of ours that it includes; CUDA's own headers go with the compiler's version."""
    texts: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        texts[file] = file.read_bytes()
        for name in re.findall(rb'^\s*#\s*include\s*["<]([^">]+)[">]', texts[file], re.MULTILINE):
            places = (folder / name.decode() for folder in (file.parent, path.parent, cuda_sources()))
            waiting += [place for place in places if place.is_file() and place not in texts][:1]
    return list(texts.values())


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelmark"


def _load(file: Path) -> Cubin | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.msgpack.decode(file.read_bytes(), type=Cubin)
    return None


def _store(file: Path, cubin: Cubin) -> None:
    """Written beside and renamed, so that a reader never sees half of it. A folder that refuses costs only time."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".writing-")
        with os.fdopen(handle, "wb") as out:
            out.write(msgspec.msgpack.encode(cubin))
        Path(name).replace(file)


_PTXAS = (
    r"Compiling entry function '{symbol}' for .*?Function properties for {symbol}\s.*?"
    r"(?P<frame>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)


def _resources(code: bytes, symbol: str, log: str) -> Resources:
    used = re.search(_PTXAS.format(symbol=re.escape(symbol)), log, re.DOTALL)
    if not used:
        raise UsageError(f"{symbol}: the compiler's log tells no resources; expected the lines of ptxas -v:\n{log}")

    def rest(unit: str) -> int:
        found = re.search(rf"(\d+) bytes {unit}", used["rest"])
        return int(found[1]) if found else 0

    sections = elf_sections(code)
    constants = (sections.get(name) for name in (".nv.constant3", f".nv.constant2.{symbol}"))
    bounds = elf_attributes(code, f".nv.info.{symbol}").get(EIATTR_MAX_THREADS)
    return Resources(
        registers=int(used["registers"]),
        static_shared_bytes=rest("smem"),
        stack_bytes=rest("cumulative stack size") or int(used["frame"]),
        spill_bytes=int(used["stores"]) + int(used["loads"]),
        constant_bytes=sum(section.size for section in constants if section),
        max_threads=struct.unpack_from("<I", bounds)[0] if bounds else _MAX_THREADS,
    )
