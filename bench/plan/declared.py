"""Check the arguments of declarations before they are used: names, types and values.

A complaint names the operation or the kernel; discovery prefixes it with the file and the line.
"""

import re
import typing
from collections.abc import Callable, Mapping
from functools import cache
from inspect import getattr_static
from types import NoneType, UnionType
from typing import Any

import msgspec

from kernelmark.bench.plan.dtypes import DTYPES, NUMERICS
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import K
from kernelmark.bench.plan.operation import SWEEP_KEYS, Problem

#: The devices that a kernel can declare; tests add a fake one.
DEVICES = {"cpu", "cuda"}
ORDERS = ("C", "F")
#: The kinds of host memory that kernels on each device can declare for their operands.
HOST_MEMORY = {"cpu": ("", "small", "huge", "shared"), "cuda": ("", "pinned", "write_combined", "mapped", "managed")}
#: The pattern of a name. Names occur in globs, file names and cases, so blanks, slashes and stars are excluded.
NAME = "[A-Za-z0-9_][A-Za-z0-9_+-]*"
_NAME = re.compile(NAME)
_EXPECTED_NAME = "letters, digits, _, + and -"
#: The methods that an operation has to define; the base class only documents them.
_METHODS = ("operands", "reference", "check", "flop")
#: Methods that are derived from an operation's fields and must not be overridden.
_DERIVED = ("make", "axes", "required")
_hints = cache(typing.get_type_hints)
_WORDS = {str: "a string", bool: "True or False", int: "a whole number", NoneType: "None", Any: "anything"}


