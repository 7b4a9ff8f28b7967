"""Builds the stub driver and runs Python on it, in a process of its own: no other test may see a driver."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmark.bench.emulator import build
from kernelmark.bench.measure.compile import header_folders

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: What a line of the log begins with where a call begins; its name follows.
BEGIN = "begin "
FLAGS = ("-std=c++20", "-O1", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcuda.so.1")


def library_folder() -> Path:
    """Return the folder of `libcuda.so.1`, built once for each text of it and of CUDA's headers."""
    sources, headers = sorted((HERE / "driver").glob("*.[ch]pp")), Path(header_folders()[0])
    unit = "".join(f'#include "{source}"\n' for source in sources if source.suffix == ".cpp")
    texts = [path.read_bytes() for path in (*sources, headers / "cuda.h", headers / "cudaTypedefs.h")]

    def fill(folder: Path) -> None:
        command = [build.compiler(), *FLAGS, f"-I{headers}", "-x", "c++", "-", "-o", str(folder / "libcuda.so.1")]
        build._run(command, "the stub driver does not compile", unit)

    return build._folder(f"stub-{build._digest([build._toolchain(), *FLAGS, unit], texts)}", fill)


@dataclass(frozen=True)
class Run:
    """What a function returned on the stub, and the driver's log of it."""

    value: Any
    log: tuple[str, ...]

    @property
    def violations(self) -> list[str]:
        return [line.removeprefix("violation: ") for line in self.log if line.startswith("violation: ")]

    @property
    def called(self) -> dict[str, int]:
        """How often each function of the driver was called, of the run at the process's end."""
        found = (re.fullmatch(r"called (\w+) (\d+)", line) for line in self.log)
        return {match[1]: int(match[2]) for match in found if match}


def environment(packages: Path | None = None, **variables: str) -> dict[str, str]:
    """Return the environment of a process that has the stub for its driver.

    packages: a folder that Python looks into besides this checkout, its tests and its tools.
    """
    libraries = os.pathsep.join(filter(None, (str(library_folder()), os.environ.get("LD_LIBRARY_PATH"))))
    places = (ROOT, ROOT / "tests", ROOT / "tools", HERE / "stand_in", packages)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    path = os.pathsep.join(str(place) for place in places if place)
    return env | {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": path, **variables}


def on_stub(
    calls: Mapping[str, tuple[Any, ...]], folder: Path, *, packages: Path | None = None, **variables: str
) -> dict[str, Run]:
    """Call functions in turn in one process that has the stub for its driver; return the runs by their names.

    calls: `module:function` and its arguments, by the name of the run. The run `end` is what the driver logs as the
    process ends. packages: as in `environment`. Raises AssertionError with what the process wrote where it fails.
    """
    log = folder / "driver.log"
    command = [sys.executable, "-m", "stub.calling", json.dumps(calls)]
    env = environment(packages, KM_STUB_LOG=str(log), **variables)
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"the process ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return _runs(json.loads(done.stdout), log.read_text().splitlines())


def _runs(values: dict[str, Any], log: list[str]) -> dict[str, Run]:
    """Divide the log at the notes with which each call begins."""
    logs: dict[str, list[str]] = {}
    for line in log:
        if line.startswith(BEGIN):
            logs[line.removeprefix(BEGIN)] = []
        elif logs:
            logs[next(reversed(logs))].append(line)
    return {name: Run(values.get(name), tuple(lines)) for name, lines in logs.items()}
