"""Reads a module for what it uses of the packages of a GPU: names, and calls with their arguments.

Values are followed by their types, from imports over calls and assignments. Where a value comes from elsewhere (an
argument, an attribute of another module), tools/gpu_types.py has its type; a type that is missing there is an error as
soon as something is asked of the value.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpu_types import ARRAY, CLASSES, DYNAMIC, MODULES, PLACES, TYPES
from gpu_use import Arguments, Use, Values

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tuple({module.partition(".")[0] for module in MODULES})
LIBCUDA = "libcuda"
_UNKNOWN = "?"  # ends the type of a result that has none in TYPES


@dataclass
class Reader:
    """Reads one module; `uses` is what it found. Modules are read several times, until all results have types."""

    file: str
    text: str
    uses: list[Use] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    attributes: dict[str, Values] = field(default_factory=dict)
    returns: dict[str, Values] = field(default_factory=dict)
    _names: dict[str, Values] = field(default_factory=dict)
    _lengths: dict[str, int | None] = field(default_factory=dict)
    _function: str = ""

    def read(self) -> None:
        """Read all statements, with what is known of functions and attributes from the time before."""
        self.uses, self.errors, self._names = [], [], {}
        self._statements(ast.parse(self.text).body)

    def _statements(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names):
                for alias in names:
                    top = alias.name if alias.asname else alias.name.partition(".")[0]
                    if top.startswith(PACKAGES):
                        self._names[alias.asname or top] = (top,)
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in PACKAGES:
                for alias in names:
                    found = f"{module}.{alias.name}"
                    self._names[alias.asname or alias.name] = self._used(node, (found,))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._inside(node)
            case ast.ClassDef():
                self._statements(node.body)
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
                for target, value in zip(targets, values, strict=True):
                    self._statement(ast.copy_location(ast.Assign([target], value), node))
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._value(value))
                if isinstance(target, ast.Name):
                    self._lengths[target.id] = self._elements(value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self._value(value))
            case ast.Return(value=ast.expr() as value):
                known = self.returns.get(self._function, ())
                self.returns[self._function] = tuple(dict.fromkeys((*known, *self._value(value))))
            case _:
                self._children(node)

    def _children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child)
            else:
                self._statement(child)

    def _inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._names = self._names, dict(self._names)
        function, self._function = self._function, node.name
        for argument in (*node.args.args, *node.args.kwonlyargs):
            self._names.pop(argument.arg, None)
        self._statements(node.body)
        self._names, self._function = outer, function

    def _assign(self, target: ast.expr, values: Values) -> None:
        match target:
            case ast.Name(name):
                self._names[name] = values
            case ast.Attribute():
                if not self._value(target):
                    self.attributes[ast.unparse(target)] = values
            case ast.Tuple(elements):
                for i, element in enumerate(elements):
                    self._assign(element, () if i else values)
            case _:
                self._value(target)

    def _value(self, node: ast.expr) -> Values:
        """Return the types of what an expression may be, as names of the packages; none for what is not theirs."""
        if known := PLACES.get((self.file, ast.unparse(node))):
            self._children(node)
            return known
        match node:
            case ast.Name(name):
                return self._names.get(name, ())
            case ast.Attribute(owner, name):
                if owners := self._value(owner):
                    return self._used(node, self._members(node, owners, (name,)))
                return self.attributes.get(ast.unparse(node), ())
            case ast.Call():
                return self._call(node)
            case ast.Subscript(owner, place):
                self._value(place)
                return tuple(value for value in self._value(owner) if value == ARRAY)
            case ast.IfExp(test, body, orelse):
                self._value(test)
                return (*self._value(body), *self._value(orelse))
            case ast.BoolOp(values=parts):
                return tuple(value for part in parts for value in self._value(part))
            case ast.Tuple([first, *others]):  # has the type of its first element, which matters where it is unpacked
                found = self._value(first)
                for other in others:
                    self._value(other)
                return found
            case ast.NamedExpr(ast.Name(name), value):
                self._names[name] = self._value(value)
                return self._names[name]
        self._children(node)
        return ()

    def _call(self, node: ast.Call) -> Values:
        match node:
            case ast.Call(ast.Name("getattr"), [owner, name, *_]) if owners := self._value(owner):
                return self._used(node, self._members(node, owners, self._dynamic(name)))
            case ast.Call(ast.Name("import_module") | ast.Attribute(attr="import_module"), [ast.Constant(str(name))]):
                return (name,)
            case ast.Call(ast.Attribute(attr="CDLL"), [ast.Constant(str(library))]) if library.startswith(LIBCUDA):
                return (LIBCUDA,)
            case ast.Call(ast.Name("partial"), [called, *arguments]):
                self._record(node, self._value(called), arguments)
                return ()
            case ast.Call(ast.Name(name)) if name in self.returns and name not in self._names:
                self._children(node)
                return self.returns[name]
        return self._record(node, self._value(node.func), node.args)

    def _record(self, node: ast.Call, called: Values, arguments: list[ast.expr]) -> Values:
        """Record a call of each of `called` with its arguments; return what it results in."""
        types = tuple(self._value(argument) for argument in arguments)
        for keyword in node.keywords:
            self._value(keyword.value)
        lengths = [self._length(argument) for argument in arguments]
        stars = None in lengths or any(k.arg is None for k in node.keywords)
        positional = sum(length or 0 for length in lengths)
        found = Arguments(positional, tuple(k.arg for k in node.keywords if k.arg), stars, types)
        names = [f"{name.removesuffix('()')}.__call__" if name.endswith("()") else name for name in called]
        names = [name for name in names if _counts(name) and _UNKNOWN not in name]
        self.uses += [Use(name, self.file, _span(node), found) for name in names]
        return tuple(result for name in names if (result := _result(name)))

    def _length(self, node: ast.expr) -> int | None:
        """Return how many elements an argument or an element of a tuple is, or None where that is not known."""
        if not isinstance(node, ast.Starred):
            return 1
        match node.value:
            case ast.Name(name):
                return self._lengths.get(name)
        return None

    def _elements(self, node: ast.expr) -> int | None:
        match node:
            case ast.Tuple(elements):
                lengths = [self._length(element) for element in elements]
                return None if None in lengths else sum(length or 0 for length in lengths)
            case ast.IfExp(_, one, other) if self._elements(one) == self._elements(other):
                return self._elements(one)
        return None

    def _members(self, node: ast.AST, owners: Values, names: Iterable[str]) -> Values:
        for owner in owners:
            if owner.endswith(_UNKNOWN):
                self.errors.append(f"{self.file}:{getattr(node, 'lineno', 0)}: {owner} has no type in gpu_types.TYPES")
        return tuple(
            f"{owner.removesuffix('()')}.{name}" for owner in owners for name in names if _UNKNOWN not in owner
        )

    def _dynamic(self, name: ast.expr) -> tuple[str, ...]:
        match name:
            case ast.Constant(str(text)):
                return (text,)
            case ast.IfExp(_, ast.Constant(str(one)), ast.Constant(str(other))):
                return one, other
        if (values := DYNAMIC.get((self.file, ast.unparse(name)))) is None:
            self.errors.append(f"{self.file}:{name.lineno}: gpu_types.DYNAMIC has no values of {ast.unparse(name)}")
            return ()
        text = self.text if values.file == self.file else (ROOT / values.file).read_text()
        found = re.finditer(values.pattern, text)
        parts = dict.fromkeys(part for match in found for part in match.groups() if part)
        return tuple(values.template.format(part.upper() if "SWIZZLE" in values.template else part) for part in parts)

    def _used(self, node: ast.AST, names: Values) -> Values:
        self.uses += [Use(name, self.file, _span(node)) for name in names if name not in MODULES and _counts(name)]
        return tuple(found for name in names if (found := TYPES.get(name, name)))


def _result(called: str) -> str:
    """Return the type of what a call results in: of classes themselves, of the driver a tuple with the status first."""
    if called.startswith("cuda.bindings.driver.cu") and called not in CLASSES:
        return "cuda.bindings.driver.CUresult()"
    if (known := TYPES.get(f"{called}()")) is not None:
        return known
    return f"{called}()" if called in CLASSES or called.rpartition(".")[2][:1].isupper() else f"{called}(){_UNKNOWN}"


def _counts(name: str) -> bool:
    """Return whether a name is a library's, not what ctypes or our own wrapper adds to it."""
    library, _, member = name.partition(".")
    if not library.startswith("lib"):
        return True
    return member.startswith(library.removeprefix("lib").removesuffix("da")) and "." not in member


def _span(node: ast.AST) -> tuple[int, int, int, int]:
    return tuple(getattr(node, name) for name in ("lineno", "end_lineno", "col_offset", "end_col_offset"))
