"""Helpers for Numba kernels: compiling without the GIL, binding operands, and pieces of LLVM code."""

import hashlib
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from kernelmark import Launch, Unsupported, cache_folder
from kernelmark.kernels._host import Call, Compiled, registers

KEPT_S = 30 * 24 * 3600
_alloca = cast(Any, cgutils).alloca_once
F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile a function that releases the GIL, so that `in_bands` can run it on several threads; cache it on disk.

    Numba considers a cached function valid while its file is unchanged, although functions from other files are
    compiled into it. So the cache's folder is named after a hash of all sources in kernels/.
    """
    return cast(F, _cached(partial(cast(Any, numba).njit, nogil=True, no_cfunc_wrapper=True), function))


def part(function: F) -> F:
    """Let Numba inline a function into its callers, so that LLVM does not also compile it separately."""
    return cast(F, cast(Any, numba).njit(inline="always")(function))


def inlined(function: F) -> F:
    """Let LLVM inline a function into its callers, since a call would pass each array as seven words."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": True}
    return cast(F, cast(Any, numba).njit(**options)(function))


def c_function(signature: Any) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that compiles a function of C types, cached as by `jit`; the result has an `address`."""
    return lambda function: _cached(partial(cast(Any, numba).cfunc, signature, nopython=True), function)


def _cached(decorator: Callable[..., Any], function: Callable[..., Any]) -> Any:
    """Compile a function with a cache on disk, or without one if none can be written. Raises Unsupported."""
    config = cast(Any, numba).config
    if config.DISABLE_JIT:
        raise Unsupported("NUMBA_DISABLE_JIT is set, so Numba compiles nothing; unset it")
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_compiled())
    try:
        compiled = decorator(cache=True)(function)
    except (OSError, RuntimeError):  # RuntimeError if Numba finds no folder for a cache
        return decorator(cache=False)(function)
    finally:
        config.CACHE_DIR = before
    save = compiled._cache.save_overload

    def save_where_there_is_room(*words: Any) -> None:
        with suppress(OSError):
            save(*words)

    compiled._cache.save_overload = save_where_there_is_room
    return compiled


@lru_cache
def _compiled() -> Path:
    """Return the folder of Numba's cache for these sources, and remove folders unused for a month."""
    digest, here = hashlib.sha256(), Path(__file__).parent
    for source in sorted(here.rglob("*.py")):
        digest.update(f"{source.relative_to(here)}\0".encode() + source.read_bytes())
    folder = cache_folder() / "numba" / digest.hexdigest()[:20]
    with suppress(OSError):  # if nothing can be written here, Numba looks for another folder by itself
        folder.mkdir(parents=True, exist_ok=True)
        folder.touch()
        for other in folder.parent.iterdir():
            if other.stat().st_mtime < time.time() - KEPT_S:
                shutil.rmtree(other, ignore_errors=True)
    return folder


def claim(function: Callable[..., Any]) -> bool:
    """Claim the compilation of a function; return False if it was claimed before or there is no cache folder."""
    try:
        (_compiled() / f"{function.__module__}.{function.__qualname__}").touch(exist_ok=False)
    except OSError:
        return False
    return True


def get_ready() -> None:
    """Let Numba load its compiler now, instead of when it compiles the first function."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def bind(function: Callable[..., object], *args: Any) -> Launch:
    """Return a launch of `function(*args)`, compiled (or read from the cache) now."""
    kinds = tuple(cast(Any, numba).typeof(arg) for arg in args)
    cast(Any, function).compile(kinds)
    return Compiled((Call(function, args, kinds),))


def data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Return the address of an array's first element."""
    return context.make_array(kind)(context, builder, array).data


def everywhere(builder: Any, scalar: Any, vector: Any) -> Any:
    """Return a vector of type `vector` with `scalar` in all elements."""
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None))


