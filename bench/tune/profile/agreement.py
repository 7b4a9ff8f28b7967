"""The emulator's counts held against the machine code: whether the main loop does the same in both.

The emulator executes what g++ makes of a source, the device what ptxas makes of it. Where they differ, for instance
because nvcc keeps in a register what g++ loads again, the counts are those of the source.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernelmark.bench.tune.profile.counted import Counts
from kernelmark.bench.tune.profile.sass import LaunchCode, Sass

#: Trips of a warp below which what it does outside of the loop hides a difference inside.
LEAST_TRIPS = 16
_WARP = 32
#: The names of the emulator's counts by opcode: whether loads, stores or copies, and the word before the bytes.
_NAMES = {
    "LDS": ("loads", "shared"),
    "LDG": ("loads", "global"),
    "STS": ("stores", "shared"),
    "LDGSTS": ("copies", "copy"),
}


class Agreement(NamedTuple):
    """trips: of the main loop by all warps. differing: what differs. reason: why nothing was compared, if so."""

    trips: float = 0.0
    differing: tuple[str, ...] = ()
    reason: str = ""

    @property
    def words(self) -> str:
        """Return the outcome as a sentence."""
        if self.reason:
            return f"Source level: the counts were not compared with the machine code, since {self.reason}"
        if self.differing:
            return f"Source level: in the main loop {'; '.join(self.differing)}"
        return f"The counts agree with the machine code over {self.trips:,.0f} trips of the main loop"


def agreement(counts: Counts, sass: Sass) -> Agreement:
    """Return whether multiply-adds, loads, stores and copies by width are those of the loop times its trips.

    A warp executes what lies outside of the loop about once, and leaves out parts of its first and last trips; a
    difference of as many instructions is none.
    """
    if len(sass.functions) != 1:
        return Agreement(reason=f"{len(sass.functions)} functions are launched, and the counts are of all of them")
    (function,) = sass.functions
    loop, found = function.loop, counts.total
    if loop is None or not loop.mix.get("FFMA") or not found.fma:
        return Agreement(reason="no main loop of FFMA gives the number of trips")
    warps = function.blocks * -(-function.threads // _WARP)
    trips = found.fma / loop.mix["FFMA"]
    if trips < LEAST_TRIPS * warps:
        return Agreement(reason=f"a warp makes {trips / warps:.1f} trips on this problem; {LEAST_TRIPS} tell")
    return Agreement(trips, tuple(_differing(counts, function, trips, warps)))


def _differing(counts: Counts, function: LaunchCode, trips: float, warps: int) -> Iterator[str]:
    assert function.loop is not None
    inside, everywhere = function.loop.widths, function.code.widths
    for name, (kind, word) in _NAMES.items():
        emulated: Mapping[str, int] = getattr(counts.total, kind)
        widths = {int(key.split()[1]) * 8 for key in emulated if key.startswith(f"{word} ")}
        widths |= {int(key.split()[1]) for key in everywhere if key.startswith(f"{name} ")}
        for bits in sorted(widths):
            number = emulated.get(f"{word} {bits // 8}", 0)
            each, all_code = inside.get(f"{name} {bits}", 0), everywhere.get(f"{name} {bits}", 0)
            if abs(number - each * trips) > (all_code + each) * warps:
                yield f"{number / trips:.2f} {name} of {bits // 8} bytes counted a trip, the machine code has {each}"
