"""Runs CUDA C++ kernels on the CPU and judges every access; see docs/emulator.md.

`program` compiles a .cu, `run` executes launches of it, `sweep` takes a registered kernel through its shapes.
"""

from kernelmark.bench.emulator.build import HostCompileError, missing_tool, program
from kernelmark.bench.emulator.report import Diagnostic
from kernelmark.bench.emulator.worker import Buffer, Launch, Outcome, WorkerError, run

__all__ = [
    "Buffer",
    "Diagnostic",
    "HostCompileError",
    "Launch",
    "Outcome",
    "WorkerError",
    "missing_tool",
    "program",
    "run",
]
