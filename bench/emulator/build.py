"""Compiles a .cu with g++ into a worker program, cached by the content of everything that goes into it."""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.measure.compilers import cuda_sources

HERE = Path(__file__).resolve().parent
CUDA = cuda_sources()
INSTALL = "apt-get install g++ binutils"
KEPT_S = 30 * 24 * 3600

_RUNTIME_FLAGS = ("-std=c++20", "-O2", "-fno-pie", "-Wall", "-Wextra")
# tsan's instrumentation without its library: each access calls the runtime's hooks. -O1 keeps lines exact; the loop
# distribution would turn the kernel's loops into memset, and the scalar replacement of aggregates a load of a __half2
# into two, which hides its misalignment. DWARF 4 is what every addr2line reads.
_KERNEL_FLAGS = (
    *("-x", "c++", "-std=c++20", "-O1", "-gdwarf-4", "-fno-pie", "-ffp-contract=off", "-ftls-model=local-exec"),
    *("-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0", "-fno-tree-loop-distribute-patterns"),
    *("-fno-tree-sra", "-fno-ipa-sra"),
    *("-fno-extern-tls-init", "-Wall", "-Wno-unknown-pragmas", "-Wno-unused"),
)
#: A static shared variable as g++ lays it out. Nobody's bytes behind each catch an index past its end.
SHARED_VARIABLE = re.compile(r"^\t\.size\t(\S+), (\d+)\n\1:\n\t\.zero\t\2$", re.MULTILINE)
RED_ZONE = 4096
_LINK_FLAGS = ("-no-pie", "-rdynamic")
_MEMORY_FUNCTIONS = ("memcpy", "memmove", "memset")


class CompileError(AssertionError):
    """A .cu that g++ refuses; the message is a line that names it, then the compiler's log."""


def compiler() -> str:
    """The C++ compiler: $CXX, or g++."""
    return os.environ.get("CXX", "g++")


def missing_tool() -> str | None:
    """Why nothing can be compiled here and how to mend it, or None."""
    for tool in (compiler(), "objcopy", "addr2line"):
        if shutil.which(tool) is None:
            return f"the emulator needs {tool}, which is not on PATH; install it with: {INSTALL}"
    return None


def cache_folder() -> Path:
    """Where programs are kept: `$XDG_CACHE_HOME/kernelmark/emulator`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "kernelmark" / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def program(source: Path, entries: Sequence[str], *, defines: Iterable[str] = (), include: Path = CUDA) -> Path:
    """The worker program for `source` with these name expressions. Raises CompileError.

    include: the folder in which `#include "common.cuh"` is looked up, also where it lies beside the source.
    """
    flags = [*_KERNEL_FLAGS, *(f"-D{define}" for define in defines)]
    headers = [*sorted(include.rglob("*.cuh")), *sorted(source.parent.glob("*.cuh"))]
    text = [source.read_bytes(), *(header.read_bytes() for header in headers)]
    key = _digest([_toolchain(), str(source), str(include), *flags, *entries], text)
    target = cache_folder() / f"{source.stem}-{key}"
    if target.exists():
        target.touch()  # still wanted
    else:
        _compile(source, _unit(source, entries), [*flags, f"-I{include}"], target)
        _forget_old(target.parent)
    return target


def _forget_old(folder: Path) -> None:
    """Remove programs that no test has asked for in a month."""
    for path in folder.iterdir():
        if path.is_file() and path.stat().st_mtime < time.time() - KEPT_S:
            path.unlink(missing_ok=True)


def source_folder(texts: Mapping[str, str]) -> Path:
    """A folder in the cache with these files, the same each time, so that what is compiled from it is cached too."""
    names, contents = texts.keys(), [text.encode() for text in texts.values()]
    folder = cache_folder() / f"sources-{_digest(names, contents)}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            for name, text in texts.items():
                file = Path(scratch, "built", name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            _move_folder(Path(scratch, "built"), folder)
    return folder


def _unit(source: Path, entries: Sequence[str]) -> str:
    """The translation unit: the .cu as it stands, then the table of its entries."""
    table = "".join(f"    EMU_ENTRY({entry}),\n" for entry in entries)
    return f"""#include "{source}"
