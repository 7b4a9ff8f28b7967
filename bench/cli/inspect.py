"""The commands that look into a CUDA kernel without a GPU: `inspect` and `profile`."""

from collections.abc import Sequence
from pathlib import Path

import click

from kernelmark.bench.cli.options import Choice, complete_kernels, plugin_option
from kernelmark.bench.measure.compile import ARCHS
from kernelmark.bench.measure.occupancy import typical
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.tune.inspect import inspect_rows, render, space_text, summary, tile_rows
from kernelmark.bench.tune.profile import counted, devices, view
from kernelmark.bench.tune.subject import limits_here


@click.command()
@click.argument("kernel", required=False, metavar="[KERNEL", shell_complete=complete_kernels)
@click.argument("problem_id", required=False, metavar="PROBLEM]")
@click.option(
    "--kernels",
    metavar="GLOB",
    shell_complete=complete_kernels,
    help="Show each tile of the kernels whose whole id matches.",
)
@click.option("--arch", "archs", metavar="sm_90a,..", help="Architectures. [default: all that kernels are built for]")
@click.option("--format", "style", type=Choice(["table", "csv", "json"]), default="table", show_default=True)
@plugin_option
def inspect(
    kernel: str | None,
    problem_id: str | None,
    kernels: str | None,
    archs: str | None,
    style: str,
    plugins: tuple[str, ...],
) -> None:
    """Show registers, shared memory, spills and occupancy.

    Compiles the hand-written CUDA kernels, a line each; needs no GPU. With KERNEL PROBLEM, shows the tile that a run
    takes for PROBLEM, and how many tiles KERNEL has for it.
    """
    registry, wanted = discover(plugins), archs.split(",") if archs else ARCHS
    if kernel is None and kernels is None and style == "table":
        click.echo(summary(inspect_rows(registry, "*", wanted)))
        click.echo("\n`kernelmark inspect --kernels GLOB` shows each tile and architecture")
    elif kernel is None:
        click.echo(render(inspect_rows(registry, kernels or "*", wanted), style), nl=style != "csv")
    else:
        _inspect_one(registry, kernel, problem_id, wanted, style)


def _inspect_one(registry: Registry, kernel: str, problem_id: str | None, archs: Sequence[str], style: str) -> None:
    if problem_id is None:
        raise UsageError(f"inspect {kernel}: expected a problem after the kernel; --kernels GLOB is without one")
    chosen, problem = registry.named(kernel), registry.problem(problem_id)
    rows = tile_rows(chosen, problem, archs)
    if rows or style != "table":
        click.echo(render(rows, style), nl=style != "csv")
    if style == "table":
        click.echo(space_text(chosen, problem, limits_here(chosen)))


@click.command()
@click.argument("kernel_id", metavar="KERNEL", shell_complete=complete_kernels)
@click.argument("problem_id", metavar="PROBLEM")
@click.option(
    "--arch",
    default="sm_90a",
    show_default=True,
    metavar="sm_90a",
    help="Plan for a typical device of this architecture.",
)
@click.option(
    "--on",
    "device_name",
    metavar="DEVICE",
    help="Bound the time on this GPU: h100-sxm, h200, a100, ... [default: one of the architecture]",
)
@click.option("--every-block", is_flag=True, help="Run all blocks, even where a few could stand for the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the annotated sources, a page.")
@plugin_option
def profile(
    kernel_id: str,
    problem_id: str,
    arch: str,
    device_name: str | None,
    every_block: bool,
    as_json: bool,
    html: Path | None,
    plugins: tuple[str, ...],
) -> None:
    """Count the memory traffic and instructions of a CUDA kernel.

    Counts sectors, wavefronts, idle lanes and instructions in the emulator and in the machine code, without a GPU.
    Nothing is timed: the last table is a lower bound of the time, by the limits of a GPU that NVIDIA publishes.
    """
    registry = discover(plugins)
    limits = devices.usual(arch) if device_name is None else devices.published(device_name, arch)
    kernel, problem = counted.counted_kernel(registry.named(kernel_id)), registry.problem(problem_id)
    device = typical(arch)
    if problem.op != kernel.op:
        raise UsageError(f"{problem.id}: {kernel.id} is a kernel of {kernel.op}; take a problem of that")
    if not kernel.runs_on(arch):
        wanted = ", ".join(kernel.archs) or f"sm_{kernel.min_arch} and later"
        raise UsageError(f"--arch {arch}: {kernel.id} is for {wanted}")
    if reason := kernel.refuses(problem, device):
        raise UsageError(f"{reason}; take another problem")
    if html is not None:
        view.require(html)
    found = view.profiled(kernel, problem, arch, limits, every_block)
    if html is not None:
        view.write_page(found, html)
    click.echo(view.as_json(found) if as_json else "\n\n".join(view.sections(found)))
