"""Builds the stub driver, and PyCUDA against it, and runs Python on it in processes, so no other test sees a driver."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelmark.bench.emulator import build
from kernelmark.bench.measure.compile import header_folders

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: The first word of the log's line at which a call begins; the call's name follows.
BEGIN = "begin "
FLAGS = ("-std=c++20", "-O1", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcuda.so.1")


def library_folder():
    sources, headers = sorted((HERE / "driver").glob("*.[ch]pp")), Path(header_folders()[0])
    unit = "".join(f'#include "{source}"\n' for source in sources if source.suffix == ".cpp")
    texts = [path.read_bytes() for path in (*sources, headers / "cuda.h", headers / "cudaTypedefs.h")]

    def fill(folder):
        folder.mkdir()
        command = [build.compiler(), *FLAGS, f"-I{headers}", "-x", "c++", "-", "-o", str(folder / "libcuda.so.1")]
        build._run(command, "the stub driver does not compile", unit)

    made = build.programs() / f"stub-{build._digest([build._toolchain(), *FLAGS, unit], texts)}"
    build._once(made, fill)
    return made


@dataclass(frozen=True)
class Run:
    value: Any
    log: tuple[str, ...]

    @property
    def outcome(self):
        """The status of a job's row, its reason, and the emulator's complaints."""
        return self.value["status"], self.value["reason"], self.value["complaints"]

    @property
    def violations(self):
        return [line.removeprefix("violation: ") for line in self.log if line.startswith("violation: ")]


def environment(packages=None, **variables):
    """Return the environment of a process that uses the stub driver.

    packages: a folder of Python's path, in addition to this checkout, its tests and its tools.
    """
    libraries = os.pathsep.join(filter(None, (str(library_folder()), os.environ.get("LD_LIBRARY_PATH"))))
    places = (ROOT, ROOT / "tests", ROOT / "tools", HERE / "stand_in", packages)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    path = os.pathsep.join(str(place) for place in places if place)
    return env | {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": path, **variables}


def on_stub(calls, folder, *, packages=None, **variables):
    """Call functions in turn in one process that uses the stub driver; return the runs by their names.

    calls: `module:function` and its arguments, by the name of the run. The run `end` has the driver's log of the end of
    the process. packages: as in `environment`. Raises AssertionError with the process's output if it fails.
    """
    log = folder / "driver.log"
    command = [sys.executable, "-m", "stub.calling", json.dumps(calls)]
    env = environment(packages, KM_STUB_LOG=str(log), **variables)
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"the process ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return _runs(json.loads(done.stdout), log.read_text().splitlines())


def _runs(values, log):
    """Divide the log at the lines at which calls begin."""
    logs = {}
    for line in log:
        if line.startswith(BEGIN):
            logs[line.removeprefix(BEGIN)] = []
        elif logs:
            logs[next(reversed(logs))].append(line)
    return {name: Run(values.get(name), tuple(lines)) for name, lines in logs.items()}


VERSION = "2026.1"
#: Packages to build PyCUDA; the second has cudaProfiler.h, the only driver header in a separate wheel.
BUILD_TOOLS = ("setuptools", "nvidia-cuda-profiler-api<14")
#: PyCUDA's configuration, without optimisation: tests wait for the build, and PyCUDA's speed does not matter here.
SITE_CONFIG = """\
CUDA_INC_DIR = {headers!r}
CUDADRV_LIB_DIR = [{driver!r}]
CUDADRV_LIBNAME = [":libcuda.so.1"]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O0", "-g0", "-w"]
LDFLAGS = ["-s"]
"""


def pycuda_folder():
    """Return a cached folder with PyCUDA and the packages that it imports. Raises HostCompileError."""
    made = build.programs() / _name()
    build._once(made, _fill)
    return made


def is_built():
    return (build.programs() / _name()).is_dir()


def _name():
    python = f"{sysconfig.get_config_var('SOABI')} {sys.platform} NumPy {np.__version__.split('.')[0]}"
    key = build._digest([python, SITE_CONFIG], [(Path(header_folders()[0]) / "cuda.h").read_bytes()])
    return f"pycuda-{VERSION}-{key}"


def _fill(folder):
    with tempfile.TemporaryDirectory() as scratch:
        tools = Path(scratch, "tools")
        _pip(tools, "install", f"--target={tools}", *BUILD_TOOLS)
        _pip(tools, "download", "--no-deps", "--no-binary=pycuda", f"--dest={scratch}", f"pycuda=={VERSION}")
        (archive,) = Path(scratch).glob("*.tar.gz")
        shutil.unpack_archive(archive, scratch, filter="data")
        source = archive.with_name(archive.name.removesuffix(".tar.gz"))
        headers = [header_folders()[0], str(tools / "nvidia" / "cu13" / "include")]
        _join(source / "bpl-subset" / "bpl_subset" / "libs" / "python" / "src")
        config = SITE_CONFIG.format(headers=headers, driver=str(library_folder()))
        (source / "siteconf.py").write_text(config)
        _pip(tools, "install", f"--target={folder}", str(source))


def _join(folder):
    """Join a folder's sources into one: the compiler takes 4 s for all of Boost.Python at once, 28 s file by file."""
    parts = [part.rename(part.with_suffix(".ipp")) for part in sorted(folder.rglob("*.cpp"))]
    (folder / "all.cpp").write_text("".join(f'#include "{part}"\n' for part in parts))


def _pip(tools, command, *words):
    """Run pip with these build tools and the installed NumPy; a build environment would download NumPy again."""
    pip = (sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", "--no-build-isolation")
    build._run(["env", f"PYTHONPATH={tools}", *pip, *words], f"PyCUDA {VERSION} is not built")
