"""`verify --emulated`: run CUDA kernels on any problem in the emulator, which executes threads in three orders."""

from itertools import islice

import click

from kernelmark.bench.cli.planned import RunRequest
from kernelmark.bench.cli.shared import AGAINST, OK
from kernelmark.bench.emulator.build import HostCompileError, missing_tool
from kernelmark.bench.emulator.sweep import EmulatedCase, entries, looks
from kernelmark.bench.emulator.worker import WorkerError
from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.plan.case import contenders
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.suites import find_suite, full_name
from kernelmark.bench.report.format import seconds, size
from kernelmark.bench.report.layout import TableColumn, table

#: The limit of CPU seconds for a case in all orders of threads, and the most findings printed for each order.
LIMIT_S, SHOWN = 3600, 8


def verify_emulated(request: RunRequest) -> int:
    """Print the emulator's report on each CUDA kernel and problem; return the exit status. Raises UsageError."""
    if reason := missing_tool():
        raise UsageError(f"--emulated: {reason}")
    good = True
    for kernel, problem in _chosen(request):
        click.echo(f"{kernel.id} on {problem.id}")
        good &= _verified(kernel, problem)
    return OK if good else AGAINST


def _chosen(request: RunRequest) -> list[tuple[CudaKernel, Problem]]:
    globs, registry = tuple(request.options["kernels"]), discover(tuple(request.options["plugins"]))
    pairs = [
        (kernel, entry.problem)
        for name in request.suites
        for entry in find_suite(full_name(name), registry).entries()
        for kernel in contenders(entry, registry, ("cuda",), globs)
        if isinstance(kernel, CudaKernel)
    ]
    if not pairs:
        raise UsageError("--emulated: no CUDA kernel takes these problems; `kernelmark list` lists the kernels")
    return pairs


def _verified(kernel: CudaKernel, problem: Problem) -> bool:
    device = H100 if cuda_missing() else present_limits()
    if reason := kernel.refuses(problem, device) or kernel.emulated:
        click.echo(f"unsupported: {reason}")
        return True
    case = EmulatedCase(kernel, problem, kernel.default_tile(problem, device), device)
    cells, texts = list[tuple[str, ...]](), list[str]()
    try:
        for outcome, defects in looks(case, entries([case]), limit_s=LIMIT_S):
            reports = [str(defect.report or f"wrong: {defect.reason}") for defect in islice(defects, SHOWN)]
            verdict = "FAIL" if reports else "PASS"
            cells.append((outcome.order, verdict, seconds(outcome.time_s), size(outcome.peak_bytes)))
            texts += reports
    except (HostCompileError, WorkerError, ValueError) as error:  # ValueError: a waiver without a reason
        click.echo(f"FAIL: {error}")
        return False
    heads = (TableColumn("order"), TableColumn("verdict"), TableColumn("time", "right"), TableColumn("memory", "right"))
    click.echo(table(heads, cells))
    click.echo("".join(f"{text}\n" for text in dict.fromkeys(texts)), nl=False)
    return not texts
