"""Wrong results, and a trial that counts, for each, the draws on which it is caught, and by which checks."""

from kernelmark.bench.selftest.wrong.aggregate import COMPRESSED, SUMS
from kernelmark.bench.selftest.wrong.conv import CONV
from kernelmark.bench.selftest.wrong.gemm import ARITHMETIC, EPILOGUES, GEMM, GROUPS, SCALES
from kernelmark.bench.selftest.wrong.moves import MOVES

FAMILIES = (GEMM, EPILOGUES, GROUPS, SCALES, ARITHMETIC, CONV, MOVES, SUMS, *COMPRESSED)
