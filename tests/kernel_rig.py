"""Kernels by their ids, under their tiles and on operands of their own: what tests of kernels share."""

import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from kernelmark.bench.emulator.sweep import Case
from kernelmark.bench.measure.compile import Cubin, compile_cubin
from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.operands import Operands, OperandSet, Scratch
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.run.job import run_job
from ptxas import losses

REGISTRY = discover()
CUDA = {kernel.id: kernel for kernel in REGISTRY.kernels.values() if isinstance(kernel, CudaKernel)}
LAYOUTS = ("NN", "NT", "TN", "TT")
DIRECTIONS = ("fprop", "dgrad", "wgrad")
#: Convolutions with more than one block, panel, strip or item of everything that a CPU's kernels cut into them; none
#: divides evenly.
RAGGED = (
    "n2c70h23w29k67r3s3pad1",
    "n1c97h40w37k41r3s3pad2-1x0-1",
    "n3c5h31w33k9r5s7pad2x3stride2x1",
    "n1c401h9w11k35r1s1",
    "n1c33h1w700k34r1s3pad0x1",
)


def chosen(kernel: str, problem: str) -> Case:
    """The problem under the tile that a run takes."""
    parsed = REGISTRY.problem(problem)
    tile = CUDA[kernel].tile_for(parsed)
    assert tile is not None, refusal(kernel, problem)
    return Case(CUDA[kernel], parsed, tile)


def cases(kernel: str, *problems: str | Problem) -> list[Case]:
    """Each problem that the kernel takes, under each tile that takes it."""
    found = CUDA[kernel]
    parsed = [REGISTRY.problem(p) if isinstance(p, str) else p for p in problems]
    taken = [p for p in parsed if found.refuses(p) is None]
    return [Case(found, p, tile) for p in taken for tile in found.tiles() if found.unwanted(p, tile) is None]


def refusal(kernel: str, problem: str) -> str:
    """Why the kernel does not take the problem; nothing where it does."""
    return REGISTRY.kernels[kernel].refuses(REGISTRY.problem(problem)) or ""


def lean(kernel: str, names: Iterable[str], arch: str) -> Cubin:
    """Compile entries of a kernel, none of which may spill, use the stack or lose what ptxas reports."""
    cubin = compile_cubin(CUDA[kernel].source, tuple(dict.fromkeys(names)), arch, kernel)
    for entry, used in cubin.resources.items():
        assert (used.spill_bytes, used.stack_bytes) == (0, 0), entry
    assert losses(cubin.log) == []
    return cubin


def verified(problem: str, *kernels: str, threads: int = 2) -> list[Measurement]:
    """The rows of kernels that are verified on a problem, and not timed."""
    return run_job(Job((problem,), kernels, Mode.VERIFY, (), 0, Budget(), threads=threads))


def drawn(text: str) -> tuple[Any, dict[str, Any]]:
    """The problem, and values for its operands by their names."""
    problem = REGISTRY.problem(text)
    draw = Draw(problem, 7)
    draw.redraw()
    return problem, draw.views("C")


class SetUp(NamedTuple):
    """A launch, and what it was set up on."""

    launch: Callable[[], Any]
    operands: OperandSet
    draw: Draw
    scratch: Scratch


def set_up(problem: str, kernel: str, threads: int = 2) -> SetUp:
    """Set a kernel of the CPU up on operands with values."""
    parsed, found, device = REGISTRY.problem(problem), REGISTRY.kernels[kernel], Cpu()
    operands, draw = OperandSet(parsed, device, found.host_memory), Draw(parsed, 0)
    draw.redraw()
    operands.load(draw)
    scratch = Scratch(device, found.host_memory)
    launch = found.launch(parsed, Operands(operands, found.order, device, threads, scratch))
    return SetUp(launch, operands, draw, scratch)


def compiled_by(launch: Callable[[], Any]) -> list[Any]:
    """What Numba compiles during a launch."""
    event = pytest.importorskip("numba.core.event")
    with event.install_recorder("numba:compile") as compiled:
        launch()
    return list(compiled.buffer)


def allocated_by(launch: Callable[[], Any]) -> int:
    """The bytes that Python and NumPy hold at most during a launch, beyond those from before it."""
    tracemalloc.start()
    launch()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
