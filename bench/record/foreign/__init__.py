"""Import files of other programs, and kernelmark's CSV, as rows."""
