"""Learn from rows which kernel to call for a shape that was never measured, and the cost of that choice."""
