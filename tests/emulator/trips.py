"""Count how often loops go round in cases of a kernel, whose source is compiled with a counter in each loop."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from unittest import mock

from emulator.mutation import blank_comments, closing
from emulator.proof import included
from kernelmark.bench.emulator.build import source_folder
from kernelmark.bench.emulator.sweep import ROUNDS, EmulatedCase, entries, findings
from kernelmark.bench.plan.kernel import Tile

#: Stands before the text of a .cu: the most trips of each loop, which are appended to a file at the end.
_COUNTERS = """#include <cstdio>
#include <cstdlib>
struct EmuTrips {
  static inline unsigned most[NUMBER];
  __attribute__((noinline, no_sanitize("thread"))) static void reach(unsigned number, unsigned trips) {
    if (trips > most[number]) most[number] = trips;
  }
  unsigned number, trips = 0;
  bool is_first = true;
  bool once() { return is_first && !(is_first = false); }
  bool turn() { return reach(number, ++trips), true; }
};
static struct EmuTripsEnd {
  ~EmuTripsEnd() {
    std::FILE *file = std::fopen(std::getenv("EMULATOR_TRIPS"), "a");
    for (unsigned trips : EmuTrips::most) std::fprintf(file, "%u ", trips);
    std::fclose(file);
  }
} emu_trips_end;
"""
_HEAD = re.compile(r"\bfor ?\(")
#: Names of the code's own in a bound: those of templates and constants are in capitals.
_OWN_NAME = re.compile(r"\b[a-z]\w*\b(?!:)")
_GRID_STRIDE = re.compile(r"gridDim\.x(?! \* blockDim)|\bstride\(\)|\bround\b|\bown\.step\b")
#: One trip at most, or nearly always: the rest of a stride in gemm/skinny.cu, and the emulator's own check in grid.cuh.
_ONCE = ("k0 < end", "taken && i < min(before, step)")
_RING = re.compile(r"^steps?\b|^nth < stripes$")


class Loop(NamedTuple):
    """A `for` with three parts, by the file below `cuda/` and the line. A `while` waits, and is left out."""

    file: str
    line: int
    condition: str
    step: str

    def least(self, tile: Tile) -> int:
        """Return the trips that the sweep owes it: two, more of blocks that persist or of a ring, none of a constant.

        The least for a ring of stages is two rounds of it.
        """
        bound = re.sub(r"^\w+|\bunsigned\b|\bsizeof\b", "", self.condition)
        if "STAGES" not in self.condition and _RING.search(self.condition) and getattr(tile, "STAGES", 1) > 1:
            return tile.STAGES * (1 if self.step.endswith("= 2") else 2)
        if self.condition and not _OWN_NAME.search(bound):
            return 0
        if self.condition in _ONCE:
            return 1
        return ROUNDS if _GRID_STRIDE.search(self.step) else 2


class Trips(NamedTuple):
    """The most trips of a loop beside the least that it has to have, and the case that has them."""

    trips: int
    least: int
    case: EmulatedCase

    @property
    def beyond(self) -> tuple[bool, int]:
        """Return by how much the trips exceed the least, after whether there are any."""
        return self.trips > 0, self.trips - self.least


def trips(cases: Sequence[EmulatedCase]) -> dict[Loop, Trips]:
    """Return what each loop of one kernel that is entered has, or that is written in the kernel's own .cu."""
    source = cases[0].kernel.source
    texts, loops = _counted(included(source))
    folder = source_folder(texts | {source: _COUNTERS.replace("NUMBER", str(len(loops))) + texts[source]})
    found = {loop: Trips(0, 1, cases[0]) for loop in loops if loop.file == source}
    names = entries(list(cases))
    for case in cases:
        with tempfile.NamedTemporaryFile() as file, mock.patch.dict(os.environ, EMULATOR_TRIPS=file.name):
            assert not list(findings(case, names, folder))
            counts = map(int, file.read().split())
        for loop, count in zip(loops, counts, strict=True):
            reached = Trips(count, loop.least(case.tile), case)
            if count and (loop not in found or reached.beyond > found[loop].beyond):
                found[loop] = reached
    return found


def _counted(texts: Mapping[str, str]) -> tuple[dict[str, str], list[Loop]]:
    loops: list[Loop] = []
    changed = {}
    for file, text in texts.items():
        end, parts = 0, []
        for start, begin, semicolon, close in _heads(text):
            number, condition = len(loops), text[begin:semicolon].strip()
            loops.append(Loop(file, text.count("\n", 0, start) + 1, condition, text[semicolon + 1 : close].strip()))
            parts += [text[end:start], f"for (EmuTrips emu_trips{{{number}}}; emu_trips.once();) ", text[start:begin]]
            parts += [f" ({condition or 'true'}) && emu_trips.turn()"]
            end = semicolon
        changed[file] = "".join(parts) + text[end:]
    return changed, loops


def _heads(text: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield where each loop begins, its condition begins and ends, and its head ends."""
    code = blank_comments(text)
    for head in _HEAD.finditer(code):
        opening = head.end() - 1
        close = closing(code, opening)
        semicolons = [at for at in range(opening, close) if code[at] == ";"]
        if semicolons:  # not over all of an array
            yield head.start(), semicolons[0] + 1, semicolons[1], close
