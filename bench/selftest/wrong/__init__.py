"""Wrong results, and a trial that counts in how many draws each is caught, and by which check of the verdict."""

from collections.abc import Iterator

from kernelmark.bench.selftest.finding import Finding, Tick
from kernelmark.bench.selftest.wrong import library
from kernelmark.bench.selftest.wrong.aggregate import COMPRESSED, SUMS
from kernelmark.bench.selftest.wrong.conv import CONV
from kernelmark.bench.selftest.wrong.gemm import ARITHMETIC, EPILOGUES, GEMM, GROUPS, SCALES
from kernelmark.bench.selftest.wrong.moves import MOVES

FAMILIES = (GEMM, EPILOGUES, GROUPS, SCALES, ARITHMETIC, CONV, MOVES, SUMS, *COMPRESSED)
#: The number of draws on which each wrong result is judged.
SEEDS = 20


def check(tick: Tick, seeds: int = SEEDS) -> Iterator[Finding]:
    """Check whether every wrong result is caught, on `seeds` draws of operands."""
    return library.trial(FAMILIES, seeds, tick)


def jobs(seeds: int = SEEDS) -> int:
    """Return the number of times that `check` calls `tick`."""
    return library.count(FAMILIES, seeds)
