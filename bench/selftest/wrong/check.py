"""The trial of all wrong results, as a check of the self-test."""

from collections.abc import Iterator

from kernelmark.bench.selftest.finding import Finding, Tick
from kernelmark.bench.selftest.wrong import library
from kernelmark.bench.selftest.wrong.aggregate import COMPRESSED, SUMS
from kernelmark.bench.selftest.wrong.arithmetic import ARITHMETIC
from kernelmark.bench.selftest.wrong.conv import CONV
from kernelmark.bench.selftest.wrong.epilogues import EPILOGUES
from kernelmark.bench.selftest.wrong.gemm import GEMM
from kernelmark.bench.selftest.wrong.groups import GROUPS
from kernelmark.bench.selftest.wrong.moves import MOVES
from kernelmark.bench.selftest.wrong.scales import SCALES

FAMILIES = (GEMM, EPILOGUES, GROUPS, SCALES, ARITHMETIC, CONV, MOVES, SUMS, *COMPRESSED)
#: How many draws each wrong result is judged on.
SEEDS = 20


def check(tick: Tick, seeds: int = SEEDS) -> Iterator[Finding]:
    """In how many of the seeds each wrong result is seen, and by which check."""
    return library.trial(FAMILIES, seeds, tick)


def jobs(seeds: int = SEEDS) -> int:
    """Return how often `tick` is called."""
    return library.count(FAMILIES, seeds)
