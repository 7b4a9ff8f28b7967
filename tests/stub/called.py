"""Which functions of a GPU's packages bench and kernels call, and which of them a process on the stub executed."""

import json
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from scripts import script
from stub.recording import RECORDED

UNRECORDED = {"how": "nothing; run make conformance"}


def recording(folder: Path) -> dict[str, str]:
    """Return the environment variable with which a process on the stub records its calls in the folder."""
    return {RECORDED: str(folder / "calls.json")}


def unexecuted(folder: Path, packages: Sequence[str]) -> list[str]:
    """Return the functions of the packages that no process has executed which recorded its calls in the folder.

    Prints all functions of the GPU's packages that are called: whether each was executed, and how its signature is
    bound. Stand-ins for a package do not count.
    """
    places = {tuple(place) for place in json.loads((folder / "calls.json").read_text())}
    names, executed = script("gpu_binding").recorded()["names"], {}
    for use in script("gpu_calls").all_uses():
        if use.arguments is not None:
            executed[use.name] = executed.get(use.name, False) or (use.file, use.span[1], use.span[3]) in places
    states = {name: _state(name, done, packages) for name, done in sorted(executed.items())}
    rows = [(name, state, names.get(name, UNRECORDED)["how"]) for name, state in states.items()]
    print(tabulate(rows, headers=("function", "executed on the stub", "bound by")))
    return [name for name, state in states.items() if state == "no"]


def _state(name: str, executed: bool, packages: Sequence[str]) -> str:
    if not name.startswith(tuple(packages)):
        return "signature only"
    return "yes" if executed else "no"
