"""Operations and kernels by name, and the decorators that put them there.

A kernel is a function that sets up and returns the timed closure (`@kernel`), or a pure plan of CUDA launches
(`@cuda_kernel`). Registration imports nothing heavy and runs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bench.plan.dtypes import NUMERICS
from bench.plan.errors import UsageError
from bench.plan.kernel import CudaKernel, Kernel
from bench.plan.operation import Problem

P = TypeVar("P", bound=Problem)
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Registry:
    """The operations and kernels known to this process."""

    operations: dict[str, type[Problem]] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)

    def problem(self, text: str) -> Problem:
        """The problem with this id. Raises UsageError."""
        op, _, rest = text.partition("/")
        return self.problem_class(op, text).parse(rest)

    def problem_class(self, op: str, subject: str) -> type[Problem]:
        if op not in self.operations:
            known = ", ".join(sorted(self.operations))
            raise UsageError(f"{subject}: {op!r} is not an operation; expected one of {known}")
        return self.operations[op]

    def add(self, kernel: Kernel) -> None:
        problem_class = self.problem_class(kernel.op, f"kernel {kernel.id}")
        if kernel.id in self.kernels:
            raise UsageError(f"kernel {kernel.id} is registered twice; rename one of the two")
        for axis, values in kernel.domain.items():
            for value in values:
                if complaint := problem_class.complaint(axis, value):
                    raise UsageError(f"kernel {kernel.id}: {complaint}")
        declared = kernel.numerics
        for name in (declared,) if isinstance(declared, str) else (declared or {}).values():
            if name not in NUMERICS:
                raise UsageError(f"kernel {kernel.id}: numerics {name!r}; expected one of {', '.join(NUMERICS)}")
        self.kernels[kernel.id] = kernel


REGISTRY = Registry()


def operation(name: str) -> Callable[[type[P]], type[P]]:
    """Register a problem class as the operation `name`. Raises UsageError where the name is taken."""

    def register(cls: type[P]) -> type[P]:
        if name in REGISTRY.operations:
            raise UsageError(f"operation {name} is registered twice; rename one of the two")
        cls.op = name
        REGISTRY.operations[name] = cls
        return cls

    return register


def _fields(kind: type[Kernel], op: str, function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Split the decorator's keywords into the fields of `kind` and the axes of its domain."""
    own = {key: options.pop(key) for key in list(options) if key in kind.__dataclass_fields__}
    domain = {}
    for plural, values in options.items():
        if not plural.endswith("s") or not isinstance(values, tuple):
            raise UsageError(
                f"kernel {op}/{function.__name__}: {plural} is no option; an axis is given as a tuple under its plural"
            )
        domain[plural.removesuffix("s")] = values
    doc = (function.__doc__ or "").strip().split("\n")[0]
    fixed = {"op": op, "domain": domain, "module": function.__module__}
    return {"name": function.__name__, "label": doc, **own, **fixed}


def kernel(op: str, *, provider: str, device: str, **options: Any) -> Callable[[F], F]:
    """Register `function(problem, operands) -> Launch` as a kernel of `op`.

    The function sets up and returns the timed closure, which allocates nothing; set-up may depend on shapes, never on
    values, since operands are redrawn afterwards. The function's name is the kernel's, the docstring's first line its
    label, unless `name` and `label` are given. Options are the fields of `Kernel`; any other keyword is an axis of the
    problem under its plural (`dtypes=("f32",)`, `layouts=("NN", "NT")`). Raises UsageError where the name is taken or
    an axis is unknown.
    """

    def register(function: F) -> F:
        REGISTRY.add(Kernel(provider=provider, device=device, setup=function, **_fields(Kernel, op, function, options)))
        return function

    return register


def cuda_kernel(op: str, *, source: str, entry: str, **options: Any) -> Callable[[F], F]:
    """Register `plan(problem, tile, device) -> list[KernelCall]` as a hand-written CUDA kernel of `op`.

    The plan is pure: it computes grids, blocks and arguments from the problem, the tile and the DeviceLimits, and
    touches no device. Options as for `kernel`, and those
    of `CudaKernel`. Raises UsageError where the name is taken or an axis is unknown.
    """

    def register(function: F) -> F:
        options_ = {"modules": ("cupy", "cuda.core"), **options, "source": source, "entry": entry}
        fields = _fields(CudaKernel, op, function, options_)
        REGISTRY.add(CudaKernel(provider="cuda", device="cuda", plan=function, **fields))
        return function

    return register