namespace emu {{
const Entry entries[] = {{
{table}}};
const int entry_count = {len(entries)};
}}
"""


def _compile(source: Path, unit: str, flags: list[str], target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        assembly, kernel, built = (Path(scratch, name) for name in ("kernel.s", "kernel.o", "program"))
        overlay = [f"-I{HERE / 'include'}", "-include", "emulator.h"]
        log = _run([compiler(), *flags, *overlay, "-S", "-", "-o", str(assembly)], unit)
        if log is not None:
            raise CompileError(f"{source.name} does not compile for the emulator ({compiler()}):\n{log}")
        assembly.write_text(SHARED_VARIABLE.sub(rf"\g<0>\n\t.zero\t{RED_ZONE}", assembly.read_text()))
        renames = [f"--redefine-sym={name}=emu_{name}" for name in _MEMORY_FUNCTIONS]
        for command in (
            [compiler(), "-c", str(assembly), "-o", str(kernel)],
            ["objcopy", *renames, str(kernel)],
            [compiler(), *_LINK_FLAGS, str(kernel), *map(str, runtime()), "-o", str(built)],
        ):
            log = _run(command)
            if log is not None:
                raise CompileError(f"{source.name} does not link for the emulator ({command[0]}):\n{log}")
        built.rename(target)


def runtime() -> tuple[Path, ...]:
    """The runtime's object files, compiled once. `EMULATOR_UCONTEXT=1` takes the portable switch of fibers."""
    return _runtime(("-DEMU_UCONTEXT",) if os.environ.get("EMULATOR_UCONTEXT") else ())


@functools.cache
def _runtime(variant: tuple[str, ...]) -> tuple[Path, ...]:
    folder = cache_folder() / f"runtime-{_digest([_toolchain(), *variant], [])}"
    sources = sorted((HERE / "runtime").glob("*.cpp"))
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch, ThreadPoolExecutor() as pool:
            built = Path(scratch, "built")
            built.mkdir()
            list(pool.map(lambda source: _compile_runtime(source, variant, built), sources))
            _move_folder(built, folder)
    return tuple(folder / f"{source.stem}.o" for source in sources)


def _compile_runtime(source: Path, variant: tuple[str, ...], folder: Path) -> None:
    target = folder / f"{source.stem}.o"
    log = _run([compiler(), *_RUNTIME_FLAGS, *variant, "-c", str(source), "-o", str(target)])
    if log is not None:
        raise CompileError(f"{source.name} of the emulator's runtime does not compile ({compiler()}):\n{log}")


def _move_folder(built: Path, folder: Path) -> None:
    """Another process may have been faster: then its folder is as good."""
    try:
        built.rename(folder)
    except OSError:
        if not folder.exists():
            raise


def _run(command: list[str], stdin: str = "") -> str | None:
    """The command's log if it failed, or None."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout + done.stderr


@functools.cache
def _toolchain() -> str:
    """The compiler's version, and the emulator's own text and place: a change of any makes every program stale.

    The place, because a program's debug information names the headers by it, and checkouts share the cache.
    """
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    own = [*(HERE / "include").rglob("*.h"), *(HERE / "runtime").glob("*.[ch]pp")]
    settings = [str(HERE), version, *_RUNTIME_FLAGS, *_KERNEL_FLAGS, *_LINK_FLAGS]
    # The runtime's variant is part of the key too: it is linked into every program.
    settings.append(os.environ.get("EMULATOR_UCONTEXT", ""))
    return _digest(settings, [path.read_bytes() for path in sorted(own)])


def _digest(words: Iterable[str], contents: Iterable[bytes]) -> str:
    digest = hashlib.sha256("\0".join(words).encode())
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:20]