def llvm(builder: Any, name: str, *vectors: Any) -> Any:
    """Generate a call of LLVM's intrinsic `name`, such as `fma`, on vectors, and return its result."""
    kind = vectors[0].type
    full_name = f"llvm.{name}.v{kind.count}{kind.element.intrinsic_name}"
    declare = cast(Any, cgutils).get_or_insert_function
    return builder.call(declare(builder.module, ir.FunctionType(kind, [kind] * len(vectors)), full_name), vectors)


def prefetch(builder: Any, place: Any, write: bool = True) -> None:
    """Prefetch the line at an address, which may be invalid, into the nearest cache, for writing or only for reading.

    The prefetch is temporal (locality 3), since the line may be read more than once.
    """
    address, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address, flag, flag, flag])
    declared = cast(Any, cgutils).get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(declared, [builder.bitcast(place, address), flag(int(write)), flag(3), flag(1)])


def in_registers(
    code: tuple[Any, Any, Any, Any], first: Callable[[Any], Any], step: Callable[..., Any], ahead: bool = False
) -> Any:
    """Generate code that loads vectors of `source`, applies `first` once and `step` repeatedly, and stores the vectors.

    The IR is written by hand, since LLVM would vectorise such a loop with few accumulators or not at all. code: the
    arguments of Numba's `generate`; the last is (target, source, start, a, b, number of steps). step: a function of a
    vector and of vectors filled with a and b. ahead: whether to prefetch the vectors of source and target that follow.
    """
    context, builder, signature, (target, source, begin, a, b, count) = code
    nbytes, accumulators = registers()
    itemsize = signature.args[3].bitwidth // 8
    vector = ir.VectorType(context.get_value_type(signature.args[3]), nbytes // itemsize)

    def places(argument: int, group: int = 0) -> list[Any]:
        array, skipped = (target, source)[argument], group * accumulators
        address = data(context, builder, signature.args[argument], array)
        starts = (builder.add(begin, begin.type((skipped + i) * vector.count)) for i in range(accumulators))
        return [builder.bitcast(builder.gep(address, [at]), vector.as_pointer()) for at in starts]

    factors = [everywhere(builder, factor, vector) for factor in (a, b)]
    values = [_alloca(builder, vector) for _ in range(accumulators)]  # LLVM keeps these in registers
    for register, place in zip(values, places(1), strict=True):
        builder.store(first(builder.load(place, align=itemsize)), register)
    if ahead:  # steps take longer than the next group's loads, but out-of-order execution does not reach that far
        for place in (*places(1, 1), *places(0, 1)):
            prefetch(builder, place)
    with cgutils.for_range(builder, count):
        for register in values:
            builder.store(step(builder.load(register), *factors), register)
    for register, place in zip(values, places(0), strict=True):
        builder.store(builder.load(register), place, align=itemsize)
    return context.get_dummy_value()


def past_the_caches(builder: Any, store: Any, align: int) -> None:
    """Make an LLVM store a streaming store; its address must be a multiple of `align` bytes."""
    store.align = align
    store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))


def _move(_context: Any, to: Any, at: Any, source: Any, begin: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, origin = (
            builder.gep(data(context, builder, signature.args[i], args[i]), [args[i + 1]]) for i in (0, 2)
        )
        cast(Any, cgutils).raw_memcpy(builder, target, origin, args[4], signature.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(to, at, source, begin, count), generate


#: `move(to, at, source, begin, count)`: to[at + i] = source[begin + i] for i < count, without creating views.
move = cast(Any, intrinsic(_move))


def _clear(_context: Any, to: Any, at: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = builder.gep(data(context, builder, signature.args[0], args[0]), [args[1]])
        nbytes = builder.mul(args[2], args[2].type(signature.args[0].dtype.bitwidth // 8))
        cast(Any, cgutils).memset(builder, target, nbytes, 0)
        return context.get_dummy_value()

    return types.void(to, at, count), generate


#: `clear(to, at, count)`: to[at + i] = 0 for i < count; `count` must not be negative.
clear = cast(Any, intrinsic(_clear))


@intrinsic
def fence(_context: Any) -> Any:
    """Order streaming stores before later accesses."""

    def generate(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
