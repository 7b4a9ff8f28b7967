"""All cases of a kernel side by side, in processes: starting the emulator's workers from threads is not safe."""

import functools
import multiprocessing
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice

from bench.emulator.build import CUDA, program
from bench.emulator.sweep import Case, cases, complaints, entries
from bench.measure.cpu import cpu_count
from bench.plan.discovery import discover
from bench.plan.kernel import CudaKernel

SHOWN = 12


@functools.cache
def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(cpu_count(), multiprocessing.get_context("spawn"))


@functools.cache
def _cases(kernel_id: str) -> tuple[list[Case], tuple[str, ...]]:
    registry = discover()
    kernel = registry.kernels[kernel_id]
    assert isinstance(kernel, CudaKernel)
    found = cases(registry, kernel)
    return found, entries(found)


def judge(kernel_id: str, number: int) -> list[str]:
    """The first complaints about one case of a kernel, by its number in the sweep."""
    every, names = _cases(kernel_id)
    return list(islice(complaints(every[number], names), SHOWN))


@functools.cache
def swept(kernel_id: str) -> dict[str, Future[list[str]]]:
    """What is wrong with a kernel in each of its cases, by their ids. Raises CompileError."""
    every, names = _cases(kernel_id)
    program(CUDA / every[0].kernel.source, names, include=CUDA)  # once, not in every process
    return {case.id: _pool().submit(judge, kernel_id, number) for number, case in enumerate(every)}
