"""Compile a .cu file with g++ to a worker program, cached by the content of all of its inputs."""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelmark.bench.emulator import counters, ptx
from kernelmark.bench.measure.compile import cuda_sources, with_includes
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import cache_folder

HERE = Path(__file__).resolve().parent
CUDA = cuda_sources()
INSTALL = "apt-get install g++ binutils"
KEPT_S = 30 * 24 * 3600

_RUNTIME_FLAGS = ("-std=c++20", "-O3", "-fno-pie", "-Wall", "-Wextra")
# tsan's instrumentation without its library: each access calls a hook of the emulator's runtime. -O1 keeps line numbers
# exact. Loop distribution would turn the kernel's loops into memset. Scalar replacement of aggregates would split the
# load of a __half2 in two, which hides its misalignment. Dominator optimisation takes a quarter of the compiler's time
# and removes no access. Structs that are passed or returned in memory are instrumented only if a function copies them,
# so copies are not elided. Every addr2line reads DWARF 4, and line tables are enough.
_KERNEL_FLAGS = (
    *("-std=c++20", "-O1", "-gdwarf-4", "-g1", "-fno-pie", "-ffp-contract=off", "-ftls-model=local-exec"),
    *("-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0", "-fno-tree-loop-distribute-patterns"),
    *("-fno-tree-sra", "-fno-ipa-sra", "-fno-tree-dominator-opts", "-fno-elide-constructors"),
    *("-fno-extern-tls-init", "-Wall", "-Wno-unknown-pragmas", "-Wno-unused"),
)
#: The definition of a static shared variable in assembly. Unused bytes after each variable catch an index past its end.
SHARED_VARIABLE = re.compile(r"^\t\.size\t(\S+), (\d+)\n\1:\n\t\.zero\t\2$", re.MULTILINE)
RED_ZONE = 4096
#: `__shared__ alignas(16)` after macro expansion; C++ requires the alignment first.
_SHARED_ALIGNED = re.compile(r"\b((?:static\s+)?constinit thread_local)\s+(alignas\s*(\((?:[^()]|\([^()]*\))*\)))")
# Gold takes a third of ld's time, and linking with ld is half of the time that a small program takes to build.
_LINK_FLAGS = ("-no-pie", "-rdynamic", *(["-fuse-ld=gold"] if shutil.which("ld.gold") else []))
#: Part of each program's key: debug information has the paths of headers, and several checkouts share the cache.
_PLACE = str(HERE)
#: Patterns of errors in a log that are due to a missing feature; the last group is the feature's name.
_LACKING = (
    re.compile(r"^(.+?:\d+):.*fatal error: (.+?): No such file"),
    re.compile(r"^(.+?:\d+):.*static assertion failed: the emulator has no (.+)$"),
    re.compile(r"^(.+?:\d+):.*error: .(\w+). (?:was not declared|has not been declared|does not name a type)"),
    re.compile(r"^(.+?:\d+):.*error: .(\w+). is not a member of .(?:cooperative_groups|cg|cuda\b|nvcuda|ptx)"),
    re.compile(r"^(.+?:\d+):.*error: .(?:const )?(?:class|struct) cooperative_groups::.*has no member named .(\w+)"),
    re.compile(r"()undefined reference to .(.+?)['`]"),
)
_LAUNCH = re.compile(r"^(.+?:\d+):\d+: error: expected primary-expression before .<. token\n[^\n]*<<<", re.MULTILINE)
PAGE = "docs/emulator.md"


class HostCompileError(AssertionError):
    """g++ rejects a .cu file; the message is a line with the file's name, followed by the compiler's log.

    If the file uses a feature that the emulator lacks, the line names the feature, and there is no log.
    """


def compiler() -> str:
    """Return the C++ compiler: $CXX, or g++."""
    return os.environ.get("CXX", "g++")


def missing_tool() -> str | None:
    """Return why nothing can be compiled here and how to fix it, or None."""
    for tool in (compiler(), "objcopy", "addr2line"):
        if shutil.which(tool) is None:
            return f"the emulator needs {tool}, which is not on PATH; install it with: {INSTALL}"
    return None


def programs() -> Path:
    """Return the folder of compiled programs, `$XDG_CACHE_HOME/kernelmark/emulator`. Raises UsageError."""
    folder = cache_folder() / "emulator"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"compiled programs cannot be stored here: {error.strerror}"
        raise UsageError(f"{folder}: {what}; set XDG_CACHE_HOME to a writable folder") from None
    return folder


