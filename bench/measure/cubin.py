"""Read sections, kernel attributes and relocations from a cubin, which is a 64-bit ELF file."""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kernelmark.bench.plan.errors import UsageError

# Names of the attributes as in cuobjdump -elf (EIATTR_...).
EIATTR_MAX_THREADS = 0x05
EIATTR_KPARAM_INFO = 0x17
_EIFMT_SVAL = 0x04  # the form of an attribute with a size and that many bytes; other forms carry two bytes


class ElfSection(NamedTuple):
    """A section's offset in the file and its size, in bytes."""

    offset: int
    size: int


def elf_sections(code: bytes) -> dict[str, ElfSection]:
    """Return the sections of a 64-bit ELF file by name."""
    (table,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    headers = [struct.unpack_from("<I20xQQ", code, table + size * i) for i in range(count)]  # name, offset, size
    strings = headers[names][1]
    return {_string(code, strings + name): ElfSection(offset, length) for name, offset, length in headers}


def elf_parameters(code: bytes, symbol: str) -> list[int]:
    """Return the sizes of a kernel's parameters in bytes, in order."""
    values = (value for name, value in _attributes(code, f".nv.info.{symbol}") if name == EIATTR_KPARAM_INFO)
    infos = (struct.unpack("<4xHHI", value) for value in values)  # index, offset, size << 18 | flags
    return [info >> 18 for _, _, info in sorted(infos)]


def _attributes(code: bytes, section: str) -> Iterator[tuple[int, bytes]]:
    position, size = elf_sections(code).get(section, ElfSection(0, 0))
    end = position + size
    while position < end:
        form, attribute, length = struct.unpack_from("<BBH", code, position)
        position += 4
        if form == _EIFMT_SVAL:
            yield attribute, code[position : position + length]
            position += length


def pointees(code: bytes, count: int) -> list[str]:
    """Return the `count` symbols that the variables km_entry_0, km_entry_1, ... point to."""
    sections = elf_sections(code)
    table, strings = sections[".symtab"], sections[".strtab"]
    entries = [struct.unpack_from("<I4xQ", code, table.offset + i) for i in range(0, table.size, 24)]
    names = [_string(code, strings.offset + name) for name, _ in entries]
    addresses = {name: value for name, (_, value) in zip(names, entries, strict=True)}
    kind, width = ("rela", 24) if ".rela.nv.global.init" in sections else ("rel", 16)  # rela from sm_90 on, rel before
    relocations = sections[f".{kind}.nv.global.init"]
    targets = (struct.unpack_from("<QQ", code, relocations.offset + i) for i in range(0, relocations.size, width))
    pointee = {offset: names[info >> 32] for offset, info in targets}
    return [pointee[addresses[f"km_entry_{i}"]] for i in range(count)]


def _string(code: bytes, offset: int) -> str:
    return code[offset : code.index(b"\0", offset)].decode()


class Resources(msgspec.Struct, frozen=True):
    """The resources that a thread or a block of a kernel uses. max_threads: the kernel's launch bound, or 1024.

    constant_bytes: `__constant__` variables and literals, without the parameters; spill_bytes: spill stores and loads.
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
    """Return the resources of one kernel of a cubin. Raises UsageError if the log does not have them."""
    used = re.search(_PTXAS.format(symbol=re.escape(symbol)), log, re.DOTALL)
    if not used:
        raise UsageError(f"{symbol}: the compiler's log has no resources; expected the lines of ptxas -v:\n{log}")

    def rest(unit: str) -> int:
        match = re.search(rf"(\d+) bytes {unit}", used["rest"])
        return int(match[1]) if match else 0

    sections = elf_sections(code)
    constants = (sections.get(name) for name in (".nv.constant3", f".nv.constant2.{symbol}"))
    bounds = dict(_attributes(code, f".nv.info.{symbol}")).get(EIATTR_MAX_THREADS)
    return Resources(
        registers=int(used["registers"]),
        static_shared_bytes=rest("smem"),
        stack_bytes=rest("cumulative stack size") or int(used["frame"]),
        spill_bytes=int(used["stores"]) + int(used["loads"]),
        constant_bytes=sum(section.size for section in constants if section),
        max_threads=struct.unpack_from("<I", bounds)[0] if bounds else 1024,
    )
