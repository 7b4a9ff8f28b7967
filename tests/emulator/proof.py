"""Runs a kernel's sweep against a mutant of its source: a mutant that no case complains about has survived."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.plan.registry import CudaKernel, Registry
from emulator.build import CUDA, CompileError, source_folder
from emulator.mutation import Mutant
from emulator.shapes import is_whole
from emulator.sweep import Case, cases, complaints, entries

#: A mutant that runs this long instead of milliseconds is caught.
LIMIT_S = 3


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: the first complaint, or None where it survived. `compiles` is False for no C++."""

    source: str
    mutant: Mutant
    complaint: str | None
    compiles: bool = True


def kernels_by_source(registry: Registry) -> dict[str, list[CudaKernel]]:
    """The emulated kernels of each .cu."""
    found: dict[str, list[CudaKernel]] = {}
    for kernel in registry.kernels.values():
        if isinstance(kernel, CudaKernel) and not kernel.emulated:
            found.setdefault(kernel.source, []).append(kernel)
    return found


def plan(registry: Registry, source: str) -> list[list[Case]]:
    """The cases of each kernel of a source, the ragged ones, which find most, first."""
    kernels = kernels_by_source(registry)[source]
    return [sorted(cases(registry, kernel), key=lambda case: is_whole(case.problem)) for kernel in kernels]


def fate(source: str, mutant: Mutant, plans: list[list[Case]]) -> Fate:
    """Compile the mutant in place of the source, beside the same headers, and run its kernels until one complains."""
    headers = {str(path.relative_to(CUDA)): path.read_text() for path in sorted(CUDA.rglob("*.cuh"))}
    folder = source_folder({source: mutant.text, **headers})
    try:
        return Fate(source, mutant, _first_complaint(plans, folder))
    except CompileError as error:
        return Fate(source, mutant, str(error).splitlines()[0], compiles=False)


def _first_complaint(plans: list[list[Case]], folder: Path) -> str | None:
    for plan_ in plans:
        names = entries(plan_)
        for case in plan_:
            found = list(islice(complaints(case, names, folder, LIMIT_S), 1))
            if found:
                return found[0]
    return None


def fates(source: str, mutants: list[Mutant], plans: list[list[Case]], workers: int) -> Iterator[Fate]:
    """The fates of many mutants, in their order."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda mutant: fate(source, mutant, plans), mutants)