def program(
    source: Path,
    entries: Sequence[str],
    *,
    include: Path = CUDA,
    counts: bool = False,
    trips: bool = False,
    checks: bool = True,
    arch: int = 900,
) -> Path:
    """Return the worker program for `source` with these name expressions. Raises HostCompileError.

    include: the folder of headers such as common.cuh; it may be the source's folder. counts: the program counts the
    kernel's work instead of checking it. trips: the program counts the iterations of loops. checks: the program checks
    each access; without checks, it counts nothing, is not optimised, and is compiled in a third of the time.
    """
    flags = [*_kernel_flags(counts, checks), f"-D__CUDA_ARCH__={arch}"]
    files = with_includes(source, include)
    foreign = any(ptx.FOREIGN.search(text) for path, text in files.items() if include not in path.parents)
    words = [_toolchain(), *_variant(counts), str(trips), _PLACE, str(source), str(include), *flags, *entries]
    key = _digest(words, files.values())
    target, folders = programs() / f"{source.stem}-{key}", (source.parent, include, HERE / "include")

    def build(built: Path) -> None:
        header = _precompiled(_kernel_flags(counts, checks)) / "emulator.h"
        command = [compiler(), *flags, *(f"-I{folder}" for folder in folders), "-include", str(header)]
        _compile(source, _unit(source, entries), command, built, counts, foreign, trips)

    _once(target, build)
    target.touch()  # marks the program as in use
    _forget_old(target.parent)
    return target


def _once(target: Path, build: Callable[[Path], object]) -> None:
    """Build a file or folder of the cache unless it exists; other processes that need it wait.

    The file or folder is built in a temporary folder, and moved into place when it is complete.
    """
    if target.exists():
        return
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                built = Path(scratch, target.name)
                build(built)
                built.rename(target)


@functools.cache
def _forget_old(folder: Path) -> None:
    """Remove, once per process, programs that have not been used for a month."""
    for path in folder.iterdir():
        if path.is_file() and path.stat().st_mtime < time.time() - KEPT_S:
            path.unlink(missing_ok=True)


def source_folder(texts: Mapping[str, str]) -> Path:
    """Return a cached folder with these files. Equal files get the same folder, so programs are reused, too."""

    def write(folder: Path) -> None:
        folder.mkdir()
        for name, text in texts.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    names, contents = texts.keys(), [text.encode() for text in texts.values()]
    target = programs() / f"sources-{_digest(names, contents)}"
    _once(target, write)
    return target


def _unit(source: Path, entries: Sequence[str]) -> str:
    """Return the translation unit: the unchanged .cu file, then the table of its entries."""
    table = "".join(f"    EMU_ENTRY({entry}),\n" for entry in entries)
    return f"""#include "{source}"
static const emu::Entry emu_entries[] = {{
{table}}};
namespace emu {{
const Entry *const entries = emu_entries;
const int entry_count = {len(entries)};
}}
"""


def _rewritten(command: list[str], unit: str, refused: str, foreign: bool, trips: bool) -> str:
    """Preprocess a unit, replace nvcc's extensions by C++, add loop counters if `trips`. Raises HostCompileError."""
    unit = f'#include "{HERE}/include/emu/asm.h"\n{unit}' if foreign else unit
    text = _run([*command, "-x", "c++", "-E", "-fpch-preprocess", "-"], refused, unit)
    text = re.sub(r"^#pragma GCC pch_preprocess.*$", "", text, flags=re.MULTILINE)
    text = counters.with_trips(text) if trips else text
    if not foreign:
        return text
    try:
        return ptx.rewritten(_SHARED_ALIGNED.sub(r"\2 \1", text))
    except ptx.UnknownPtxError as error:
        raise HostCompileError(f"{error}; {PAGE} lists its features") from None


def _compile(source: Path, unit: str, words: list[str], built: Path, counts: bool, foreign: bool, trips: bool) -> None:
    assembly, kernel = (built.with_name(name) for name in ("kernel.s", "kernel.o"))
    refused = f"{source.name} does not compile for the emulator"
    if foreign or trips:
        unit = _rewritten(words, unit, refused, foreign, trips)
    _run([*words, "-x", "c++", "-S", "-", "-o", str(assembly)], refused, unit)
    text = SHARED_VARIABLE.sub(rf"\g<0>\n\t.zero\t{RED_ZONE}", assembly.read_text())
    assembly.write_text(counters.with_multiply_adds(text) if counts else text)
    renames = [f"--redefine-sym={name}=emu_{name}" for name in ("memcpy", "memmove", "memset")]
    for command in (
        [compiler(), "-c", str(assembly), "-o", str(kernel)],
        ["objcopy", *renames, str(kernel)],
        [compiler(), *_LINK_FLAGS, str(kernel), *map(str, runtime(counts)), "-o", str(built)],
    ):
        _run(command, f"{source.name} does not link for the emulator")


