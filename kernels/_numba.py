"""What our Numba kernels share: compiled serially without the GIL, bound to their operands, stores past the caches."""

import hashlib
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from kernelmark import Launch
from kernels._cache import cache_folder

KEPT_S = 30 * 24 * 3600
F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compiled once and cached on disk; it releases the GIL, so that `in_bands` can run it on several threads.

    Numba holds a cached function for fresh as long as its own file is as it was, though it has compiled those that it
    calls into it. So the cache belongs to the whole of our source.
    """
    config = cast(Any, numba).config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_compiled())
    try:
        return cast(F, numba.njit(nogil=True, cache=True)(function))
    finally:
        config.CACHE_DIR = before


@lru_cache
def _compiled() -> Path:
    """The folder for what is compiled from these sources; those of sources that are a month gone are removed."""
    digest, here = hashlib.sha256(), Path(__file__).parent
    for source in sorted(here.rglob("*.py")):
        digest.update(f"{source.relative_to(here)}\0".encode() + source.read_bytes())
    folder = cache_folder() / "numba" / digest.hexdigest()[:20]
    with suppress(OSError):  # where nothing can be written, Numba looks for another place by itself
        folder.mkdir(parents=True, exist_ok=True)
        folder.touch()
        for other in folder.parent.iterdir():
            if other.stat().st_mtime < time.time() - KEPT_S:
                shutil.rmtree(other, ignore_errors=True)
    return folder


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
