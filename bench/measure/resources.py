"""What a kernel takes of a multiprocessor.

Registers, shared memory, stack and spills come from `ptxas -v` (spills stand nowhere else), launch bounds and constants
from the cubin's ELF.
"""

import re
import struct

import msgspec

from kernelmark.bench.measure.elf import EIATTR_MAX_THREADS, elf_attributes, elf_sections
from kernelmark.bench.plan.errors import UsageError

_MAX_THREADS = 1024


class Resources(msgspec.Struct, frozen=True):
    """What one thread or block of a kernel takes. max_threads: its launch bound, or 1024.

    constant_bytes: `__constant__` variables and literals, without the parameters; spill_bytes: stores and loads.
    """

    registers: int
    static_shared_bytes: int
    stack_bytes: int
    spill_bytes: int
    constant_bytes: int
    max_threads: int


_PTXAS = (
    r"Compiling entry function '{symbol}' for .*?Function properties for {symbol}\s.*?"
    r"(?P<frame>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)


def resources_of(code: bytes, symbol: str, log: str) -> Resources:
    """Return the resources of one kernel of a cubin. Raises UsageError where the log does not have them."""
    used = re.search(_PTXAS.format(symbol=re.escape(symbol)), log, re.DOTALL)
    if not used:
        raise UsageError(f"{symbol}: the compiler's log has no resources; expected the lines of ptxas -v:\n{log}")

    def rest(unit: str) -> int:
        found = re.search(rf"(\d+) bytes {unit}", used["rest"])
        return int(found[1]) if found else 0

    sections = elf_sections(code)
    constants = (sections.get(name) for name in (".nv.constant3", f".nv.constant2.{symbol}"))
    bounds = elf_attributes(code, f".nv.info.{symbol}").get(EIATTR_MAX_THREADS)
    return Resources(
        registers=int(used["registers"]),
        static_shared_bytes=rest("smem"),
        stack_bytes=rest("cumulative stack size") or int(used["frame"]),
        spill_bytes=int(used["stores"]) + int(used["loads"]),
        constant_bytes=sum(section.size for section in constants if section),
        max_threads=struct.unpack_from("<I", bounds)[0] if bounds else _MAX_THREADS,
    )
