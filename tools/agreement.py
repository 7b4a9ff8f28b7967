"""The emulator against a GPU: each emulated test case on the device too, and where the two verdicts differ."""

from collections.abc import Iterator
from contextlib import nullcontext

from bench.emulator.sweep import Case, cases, complaints, entries
from bench.measure.cuda import present_limits
from bench.measure.devices import get_device
from bench.measure.draw import Draw
from bench.measure.launch import cuda_launch
from bench.measure.operands import Operands, OperandSet, Scratch
from bench.measure.verify import References, verify
from bench.plan.discovery import discover
from bench.plan.kernel import CudaKernel


def compare_all() -> Iterator[str | None]:
    """For each emulated case of every hand-written kernel: None where the verdicts agree, else a line with both."""
    registry = discover()
    for kernel in registry.kernels.values():
        if isinstance(kernel, CudaKernel) and not kernel.emulated:
            taken = cases(registry, kernel, present_limits())
            names = entries(taken)
            for case in taken:
                emulated, found = next(complaints(case, names), None), _on_device(case)
                agree = (emulated is None) == (found is None)
                yield None if agree else f"  {case.id}: emulator {emulated or 'right'}, device {found or 'right'}"


def _on_device(case: Case) -> str | None:
    """Why the device's result is wrong, or None."""
    device = get_device("cuda")
    operands, draw, scratch = OperandSet(case.problem, device), Draw(case.problem, 0), Scratch(device)
    draw.redraw()
    operands.load(draw)
    x = Operands(operands, case.kernel.order, device, 1, scratch)
    launch = cuda_launch(case.kernel, case.problem, x, tile=case.tile)
    references = References(case.problem, draw)
    verdict = verify(
        case.kernel, case.problem, launch, operands, draw, references, scratch, device, lambda stage: nullcontext()
    )
    return verdict.reason
