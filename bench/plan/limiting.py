"""What a plug-in declares, with a time limit on each of its functions, for a process that nothing else watches."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from kernelmark.bench.plan.foreign import limited
from kernelmark.bench.plan.kernel import Kernel
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.tiles import Prefer

K = TypeVar("K", bound=Kernel)
#: What is asked of a kernel, and of a problem, in the process that plans and prints.
_OF_KERNELS = ("supports", "executed", "valid", "plan")
_OF_PROBLEMS = (
    "id", "suffix", "words", "dims", "typical", "operands", "flop", "traffic_bytes", "footprint_bytes", "link",
    "bus_bytes", "least_wire_bytes",
)  # fmt: skip


def limited_kernel(kernel: K, timeout_s: float) -> K:
    """Return the kernel; what it declares takes no longer than a plug-in may."""

    def of(name: str, value: Any) -> Any:
        """Return the value; where it is a function, with the limit."""
        return limited(value, f"{kernel.id}: {name}", timeout_s) if callable(value) else value

    tunables = {
        name: tuple(of(f"tunable {name}", value) for value in values) for name, values in kernel.tunables.items()
    }
    prefer = kernel.prefer and Prefer(
        tuple({name: of(f"tunable {name}", value) for name, value in tile.items()} for tile in kernel.prefer.tiles),
        of("prefer", kernel.prefer.unless),
    )
    functions = {name: of(name, getattr(kernel, name)) for name in _OF_KERNELS if hasattr(kernel, name)}
    return replace(kernel, prefer=prefer, tunables=tunables, **functions)


def limit_operation(problem_class: type[Problem], timeout_s: float) -> None:
    """Let the figures of a problem class that are its own, not those of a class of ours, take no longer."""
    for name in _OF_PROBLEMS:
        found = inspect.getattr_static(problem_class, name)
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if not callable(function) or str(getattr(function, "__module__", "")).startswith("kernelmark."):
            continue
        watched: Callable[..., Any] = limited(function, f"{problem_class.op}: {name}", timeout_s)
        setattr(problem_class, name, type(found)(watched) if found is not function else watched)
