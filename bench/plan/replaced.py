"""Detect what plug-ins have replaced in the libraries that our kernels call, and in our kernels themselves."""

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import CellType, FunctionType, ModuleType

from kernelmark.bench.plan.registry import REGISTRY

#: Of Python's own packages, those by which kernels and clocks work.
_STANDARD = ("concurrent", "ctypes", "threading", "time")


class Originals:
    """Functions, classes and modules as they are without plug-ins, by module, and what sets our kernels up.

    Modules that are imported later are recorded at their import.
    """

    def __init__(self) -> None:
        self._setups = {name: kernel.setup for name, kernel in REGISTRY.kernels.items() if kernel.is_ours}
        libraries = (module for kernel in REGISTRY.kernels.values() for module in kernel.modules)
        self._packages = {name.partition(".")[0] for name in ("kernelmark", "numpy", "scipy", *_STANDARD, *libraries)}
        self._kept: dict[str, tuple[object, dict[str, object]]] = {}
        self._methods: dict[type, dict[str, FunctionType]] = {}
        for name in list(sys.modules):
            if name.partition(".")[0] in self._packages:
                self._keep(name)
        sys.meta_path.insert(0, self)

    def _keep(self, name: str) -> None:
        module = sys.modules[name]
        named = getattr(module, "__dict__", {}).copy().items()
        with warnings.catch_warnings(action="ignore"):  # some names of a library warn as soon as they are looked at
            self._kept[name] = module, {key: it for key, it in named if callable(it) or isinstance(it, ModuleType)}
        for it in self._kept[name][1].values():
            if isinstance(it, type) and it.__module__ == name:
                self._methods[it] = {key: of for key, of in vars(it).items() if isinstance(of, FunctionType)}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module for an import, as Python does, and record it once it is executed."""
        if name.partition(".")[0] not in self._packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._keep(name)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def replaced(self) -> Iterator[str]:
        """Yield the names of everything that differs from its original."""
        for name, (module, known) in self._kept.items():
            if (now := sys.modules.get(name, module)) is not module:
                yield name
            for key, it in known.items():
                found = getattr(now, "__dict__", {}).get(key)
                if found is not it and not (_by_import(found, it, f"{name}.{key}") or self._wraps(found, it, name)):
                    yield f"{name}.{key}"
        for owner, methods in self._methods.items():
            for key, method in methods.items():
                if (found := vars(owner).get(key)) is not method and not self._by_library(found, owner.__module__):
                    yield f"{owner.__module__}.{owner.__qualname__}.{key}"
        for name, setup in self._setups.items():
            if name not in REGISTRY.kernels or REGISTRY.kernels[name].setup is not setup:
                yield name

    def _by_library(self, found: object, owner: str) -> bool:
        """Return whether a library has put this in a module or class of its own, as some do when they need another."""
        module = found.__globals__.get("__name__", "") if isinstance(found, FunctionType) else ""
        package = module.partition(".")[0]
        return package in self._packages and package == owner.partition(".")[0] != "kernelmark"

    def _wraps(self, found: object, before: object, owner: str) -> bool:
        """Return whether a library's function calls the one before, which is its own too, and no other that is not."""
        held = [it for it in _held(found) if isinstance(it, FunctionType)]
        return before in held and all(self._by_library(it, owner) for it in (found, *held))


def _held(found: object) -> list[object]:
    """Return what a function has in its closure, where a wrapper has what it calls."""
    cells = getattr(found, "__closure__", None) or ()
    return [cell.cell_contents for cell in cells if cell != CellType()]


def _by_import(found: object, before: object, name: str) -> bool:
    """Return whether an import explains a change: a module takes its name in its package, which may remove it again."""
    return getattr(found, "__name__", "") == name or (found is None and isinstance(before, ModuleType))


_originals: list[Originals] = []


def keep_originals(timeout_s: float) -> None:
    """Record the originals before the first plug-in of a worker, where no import has a time limit of its own."""
    if timeout_s == math.inf and not _originals:
        _originals.append(Originals())


def replaced() -> str:
    """Return a few words on what plug-ins have replaced, or nothing."""
    names = [name for originals in _originals for name in originals.replaced()]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
