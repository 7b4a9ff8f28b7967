"""Digests of everything that a measured row depends on: the kernel's code, its declared values, the measuring code.

Digests leave out paths, names of files, comments and formatting, so that two checkouts of the same code agree.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kernelmark
from kernelmark.bench.measure.compile import cuda_sources, included
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Kernel
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem

PACKAGE = Path(kernelmark.__file__).parent
#: The version of the measuring method. Raise it by hand when a change to the harness may change a measured time or a
#: verdict: clock, eviction, preparation, launching, verification, statistics. All recorded tasks must then be measured
#: again.
MEASURING = 2
#: The fields of a declaration that change a kernel's launch or its operands.
_DECLARED = {"alignment", "cooperative", "order", "synchronises", "host_memory", "spread", "threaded"}
#: Matches `#ifdef CUDA_EMU` and `#ifndef CUDA_EMU` blocks, with their `#else`, unless they contain other conditions.
_EMULATED = re.compile(
    r"^#if(n?)def CUDA_EMU\n((?:(?!#if|#else|#endif).*\n)*)(?:#else\n((?:(?!#if|#endif).*\n)*))?#endif\n", re.MULTILINE
)
_LITERAL = r'R"([^(\s]*)\((?s:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\d)\'(?:\\.|[^\'\\\n])+\''
_COMMENT = re.compile(rf"//.*|/\*(?s:.*?)\*/|{_LITERAL}")
_TOKEN = re.compile(
    rf"{_LITERAL}|\.?\d(?:[eEpP][+-]|['.\w])*|\w+|<<=|>>=|\.\.\.|->\*|::|\+\+|--|->|<<|>>|&&|\|\||[-+*/%&|^=!<>]=|\S"
)
_INCLUDE = re.compile(r'#\s*include\s*["<]([^">]+)[">]')


def code_of(kernel: Kernel) -> tuple[str, ...]:
    """Return the kernel's code that its digest covers, read anew from the files. Raises OSError, SyntaxError."""
    if isinstance(kernel, CudaKernel):
        return (flattened(cuda_sources() / kernel.source, cuda_sources()),)
    file = sys.modules[kernel.module].__file__ or ""
    return python_code(Path(file), getattr(kernel.setup, "__qualname__", ""))


def task_digest(
    kernels: Iterable[tuple[Kernel, Sequence[Problem]]],
    limits: DeviceLimits,
    launcher: str = "cuda-core",
    code: Callable[[Kernel], tuple[str, ...]] = code_of,
) -> str:
    """Return the digest of a task that measures kernels on problems with this version of the measuring method.

    limits: the device's limits. code: returns a kernel's code; it may cache the code, since reading takes most of the
    time. The order of kernels and of problems does not matter. Raises UsageError.
    """
    digests = sorted(kernel_digest(kernel, problems, limits, launcher, code) for kernel, problems in kernels)
    return _hash((MEASURING, *digests))


def kernel_digest(
    kernel: Kernel,
    problems: Iterable[Problem],
    limits: DeviceLimits,
    launcher: str = "cuda-core",
    code: Callable[[Kernel], tuple[str, ...]] = code_of,
) -> str:
    """Return the digest, 20 hex digits, of everything that the rows of a kernel on these problems depend on.

    These are the kernel's id and code, and its declared values for each problem on a device with these limits: the
    launches of a hand-written CUDA kernel, numerics, declared operations. Fields that only readers or tests use (label,
    module, path, `emulated`, `spills`) are left out. Raises UsageError if the digest cannot be formed.
    """
    try:
        declared = _declared(kernel, _DECLARED)
        rows = {problem.id: _on_problem(kernel, problem, limits) for problem in problems}
        texts = (*code(kernel), launcher) if isinstance(kernel, CudaKernel) else code(kernel)
        return _hash((kernel.id, declared, sorted(rows.items()), texts))
    except Exception as error:  # plans and declarations are user code, which may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{kernel.id}: no digest can be formed: {reason}") from None


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:20]


def _on_problem(kernel: Kernel, problem: Problem, limits: DeviceLimits) -> object:
    """Return the values that the kernel declares for a problem, or None if it refuses the problem on the device."""
    if kernel.refuses(problem, limits):
        return None
    values: dict[str, object] = {"numerics": kernel.numerics_for(problem), "wire": kernel.wire_bytes_for(problem)}
    if kernel.executed:
        values["executed"] = kernel.executed_flop(problem, limits)
    tile = kernel.tile_for(problem, limits)
    if isinstance(kernel, CudaKernel):
        values["runs"] = kernel.runs_on(limits.arch)
        values["calls"] = kernel.calls(problem, tile, limits) if tile else []
    elif tile:
        values["tile"] = vars(tile)
    return _plain(values)


def _declared(value: Any, names: Iterable[str]) -> list[tuple[str, object]]:
    """Return the named fields that differ from their defaults. So adding a field with a default changes no digest."""
    given = {f.name: (getattr(value, f.name), f.default) for f in fields(value) if f.name in names}
    return [(name, _plain(content)) for name, (content, default) in given.items() if content != default]


