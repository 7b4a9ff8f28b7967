"""Measure: operands, verdicts, clocks, intervals, devices."""
