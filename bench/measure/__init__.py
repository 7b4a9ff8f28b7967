"""Measuring kernels: operands, verdicts, clocks, intervals and devices."""
