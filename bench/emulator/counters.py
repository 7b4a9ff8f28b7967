"""Insert counters into a kernel's text, for iterations of loops, and into its assembly, for fused multiply-adds.

Accesses to memory call the runtime, which counts them; loops and multiply-adds make no such call.
"""

import json
import platform
import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
_MARKER = r'^# \d+ "(?P<file>[^"\n]*)"(?P<flags>[ \d]*)$'
_TOKEN = re.compile(
    rf'{_MARKER}|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|\b(?P<kind>for|while)\s*\(|[()\[\]{{}};]', re.MULTILINE
)
#: A variable that is declared in a condition.
_DECLARED = re.compile(r"\s*(?:const\s+)?[\w:]+[\s*&]+\w+\s*=[^=]")
#: The condition of a `while` that compares sizes; any other `while` waits for something.
_COMPARES = re.compile(r"^[^()]*[<>][^()]*$")


class Loop(NamedTuple):
    """A loop of the source. head: the text in its parentheses, with macros expanded."""

    file: str
    line: int
    head: str


def with_trips(text: str) -> str:
    """Return the text with a counter in each three-part `for` loop, and in each `while` loop with `<` or `>`.

    Range-based loops, and loops in headers of the system and of the emulator, are not changed.
    """
    parts, end, is_own = list[str](), 0, False
    for token in _TOKEN.finditer(text):
        if (file := token["file"]) is not None:
            is_own = not (" 3" in token["flags"] or file.startswith(("<", f"{HERE}/")))
        elif is_own and token["kind"] and token.start() >= end and (part := _condition(text, token)):
            begin, until, head = part
            counter = f"for (emu::Trips emu_trips{{{json.dumps(head, ensure_ascii=False)}}}; emu_trips.once();) "
            condition = text[begin:until]
            parts += [text[end : token.start()], counter, text[token.start() : begin]]
            parts.append(f"({condition if condition.strip() else 'true'}) && emu_trips.turn()")
            end = until
    return "".join([*parts, text[end:]])


def _condition(text: str, loop: re.Match[str]) -> tuple[int, int, str] | None:
    """Return start and end of a loop's condition and the text of its head, or None if the loop is not counted."""
    depth, semicolons, close = 1, list[int](), 0
    for token in _TOKEN.finditer(text, loop.end()):
        depth += (token[0][-1] in "([{") - (token[0] in (")", "]", "}"))
        if depth == 0:
            close = token.start()
            break
        if depth == 1 and token[0] == ";":
            semicolons.append(token.start())
    begin, until = loop.end(), close
    if loop["kind"] == "for":
        if len(semicolons) != 2:
            return None  # a range-based loop
        begin, until = semicolons[0] + 1, semicolons[1]
    elif re.match(r"\s*;", text[close + 1 :]) or not _COMPARES.match(text[begin:until]):
        return None  # the end of a `do`, or a wait
    if _DECLARED.match(text[begin:until]):
        return None
    return begin, until, " ".join(re.sub(_MARKER, "", text[loop.end() : close], flags=re.MULTILINE).split())


#: Make g++ fuse products that are added or subtracted into scalar FMA3 instructions, as nvcc does. The counting code
#: uses the stack, so nothing may be stored below the stack pointer. By default, g++ 13 and later do not fuse sums over
#: a loop, since that is faster on CPUs.
FLAGS = ("-mfma", "-ffp-contract=fast", "-fexpensive-optimizations", "-mno-red-zone", "--param=avoid-fma-max-bits=0")
_MULTIPLY_ADD = re.compile(r"^\tvfn?m(?:add|sub)\d{3}s[sd]\t", re.MULTILINE)
#: No instruction in this text changes the flags, since the code after it may test them.
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


def with_multiply_adds(assembly: str) -> str:
    """Return the assembly with a counter before each multiply-add, and with a table of the multiply-adds' addresses."""
    places: list[str] = []

    def with_counter(match: re.Match[str]) -> str:
        number = len(places)
        places.append(f"	.quad	.Lemu_multiply_add_{number}\n")
        return _COUNTED.format(number=number, offset=4 * number) + match[0]

    text = _MULTIPLY_ADD.sub(with_counter, assembly) if cannot_count() is None else assembly
    table = "\n\t.section .rodata\n\t.balign 8\n\t.globl emu_multiply_add_count\nemu_multiply_add_count:\n"
    table += f"	.quad	{len(places)}\n	.globl emu_multiply_adds\nemu_multiply_adds:\n"
    return text + table + "".join(places)
