"""Run CUDA C++ kernels on the CPU and check every access; see docs/emulator.md.

`program` compiles a .cu, `run` executes launches of it, `sweep` takes a registered kernel through its shapes.
"""
