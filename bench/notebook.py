"""Measure a function from a program or a notebook cell in a worker: `kernelmark.measure`.

The worker gets the function as a plug-in, a file that imports it or contains its source.
"""

import ast
import dis
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import msgspec

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError, unknown
from kernelmark.bench.plan.files import kept_plugin
from kernelmark.bench.plan.options import OPTIONS
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.runs import RunDocument

#: Options of `kernelmark run` that `measure` takes; it chooses kernels and plug-ins itself.
_OPTIONS = {option.name.replace("-", "_"): option for option in OPTIONS if option.name not in ("kernels", "plugin")}
_PROVIDER = "mine"


def measure(
    problem: str,
    fn: Callable[..., Any],
    beside: Sequence[str] = (),
    db: str | Path | None = None,
    declared: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Verify and time `fn` and the baseline on a problem in a worker, store the rows, and return the row of `fn`.

    fn: takes the problem and its operands and returns the closure to be timed, as with `@kernel`. A worker must be able
    to import it, or its source must be readable. beside: other kernels to measure in turn with `fn`, by id or glob.
    declared: further arguments of `@kernel`, such as `numerics="tf32"`. options: options of `kernelmark run`, such as
    `max_time=0.5`, `ceilings=False`. With several thread counts, the row of the first is returned. Raises UsageError.
    """
    registry = discover()
    parsed = registry.problem(problem)
    name = f"{parsed.op}/{_PROVIDER}.{getattr(fn, '__name__', '?')}"
    axes = {f"{axis}s": (getattr(parsed, axis),) for axis in parsed.assumed}
    given = {"provider": _PROVIDER, "device": "cpu", "threaded": True, **axes, **(declared or {})}
    plugin = kept_plugin(f"{_source(fn)}\n_kernel({parsed.op!r}, **{given!r})({fn.__name__})\n")
    ours = (registry.kernels[base] for base in parsed.baselines)
    bases = [kernel.id for kernel in ours if kernel.device == given["device"] and not kernel.refuses(parsed)]
    contenders = [name, *([beside] if isinstance(beside, str) else beside), *bases]
    words = [problem, "--json", "--plugin", str(plugin), *(word for glob in contenders for word in ("--kernels", glob))]
    words += [] if db is None else ["--db", str(db)]
    for key, value in options.items():
        words += _words(key, value)
    done = subprocess.run([sys.executable, "-P", "-m", "kernelmark", "run", *words], capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise UsageError(done.stderr.strip().split("\n")[-1].removeprefix("kernelmark: "))
    return next(row for row in msgspec.json.decode(done.stdout, type=RunDocument).results if row.kernel == name)


def _words(key: str, value: Any) -> list[str]:
    if key not in _OPTIONS:
        raise UsageError(f"measure: {key} {unknown(key, _OPTIONS)}")
    option = _OPTIONS[key]
    if isinstance(option.default, bool):
        switch = f"--{'no-' * option.default}{option.name}"
        return [switch] if bool(value) != option.default else []
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return [f"--{option.name}={text}"]


def _source(fn: Any) -> str:
    """Return the source of a module that defines the function. Raises UsageError if a worker cannot define it."""
    if not isinstance(fn, FunctionType):
        raise UsageError(f"measure: fn is a {type(fn).__name__}, expected a function; write it with def")
    if fn.__name__ == "<lambda>":
        raise UsageError("measure: fn is a lambda, expected a function with a name; write it with def")
    folders: dict[str, None] = {}
    lines = list(_defined(fn.__name__, fn, fn.__name__, folders, set()))
    path_lines = [f"sys.path += [folder for folder in {list(folders)!r} if folder not in sys.path]"] if folders else []
    head = ["from __future__ import annotations", "import sys", "from kernelmark import kernel as _kernel"]
    return "\n".join([*head, *path_lines, *lines])


def _defined(name: str, value: Any, fn: str, folders: dict[str, None], seen: set[str]) -> Iterator[str]:
    """Yield lines that define a global name as `value`, after lines for the names that these use. Raises UsageError."""
    if name in seen:
        return
    seen.add(name)
    inner = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, ModuleType):
        folders.update(_folder(value.__name__))
        yield f"import {value.__name__}" + ("" if name == value.__name__ else f" as {name}")
    elif module := _importable(value):
        folders.update(_folder(module))
        yield f"from {module} import {value.__name__} as {name}"
    elif isinstance(inner, FunctionType) and inner.__name__ == name:
        yield from _defined_by_source(inner, folders, seen)
    elif _is_plain(value):
        yield f"{name} = {value!r}"
    else:
        expected = "modules, functions under the names they were defined with, numbers and strings"
        reason = f"{fn} uses {name}, which is a {type(value).__name__}"
        raise UsageError(f"measure: {reason}; expected {expected}; create {name} in {fn}")


def _defined_by_source(fn: FunctionType, folders: dict[str, None], seen: set[str]) -> Iterator[str]:
    if free := fn.__code__.co_freevars:
        reason = f"measure: {fn.__name__} is a closure over {', '.join(free)}"
        expected = "expected a function without free variables"
        raise UsageError(f"{reason}; {expected}; define {free[0]} in {fn.__name__}, or at the top level of the program")
    try:
        text = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):
        raise UsageError(f"measure: {fn.__name__}: its source cannot be read; write it to a file") from None
    for name in _globals_of(fn.__code__, text):
        if name in fn.__globals__:
            yield from _defined(name, fn.__globals__[name], fn.__name__, folders, seen)
    yield text


def _globals_of(code: CodeType, text: str) -> Iterator[str]:
    """Yield the global names that a function uses when it is called, and when its definition is executed."""
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield each.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals_of(inner, "pass")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            at_once = [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
            yield from (name.id for part in at_once for name in ast.walk(part) if isinstance(name, ast.Name))


def _importable(value: Any) -> str:
    """Return the module from which a value can be imported under its own name, or ""."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return ""
    return module if getattr(sys.modules.get(module), name, None) is value else ""


def _folder(module: str) -> dict[str, None]:
    """Return the folder that a module is imported from, as the key of a dict; empty for a module without a file."""
    file = getattr(sys.modules[module.partition(".")[0]], "__file__", None)
    if not file:
        return {}
    path = Path(file).resolve()
    return {str(path.parents[1] if path.name == "__init__.py" else path.parent): None}


def _is_plain(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
