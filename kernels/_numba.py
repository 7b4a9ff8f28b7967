"""What our Numba kernels share: compiled serially without the GIL, bound to their operands, stores past the caches."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from kernelmark import Launch

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compiled once and cached on disk; it releases the GIL, so that `in_bands` can run it on several threads."""
    return cast(F, numba.njit(nogil=True, cache=True)(function))


def bind(function: Callable[..., None], *args: Any) -> Launch:
    """A launch of `function(*args)`, compiled (or read from the cache) now."""
    cast(Any, function).compile(tuple(cast(Any, numba).typeof(arg) for arg in args))
    return lambda: function(*args)


def past_the_caches(builder: Any, store: Any, align: int) -> None:
    """Make a store of LLVM's a streaming one; its address has to be a multiple of `align` bytes."""
    store.align = align
    store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))


@intrinsic
def fence(_context: Any) -> Any:
    """Streaming stores are ordered before what follows."""

    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