def _plain(value: Any) -> object:
    """Convert a value to numbers, strings, tuples and lists. Raises TypeError for a function or an unknown object."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return str(value.dtype), _plain(value.tolist())
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return sorted((name, _plain(entry)) for name, entry in value.items())
    if is_dataclass(value):
        return type(value).__name__, _declared(value, {f.name for f in fields(value)} - {"entry"})
    raise TypeError(f"{value!r} is a {type(value).__name__}, expected a number, a string or a launch argument")


def flattened(source: Path, include: Path) -> str:
    """Return the tokens of a .cu file with kernelmark's headers inlined, each once, where it is first included.

    include: the folder of shared headers. Comments, line breaks, `#pragma once` and the emulator's branches are
    removed; each other directive, such as the include of a system header, stays on a separate line. Raises OSError.
    """
    seen = {source}

    def inlined(file: Path) -> Iterator[str]:
        for line in _lines(file.read_text(encoding="utf-8")):
            header = _INCLUDE.match(line)
            place = included(header[1], file, source, include) if header else None
            if place is None:
                yield line
            elif place not in seen:
                seen.add(place)
                yield from inlined(place)

    return "\n".join(inlined(source))


@cache
def _lines(text: str) -> tuple[str, ...]:
    """Return the tokens of a C++ text: a line for each directive and for the code between two directives."""
    text = re.sub(r"\\\n", "", text)
    text = _COMMENT.sub(lambda match: " " if match[0].startswith(("//", "/*")) else match[0], text)
    text = "".join(f"{line.strip()}\n" for line in text.splitlines() if line.strip())
    text = _EMULATED.sub(lambda match: (match[2] if match[1] else match[3]) or "", text)
    lines: list[str] = []
    code: list[str] = []
    for line in [*text.splitlines(), "#pragma once"]:
        if not line.startswith("#"):
            code += (token[0] for token in _TOKEN.finditer(line))
            continue
        lines += [" ".join(code)] * bool(code)
        lines += [" ".join(line.split())] * (line.split() != ["#pragma", "once"])
        code = []
    return tuple(lines)


class _Statement(NamedTuple):
    """A statement of a module: the names that it binds, the names and attributes that it uses, and its text."""

    binds: frozenset[str]
    names: frozenset[str]
    text: str


class _Module(NamedTuple):
    """The statements of a module, and for each imported name, its module and its name in that module."""

    statements: tuple[_Statement, ...]
    imported: Mapping[str, tuple[str, str]]


def python_code(file: Path, function: str = "", package: Path = PACKAGE) -> tuple[str, ...]:
    """Return the sorted texts of the statements of a kernel's set-up function and of everything that it uses.

    Included are the decorated function (without one, the whole module of the declaration), the whole modules `_*.py`
    that it uses, and the statements that it uses from other modules in kernels. Imports, docstrings, comments and names
    of modules are left out. Modules `problem.py` are left out, too, since digests contain the values of problems.
    package: the folder of `kernelmark`. Raises OSError, SyntaxError.
    """
    decorated = any(function in s.binds and s.text.startswith("@kernel(") for s in _module(file, package).statements)
    waiting = [(file, function if decorated else "")]
    seen, texts = set(waiting), set()
    while waiting:
        place, name = waiting.pop()
        module = _module(place, package)
        for statement in module.statements:
            if not name or name in statement.binds:
                texts.add(statement.text)
                wanted = {(place, used) for used in statement.names if name} | set(_taken(statement, module, package))
                waiting += wanted - seen
                seen |= wanted
    return tuple(sorted(texts))


def _taken(statement: _Statement, module: _Module, package: Path) -> Iterator[tuple[Path, str]]:
    """Yield the file and the name of each object that a statement uses from other modules; "" is a whole module."""
    for used in statement.names & module.imported.keys():
        origin, name = module.imported[used]
        if whole := _place(f"{origin}.{name}", package):
            yield from ((whole, _part(whole, attribute)) for attribute in statement.names)
        elif place := _place(origin, package):
            yield place, _part(place, name)


def _part(place: Path, name: str) -> str:
    return "" if place.name.startswith("_") else name


def _place(module: str, package: Path) -> Path | None:
    """Return the file of a module in kernels, or None for a `problem.py` or any other module."""
    top, *parts = module.split(".")
    file = package.joinpath(*parts).with_suffix(".py")
    is_part = top == "kernelmark" and parts[:1] == ["kernels"] and parts[-1] != "problem"
    return file if is_part and file.is_file() else None


def _module(file: Path, package: Path) -> _Module:
    return _parsed(file.read_text(encoding="utf-8"), package)


@cache
def _parsed(text: str, package: Path) -> _Module:
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    imported = {a.asname or a.name: (str(node.module), a.name) for node in imports for a in node.names}
    modules = {name for name, origin in imported.items() if _place(".".join(origin), package)}
    return _Module(tuple(_statement(node, modules) for node in tree.body), imported)


def _statement(node: ast.stmt, modules: Collection[str]) -> _Statement:
    inner = list(ast.walk(node))
    names = {n.id for n in inner if isinstance(n, ast.Name)} | {n.attr for n in inner if isinstance(n, ast.Attribute)}
    binds = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        binds = {node.name}
    bare = _Bare(modules).visit(node)
    return _Statement(frozenset(binds), frozenset(names), ast.unparse(bare) if bare else "")


class _Bare(ast.NodeTransformer):
    """Remove imports and docstrings, and replace the names of imported modules."""

    def __init__(self, modules: Collection[str]) -> None:
        self._modules = modules

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("module", node.ctx) if node.id in self._modules else node
