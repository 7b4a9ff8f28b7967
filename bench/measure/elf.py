"""Reading a cubin, which is a 64-bit ELF file: sections, the attributes of kernels, and relocations."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

# Names of the attributes as in cuobjdump -elf (EIATTR_...).
EIATTR_MAX_THREADS = 0x05
EIATTR_KPARAM_INFO = 0x17
_EIFMT_SVAL = 0x04  # attribute with a size and that many bytes; the others carry two bytes


class ElfSection(NamedTuple):
    """Where a section lies in the file, and its size in bytes."""

    offset: int
    size: int


def elf_sections(code: bytes) -> dict[str, ElfSection]:
    """The sections of a 64-bit ELF file by name."""
    (table,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    headers = [struct.unpack_from("<I20xQQ", code, table + size * i) for i in range(count)]  # name, offset, size
    strings = headers[names][1]
    return {_string(code, strings + name): ElfSection(offset, length) for name, offset, length in headers}


def elf_attributes(code: bytes, section: str) -> dict[int, bytes]:
    """The attributes of an `.nv.info` section by their code; of one that repeats, the last."""
    return dict(_attributes(code, section))


def elf_parameters(code: bytes, symbol: str) -> list[int]:
    """The sizes in bytes of a kernel's parameters, in their order."""
    found = (value for name, value in _attributes(code, f".nv.info.{symbol}") if name == EIATTR_KPARAM_INFO)
    infos = (struct.unpack("<4xHHI", value) for value in found)  # which one, its offset, and flags below its size
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
    """The symbols that the variables km_entry_0, km_entry_1, ... point to, `count` of them."""
    sections = elf_sections(code)
    table, strings = sections[".symtab"], sections[".strtab"]
    entries = [struct.unpack_from("<I4xQ", code, table.offset + i) for i in range(0, table.size, 24)]
    names = [_string(code, strings.offset + name) for name, _ in entries]
    addresses = {name: value for name, (_, value) in zip(names, entries, strict=True)}
    kind, width = ("rela", 24) if ".rela.nv.global.init" in sections else ("rel", 16)  # from sm_90 on, and before
    relocations = sections[f".{kind}.nv.global.init"]
    targets = (struct.unpack_from("<QQ", code, relocations.offset + i) for i in range(0, relocations.size, width))
    pointee = {offset: names[info >> 32] for offset, info in targets}
    return [pointee[addresses[f"km_entry_{i}"]] for i in range(count)]


def _string(code: bytes, offset: int) -> str:
    return code[offset : code.index(b"\0", offset)].decode()
