"""Which functions of a GPU's packages bench and kernels call, and which of them a process on the stub executed."""

import json
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from stub.recording import RECORDED
from support.tools import script

#: Packages whose functions run on the stub, and those that cannot: a stand-in for CuPy runs in its place, and
#: cuda.pathfinder looks for cuBLAS and cuDNN.
ON_STUB = ("cuda.core.", "cuda.bindings.", "libcuda.", "pycuda.")
SIGNATURE_ONLY = ("cuda.pathfinder.", "cupy.", "cudnn.", "libcublas.", "libcudnn.", "nvmath.", "pynvml.")


def recording(folder: Path) -> dict[str, str]:
    """Return the environment variable with which a process on the stub records its calls in the folder."""
    return {RECORDED: str(folder / "calls.json")}


def unexecuted(folder: Path, packages: Sequence[str]) -> list[str]:
    """Return what is missing: functions of these packages that are called, and were not executed when it was recorded.

    A package of which nothing is called is missing too, and so is a function of a package that is neither on the stub
    nor among those whose signatures are all that can be checked. Prints each function and whether it was executed.
    """
    places = {tuple(place) for place in json.loads((folder / "calls.json").read_text())}
    executed: dict[str, bool] = {}
    for use in script("conformance").all_uses():
        if use.arguments is not None:
            executed[use.name] = executed.get(use.name, False) or (use.file, *use.end) in places
    others = tuple(set(ON_STUB) - set(packages))
    states = {name: _state(name, done) for name, done in sorted(executed.items()) if not name.startswith(others)}
    print(tabulate(states.items(), headers=("function", "executed on the stub")))
    unused = [package for package in packages if not any(name.startswith(package) for name in states)]
    return [*unused, *(name for name, state in states.items() if state == "no")]


def _state(name: str, executed: bool) -> str:
    if name.startswith(SIGNATURE_ONLY):
        return "signature only"
    return "yes" if executed else "no"
