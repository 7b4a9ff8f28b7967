"""Binds what bench and kernels call of a GPU's packages to these packages: `make conformance`; no GPU is needed.

Builds the environment of tools/data/gpu-packages.txt in build/conformance, binds every name in it, writes
tools/data/gpu-signatures.json, and compiles every kernel there. PyCUDA comes as a wheel in .whl/, since it has none in
a registry; without one, what is recorded of it stays.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_binding import RECORD, complaints, differences, recorded
from gpu_calls import all_uses
from gpu_ctypes import declared
from gpu_reader import ROOT

FOLDER = ROOT / "build" / "conformance"
PACKAGES = ROOT / "tools" / "data" / "gpu-packages.txt"
_PYTHON = FOLDER / "bin" / "python"
_PYCUDA = "pycuda."


def environment() -> None:
    """Install what is pinned, and the wheels in .whl/, unless that has been done."""
    wheels = sorted((ROOT / ".whl").glob("*.whl"))
    key = hashlib.sha256(PACKAGES.read_bytes() + repr([wheel.name for wheel in wheels]).encode()).hexdigest()
    done = FOLDER / "installed"
    if done.is_file() and done.read_text() == key:
        return
    subprocess.run([_base_python(), "-m", "venv", "--clear", FOLDER], check=True)
    install: list[str | Path] = [_PYTHON, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--requirement", PACKAGES], check=True)
    if wheels:
        subprocess.run([*install, "--no-index", *wheels], check=True)
    _write_stub()
    done.write_text(key)


def _base_python() -> str:
    """Return Python 3.12, which machines with a GPU have, or this one: CONFORMANCE_PYTHON names another."""
    wanted = os.environ.get("CONFORMANCE_PYTHON", "python3.12")
    if shutil.which(wanted) and subprocess.run([wanted, "-c", ""], check=False).returncode == 0:
        return wanted
    print(f"conformance: {wanted} does not run; the names are bound by {sys.executable}", file=sys.stderr)
    return sys.executable


def _write_stub() -> None:
    """Build a libcuda with the symbols that PyCUDA links to, which is enough to import it."""
    for extension in FOLDER.glob("lib/*/site-packages/pycuda/_driver*.so"):
        listed = subprocess.run(["nm", "-D", "--undefined-only", extension], capture_output=True, text=True, check=True)
        names = sorted(set(re.findall(r"\bcu[A-Z]\w+", listed.stdout)))
        source = "".join(f"int {name}(void) {{ return 100; }}\n" for name in names)
        compile_ = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o"]
        subprocess.run([*compile_, FOLDER / "libcuda.so.1"], input=source, text=True, check=True)


def _inside(script: str, text: str = "") -> str:
    """Run a script of tools/ by the environment's Python; return what it prints."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(FOLDER), "PYTHONPATH": str(ROOT)}
    command: list[str | Path] = [_PYTHON, ROOT / "tools" / script]
    return subprocess.run(command, input=text, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def record() -> dict[str, Any]:
    """Bind all names that are used, and return what is to be recorded."""
    names = sorted({use.name for use in all_uses()} | set(declared()))
    found = json.loads(_inside("gpu_signatures.py", "\n".join(names)))
    if RECORD.is_file() and not list(FOLDER.glob("lib/*/site-packages/pycuda")):
        kept = recorded()
        found["versions"] |= {"pycuda": kept["versions"].get("pycuda")}
        of_pycuda = {name for name in found["names"] if name.startswith(_PYCUDA)}
        found["names"] |= {name: bound for name, bound in kept["names"].items() if name in of_pycuda}
    return dict(found)


def main() -> int:
    """Check, and record where all is bound; return 1 where something does not fit, else 0."""
    environment()
    found = record()
    wrong = [*complaints(all_uses(), found["names"]), *differences(declared(), found["names"])]
    print("\n".join(wrong), end="\n" * bool(wrong))
    if not wrong:
        RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        print(f"{len(found['names'])} names are bound, recorded in {RECORD.relative_to(ROOT)}")
        print(_inside("gpu_compile.py"), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
