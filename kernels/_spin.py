"""Waiting awake, without the GIL, for what another thread writes."""

from typing import Any, cast

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernelmark import Array
from kernels._numba import data, jit

_X86 = binding.get_default_triple().startswith("x86_64")


def _look(_context: Any, count: Any) -> Any:
    """The first element as it is in memory, after a pause that leaves the core to its other thread."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            declare = cast(Any, cgutils).get_or_insert_function
            builder.call(declare(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return builder.load_atomic(data(context, builder, signature.args[0], args[0]), "acquire", 8)

    return types.int64(count), generate


_now = cast(Any, intrinsic(_look))


@jit
def rises(count: Array, beyond: int, rounds: int) -> bool:
    """Whether an element becomes more than `beyond` while it is looked at that often."""
    left = rounds
    while left and _now(count) <= beyond:
        left -= 1
    return left > 0
