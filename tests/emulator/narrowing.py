"""Mutants whose offsets lose their upper half, and whether clang-tidy or a run with rows far apart notices them.

They are no part of the table of short_cases.json: no problem of the sweep is large enough to notice them.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from emulator.mutation import Mutant, blank_comments, closing
from emulator.offsets import findings, instances, unaccepted
from emulator.proof import Fate, all_cases, headers_by_name, included, kernels_by_source
from kernelmark.bench.emulator.apart import cases_apart
from kernelmark.bench.emulator.build import CompileError, source_folder
from kernelmark.bench.emulator.sweep import complaints, entries
from kernelmark.bench.emulator.worker import WorkerError
from kernelmark.bench.plan.discovery import discover

CAST = re.compile(r"\b(?:size_t|static_cast<(?:size_t|long long)>)\(")
#: The factor after a cast, whose product the late cast widens.
FACTOR = re.compile(r" \* [\w.]+(?:\(\))?(?![\w.(<])")
#: The type of a variable, a member or a function's result; those of parameters are part of the plan.
DECLARED = re.compile(r"(?<!unsigned )\b(size_t|long long)( \w+)(?= =|\[|\(|;)")
NARROW = {"size_t": "unsigned", "long long": "int"}


def narrowed(text: str) -> Iterator[Mutant]:
    """Drop each cast to 64 bits, apply it to the product instead of the factor, and declare each such name narrow."""
    code = blank_comments(text)
    for match in CAST.finditer(code):
        close = closing(code, match.end() - 1) + 1
        inner = text[match.end() - 1 : close]
        yield _mutant("no cast", text, match.start(), close, inner)
        if factor := FACTOR.match(code, close):
            late = f"{match[0]}{inner}{factor[0]})"
            yield _mutant("product widened late", text, match.start(), factor.end(), late)
    for match in DECLARED.finditer(code):
        yield _mutant("narrow name", text, match.start(), match.end(), NARROW[match[1]] + match[2])


def _mutant(kind: str, text: str, begin: int, end: int, into: str) -> Mutant:
    changed = text[:begin] + into + text[end:]
    return Mutant(kind, text.count("\n", 0, begin) + 1, f"`{text[begin:end]}` -> `{into}`", changed)


def narrowed_fates(file: str, workers: int) -> Iterator[Fate]:
    """Yield what became of each mutant of a source or a header, in their order."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda mutant: _fate(file, mutant), narrowed(included(file)[file]))


def _fate(file: str, mutant: Mutant) -> Fate:
    sources = headers_by_name(discover())[file] if file.endswith(".cuh") else [file]
    for source in sources:
        folder = source_folder(included(source) | {file: mutant.text})
        try:
            found = [*map(str, unaccepted(findings(source, names_of(source), folder)))]
        except ValueError as refused:
            return Fate(file, mutant, str(refused), compiles=False)
        if found:
            return Fate(file, mutant, found[0])
    for kernel in (kernel for source in sources for kernel in kernels_by_source(discover())[source]):
        cases = cases_apart(discover(), kernel)
        folder = source_folder(included(kernel.source) | {file: mutant.text})
        try:
            complaint = next((found for case in cases for found in complaints(case, entries(cases), folder)), None)
        except (CompileError, WorkerError) as refused:
            return Fate(file, mutant, str(refused), compiles=False)
        if complaint:
            return Fate(file, mutant, complaint)
    return Fate(file, mutant)


@cache
def names_of(source: str) -> tuple[str, ...]:
    """Return the entries that all cases of a source need."""
    return instances(case for kernel in kernels_by_source(discover())[source] for case in all_cases()[kernel.id])
