"""Compile .cu files to cubins, without a GPU or a driver, and read the resources that the compiler reports.

Cubins are cached on disk by the contents of their sources, not by paths. The cache is in `$XDG_CACHE_HOME`. Cubins in
`build/cubins` of a checkout are used, too, so that a machine to which the checkout is copied need not compile.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

import kernelmark
from kernelmark.bench.measure.cubin import Resources, pointees, resources_of
from kernelmark.bench.measure.present import module_version
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.files import cache_folder

#: The architectures for which each kernel is compiled, if it supports them.
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
_FORMAT = 2  # version of the format of cached files
#: Cubins compiled in advance for a machine that the checkout is copied to.
AHEAD = Path(kernelmark.__file__).parents[1] / "build" / "cubins"
Wanted = TypeVar("Wanted")
Made = TypeVar("Made")
INSTALL = "pip install 'kernelmark[compile]'"
#: The folders of the headers in CUDA's C++ library.
_CCCL = ("cub/", "cuda/", "nv/", "thrust/")
_INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
_INTEGERS = "".join(
    f"typedef {'unsigned ' if sign else 'signed '}{kind} {sign}int{bits}_t;\n"
    for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
    for sign in ("", "u")
)
#: Substitutes for host headers that kernels include but NVRTC lacks; they hold only what device code uses. NVRTC has
#: size_t, printf, assert and the functions of math.h built in.
_HOST_HEADERS = {
    "stdint": f"{_INTEGERS}typedef unsigned long long uintptr_t;\ntypedef long long intptr_t;\n"
    "#define UINT32_MAX 0xffffffffu\n#define INT32_MAX 0x7fffffff\n#define INT32_MIN (-INT32_MAX - 1)\n",
    "limits": "#define CHAR_BIT 8\n#define INT_MAX 0x7fffffff\n#define INT_MIN (-INT_MAX - 1)\n"
    "#define UINT_MAX 0xffffffffu\n#define LLONG_MAX 0x7fffffffffffffffll\n#define LLONG_MIN (-LLONG_MAX - 1)\n",
    "float": "#define FLT_MAX 3.402823466e+38f\n#define FLT_MIN 1.175494351e-38f\n"
    "#define FLT_EPSILON 1.192092896e-07f\n#define DBL_MAX 1.7976931348623158e+308\n"
    "#define DBL_MIN 2.2250738585072014e-308\n"
    "#define DBL_EPSILON 2.2204460492503131e-16\n",
    "math": "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n"
    "#ifndef NAN\n#define NAN __int_as_float(0x7fffffff)\n#endif\n"
    "#ifndef M_PI\n#define M_PI 3.14159265358979323846\n#endif\n",
    **dict.fromkeys(("assert", "stddef", "stdio", "stdlib", "string"), ""),
}
#: Standard headers for which CUDA's C++ library has a version for device code.
_CUDA_STD = ("array", "limits", "tuple", "type_traits", "utility")
#: A compiler's output: machine code, lowered symbols by name expression, and the log.
CompilerOutput = tuple[bytes, dict[str, str], str]
#: Included before a user's file, since nvcc defines INFINITY and uint32_t without a header.
_FIRST = "nvcc_knows.h"


class BuildFailed(Exception):
    """The compilation failed; the argument is the compiler's log."""


def cuda_sources() -> Path:
    """Return the folder of the .cu files: `kernelmark/cuda`, in a checkout a link to `cuda/`. Raises UsageError."""
    folder = (Path(__file__).parents[2] / "cuda").resolve()
    if not (folder / "common.cuh").is_file():
        raise UsageError(f"cuda: found no common.cuh in {folder}; reinstall kernelmark")
    return folder


