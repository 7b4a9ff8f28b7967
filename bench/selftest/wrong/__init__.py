"""Wrong results, and a trial that counts the draws in which each is caught, and the checks that caught it."""

from kernelmark.bench.selftest.wrong.aggregate import COMPRESSED, SUMS
from kernelmark.bench.selftest.wrong.conv import CONV
from kernelmark.bench.selftest.wrong.gemm import ARITHMETIC, EPILOGUES, GEMM, GROUPS, SCALES
from kernelmark.bench.selftest.wrong.moves import MOVES

FAMILIES = (GEMM, EPILOGUES, GROUPS, SCALES, ARITHMETIC, CONV, MOVES, SUMS, *COMPRESSED)
