"""Run CUDA C++ kernels on the CPU and check every access; see docs/emulator.md.

`program` compiles a .cu file, `run` executes launches of it, and `sweep` runs a registered kernel on chosen problems.
"""