@lru_cache
def compiler() -> str:
    """Return the compiler in use with its version, such as `NVRTC 13.0.88`. Raises Unsupported if there is none."""
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # RuntimeError: the bindings are installed but not the library
        if nvcc := find_nvcc():
            text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
            match = re.search(r"V(\d+\.\d+\.\d+)", text)
            return f"nvcc {match[1] if match else hashlib.sha256(text.encode()).hexdigest()[:8]}"
        reason = str(error).split("\n")[0]
        raise Unsupported(f"no CUDA compiler: found neither NVRTC ({reason}) nor nvcc; {INSTALL}") from None
    return f"NVRTC {module_version('nvidia-cuda-nvrtc') or f'{major}.{minor}'}"


def find_nvcc() -> str | None:
    """Return the path of nvcc, or None."""
    roots = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    return shutil.which("nvcc") or next((p for root in roots if root and (p := shutil.which(f"{root}/bin/nvcc"))), None)


@lru_cache
def header_folders() -> tuple[str, ...]:
    """Return the folders of the CUDA headers, in NVIDIA's wheels or else in toolkits; none if neither is installed.

    Several folders may be needed: `crt/mma.h` comes in a separate wheel, or with a toolkit.
    """
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(folder) / "cu13" for folder in (spec.submodule_search_locations or () if spec else ())]
    nvcc = find_nvcc()
    toolkits = [Path(nvcc).resolve().parents[1]] if nvcc else []
    toolkits += [Path(root) for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    roots = [_first_with(header, (*wheels, *toolkits)) for header in ("cuda_runtime.h", "crt/mma.h", "cccl/nv/target")]
    folders = list(dict.fromkeys(folder for folder in roots[:2] if folder))
    bundled = [folder / "cccl" for folder in folders if (folder / "cccl").is_dir()]
    folders += bundled or ([roots[2] / "cccl"] if roots[2] else [])
    return tuple(map(str, folders))


@lru_cache
def header_version() -> str:
    """Return CUDA_VERSION of the CUDA headers, such as `13000`; "" without headers."""
    files = [file for folder in header_folders() if (file := Path(folder, "cuda.h")).is_file()]
    match = re.search(rb"#define\s+CUDA_VERSION\s+(\d+)", files[0].read_bytes()) if files else None
    return match[1].decode() if match else ""


def _first_with(header: str, roots: Sequence[Path]) -> Path | None:
    return next((root / "include" for root in roots if (root / "include" / header).is_file()), None)


def with_nvrtc(path: Path, name: str, entries: Sequence[str], arch: str) -> CompilerOutput:
    """Compile the entries of a file for one architecture. Raises BuildFailed."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    # If there is a driver, NVRTC may answer from its own cache, without running ptxas, and then has no log.
    options = [f"-arch={arch}", "--std=c++17", "--generate-line-info", "--ptxas-options=-v", "--no-cache"]
    with tempfile.TemporaryDirectory(prefix="kernelmark-", ignore_cleanup_errors=True) as folder:
        include = [cuda_sources(), path.parent, *header_folders()]
        if cuda_sources() not in path.resolve().parents:  # kernelmark's files need no host headers
            _write_host_headers(Path(folder), with_includes(path, cuda_sources()).values())
            include, options = [*include, folder], [*options, f"--pre-include={_FIRST}"]
        options += (f"--include-path={place}" for place in include)
        library = load_nvidia_dynamic_lib("nvrtc").abs_path
        request = {"library": library, "source": path.read_text(), "name": name, "entries": entries, "options": options}
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("nvrtc.py"))]
        done = subprocess.run(command, input=json.dumps(request).encode(), capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise BuildFailed(f"NVRTC ended with status {done.returncode}{said and f': {said}'}")
    head, _, code = done.stdout.partition(b"\n")
    reply = json.loads(head)
    if "error" in reply:
        raise BuildFailed(_missing_header(reply["log"]) or reply["log"] or reply["error"])
    return code, reply["symbols"], reply["log"]


def _write_host_headers(folder: Path, texts: Iterable[bytes]) -> None:
    """Write substitutes for the host headers that the sources include, and the header `_FIRST`."""
    std = "#include <cuda/std/{0}>\nnamespace std {{ using namespace cuda::std; }}\n"
    headers = {name: text for stem, text in _HOST_HEADERS.items() for name in (f"{stem}.h", f"c{stem}")}
    headers |= {name: std.format(name) for name in _CUDA_STD} | {"algorithm": "", "iostream": ""}
    (folder / _FIRST).write_text("#include <math.h>\n#include <stdint.h>\n")
    wanted = {"math.h", "stdint.h"} | {name.decode() for text in texts for name in _INCLUDE.findall(text)}
    for name in wanted & headers.keys():
        (folder / name).write_text(f"#pragma once\n{headers[name]}")


def _missing_header(log: str) -> str | None:
    """Return one line with the name of the missing header and the remedy, or None if no header is missing."""
    match = re.search(r'^(.*?)\(?(\d+)\)?: catastrophic error: cannot open source file "(.+?)"', log, re.MULTILINE)
    if not match:
        return None
    file, line, header = match.groups()
    remedy = "pip install nvidia-cuda-cccl" if header.startswith(_CCCL) else "NVRTC has no host headers"
    return f"{file}:{line}: {header} is in none of the include folders; {remedy}"


def with_nvcc(path: Path, name: str, entries: Sequence[str], arch: str) -> CompilerOutput:
    """Compile the entries of a file for one architecture. Raises BuildFailed.

    Nvcc lacks NVRTC's name expressions. Instead, variables that point to the kernels instantiate them, and the
    relocations of these variables give the symbols.
    """
    number = arch.removeprefix("sm_")
    pointers = [f"__device__ const void *km_entry_{i} = (const void *){entry};" for i, entry in enumerate(entries)]
    with tempfile.TemporaryDirectory(prefix="kernelmark-", ignore_cleanup_errors=True) as folder:
        wrapper, out = Path(folder, "wrapper.cu"), Path(folder, "out.cubin")
        wrapper.write_text("\n".join([f'#include "{path}"', *pointers, ""]))
        command = [find_nvcc() or "nvcc", "-std=c++17", "-lineinfo", "-cubin", "-Xptxas", "-v"]
        command += [f"-gencode=arch=compute_{number},code=sm_{number}", f"-I{cuda_sources()}", f"-I{path.parent}"]
        command += ["-o", str(out), str(wrapper)]
        environment = {**os.environ, "TMPDIR": folder}  # if nvcc is interrupted, its files are removed with this folder
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise BuildFailed((done.stderr + done.stdout).strip())
        code = out.read_bytes()
    return code, dict(zip(entries, pointees(code, len(entries)), strict=True)), done.stderr


class CompileError(UsageError):
    """A .cu file does not compile. The message: a line with kernel, file and architecture, then the compiler's log."""


class Cubin(msgspec.Struct, frozen=True):
    """Machine code for one architecture, with symbols and resources by name expression, the compiler and its log."""

    code: bytes
    arch: str
    compiler: str
    symbols: dict[str, str]
    resources: dict[str, Resources]
    log: str


class Program(NamedTuple):
    """A program to compile: the .cu file, the name expressions of its kernels, and a kernel's id for messages."""

    source: str
    entries: tuple[str, ...]
    kernel: str


def compile_cubin(source: str, entries: Sequence[str], arch: str, kernel: str = "") -> Cubin:
    """Return the cubin of `source` (below `cuda/`, or absolute) with the kernels of these name expressions.

    arch: an architecture such as `sm_90a`; kernel: the id for error messages. Raises CompileError, Unsupported if there
    is no compiler, UsageError if the file or the architecture does not exist.
    """
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise UsageError(f"arch {arch!r}: expected sm_ and the compute capability, such as sm_90a")
    subject, path = kernel or source, cuda_sources() / source
    if not path.is_file():
        expected = f"`source` is a path below {cuda_sources()} or in the plug-in's folder"
        raise UsageError(f"{subject}: there is no file {path}; {expected}")
    version = compiler()
    name = f"{_key(path, entries, arch, version)}.cubin"
    for folder in (cache_folder(), AHEAD):
        if (cubin := _load(folder / name)) is not None:
            return cubin
    build = with_nvrtc if version.startswith("NVRTC") else with_nvcc
    try:
        code, symbols, log = build(path, source, entries, arch)
    except BuildFailed as error:
        raise CompileError(f"{subject}: {path} does not compile for {arch} ({version})\n{error}") from None
    resources = {entry: resources_of(code, symbol, log) for entry, symbol in symbols.items()}
    cubin = Cubin(code, arch, version, symbols, resources, log)
    with suppress(OSError):  # if the folder cannot be written, the cubin is compiled again next time
        cache_folder().mkdir(parents=True, exist_ok=True)
        _write(cache_folder() / name, cubin)
    return cubin


def compile_ahead(programs: Iterable[Program], arch: str, folder: Path = AHEAD) -> list[str]:
    """Compile programs on all processors into a folder that compile_cubin reads; return a line for each that fails.

    A cubin is reused only with the same version of the compiler. Raises Unsupported if there is no compiler, OSError if
    the folder cannot be written.
    """
    version = compiler()
    folder.mkdir(parents=True, exist_ok=True)

    def compiled(program: Program) -> str | None:
        try:
            cubin = compile_cubin(*program[:2], arch, program.kernel)
        except UsageError as error:
            return str(error).splitlines()[0]
        name = _key(cuda_sources() / program.source, program.entries, arch, version)
        _write(folder / f"{name}.cubin", cubin)
        return None

    return [line for line in in_parallel(compiled, list(dict.fromkeys(programs))) if line]


def in_parallel(compiled: Callable[[Wanted], Made], wanted: Sequence[Wanted]) -> list[Made]:
    """Return the result of `compiled` for each item, in order, computed on all processors.

    The first item is compiled before the others, since threads that import the compiler at the same time fail.
    """
    results = [compiled(words) for words in wanted[:1]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return results + list(pool.map(compiled, wanted[1:]))


def _key(path: Path, entries: Sequence[str], arch: str, compiler_: str) -> str:
    """Return a hash of everything that determines the cubin; the folder of the sources has no effect on it."""
    digest = hashlib.sha256(repr((_FORMAT, tuple(entries), arch, compiler_, header_version())).encode())
    for text in with_includes(path, cuda_sources()).values():
        digest.update(hashlib.sha256(text).digest())
    return digest.hexdigest()[:32]


def with_includes(path: Path, include: Path) -> dict[Path, bytes]:
    """Return the file and every file that it includes from its folder and from `include`, with their contents.

    CUDA's headers are left out, because the compiler's version determines them.
    """
    texts: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        texts[file] = file.read_bytes()
        for name in _INCLUDE.findall(texts[file]):
            place = included(name.decode(), file, path, include)
            waiting += [place] if place and place not in texts else []
    return texts


def included(name: str, file: Path, path: Path, include: Path) -> Path | None:
    """Return the header that `file` includes by this name: in its folder, in the folder of `path` or in `include`."""
    places = (folder / name for folder in (file.parent, path.parent, include))
    return next((place for place in places if place.is_file()), None)


def _load(file: Path) -> Cubin | None:
    with suppress(OSError, msgspec.MsgspecError):
        content = file.read_bytes()
        if hashlib.sha256(content[32:]).digest() == content[:32]:
            return msgspec.msgpack.decode(content[32:], type=Cubin)
    return None


def _write(file: Path, cubin: Cubin) -> None:
    """Write a temporary file and rename it, so that no reader sees a partial cubin."""
    content = msgspec.msgpack.encode(cubin)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".writing-")
    with os.fdopen(handle, "wb") as out:
        out.write(hashlib.sha256(content).digest() + content)
    Path(name).replace(file)
