"""How it is measured: operands, verdicts, clocks, intervals, devices."""
