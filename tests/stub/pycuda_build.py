"""Builds PyCUDA from source, once for each Python: it has no wheels, and links to the driver directly.

Which functions the driver has matters only when PyCUDA is loaded, so that a change of the stub builds nothing anew.
"""

import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

from kernelmark.bench.emulator import build
from kernelmark.bench.measure.compile import header_folders
from stub.library import library_folder

VERSION = "2026.1"
#: With the one header of the driver that comes in a wheel of its own, cudaProfiler.h.
BUILD_TOOLS = ("setuptools", "nvidia-cuda-profiler-api<14")
#: Without optimisation, since the tests wait for the build, and on the stub no time is PyCUDA's own.
SITE_CONFIG = """\
CUDA_INC_DIR = {headers!r}
CUDADRV_LIB_DIR = [{driver!r}]
CUDADRV_LIBNAME = [":libcuda.so.1"]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O0", "-g0", "-w"]
LDFLAGS = ["-s"]
"""


def pycuda_folder() -> Path:
    """Return a folder with PyCUDA and what it imports, in the cache. Raises CompileError where it cannot be."""
    return build._folder(_name(), _fill)


def is_built() -> bool:
    """Return whether the cache has PyCUDA for this Python."""
    return (build.cache_folder() / _name()).is_dir()


def _name() -> str:
    python = f"{sysconfig.get_config_var('SOABI')} {sys.platform} NumPy {np.__version__.split('.')[0]}"
    key = build._digest([python, SITE_CONFIG], [(Path(header_folders()[0]) / "cuda.h").read_bytes()])
    return f"pycuda-{VERSION}-{key}"


def _fill(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        tools = Path(scratch, "tools")
        _pip(tools, "install", f"--target={tools}", *BUILD_TOOLS)
        _pip(tools, "download", "--no-deps", "--no-binary=pycuda", f"--dest={scratch}", f"pycuda=={VERSION}")
        (archive,) = Path(scratch).glob("*.tar.gz")
        build._run(
            ["tar", "--extract", f"--file={archive}", f"--directory={scratch}"], f"{archive.name} does not unpack"
        )
        source = archive.with_name(archive.name.removesuffix(".tar.gz"))
        headers = [header_folders()[0], str(tools / "nvidia" / "cu13" / "include")]
        _join(source / "bpl-subset" / "bpl_subset" / "libs" / "python" / "src")
        config = SITE_CONFIG.format(headers=headers, driver=str(library_folder()))
        (source / "siteconf.py").write_text(config)
        _pip(tools, "install", f"--target={folder}", str(source))


def _join(folder: Path) -> None:
    """Make one source of a folder's: the compiler takes 4 s for all of Boost.Python at once, 28 s file by file."""
    parts = [part.rename(part.with_suffix(".ipp")) for part in sorted(folder.rglob("*.cpp"))]
    (folder / "all.cpp").write_text("".join(f'#include "{part}"\n' for part in parts))


def _pip(tools: Path, command: str, *words: str) -> None:
    """Run pip with the build tools and NumPy of here: an environment of its own would fetch NumPy twice."""
    pip = (sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", "--no-build-isolation")
    build._run(["env", f"PYTHONPATH={tools}", *pip, *words], f"PyCUDA {VERSION} is not built")
