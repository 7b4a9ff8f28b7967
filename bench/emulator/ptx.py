"""Replace nvcc's extensions by C++: `asm` statements and `extern __shared__` arrays.

The input is preprocessed text, so that macros are expanded and lines keep their numbers.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from kernelmark.bench.emulator.instructions import Translator, UnknownInstructionError, split

#: Matches code that has to be rewritten.
FOREIGN = re.compile(rb"\basm\b|\b__asm__\b|\bextern\s+__shared__|__shared__\s+alignas")
#: An array of dynamic shared memory, once macros are expanded.
_DYNAMIC = re.compile(
    r"extern\s+(?:constinit\s+thread_local|__shared__)\s+((?:(?:__attribute__\s*\(\([^;]*?\)\)|alignas\s*\([^)]*\))\s*)*)"
    r"([^;=()\[\]]*?)\s*\b((?:__attribute__\s*\(\(.*?\)\)\s*)?)(\w+)\s*\[\s*\]\s*;"
)
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b\s*((?:volatile|__volatile__)?)\s*\(")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)|alignas\s*\([^)]*\)")


class UnknownPtxError(Exception):
    """An instruction that the emulator has no C++ for; the message is `FILE:LINE: ...`."""


class _Operand(NamedTuple):
    constraint: str
    name: str
    expression: str


def rewritten(text: str) -> str:
    """Return preprocessed text, which must include emu/asm.h, as plain C++. Raises UnknownPtxError."""
    return _without_asm(_with_pointers(text))


def _with_pointers(text: str) -> str:
    """Replace arrays of dynamic shared memory by pointers: variables inside functions, macros outside of functions."""

    def pointer(match: re.Match[str]) -> str:
        type_, name = _ATTRIBUTE.sub("", match[2]).strip(), match[4]
        value = f"static_cast<{type_} *>(emu::dyn_smem())"
        lines = "\n" * match[0].count("\n")
        if _in_function(text, match.start()):
            return f"{type_} *const {name} = {value};{lines}"
        # A macro, since the type may be a template's parameter, which is known only where the name is used.
        file, line = _place(text, match.end())
        return f'\n#define {name} ({value})\n# {line} "{file}"\n'

    return _DYNAMIC.sub(pointer, text)


def _place(text: str, at: int) -> tuple[str, int]:
    file, line, begin = "", 1, 0
    for marker in re.finditer(r'^# (\d+) "(.*)".*\n', text[:at], re.MULTILINE):
        line, file, begin = int(marker[1]), marker[2], marker.end()
    return file, line + text.count("\n", begin, at)


def _is_of_the_system(text: str, at: int) -> bool:
    begin = text.rfind("\n# ", 0, at)
    return re.match(r'\n# \d+ ".*" .*\b3\b', text[begin : text.find("\n", begin + 1)]) is not None


def _in_function(text: str, at: int) -> bool:
    """Return whether the position is inside braces other than those of namespaces."""
    depth = []
    for brace in re.finditer(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|[{}]', text[:at]):
        if brace[0] == "{":
            before = text[max(0, brace.start() - 80) : brace.start()]
            depth.append(not re.search(r'(?:\bnamespace(?:\s+[\w:]+)?|\bextern\s+"C")\s*$', before))
        elif brace[0] == "}" and depth:
            depth.pop()
    return any(depth)


def _without_asm(text: str) -> str:
    parts, at = [], 0
    while match := _ASM.search(text, at):
        if _is_of_the_system(text, match.start()):  # it names a C library function's symbol
            parts.append(text[at : match.end()])
            at = match.end()
            continue
        end = _closing(text, match.end() - 1)
        body = text[match.end() : end]
        try:
            code = _statement(body)
        except UnknownInstructionError as unknown:
            file, line = _place(text, match.start())
            raise UnknownPtxError(f"{file}:{line}: the emulator has no `{unknown}` in asm") from None
        parts += [text[at : match.start()], code, "\n" * text.count("\n", match.start(), end)]
        at = end + 1
    return "".join([*parts, text[at:]])


def _closing(text: str, opening: int) -> int:
    depth = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[()]', text[opening:]):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth == 0:
            return opening + token.start()
    raise UnknownInstructionError("asm without an end")


def _statement(body: str) -> str:
    sections = split(body, ":")
    template = "".join(_STRING.findall(sections[0])).replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')
    operands = [operand for section in sections[1:3] for operand in _operands(section)]
    outputs = len(list(_operands(sections[1]))) if len(sections) > 1 else 0
    names = {str(i): f"emu_{i}" for i in range(len(operands))}
    names |= {operand.name: f"emu_{i}" for i, operand in enumerate(operands) if operand.name}
    code = []
    for i, operand in enumerate(operands):
        number = "emu::ptx::as<unsigned long long>" if operand.constraint == "l" else ""
        kind = "auto &&" if i < outputs else "[[maybe_unused]] const auto "
        code.append(f"{kind}emu_{i} = {'' if i < outputs else number}({operand.expression});")
    return f"do {{ {' '.join(code)} {' '.join(Translator(names).code(template))} }} while (0)"


def _operands(section: str) -> Iterator[_Operand]:
    for word in split(section, ","):
        if match := re.match(r'\s*(?:\[(\w+)\])?\s*"([^"]*)"\s*(\(.*\))\s*$', word, re.DOTALL):
            yield _Operand(match[2].strip("=+&"), match[1] or "", match[3])