def shown(value: object) -> str:
    """Return the text of a value for a complaint, in at most 60 characters, even if its `__repr__` raises."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_op(op: object, decorator: str) -> None:
    """Raise UsageError if a decorator got no operation, for instance because it was used without parentheses."""
    if not isinstance(op, str):
        how = f'@{decorator}("gemm", ...)'
        raise UsageError(f"{decorator}: got {shown(op)}, expected the name of an operation: {how}")


def subject_of(op: str, provider: object, name: object) -> str:
    """Return the subject of a complaint about a kernel, such as `kernel gemm/mine.twin`, on one line."""
    words = (each if isinstance(each, str) and each.isprintable() else shown(each) for each in (provider or "?", name))
    return f"kernel {op}/{'.'.join(words)}"


def checked(kernel: K, problem_class: type[Problem]) -> K:
    """Return the kernel unchanged. Raises UsageError for an invalid argument."""
    subject = subject_of(kernel.op, kernel.provider, kernel.name)
    for name, hint in _hints(type(kernel)).items():  # type: ignore[arg-type]  # a class is hashable
        value = getattr(kernel, name)
        if value is not kernel.__dataclass_fields__[name].default and not _fits(value, hint):
            _require(False, subject, name, value, _words(hint))
    for name in ("provider", "name"):
        text = getattr(kernel, name)
        _require(bool(_NAME.fullmatch(text)), subject, name, text, _EXPECTED_NAME)
    memories = HOST_MEMORY.get(kernel.device, ("",))
    for name, choices in (("device", sorted(DEVICES)), ("order", ORDERS), ("host_memory", memories)):
        value = getattr(kernel, name)
        _require(value in choices, subject, name, value, f"one of {', '.join(filter(None, choices))}")
    _require(kernel.device != "cpu" or not kernel.spread, subject, "spread", True, "False: device='cpu' has no GPUs")
    for tunable, values in kernel.tunables.items():
        right = bool(values) and tunable.isidentifier()
        _require(right, subject, f"tunable {tunable}", values, "at least one value, and an identifier for its name")
    for tile in kernel.prefer.tiles if kernel.prefer else ():
        space = kernel.tunables
        right = tile.keys() == space.keys() and all(value in space[tunable] for tunable, value in tile.items())
        _require(right, subject, "a preferred tile", tile, "one of the values of each tunable")
    declared = kernel.numerics or {}
    by_storage = declared if isinstance(declared, Mapping) else {}
    for storage in by_storage:
        _require(storage in DTYPES, subject, "numerics", by_storage, f"storage types from {', '.join(DTYPES)}")
    for numerics in by_storage.values() or filter(None, [declared]):
        _require(numerics in NUMERICS, subject, "numerics", numerics, f"one of {', '.join(NUMERICS)}")
    for axis, values in kernel.domain.items():
        _require(bool(values), subject, f"{axis}s", values, "at least one value; leave the option out for all")
        for value in values:
            if (complaint := problem_class.complaint(axis, value)) is not None:
                raise UsageError(f"{subject}: {complaint}")
    return kernel


def check_operation(name: object, cls: object, options: set[str]) -> None:
    """Raise UsageError for an invalid operation class. options: kernel keywords; no axis may have one as its plural."""
    subject = f"operation {name if isinstance(name, str) else shown(name)}"
    _require(isinstance(name, str) and bool(_NAME.fullmatch(name)), subject, "its name", name, _EXPECTED_NAME)
    right = isinstance(cls, type) and issubclass(cls, Problem)
    _require(right, subject, "it", cls, "a subclass of kernelmark.Problem")
    problem_class = typing.cast(type[Problem], cls)
    config = problem_class.__struct_config__
    _require(config.frozen, subject, "frozen", config.frozen, "True: class Mine(Problem, frozen=True, kw_only=True)")
    changed = [name for name in _DERIVED if getattr_static(problem_class, name) is not getattr_static(Problem, name)]
    _require(not changed, subject, "an overridden method", ", ".join(changed), "none: the fields determine them")
    axes = _axes(problem_class, subject)
    for key in ("sizes", "suffixes"):
        named = getattr(problem_class, key)
        _require(_fits(named, tuple[str, ...]), subject, key, named, "a tuple of axes")
        for axis in named:
            _require(axis in axes, subject, key, named, f"some of its axes: {', '.join(axes)}")
    _require(bool(problem_class.sizes), subject, "sizes", problem_class.sizes, "a tuple with one axis or more")
    taken = [axis for axis in axes if axis in SWEEP_KEYS or f"{axis}s" in options]
    _require(not taken, subject, "an axis", ", ".join(taken), "another name: suites or kernels already use this one")
    missing = [method for method in _METHODS if getattr(problem_class, method) is getattr(Problem, method)]
    if missing:
        raise UsageError(f"{subject}: {missing[0]} is missing; an operation defines {', '.join(_METHODS)}")


def _axes(problem_class: type[Problem], subject: str) -> list[str]:
    """Return the names of the axes. Raises UsageError for an axis of a type that msgspec cannot check."""
    try:
        axes = problem_class.axes()
    except (NameError, TypeError) as error:
        raise UsageError(f"{subject}: the type of a field cannot be found: {error}") from None
    for axis, kind in axes.items():
        try:
            msgspec.convert(None, kind)
        except msgspec.ValidationError:
            continue
        except TypeError:
            _require(False, subject, f"the type of {axis}", kind, "a number, a string or a Literal")
    return list(axes)


def _require(holds: bool, subject: str, name: str, value: object, expected: str) -> None:
    if not holds:
        raise UsageError(f"{subject}: {name} is {shown(value)}, expected {expected}")


def is_foreign(problem_class: type[Problem]) -> bool:
    """Return whether a plug-in declares the operation."""
    return not problem_class.__module__.startswith("kernelmark.kernels.")


def require_figures(problem: Problem, name: str) -> None:
    """Raise UsageError, naming the problem, if its class cannot compute the size, work and traffic that rows need."""
    try:
        dims = problem.dims()
        figures = {each: getattr(problem, each) for each in ("footprint_bytes", "flop", "traffic_bytes")}
        bus_bytes = problem.bus_bytes
    except Exception as error:
        complaint = f"{type(error).__name__}: {error}"
        raise UsageError(f"{name}: its size, work or traffic cannot be computed: {complaint}") from None
    if not _fits(dims, Mapping[str, int | float | str]):
        expected = "a dict from column names to numbers and strings"
        raise UsageError(f"{name}: dims() returned {shown(dims)}, expected {expected}")
    for figure, value in figures.items():
        if type(value) is not int or value < 0:
            raise UsageError(f"{name}: {figure} is {shown(value)}, expected a property with a number, 0 or more")
    if not _fits(bus_bytes, float | None):
        raise UsageError(f"{name}: bus_bytes is {shown(bus_bytes)}, expected a property with a number or None")


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value has a declared type; True does not count as a number."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is Callable:
        return callable(value)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(element, args[0]) for element in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(k, args[0]) and _fits(v, args[1]) for k, v in value.items())
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _words(hint: Any) -> str:
    """Return a type in words for a complaint, such as `a tuple, each element a string`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, UnionType):
        return " or ".join(_words(arg) for arg in args)
    if origin is Callable:
        return "a function"
    if origin is tuple:
        return f"a tuple, each element {_words(args[0])}"
    if origin is Mapping:
        return f"a dict, each key {_words(args[0])}, each value {_words(args[1])}"
    return _WORDS.get(hint, str(hint))
