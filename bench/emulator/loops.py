"""Count how often loops go round: put a counter into each loop of a preprocessed text."""

import json
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
#: A `while` that compares sizes; others wait for something.
_COMPARES = re.compile(r"^[^()]*[<>][^()]*$")


class Loop(NamedTuple):
    """A loop of the source: `head` is what its parentheses hold, once macros are expanded."""

    file: str
    line: int
    head: str


def own_text() -> bytes:
    """Return this module's text, which programs that count trips depend on."""
    return Path(__file__).read_bytes()


def counted(text: str) -> str:
    """Return the text with a counter in each `for` of three parts, and in each `while` that compares sizes.

    Loops in headers of the host and of the emulator are left as they are.
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
    """Return where the condition of a loop that is counted begins and ends, and the text of its head."""
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
            return None  # over all of an array
        begin, until = semicolons[0] + 1, semicolons[1]
    elif re.match(r"\s*;", text[close + 1 :]) or not _COMPARES.match(text[begin:until]):
        return None  # the end of a `do`, or a wait
    if _DECLARED.match(text[begin:until]):
        return None
    return begin, until, " ".join(re.sub(_MARKER, "", text[loop.end() : close], flags=re.MULTILINE).split())
