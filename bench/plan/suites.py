"""Suites: TOML files of named sweeps, which are checked when they are loaded and expanded problem by problem."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.plan.errors import UsageError, meant
from kernelmark.bench.plan.files import only_utf8, read_toml, require_file
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.sweep import Entry, Sweep, expect, known_keys, read_max_time, read_sweep

FOLDER = Path(__file__).parent / "suites"
_SUITE_KEYS = {"title", "source", "max_time", "baseline", "sweep"}


class Suite(msgspec.Struct, frozen=True):
    """A named list of problems, and its source. max_time: seconds per case; baseline: a kernel id per operation."""

    name: str
    title: str
    source: str = ""
    max_time: float | None = None
    baseline: Mapping[str, str] = {}
    sweeps: tuple[Sweep, ...] = ()
    problem: Problem | None = None

    @property
    def digest(self) -> str:
        """Return a hash of the suite: its name, its texts, its settings, and its problems in order.

        It does not depend on the path, since shards may have the file in another folder.
        """
        sweeps = tuple(msgspec.structs.replace(sweep, where="") for sweep in self.sweeps)
        return hashlib.sha256(repr(msgspec.structs.replace(self, sweeps=sweeps)).encode()).hexdigest()[:16]

    def entries(self) -> Iterator[Entry]:
        """Yield every problem of the suite, created on demand. Raises UsageError."""
        for group in self.groups():
            yield from group

    def groups(self) -> Iterator[list[Entry]]:
        """Yield each comparison group: a problem and the variants measured in turn with it. Raises UsageError."""
        if self.problem is not None:
            yield [Entry(self.problem)]
        for sweep in self.sweeps:
            yield from sweep.groups()


def suite_names() -> list[str]:
    """Return the names of the suites that come with kernelmark."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_suite(text: str, registry: Registry) -> Suite:
    """Return the suite for a text: a name, a TOML file or a problem id. Raises UsageError."""
    if text in suite_names():
        return load_suite(FOLDER / f"{text}.toml", registry)
    if text.endswith(".toml"):
        return load_suite(Path(text), registry)
    if text.partition("/")[0] in registry.operations:
        return Suite(name=text, title=text, problem=registry.problem(text))
    expected = "a .toml file or a problem id such as gemm/m64n64k64/f32/NT; `kernelmark list --suites` lists all suites"
    raise UsageError(f"suite {text!r}: is not a suite, {expected}{meant(text, suite_names())}")


def full_name(text: str) -> str:
    """Return a name that refers to the same suite from any folder."""
    return str(Path(text).absolute()) if text.endswith(".toml") else text


def load_suite(path: Path, registry: Registry) -> Suite:
    """Read and check a suite file. Raises UsageError that names file, table and key."""
    require_file(path)
    with only_utf8():
        str(path).encode()
    table = read_toml(path)
    known_keys(table, _SUITE_KEYS, str(path))
    for key in ("title", "source"):
        value = table.get(key, "")
        expect(isinstance(value, str), f"{path}: {key} is {value!r}, expected a string")
    sweeps = table.get("sweep", [])
    expect(isinstance(sweeps, list) and bool(sweeps), f"{path}: has no [[sweep]] table; a suite needs at least one")
    return Suite(
        name=path.stem,
        title=table.get("title", path.stem),
        source=table.get("source", ""),
        max_time=read_max_time(table, str(path)),
        baseline=_baseline(table.get("baseline", {}), registry, f"{path}: baseline"),
        sweeps=tuple(read_sweep(s, registry, f"{path}: [[sweep]] {i}") for i, s in enumerate(sweeps, 1)),
    )


def _baseline(table: Any, registry: Registry, where: str) -> Mapping[str, str]:
    expect(isinstance(table, dict), f"{where}: is {table!r}, expected a table of operation = kernel id")
    for op, kernel in table.items():
        registry.problem_class(op, where)
        known = registry.kernels.get(kernel) if isinstance(kernel, str) else None
        complaint = f"{where}: {op} is {kernel!r}, which is not a kernel"
        expect(known is not None and known.op == op, f"{complaint} of {op}; `kernelmark list --op {op}` lists them")
    return dict(table)