@functools.cache
def _precompiled(flags: tuple[str, ...]) -> Path:
    """Return a folder with `emulator.h` and its precompiled form, since parsing it dominates small compilations."""

    def fill(folder: Path) -> None:
        folder.mkdir()
        header = HERE / "include" / "emulator.h"
        (folder / header.name).write_text(f'#include "{header}"\n')  # for compilers that reject the precompiled header
        target = folder / f"{header.name}.gch"
        command = [compiler(), *flags, "-x", "c++-header", str(header), "-o", str(target)]
        _run(command, f"{header.name} does not compile")

    made = programs() / f"header-{_digest([_toolchain(), _PLACE, *flags], [])}"
    _once(made, fill)
    return made


def runtime(counts: bool = False) -> tuple[Path, ...]:
    """Return the runtime's object files, compiled once. `EMULATOR_UCONTEXT=1` selects portable switching of fibers.

    All sources but product.cpp form one translation unit, so that their headers are parsed once. product.cpp is
    separate because it includes a header of kernels that would break the other sources.
    """
    sources = sorted((HERE / "runtime").glob("*.cpp"))
    product = HERE / "runtime" / "product.cpp"
    units = [([source for source in sources if source != product], _variant(counts)), ([product], ())]
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(lambda unit: _object(*unit), units))


def _variant(counts: bool) -> tuple[str, ...]:
    ucontext = ("-DEMU_UCONTEXT",) if os.environ.get("EMULATOR_UCONTEXT") else ()
    return (*ucontext, "-DEMU_COUNT") if counts else ucontext


def _kernel_flags(counts: bool, checks: bool = True) -> tuple[str, ...]:
    unchecked = () if checks else ("-fno-sanitize=thread", "-O0")
    return (*_KERNEL_FLAGS, *unchecked, *(counters.FLAGS if counts and counters.cannot_count() is None else ()))


def _object(sources: Sequence[Path], flags: Sequence[str]) -> Path:
    target = programs() / f"runtime-{_digest([_toolchain(), *flags, *(source.name for source in sources)], [])}.o"
    unit = "".join(f'#include "{source}"\n' for source in sources)
    command = [compiler(), *_RUNTIME_FLAGS, *flags, "-x", "c++", "-c", "-", "-o"]
    _once(target, lambda built: _run([*command, str(built)], "the emulator's runtime does not compile", unit))
    return target


def _run(command: list[str], refused: str, stdin: str = "") -> str:
    """Run a tool, remove its temporary files, and return its output. Raises HostCompileError with the tool's log."""
    with tempfile.TemporaryDirectory(prefix="kernelmark-", ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, "TMPDIR": folder, "LC_ALL": "C"}
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment)
    if done.returncode:
        log = done.stdout + done.stderr
        raise HostCompileError(_lacking(log) or f"{refused} ({command[0]}):\n{log}")
    return done.stdout


def _lacking(log: str) -> str | None:
    """Return a line about the first error in a compiler's log if the emulator lacks what the file uses, or None."""
    if launch := _LAUNCH.search(log):
        return f"{launch[1]}: `<<<` launches a kernel, but only kernels may be here; remove the host code ({PAGE})"
    for line in log.splitlines():
        for place, what in (match.groups() for pattern in _LACKING if (match := pattern.search(line))):
            where = f"{place}: " if place else ""
            return f"{where}`{what}` is declared neither in the file nor by the emulator; {PAGE} lists its features"
        if ": error: " in line:
            return None
    return None


@functools.cache
def _toolchain() -> str:
    """Return a digest of the compiler's version and the emulator's own text: a change of either rebuilds everything."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    files = [*filter(Path.is_file, (HERE / "include").rglob("*")), *(HERE / "runtime").glob("*.[ch]pp")]
    files += [HERE / name for name in ("counters.py", "instructions.py", "ptx.py")]
    words = [version, *_RUNTIME_FLAGS, *_KERNEL_FLAGS, *_LINK_FLAGS]
    return _digest(words, [path.read_bytes() for path in sorted(files)])


def _digest(words: Iterable[str], contents: Iterable[bytes]) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:20]
