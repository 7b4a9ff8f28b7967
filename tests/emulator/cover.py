"""A small set of cases that finds every mutant of a file which any case finds, chosen greedily."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bench.emulator.sweep import Case
from emulator.mutation import Mutant
from emulator.proof import fate
from emulator.short import name

#: Cases by name.
Cases = Mapping[str, Case]


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
        case = _finder(file, mutant, cases, [*first, *(case for case in cases if case not in found)])
        if case is None:
            survivors.append(mutant)
        else:
            found.setdefault(case, []).append(mutant)
    for case in sorted(found, key=lambda case: len(found[case])):
        _drop(file, found, case, cases)
    return Cover(found, survivors)


def _finder(file: str, mutant: Mutant, cases: Cases, names: Iterable[str]) -> str | None:
    """The first of the cases that finds the mutant. One that does not compile is found by the compiler."""
    case = fate(file, mutant, [[cases[name]] for name in names]).case
    return None if case is None else name(case)


def _drop(file: str, found: dict[str, list[Mutant]], case: str, cases: Cases) -> None:
    """Give a case up if the others find all that it was chosen for."""
    others = [other for other in found if other != case]
    heirs = []
    for mutant in found[case]:
        heir = _finder(file, mutant, cases, others)
        if heir is None:
            return
        heirs.append((heir, mutant))
    del found[case]
    for heir, mutant in heirs:
        found[heir].append(mutant)
