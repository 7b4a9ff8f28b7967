"""Count the multiply-adds of a kernel: find the fused ones in the assembly of g++, and count them when they run.

A multiply-add makes no call that the runtime could answer, as accesses to memory do.
"""

import platform
import re
from pathlib import Path

#: Make g++ fuse the products that nvcc fuses, those that are added or subtracted, into scalar FMA3 instructions. The
#: counting code uses the stack, so nothing may be stored below the pointer. By default, g++ 13 and later do not fuse
#: sums over a loop, which is faster on CPUs.
FLAGS = (
    *("-mfma", "-ffp-contract=fast", "-fexpensive-optimizations", "-mno-red-zone"),
    "--param=avoid-fma-max-bits=0",
)
_MULTIPLY_ADD = re.compile(r"^\tvfn?m(?:add|sub)\d{3}s[sd]\t", re.MULTILINE)
#: No instruction here changes the flags, which the surrounding code may test next.
_COUNTED = """.Lemu_multiply_add_{number}:
	pushq	%rax
	pushq	%rcx
	movq	emu_reached(%rip), %rax
	movl	{offset}(%rax), %ecx
	leal	1(%rcx), %ecx
	movl	%ecx, {offset}(%rax)
	popq	%rcx
	popq	%rax
"""


def cannot_count() -> str | None:
    """Return why multiply-adds cannot be counted on this processor, or None."""
    if platform.machine() != "x86_64":
        return f"multiply-adds are counted on x86-64 only, not on {platform.machine()}"
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists() or " fma " not in cpuinfo.read_text():
        return "multiply-adds are counted on processors with FMA3 only"
    return None


def own_text() -> bytes:
    """Return this module's text, which counting programs depend on."""
    return Path(__file__).read_bytes()


def counted(assembly: str) -> str:
    """Return the assembly with a counter before each multiply-add, and a table of their places."""
    places: list[str] = []

    def with_counter(found: re.Match[str]) -> str:
        number = len(places)
        places.append(f"	.quad	.Lemu_multiply_add_{number}\n")
        return _COUNTED.format(number=number, offset=4 * number) + found[0]

    text = _MULTIPLY_ADD.sub(with_counter, assembly) if cannot_count() is None else assembly
    table = "\n\t.section .rodata\n\t.balign 8\n\t.globl emu_multiply_add_count\nemu_multiply_add_count:\n"
    table += f"	.quad	{len(places)}\n	.globl emu_multiply_adds\nemu_multiply_adds:\n"
    return text + table + "".join(places)
