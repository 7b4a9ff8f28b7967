"""Detect functions that plug-ins have replaced in the libraries that our kernels call, or in our kernels."""

import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import CellType, CodeType, FunctionType, ModuleType

from kernelmark.bench.plan.registry import REGISTRY

#: The packages of Python's standard library that kernels and clocks use.
_STANDARD = ("builtins", "concurrent", "ctypes", "threading", "time")


class Originals:
    """The original functions, classes and modules of libraries, and the set-up functions of kernelmark's own kernels.

    Modules that are imported later are recorded when they are imported.
    """

    def __init__(self) -> None:
        self._setups = {name: kernel.setup for name, kernel in REGISTRY.kernels.items() if kernel.is_ours}
        libraries = (module for kernel in REGISTRY.kernels.values() for module in kernel.modules)
        self._packages = {_package(name) for name in ("kernelmark", "numpy", "scipy", *_STANDARD, *libraries)}
        self._modules: dict[str, tuple[object, dict[str, object]]] = {}
        self._methods: dict[type, dict[str, FunctionType]] = {}
        self._codes: dict[FunctionType, tuple[str, CodeType]] = {}
        #: For each namespace, by its id(), the package and the code of the functions that have it as globals.
        self._globals: dict[int, list[tuple[str, CodeType]]] = {}
        #: The folders in which the modules of a package are found; under "", those of top-level packages.
        self._paths = {"": list(sys.path)}
        for name in list(sys.modules):
            if _package(name) in self._packages:
                self._keep(name)
        sys.meta_path.insert(0, self)

    def _keep(self, name: str) -> None:
        module = sys.modules[name]
        named = getattr(module, "__dict__", {}).copy().items()
        with warnings.catch_warnings(action="ignore"):  # reading some attributes of a library causes warnings
            self._modules[name] = module, {key: it for key, it in named if callable(it) or isinstance(it, ModuleType)}
        for it in self._modules[name][1].values():
            if isinstance(it, type) and it.__module__ == name:
                self._methods[it] = {key: of for key, of in vars(it).items() if isinstance(of, FunctionType)}
                self._keep_code(f"{name}.{it.__qualname__}", self._methods[it])
        self._keep_code(name, self._modules[name][1])
        if paths := getattr(module, "__dict__", {}).get("__path__"):
            self._paths[name] = list(paths)

    def _keep_code(self, owner: str, named: Mapping[str, object]) -> None:
        for key, it in named.items():
            for function in _layers(it):
                if function not in self._codes:
                    self._codes[function] = f"{owner}.{key}", function.__code__
                    self._globals.setdefault(id(function.__globals__), []).append((_package(owner), function.__code__))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module for an import, as Python does, and record its objects after it is executed."""
        if _package(name) not in self._packages:
            return None
        spec, expected = PathFinder.find_spec(name, path, target), self._own_spec(name)
        if spec is None or spec.loader is None or (expected and expected.origin != spec.origin):
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._keep(name)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _own_spec(self, name: str) -> ModuleSpec | None:
        """Find a module in the folders that its package had before plug-ins were loaded."""
        paths = self._paths.get(name.rpartition(".")[0])
        return PathFinder.find_spec(name, paths) if paths else None

    def replaced(self) -> Iterator[str]:
        """Yield the names of replaced objects, and of a library's modules that were not loaded from its files."""
        for name in sorted(sys.modules.keys() - self._modules.keys()):
            if _package(name) in self._packages and (expected := self._own_spec(name)) and expected.loader:
                yield name
        for name, (module, known) in self._modules.items():
            if (now := sys.modules.get(name, module)) is not module:
                yield name
            for key, it in known.items():
                after = getattr(now, "__dict__", {}).get(key)
                if after is not it and not (
                    self._by_import(after, it, f"{name}.{key}") or self._wraps(after, it, _package(name))
                ):
                    yield f"{name}.{key}"
        for owner, methods in self._methods.items():
            for key, method in methods.items():
                after = vars(owner).get(key)
                if after is not method and not self._wraps(after, method, _package(owner.__module__)):
                    yield f"{owner.__module__}.{owner.__qualname__}.{key}"
        for function, (name, code) in self._codes.items():
            if function.__code__ is not code:
                yield name
        for name, setup in self._setups.items():
            if name not in REGISTRY.kernels or REGISTRY.kernels[name].setup is not setup:
                yield name

    def _wraps(self, after: object, before: object, package: str) -> bool:
        """Return whether a library's function wraps the library's original function, and calls no foreign function."""
        # The values in the function's closure; an empty cell equals CellType().
        cells = [cell.cell_contents for cell in getattr(after, "__closure__", None) or () if cell != CellType()]
        wrapped = [it for it in cells if callable(it) and type(it) not in self._methods]
        return before in wrapped and all(self._by_library(it, package) for it in (after, *wrapped))

    def _by_library(self, function: object, package: str) -> bool:
        """Return whether a library defines a function. Its globals and code decide this, since names can be forged."""
        return isinstance(function, FunctionType) and any(
            function.__code__ is part
            for owner, code in self._globals.get(id(function.__globals__), ())
            if owner == package != "kernelmark"
            for part in _parts(code)
        )

    def _by_import(self, after: object, before: object, name: str) -> bool:
        """Return whether importing explains a change: it sets submodules as attributes, and packages delete some."""
        is_module = name in self._modules and after is self._modules[name][0]
        return is_module or (after is None and isinstance(before, ModuleType))


def _package(name: str) -> str:
    return name.partition(".")[0]


def _layers(it: object) -> Iterator[FunctionType]:
    """Yield the functions in a chain of wrappers, from the outermost callable to the innermost function."""
    while it is not None:
        if isinstance(it, FunctionType):
            yield it
        it = getattr(it, "__dict__", {}).get("__wrapped__")


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _parts(part)


_originals: list[Originals] = []


def keep_originals(timeout_s: float) -> None:
    """Record the original functions before a plug-in is loaded, but only in a worker, whose `timeout_s` is infinite."""
    if timeout_s == math.inf and not _originals:
        _originals.append(Originals())


def replaced() -> str:
    """Return the names that plug-ins have replaced, as a short text, or ""."""
    names = [name for originals in _originals for name in originals.replaced()]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
