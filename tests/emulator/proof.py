"""Runs kernels' sweeps against a mutant of their source or of a header: one that no case complains about survives."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import TimeoutExpired

from emulator.mutation import Mutant
from kernelmark.bench.emulator.build import CUDA, HostCompileError, program, source_folder
from kernelmark.bench.emulator.shapes import is_whole
from kernelmark.bench.emulator.sweep import EmulatedCase, cases, complaints, entries
from kernelmark.bench.measure.compile import with_includes
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.registry import Registry

#: Seconds of processor time that a case may take. Most take milliseconds. One that is over time is run again: it may
#: take so many times what the kernel without the mistake takes at that moment, and the longer limit at least, so that
#: neither a slow case nor a busy machine passes for an endless loop.
LIMITS_S, SLOWER = (3, 20), 10
#: What a case may take without a mistake.
SOUND_S = 300
DOCS = CUDA.parent / "docs" / "emulator-internals.md"


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: the first complaint and the case that has it, or None where it survived.

    compiles: False where the complaint is the compiler's.
    """

    file: str
    mutant: Mutant
    complaint: str | None = None
    case: EmulatedCase | None = None
    compiles: bool = True


def mention(file: str, mutant: Mutant) -> str:
    """How the page names a survivor that it explains: `gemm/tiled.cu`: `i < k` -> `i < k + 1`."""
    return f"`{file}`: {mutant.change}"


def is_explained(file: str, mutant: Mutant) -> bool:
    """Return whether the page explains why no case can notice the mutant."""
    return DOCS.is_file() and mention(file, mutant) in DOCS.read_text()


def are_explained(file: str, mutants: Iterable[Mutant]) -> set[Mutant]:
    """Return the mutants that the page names as often as they occur, so that it is clear which ones it means."""
    page, names = DOCS.read_text(), {mutant: mention(file, mutant) for mutant in mutants}
    count = Counter(names.values())
    return {mutant for mutant, name in names.items() if page.count(name) >= count[name]}


def kernels_by_source(registry: Registry) -> dict[str, list[CudaKernel]]:
    """The emulated kernels of each .cu."""
    found: dict[str, list[CudaKernel]] = {}
    for kernel in registry.kernels.values():
        if isinstance(kernel, CudaKernel) and not kernel.emulated:
            found.setdefault(kernel.source, []).append(kernel)
    return found


def included(file: str) -> dict[str, str]:
    """A source or a header below `cuda/` and the headers there that it includes, if only through another: the texts."""
    texts = with_includes(CUDA / file, CUDA)
    return {str(path.relative_to(CUDA)): text.decode() for path, text in texts.items()}


def headers_by_name(registry: Registry) -> dict[str, list[str]]:
    """Return the sources of emulated kernels that include each header; asm kernels have twins and are left out."""
    found: dict[str, list[str]] = {}
    for source in sorted(kernels_by_source(registry)):
        for header in sorted(included(source)):
            if header != source and not header.startswith("ptx"):
                found.setdefault(header, []).append(source)
    return found


def plan(registry: Registry, file: str) -> list[list[EmulatedCase]]:
    """The cases that meet a source or a header, by kernel, storage type and layout, in which order they are compiled.

    The kernels with the fewest cases come first, and of each the ragged cases, which find most.
    """
    sources = headers_by_name(registry)[file] if file.endswith(".cuh") else [file]
    kernels = (kernel.id for source in sources for kernel in kernels_by_source(registry)[source])
    found = all_cases()
    return [group for cases_ in sorted((found[kernel] for kernel in kernels), key=len) for group in _by_variant(cases_)]


@cache
def all_cases() -> dict[str, list[EmulatedCase]]:
    """The cases of each emulated kernel by the kernel's id."""
    kernels = (kernel for group in kernels_by_source(discover()).values() for kernel in group)
    return {kernel.id: cases(discover(), kernel) for kernel in kernels}


def _by_variant(cases_: list[EmulatedCase]) -> list[list[EmulatedCase]]:
    groups: dict[tuple[str, str], list[EmulatedCase]] = {}
    for case in sorted(cases_, key=lambda case: is_whole(case.problem)):
        groups.setdefault((case.problem.dtype, getattr(case.problem, "layout", "")), []).append(case)
    return list(groups.values())


def fate(file: str, mutant: Mutant, plans: Sequence[Sequence[EmulatedCase]]) -> Fate:
    """Compile the mutant in place of the file and run the cases until one complains; each group is one program."""
    for group in plans:
        source = group[0].kernel.source
        folder = source_folder(included(source) | {file: mutant.text})
        names = entries(list(group))
        for case in group:
            try:
                found = first_complaint(case, names, folder)
            except HostCompileError as error:
                return Fate(file, mutant, str(error).splitlines()[0], case, compiles=False)
            if found:
                return Fate(file, mutant, found, case)
    return Fate(file, mutant)


def first_complaint(case: EmulatedCase, names: tuple[str, ...], folder: Path) -> str | None:
    """Return what the case complains about first, or None. Raises HostCompileError."""
    short_s, long_s = LIMITS_S
    found = _complaint(case, names, folder, short_s)
    if found is None or "timeout: " not in found:
        return found
    return _complaint(case, names, folder, max(long_s, math.ceil(SLOWER * _takes_s(case, names))))


def _complaint(case: EmulatedCase, names: tuple[str, ...], folder: Path, limit_s: int) -> str | None:
    try:
        return next(complaints(case, names, folder, limit_s), None)
    except TimeoutExpired as error:  # it could not even end itself
        return f"{case.id}: timeout: {error.timeout:g} s have passed"


def _takes_s(case: EmulatedCase, names: tuple[str, ...]) -> float:
    """Return the seconds that the case takes now, without a mistake."""
    program(CUDA / case.kernel.source, names)  # to compile is no part of it
    began = time.monotonic()
    assert not list(complaints(case, names, limit_s=SOUND_S))
    return time.monotonic() - began


def fates(file: str, mutants: list[Mutant], plans: list[list[EmulatedCase]], workers: int) -> Iterator[Fate]:
    """The fates of many mutants, in their order."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda mutant: fate(file, mutant, plans), mutants)
