"""Which cases of the sweep the short run of the tests keeps: a table that `make mutants-table` writes, and a rule.

A kernel keeps the cases that mutants of its source and its headers need, and one case of each storage type, layout,
direction and place. If its source, its headers or its cases have changed since the table was written, it keeps all.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from emulator.mutation import mutants
from emulator.proof import all_cases, included, kernels_by_source
from kernelmark.bench.emulator.shapes import is_long, is_whole
from kernelmark.bench.emulator.sweep import Case
from kernelmark.bench.plan.discovery import discover

TABLE = Path(__file__).with_name("short_cases.json")
#: Operations and bytes of a problem that has several blocks of most tiles and is done in a tenth of a second.
LITTLE = 200_000
#: What cannot change a verdict: comments, but for waivers, and how far a loop is unrolled.
COMMENT = re.compile(r"//(?!\s*emulator:)[^\n]*|/\*.*?\*/|#pragma unroll[^\n]*", re.DOTALL)


class Row(msgspec.Struct, frozen=True):
    """A source or a header: the cases, by kernel, that find all mutants that any case finds, and the mutants left."""

    digest: str
    mutants: int
    cases: dict[str, list[str]]
    survivors: list[str]

    def names(self) -> set[str]:
        """Return the names of the cases, each with its kernel."""
        return {f"{kernel} {case}" for kernel, ids in self.cases.items() for case in ids}


def name(case: Case) -> str:
    """What names a case among those of all kernels."""
    return f"{case.kernel.id} {case.id}"


def ordered(cases: Iterable[Case], known: Collection[str] = ()) -> dict[str, Case]:
    """The cases by name: those that are known to be good, then ragged ones, the largest of little work first."""

    def rank(item: tuple[str, Case]) -> tuple[bool, int, bool, float]:
        problem = item[1].problem
        work = problem.flop + problem.footprint_bytes
        return (
            item[0] not in known,
            is_whole(problem) + 2 * is_long(problem),
            work > LITTLE,
            work if work > LITTLE else -work,
        )

    return dict(sorted(((name(case), case) for case in cases), key=rank))


def load(path: Path = TABLE) -> dict[str, Row]:
    """The rows by file below `cuda/`; none where there is no table yet."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Row]) if path.exists() else {}


def save(rows: Mapping[str, Row], path: Path = TABLE) -> None:
    """Write the table as a whole, so that a reader never sees half of it."""
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(rows.items()))), indent=1) + b"\n"
    beside = path.with_suffix(".new")
    beside.write_bytes(text)
    beside.replace(path)


def row(file: str, mutants: int, names: Iterable[str], survivors: Iterable[str]) -> Row:
    """A row as of now, of cases by their names."""
    cases: dict[str, list[str]] = {}
    for kernel, _, case in sorted(name.partition(" ") for name in names):
        cases.setdefault(kernel, []).append(case)
    return Row(digest(file, cases), mutants, cases, list(survivors))


def is_fresh(rows: Mapping[str, Row], file: str) -> bool:
    """Whether the row of a file is there and nothing that it follows from has changed."""
    return file in rows and rows[file].digest == digest(file, rows[file].cases)


def digest(file: str, kernels: Iterable[str]) -> str:
    """Hash of what a row follows from: the file's mutants, the cases of the kernels that find them, and their texts.

    A source is judged with all of its kernels. Another kernel that includes a header leaves the header's row as it is.
    """
    if file.endswith(".cu"):
        kernels = [kernel.id for kernel in kernels_by_source(discover())[file]]
    found = [case for kernel in sorted(kernels) for case in all_cases().get(kernel, ())]
    texts = included(file)
    for source in dict.fromkeys(case.kernel.source for case in found):
        texts |= included(source)
    words = [str(mutant.change) for mutant in mutants(texts[file])] + [name(case) for case in found]
    words += [f"{name}\n{_code(texts[name])}" for name in sorted(texts)]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:20]


def _code(text: str) -> str:
    """The text without comments and without the way it is laid out."""
    return "\n".join(" ".join(line.split()) for line in COMMENT.sub("", text).splitlines() if line.strip())


def needed(rows: Mapping[str, Row]) -> set[str]:
    """The names of the cases that mutants need."""
    return {name for row in rows.values() for name in row.names()}


def kept(rows: Mapping[str, Row]) -> set[str]:
    """The names of the cases that the short run keeps."""
    found = set()
    for every in all_cases().values():
        fresh = is_fresh(rows, every[0].kernel.source)
        found |= _with_variants(every, needed(rows)) if fresh else {name(case) for case in every}
    return found


def _with_variants(every: list[Case], known: set[str]) -> set[str]:
    """Return a kernel's cases that are needed, and the first one of each variant that has none of these."""
    found, seen = set(), set()
    for key, case in ordered(every, known).items():
        variant = tuple(getattr(case.problem, axis, "") for axis in ("dtype", "layout", "direction", "place"))
        if key in known or variant not in seen:
            found.add(key)
        seen.add(variant)
    return found
