"""Parse the checker's reports, find their lines in the .cu file, and apply the waivers in that file."""

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmark.bench.emulator.build import HERE
from kernelmark.bench.report.format import count

#: `// emulator: allow race: last block reads what the fence before the ticket published`
WAIVER = re.compile(r"//\s*emulator:\s*allow\s+([\w-]+)\s*:?\s*(.*)")
#: The mangled name of a function that copies or moves a struct.
_COPY = re.compile(r"(?:aS|C\d)E(?:RK|O)S\w*_$")


@dataclass(frozen=True)
class Thread:
    """A thread of a launch: the indices of its block, and its indices in the block."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    def __str__(self) -> str:
        return f"block {self.block} thread {self.thread}"


@dataclass(frozen=True)
class Diagnostic:
    """A kind of fault at a line. other: the second thread of a race or divergence; count: the number of occurrences."""

    kind: str
    message: str
    file: str
    line: int
    who: Thread
    count: int = 1
    other: Thread | None = None
    other_line: int = 0

    def __str__(self) -> str:
        where = f"{Path(self.file).name}:{self.line}" if self.file else "(no line)"
        at_line = f" (line {self.other_line})" if self.other_line else ""
        against = f" against {self.other}{at_line}" if self.other else ""
        return f"{where}: {self.kind}: {self.message}; {self.who}{against}, {count(self.count, 'time')}"


def _thread(text: str) -> Thread:
    a, b, c, x, y, z = map(int, text.split())
    return Thread((a, b, c), (x, y, z))


def located(program: Path, lines: Sequence[str]) -> list[Diagnostic]:
    """Return the worker's reports with source lines, not addresses. Reports of the same kind and line are merged."""
    raw = [line.split("\t")[1:] for line in lines]
    places = lines_of(program, sorted({pc for _, _, *pcs in (words[:4] for words in raw) for pc in pcs if pc != "0"}))
    merged: dict[tuple[str, str, int], Diagnostic] = {}
    for kind, message, pc, other_pc, named, number, times, who, other in raw:
        file, line = places.get(pc, (named, int(number)))
        threads = _thread(who), _thread(other) if other else None
        other_line = places.get(other_pc, ("", 0))[1]
        report = Diagnostic(kind, message, file, line, threads[0], int(times), threads[1], other_line)
        same = merged.get((kind, file, line))
        merged[kind, file, line] = replace(same, count=same.count + report.count) if same else report
    return list(merged.values())


def lines_of(program: Path, addresses: list[str]) -> dict[str, tuple[str, int]]:
    """Return each address's file and line; for inlined calls, the innermost ones outside the emulator's headers.

    A copy of a struct belongs to the line that requests the copy, not to the struct's declaration.
    """
    if not addresses:
        return {}
    command = ["addr2line", "-a", "-i", "-f", "-e", str(program), *addresses]
    answer = iter(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())
    lines: dict[str, tuple[str, int]] = {}
    address, is_copy = "", False
    for function in answer:
        if function.startswith("0x"):
            address, is_copy = f"{int(function, 16):x}", False
        elif not (place := next(answer)).startswith((str(HERE / "include"), "?")) and (is_copy or address not in lines):
            file, _, number = place.split(" (")[0].rpartition(":")
            lines[address] = (file, int(number) if number.isdigit() else 0)
            is_copy = bool(_COPY.search(function))
    return lines


def unwaived(reports: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the reports that no waiver allows. Raises ValueError for a waiver that gives no reason.

    A waiver is a comment on the reported line or alone on the line above: `// emulator: allow KIND: reason`.
    """
    return [report for report in reports if not _is_waived(report)]


def _is_waived(report: Diagnostic) -> bool:
    path = Path(report.file)
    if not path.is_file():
        return False
    lines = dict(enumerate(path.read_text().splitlines(), 1))
    line, above = (lines.get(number, "") for number in (report.line, report.line - 1))
    candidates = [line, above if above.lstrip().startswith("//") else ""]
    for match in filter(None, map(WAIVER.search, candidates)):
        if not match[2].strip():
            remedy = f"write it after `allow {match[1]}:`"
            raise ValueError(f"{path.name}:{report.line}: the waiver gives no reason; {remedy}")
        if match[1] == report.kind:
            return True
    return False
