"""Runs kernels' sweeps against a mutant of their source or of a header: one that no case complains about survives."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.emulator.build import CUDA, CompileError, source_folder
from bench.emulator.shapes import is_whole
from bench.emulator.sweep import Case, cases, complaints, entries
from bench.plan.kernel import CudaKernel
from bench.plan.registry import Registry
from emulator.mutation import Mutant

#: A mutant that runs this long instead of milliseconds is caught.
LIMIT_S = 3
DOCS = CUDA.parent / "docs" / "emulator.md"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: the first complaint, or None where it survived. `compiles` is False for no C++."""

    file: str
    mutant: Mutant
    complaint: str | None
    compiles: bool = True


def mention(file: str, mutant: Mutant) -> str:
    """How the page names a survivor that it explains: `gemm/tiled.cu`: `i < k` -> `i < k + 1`."""
    return f"`{file}`: {mutant.change}"


def is_explained(file: str, mutant: Mutant) -> bool:
    """Whether the page says why nobody can miss what the mutant lacks."""
    return DOCS.is_file() and mention(file, mutant) in DOCS.read_text()


def kernels_by_source(registry: Registry) -> dict[str, list[CudaKernel]]:
    """The emulated kernels of each .cu."""
    found: dict[str, list[CudaKernel]] = {}
    for kernel in registry.kernels.values():
        if isinstance(kernel, CudaKernel) and not kernel.emulated:
            found.setdefault(kernel.source, []).append(kernel)
    return found


def included(file: str) -> set[str]:
    """The headers below `cuda/` that a source or a header includes, and those that they include."""
    found: set[str] = set()
    left = [file]
    while left:
        named = INCLUDE.findall((CUDA / left.pop()).read_text())
        left += [name for name in named if name not in found and (CUDA / name).is_file()]
        found.update(left)
    return found


def headers_by_name(registry: Registry) -> dict[str, list[str]]:
    """The sources of emulated kernels behind each header; not those of asm, which has twins."""
    found: dict[str, list[str]] = {}
    for source in sorted(kernels_by_source(registry)):
        for header in sorted(included(source)):
            if not header.startswith("ptx"):
                found.setdefault(header, []).append(source)
    return found


def plan(registry: Registry, file: str) -> list[list[Case]]:
    """The cases that meet a source or a header, by kernel, storage type and layout, in which order they are compiled.

    The kernels with the fewest cases come first, and of each the ragged cases, which find most.
    """
    sources = headers_by_name(registry)[file] if file.endswith(".cuh") else [file]
    kernels = (cases(registry, kernel) for source in sources for kernel in kernels_by_source(registry)[source])
    return [group for cases_ in sorted(kernels, key=len) for group in _by_variant(cases_)]


def _by_variant(cases_: list[Case]) -> list[list[Case]]:
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in sorted(cases_, key=lambda case: is_whole(case.problem)):
        groups.setdefault((case.problem.dtype, getattr(case.problem, "layout", "")), []).append(case)
    return list(groups.values())


def fate(file: str, mutant: Mutant, plans: list[list[Case]]) -> Fate:
    """Compile the mutant in place of the file, beside the same headers, and run the kernels until one complains."""
    beside = {str(path.relative_to(CUDA)) for path in CUDA.rglob("*.cuh")} | {g[0].kernel.source for g in plans}
    texts = {name: (CUDA / name).read_text() for name in sorted(beside)}
    folder = source_folder(texts | {file: mutant.text})
    try:
        return Fate(file, mutant, _first_complaint(plans, folder))
    except CompileError as error:
        return Fate(file, mutant, str(error).splitlines()[0], compiles=False)


def _first_complaint(plans: list[list[Case]], folder: Path) -> str | None:
    for group in plans:
        names = entries(group)
        for case in group:
            found = list(islice(complaints(case, names, folder, LIMIT_S), 1))
            if found:
                return found[0]
    return None


def fates(file: str, mutants: list[Mutant], plans: list[list[Case]], workers: int) -> Iterator[Fate]:
    """The fates of many mutants, in their order."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda mutant: fate(file, mutant, plans), mutants)
