"""The modes of measuring: their effects on calls, the kernels that they refuse, and their descriptions."""

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # commands read the modes before they import anything large
    from kernelmark.bench.plan.kernel import Kernel

#: The maximum number of operand sets; if more were needed, the cache is evicted instead.
MAX_SETS = 32
#: Operands of this many times the last-level cache's size need no second set: at most 1/32 of them stays in the cache.
AMPLE = 32


class Does(NamedTuple):
    """The effect of a mode: in words for help, in a sentence for reports, and as flags.

    from_memory: several copies of the operands are used in turn, so operands come from memory, whose bandwidth bounds
    every row; otherwise one copy stays in a cache, whose bandwidth bounds the row. replays: launches are captured into
    a CUDA graph that is replayed. times: verified kernels are timed, too.
    """

    words: str
    sentence: str
    from_memory: bool = False
    replays: bool = False
    times: bool = True


class Rotation(NamedTuple):
    """The number of copies of the operands to use in turn, and whether the cache must be evicted as well."""

    sets: int
    evict: bool


class Mode(StrEnum):
    """How a case is measured."""

    COLD = "cold"
    HOT = "hot"
    GRAPH = "graph"
    VERIFY = "verify"

    @property
    def does(self) -> Does:
        """Return the description of the mode."""
        return DOES[self]

    def rotation(self, footprint_bytes: int, llc_bytes: int, touched_bytes: int | None = None) -> Rotation:
        """Return how many copies of the operands to use in turn, so that each has left the cache before its next use.

        touched_bytes: the part of a copy that a call reads or writes; by default all of it. The touched parts of the
        other copies fill at least twice the last-level cache. If that takes more than MAX_SETS copies, or more memory
        than four caches, the cache is evicted. One copy is enough if operands may stay in a cache, or are so large that
        almost none of them stay.
        """
        touched = footprint_bytes if touched_bytes is None else touched_bytes
        if not self.does.from_memory:
            return Rotation(1, False)
        if footprint_bytes >= AMPLE * llc_bytes:
            return Rotation(1, touched < AMPLE * llc_bytes)
        wanted = 1 + -(-2 * llc_bytes // touched)
        sets = min(MAX_SETS, wanted, 1 + -(-4 * llc_bytes // footprint_bytes))
        return Rotation(sets, sets < wanted)

    def refuses(self, kernel: "Kernel") -> str | None:
        """Return why the kernel cannot be measured in this mode, or None."""
        if not self.does.replays:
            return None
        if kernel.device == "cpu":
            return f"{kernel.id} runs on the CPU, but {self} mode replays captured CUDA launches; use --mode hot"
        if kernel.synchronises:
            return f"{kernel.id} synchronises with the host, which CUDA graphs prohibit; use --mode hot"
        return None


DOES = {
    Mode.COLD: Does(
        "rotates operands over twice the last-level cache",
        "In cold mode calls rotate over sets of operands with at least twice the last-level cache's size, so that a "
        "call finds its operands in memory. If too few sets fit, the caches are emptied, untimed, before each sample.",
        from_memory=True,
    ),
    Mode.HOT: Does(
        "repeats on the same operands",
        "In hot mode every call works on the same operands, which stay in whatever cache holds them.",
    ),
    Mode.GRAPH: Does(
        "replays a captured CUDA graph",
        "In graph mode a captured CUDA graph is replayed, which leaves launch latency out.",
        replays=True,
    ),
    Mode.VERIFY: Does("times nothing", "Rows of mode verify were checked and not timed.", times=False),
}
#: The modes that `--mode` accepts, in which rows get a time.
TIMED = tuple(mode.value for mode, does in DOES.items() if does.times)
