"""The CUDA compilers: NVRTC through cuda-core, nvcc where only that is there; what each makes of a .cu file."""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from kernelmark.bench.measure.elf import pointees
from kernelmark.bench.plan.errors import Unsupported, UsageError

INSTALL = "pip install 'kernelmark[compile]'"


class CompilerOutput(NamedTuple):
    """What a compiler made: machine code, lowered symbols by name expression, and its log."""

    code: bytes
    symbols: dict[str, str]
    log: str


class BuildFailed(Exception):
    """The compiler's log."""


def cuda_sources() -> Path:
    """Return the folder of the .cu files: `kernelmark/cuda`, in a checkout a link to `cuda/`. Raises UsageError."""
    folder = (Path(__file__).parents[2] / "cuda").resolve()
    if not (folder / "common.cuh").is_file():
        raise UsageError(f"cuda: found no common.cuh in {folder}; reinstall kernelmark")
    return folder


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
    """Return the folders with CUDA's own headers: NVIDIA's wheels before toolkits; none where neither is there.

    A root may lack some of them: `crt/mma.h` comes in a wheel of its own, and a toolkit has it too.
    """
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(folder) / "cu13" for folder in (spec.submodule_search_locations or () if spec else ())]
    nvcc = find_nvcc()
    toolkits = [Path(nvcc).resolve().parents[1]] if nvcc else []
    toolkits += [Path(root) for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    found = [_first_with(header, (*wheels, *toolkits)) for header in ("cuda_runtime.h", "crt/mma.h")]
    folders = list(dict.fromkeys(folder for folder in found if folder))
    folders += [folder / "cccl" for folder in folders if (folder / "cccl").is_dir()]
    return tuple(map(str, folders))


@lru_cache
def header_version() -> str:
    """Return CUDA_VERSION of CUDA's own headers, such as `13000`; "" where there are none."""
    files = [file for folder in header_folders() if (file := Path(folder, "cuda.h")).is_file()]
    found = re.search(rb"#define\s+CUDA_VERSION\s+(\d+)", files[0].read_bytes()) if files else None
    return found[1].decode() if found else ""


def _first_with(header: str, roots: Sequence[Path]) -> Path | None:
    return next((root / "include" for root in roots if (root / "include" / header).is_file()), None)


def with_nvrtc(path: Path, name: str, entries: Sequence[str], arch: str) -> CompilerOutput:
    """Compile the entries of a file for one architecture. Raises BuildFailed."""
    from cuda.core import Program, ProgramOptions

    include = [str(cuda_sources()), str(path.parent), *header_folders()]
    # Where there is a driver, NVRTC answers from a cache of its own, and then leaves ptxas and its log out.
    options = ProgramOptions(
        name=name, arch=arch, std="c++17", lineinfo=True, include_path=include, ptxas_options=["-v"], no_cache=True
    )
    log = StringIO()
    try:
        compiled = Program(path.read_text(), "c++", options).compile("cubin", tuple(entries), logs=log)
    except Exception as error:  # cuda-core has no public name for its NVRTCError
        if type(error).__name__ != "NVRTCError":
            raise
        raise BuildFailed(str(error).partition("compilation log:")[2].strip("\0 \n") or str(error)) from None
    code, lowered = compiled.code, compiled.symbol_mapping
    symbols = {entry: s.decode() if isinstance(s := lowered[entry], bytes) else s for entry in entries}
    return CompilerOutput(bytes(code), symbols, log.getvalue().rstrip("\0 \n"))


def with_nvcc(path: Path, name: str, entries: Sequence[str], arch: str) -> CompilerOutput:
    """Compile the entries of a file for one architecture. Raises BuildFailed.

    Nvcc has no name expressions: pointers to the kernels instantiate them, and their relocations name them.
    """
    number = arch.removeprefix("sm_")
    pointers = [f"__device__ const void *km_entry_{i} = (const void *){entry};" for i, entry in enumerate(entries)]
    with tempfile.TemporaryDirectory(prefix="kernelmark-", ignore_cleanup_errors=True) as folder:
        wrapper, out = Path(folder, "wrapper.cu"), Path(folder, "out.cubin")
        wrapper.write_text("\n".join([f'#include "{path}"', *pointers, ""]))
        command = [find_nvcc() or "nvcc", "-std=c++17", "-lineinfo", "-cubin", "-Xptxas", "-v"]
        command += [f"-gencode=arch=compute_{number},code=sm_{number}", f"-I{cuda_sources()}", f"-I{path.parent}"]
        command += ["-o", str(out), str(wrapper)]
        own = {**os.environ, "TMPDIR": folder}  # of what nvcc leaves where it is interrupted, nothing stays
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
        if done.returncode:
            raise BuildFailed((done.stderr + done.stdout).strip())
        code = out.read_bytes()
    return CompilerOutput(code, dict(zip(entries, pointees(code, len(entries)), strict=True)), done.stderr)
