"""A small set of cases that finds every mutant of a file which any case finds, chosen greedily."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from emulator.mutation import Mutant
from emulator.proof import fate
from emulator.short import name
from kernelmark.bench.emulator.sweep import Case

#: Cases by name.
Cases = Mapping[str, Case]
#: Cases that are compiled alone, which takes less than to compile the entries of all. Most mutants are found by these.
ALONE = 4


class Cover(NamedTuple):
    """The chosen cases, by name, with the mutants that they were chosen for, and the mutants that no case finds."""

    found: dict[str, list[Mutant]]
    survivors: list[Mutant]


def cover(file: str, mutants: Sequence[Mutant], cases: Cases) -> Cover:
    """Try each mutant with the cases chosen so far, then with the others; then drop the cases that are not needed."""
    found: dict[str, list[Mutant]] = {}
    survivors = []
    for mutant in mutants:
        first = sorted(found, key=lambda case: -len(found[case]))
        others = [case for name, case in cases.items() if name not in found]
        case = _finder(file, mutant, [*([cases[name]] for name in first), *_programs(others)])
        if case is None:
            survivors.append(mutant)
        else:
            found.setdefault(case, []).append(mutant)
    for case in sorted(found, key=lambda case: len(found[case])):
        _drop(file, found, case, cases)
    return Cover(found, survivors)


def _programs(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Yield the cases as they are compiled: the first few alone, the others with those of their kernel and variant."""
    yield from ([case] for case in cases[:ALONE])

    def program(case: Case) -> tuple[str, str, str]:
        return case.kernel.id, case.problem.dtype, getattr(case.problem, "layout", "")

    yield from (list(group) for _, group in groupby(sorted(cases[ALONE:], key=program), program))


def _finder(file: str, mutant: Mutant, programs: Sequence[Sequence[Case]]) -> str | None:
    """The first of the cases that finds the mutant. One that does not compile is found by the compiler."""
    case = fate(file, mutant, programs).case
    return None if case is None else name(case)


def _drop(file: str, found: dict[str, list[Mutant]], case: str, cases: Cases) -> None:
    """Give a case up if the others find all that it was chosen for."""
    others = [other for other in found if other != case]
    heirs = []
    for mutant in found[case]:
        heir = _finder(file, mutant, [[cases[other]] for other in others])
        if heir is None:
            return
        heirs.append((heir, mutant))
    del found[case]
    for heir, mutant in heirs:
        found[heir].append(mutant)
