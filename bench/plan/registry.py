"""The registry of operations and kernels by name, and the decorators that register them.

A kernel is a function that sets up and returns the timed closure (`@kernel`), or a pure plan of CUDA launches
(`@cuda_kernel`). Registration imports no large library and runs no kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from kernelmark.bench.plan.declared import check_op, check_operation, checked, shown, subject_of
from kernelmark.bench.plan.errors import UsageError, meant, unknown
from kernelmark.bench.plan.kernel import CudaKernel, K, Kernel
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.tiles import parse_tile

P = TypeVar("P", bound=Problem)
F = TypeVar("F", bound=Callable[..., Any])


class Kernels(dict[str, Kernel]):
    """Kernels by id; an id with a tile after an @ returns the kernel with that tile."""

    def __missing__(self, name: str) -> Kernel:
        head, at, tile = name.partition("@")
        if not at or head not in self:
            raise KeyError(name)
        return self[head].with_tile(parse_tile(tile, name))


@dataclass
class Registry:
    """The operations and kernels that are registered in this process."""

    operations: dict[str, type[Problem]] = field(default_factory=dict)
    kernels: Kernels = field(default_factory=Kernels)

    def problem(self, text: str) -> Problem:
        """Return the problem with this id. Raises UsageError."""
        op, _, rest = text.partition("/")
        return _parsed(self.problem_class(op, text), rest)

    def named(self, name: str) -> Kernel:
        """Return the kernel with this id, which may contain a tile. Raises UsageError."""
        try:
            return self.kernels[name]
        except KeyError:
            head = name.partition("@")[0]
            named = f"`kernelmark list --all` lists all{meant(head, self.kernels)}"
            raise UsageError(f"kernel {head!r} is unknown, {named}") from None

    def problem_class(self, op: str, subject: str) -> type[Problem]:
        if op not in self.operations:
            known = ", ".join(sorted(self.operations)) + meant(op, self.operations)
            raise UsageError(f"{subject}: {op!r} is not an operation; expected one of {known}")
        return self.operations[op]

    def add(self, kernel: Kernel) -> None:
        if kernel.id in self.kernels:
            raise UsageError(f"kernel {kernel.id} is registered twice; rename one of the two")
        self.kernels[kernel.id] = kernel


@lru_cache(maxsize=1024)
def _parsed(problem_class: type[Problem], rest: str) -> Problem:
    """Return the problem named by an id's part after the operation; cached, since every row needs it several times."""
    return problem_class.parse(rest)


REGISTRY = Registry()


def operation(name: str) -> Callable[[type[P]], type[P]]:
    """Register a problem class as the operation `name`. Raises UsageError if the name or the class is invalid."""

    def register(cls: type[P]) -> type[P]:
        check_operation(name, cls, {*Kernel.__dataclass_fields__, *CudaKernel.__dataclass_fields__})
        if name in REGISTRY.operations:
            raise UsageError(f"operation {name} is registered twice; rename one of the two")
        cls.op = name
        REGISTRY.operations[name] = cls
        return cls

    return register


_FILLED = {"op", "domain", "module", "setup", "plan", "tile"}


def _declared(kind: type[K], op: str, function: F, options: dict[str, Any], **filled: Any) -> K:
    """Return the kernel from a decorator's keywords: fields of `kind`, and plurals of axes. Raises UsageError.

    filled: fields that the decorator sets. An empty option counts as missing.
    """
    given = {**options, **filled}
    name = options.get("name", getattr(function, "__name__", "?"))
    subject = subject_of(op, given["provider"], name)
    problem_class = REGISTRY.problem_class(op, subject)
    axes = {f"{axis}s": axis for axis in problem_class.axes()}
    fields = kind.__dataclass_fields__.keys() - _FILLED - filled.keys()
    for key, value in options.items():
        if key not in fields and key not in axes:
            raise UsageError(f"{subject}: {key} {unknown(key, {*fields, *axes})}")
        if key not in fields and not isinstance(value, tuple):
            raise UsageError(f"{subject}: {key} is {shown(value)}, expected a tuple of values")
    if missing := [key for key, value in options.items() if value == ""]:
        raise UsageError(f"{subject}: {missing[0]} is missing, expected a string")
    declared = {axes[key]: value for key, value in options.items() if key not in fields}
    domain = declared | {axis: values for axis, values in problem_class.assumed.items() if axis not in declared}
    of_kernel = {key: value for key, value in given.items() if key in fields or key in filled}
    doc = (function.__doc__ or "").strip().split("\n")[0]
    module = getattr(function, "__module__", "")
    arguments = {"name": name, "label": doc, **of_kernel, "op": op, "domain": domain, "module": module}
    return checked(kind(**arguments), problem_class)


def kernel(op: str, *, provider: str = "", device: str = "", **options: Any) -> Callable[[F], F]:
    """Register `function(problem, operands) -> Launch` as a kernel of `op`.

    The function sets up and returns the timed closure, which allocates nothing; set-up may depend on shapes, but not on
    values, since operands are redrawn afterwards. The function's name is the kernel's name, and its docstring's first
    line the label, unless `name` and `label` are given. Options are the fields of `Kernel`; any other keyword is the
    plural of an axis of the problem (`dtypes=("f32",)`, `layouts=("NN", "NT")`). Raises UsageError if the name is
    taken, a keyword is unknown, provider or device is missing, or a value is invalid.
    """
    check_op(op, "kernel")

    def register(function: F) -> F:
        given = {"provider": provider, "device": device, **options}
        REGISTRY.add(_declared(Kernel, op, function, given, setup=function))
        return function

    return register


def _beside(function: Callable[..., Any], source: str) -> str:
    """Return the path of a source that lies beside the plug-in's file; return any other source unchanged."""
    code = getattr(function, "__code__", None)
    if not source or code is None or str(function.__module__).startswith("kernelmark."):
        return source
    path = Path(code.co_filename).parent / str(source)  # a later check refuses a value that is not a string
    return str(path) if path.is_file() else source


def cuda_kernel(op: str, *, source: str = "", entry: str = "", **options: Any) -> Callable[[F], F]:
    """Register `plan(problem, tile, device) -> list[KernelCall]` as a hand-written CUDA kernel of `op`.

    The plan is pure: it computes grids, blocks and arguments from the problem, the tile and the DeviceLimits, and uses
    no device. source: a path relative to the file that declares the kernel, or below `cuda/`. options: options of
    `kernel` and fields of `CudaKernel`. Raises UsageError if the name is taken, a keyword is unknown, source or entry
    is missing, or a value is invalid.
    """
    check_op(op, "cuda_kernel")

    def register(function: F) -> F:
        given = {"modules": ("cupy", "cuda.core"), "source": _beside(function, source), "entry": entry, **options}
        planned = _declared(CudaKernel, op, function, given, provider="cuda", device="cuda", plan=function)
        _check_plan(function, planned.id)
        REGISTRY.add(planned)
        return function

    return register


def _check_plan(function: Callable[..., Any], name: str) -> None:
    """Raise UsageError for a plan with a wrong signature, which would otherwise look like a defect of kernelmark."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & 4:  # inspect.CO_VARARGS, whose module is slow to import
        return
    if not code.co_argcount - len(function.__defaults__ or ()) <= 3 <= code.co_argcount:
        taken = ", ".join(code.co_varnames[: code.co_argcount])
        raise UsageError(f"kernel {name}: its plan takes ({taken}), expected (problem, tile, device)")
