"""The command `kernelmark profile`."""

from pathlib import Path

import click

from kernelmark.bench.cli import completion
from kernelmark.bench.cli.options import plugin_option


@click.command()
@click.argument("kernel_id", metavar="KERNEL", shell_complete=completion.kernels)
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
    from kernelmark.bench.measure.occupancy import typical
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.plan.errors import UsageError
    from kernelmark.bench.tune.profile import annotated, counted, devices, view

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
        annotated.require(html)
    found = view.profiled(kernel, problem, arch, limits, every_block)
    if html is not None:
        annotated.write_page(found, html)
    click.echo(view.as_json(found) if as_json else "\n\n".join(view.sections(found)))


COMMANDS = (profile,)
