"""Find kernels in the folder `kernels`, in entry points of installed packages, and in files given with --plugin.

All modules below `kernels/<operation>/`, subfolders included, are imported, unless their names begin with `_`.
"""

import builtins
import importlib
import importlib.util
import math
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelmark.bench.plan.errors import UsageError, message
from kernelmark.bench.plan.foreign import overseen
from kernelmark.bench.plan.kernel import PLUGIN_MODULE
from kernelmark.bench.plan.options import TIMEOUT_S
from kernelmark.bench.plan.registry import REGISTRY, Registry
from kernelmark.bench.plan.replaced import keep_originals

ENTRY_POINTS = "kernelmark.kernels"
#: The folder of the modules that raise complaints about declarations. A complaint gives the place of the declaration,
#: not a line of these modules.
_OWN = f"{Path(__file__).parents[1]}{os.sep}"
_loaded: dict[Path, ModuleType] = {}


def discover(plugins: tuple[str, ...] = (), timeout_s: float = TIMEOUT_S, ours: bool = False) -> Registry:
    """Find and register all kernels, once per process, and return the registry. Raises UsageError.

    A plug-in whose import takes longer than `timeout_s` ends the process. ours: skip kernels of installed packages.
    """
    _import_kernels()
    if plugins or (not ours and others_installed()):
        keep_originals(timeout_s)
    if not ours:
        _discover_installed()
    for plugin in plugins:
        load_plugin(plugin, timeout_s)
    return REGISTRY


@cache
def _discover_installed() -> None:
    for entry in _entry_points():
        try:
            with overseen(f"entry point {entry.name} ({entry.value}): its import", TIMEOUT_S):
                entry.load()
        except (Exception, SystemExit) as error:
            raise UsageError(f"entry point {entry.name} ({entry.value}): {_where(error)}") from None


@cache
def others_installed() -> bool:
    """Return whether installed packages offer kernels."""
    return any(_entry_points())


def _entry_points() -> Iterator[Any]:
    """Yield installed packages' entry points for `kernelmark.kernels`; damaged packages are skipped.

    importlib.metadata is imported only if a package has such an entry point, since its import takes a tenth of the
    time of `kernelmark list`.
    """
    folders = [Path(folder) for folder in dict.fromkeys(sys.path) if Path(folder).is_dir()]
    for file in (file for folder in folders for file in folder.glob("*-info/entry_points.txt")):
        if ENTRY_POINTS in file.read_text(encoding="utf-8", errors="replace"):
            from importlib.metadata import PathDistribution

            yield from PathDistribution(file.parent).entry_points.select(group=ENTRY_POINTS)


@cache
def _import_kernels() -> None:
    package = Path(__file__).parents[2]
    for folder in sorted((package / "kernels").iterdir()):
        if (folder / "problem.py").is_file():
            for file in [folder / "problem.py", *_declaring(folder)]:
                try:
                    importlib.import_module(".".join(file.relative_to(package.parent).with_suffix("").parts))
                except (Exception, SystemExit) as error:
                    raise UsageError(_where(error, file)) from None


def _declaring(folder: Path) -> list[Path]:
    """Return the modules of an operation that may declare kernels, including those in subfolders."""
    parts = {file: file.relative_to(folder).parts for file in folder.rglob("*.py")}
    return sorted(file for file in parts if not any(part.startswith(("_", ".")) for part in parts[file]))


#: Cached, since every job resolves its plug-ins.
_resolved = cache(Path.resolve)


def load_plugin(plugin: str | Path, timeout_s: float = TIMEOUT_S) -> None:
    """Import a user's file, whose decorators register kernels, if it is not imported yet. Raises UsageError."""
    path = _resolved(Path(plugin).absolute())
    if path in _loaded:
        return
    if not os.path.isfile(path):  # noqa: PTH113 # it returns False for a name that is too long
        raise UsageError(f"plugin {path}: there is no such file")
    name = f"{PLUGIN_MODULE}{len(_loaded)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"plugin {path}: is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    known = copy(REGISTRY.kernels), copy(REGISTRY.operations)
    try:
        with overseen(f"plugin {path}: its import", timeout_s), _put_back(timeout_s < math.inf):
            spec.loader.exec_module(module)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and timeout_s < math.inf:
            raise  # an interrupt by the user; in a worker only the plug-in can raise it
        sys.modules.pop(name, None)
        REGISTRY.kernels, REGISTRY.operations = known
        raise UsageError(f"plugin {_where(error, path)}") from None
    _loaded[path] = module


@contextmanager
def _put_back(in_command: bool) -> Iterator[None]:
    """Restore built-in functions, the recursion limit, and entries that a plug-in removes from sys.modules or sys.path.

    A command needs them until it ends. in_command: also restore the current folder, since paths may be relative.
    """
    functions, modules, folders = vars(builtins).copy(), dict(sys.modules), list(sys.path)
    here, depth = Path.cwd() if in_command else None, sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(max(depth, sys.getrecursionlimit()))  # a kernel of the plug-in may need more
        vars(builtins).update(functions)
        for name, module in modules.items():
            sys.modules.setdefault(name, module)
        sys.path += [folder for folder in folders if folder not in sys.path]
        if here:
            os.chdir(here)


def of_plugin(error: BaseException) -> str | None:
    """Return a complaint if code of an imported plug-in raised the error or its cause; otherwise return None."""
    files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    complaint = next((f"plugin {_where(error, path)}" for path in _loaded if str(path) in files), None)
    return complaint or (of_plugin(error.__cause__) if error.__cause__ else None)


def _where(error: BaseException, path: Path | None = None) -> str:
    """Return `file, line N: Type: message`; N is the innermost line in `path`, or that of an invalid declaration."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    frames = list(traceback.extract_tb(error.__traceback__))
    if isinstance(error, UsageError):
        frames = [f for f in frames if not f.filename.startswith((_OWN, "<"))]
    elif path is not None:
        frames = [f for f in frames if f.filename == str(path)]
    line = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else f"{path}: " if path else ""
    text = message(error).split("\n")[0]
    return line + (text if isinstance(error, UsageError) else f"{type(error).__name__}: {text}")
