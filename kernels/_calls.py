"""Call compiled functions without the interpreter, so that threads need not wait for the GIL.

Threads that wait for the GIL at the beginning of a launch fall asleep, and waking each takes 50 us on a virtual
machine. A call is stored as three addresses: of a function that loads the arguments and passes them on, of the compiled
function, and of the arguments, which take eight bytes each and are flattened as Numba flattens them.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from kernelmark.kernels._host import Compiled

WORD = ir.IntType(64)


class Table(NamedTuple):
    """A list of calls, three words each, at `address`. calls: their number. objects: keeps their data alive."""

    address: int
    calls: int
    objects: tuple[Any, ...]


def table(compiled: Compiled) -> Table:
    """Return the table of a launch's calls."""
    objects, words = [], []
    for call in compiled.calls:
        overload = cast(Any, call.function).overloads[call.kinds]
        given = np.frombuffer(b"".join(_flat(call.kinds, call.args)), np.int64)
        address = overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name)
        words.append((_passes(call.kinds)[0], address, given.ctypes.data))
        objects.append((given, call))
    lying = np.array(words, np.int64).reshape(-1, 3)
    return Table(lying.ctypes.data, len(words), (lying, *objects))


def _flat(kinds: Any, values: Any) -> Iterator[bytes]:
    """Yield arguments as Numba flattens them, in words of eight bytes."""
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, types.Array):
            of_array = (0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)
            yield struct.pack(f"<{len(of_array)}q", *of_array)
        elif isinstance(kind, types.BaseTuple):
            yield from _flat(kind, value)
        elif isinstance(kind, types.NoneType):
            yield bytes(8)
        elif isinstance(kind, types.Float):
            yield np.asarray(value, kind.name).tobytes().ljust(8, b"\0")
        else:
            yield struct.pack("<q", int(value))


@lru_cache
def _passes(kinds: Any) -> tuple[int, Any]:
    """Return the address of an adapter that calls functions with arguments of these types, and its library."""
    context = cpu_target.target_context
    kind = context.call_conv.get_function_type(types.none, kinds)
    library = context.codegen().create_library("kernelmark")
    module = library.create_ir_module("kernelmark")
    name = f"kernelmark_{abs(hash(kinds))}"
    function = ir.Function(module, ir.FunctionType(ir.IntType(32), (WORD, WORD)), name)
    builder = ir.IRBuilder(function.append_basic_block())
    words = builder.inttoptr(function.args[1], WORD.as_pointer())
    values = [builder.alloca(pointer.pointee) for pointer in kind.args[:2]]  # for the returned value and the exception
    for i, wanted in enumerate(kind.args[2:]):
        place = builder.gep(words, [WORD(i)])
        values.append(builder.load(builder.bitcast(place, wanted.as_pointer())))
    builder.ret(builder.call(builder.inttoptr(function.args[0], kind.as_pointer()), values))
    with global_compiler_lock:
        library.add_ir_module(module)
        library.finalize()
    return library.get_pointer_to_function(name), library
