"""The commands that examine CUDA kernels without a GPU: `inspect` and `profile`."""

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from kernelmark.bench.cli.shared import AGAINST, OK, Choice, complete_kernels, file_option, plugin_option, value_option
from kernelmark.bench.measure.compile import ARCHS
from kernelmark.bench.measure.occupancy import typical
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.tune import pins
from kernelmark.bench.tune.inspect import inspect_rows, render, space_text, summary, tile_rows
from kernelmark.bench.tune.profile import counted, machine, view
from kernelmark.bench.tune.search import limits_here


def _pin_options(function: Callable[..., Any]) -> Callable[..., Any]:
    update = click.option("--update", is_flag=True, help="With --baseline: write the current figures to the file.")
    text = "Exit with 1 if the kernel exceeds the figures pinned in this file."
    return file_option("--baseline", text=text)(update(function))


def _words(plugins: Sequence[str], *words: str | None, **options: str | None) -> str:
    """Return words and options as one command line. The file of pinned values has an entry for each such line."""
    given = [*options.items(), *(("plugin", plugin) for plugin in plugins)]
    return shlex.join(
        [*filter(None, words), *(word for name, value in given if value for word in (f"--{name}", value))]
    )


def _end(text: str, fails: bool, after_document: bool) -> None:
    """Print the differences from pinned values, on standard error `after_document`, and exit, with 1 if it `fails`."""
    click.echo(text, err=after_document)
    raise SystemExit(AGAINST if fails else OK)


def _require_baseline(baseline: Path | None, update: bool) -> None:
    if update and baseline is None:
        raise UsageError("--update: has no file to write; name one with --baseline")


@click.command()
@click.argument("kernel", required=False, metavar="[KERNEL", shell_complete=complete_kernels)
@click.argument("problem_id", required=False, metavar="PROBLEM]")
@click.option(
    "--kernels",
    metavar="GLOB",
    shell_complete=complete_kernels,
    help="Show each tile of the kernels whose full id matches.",
)
@click.option(
    "--arch",
    "archs",
    metavar="sm_90a,..",
    help="Architectures to compile for. [default: all architectures that kernels are built for]",
)
@click.option("--format", "style", type=Choice(["table", "csv", "json"]), default="table", show_default=True)
@_pin_options
@plugin_option
def inspect(
    kernel: str | None,
    problem_id: str | None,
    kernels: str | None,
    archs: str | None,
    style: str,
    baseline: Path | None,
    update: bool,
    plugins: tuple[str, ...],
) -> None:
    """Show registers, shared memory, spills and occupancy.

    Compiles the hand-written CUDA kernels and prints one line for each; needs no GPU. With KERNEL PROBLEM, shows the
    tile that a run uses for PROBLEM, and how many tiles KERNEL has for it.
    """
    _require_baseline(baseline, update)
    if kernel is not None and kernels is not None:
        raise UsageError(f"--kernels {kernels}: selects kernels, and so does KERNEL; omit one of them")
    registry, wanted = discover(plugins), archs.split(",") if archs else ARCHS
    if kernel is None:
        rows = inspect_rows(registry, kernels or "*", wanted)
    elif problem_id is None:
        raise UsageError(f"inspect {kernel}: expected a problem after the kernel, or --kernels GLOB and no problem")
    else:
        rows = tile_rows(registry.named(kernel), registry.problem(problem_id), wanted)
    if baseline is None and kernel is None and kernels is None and style == "table":
        click.echo(summary(rows))
        click.echo("\n`kernelmark inspect --kernels GLOB` shows each tile and architecture")
    elif style != "table" or (baseline is None and (rows or kernel is None)):
        click.echo(render(rows, style), nl=style != "csv")
    if baseline is None and kernel is not None and problem_id is not None and style == "table":
        chosen = registry.named(kernel)
        click.echo(space_text(chosen, registry.problem(problem_id), limits_here(chosen)))
    if baseline is not None:
        command = _words(plugins, "inspect", kernel, problem_id, kernels=kernels, arch=archs)
        _end(*pins.gate(baseline, command, pins.of_rows(rows), update), style != "table")


@click.command()
@click.argument("kernel_id", metavar="KERNEL", shell_complete=complete_kernels)
@click.argument("problem_id", metavar="PROBLEM")
@value_option(
    "--arch", kind=str, metavar="sm_90a", default="sm_90a", text="Assume a typical device of this architecture."
)
@click.option(
    "--on",
    "device_name",
    metavar="DEVICE",
    help="Compute the least time on this GPU: h100-sxm, h200, a100, ... [default: a GPU of the architecture]",
)
@click.option("--every-block", is_flag=True, help="Emulate all blocks, even if a few could represent the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with the annotated sources."
)
@_pin_options
@plugin_option
def profile(
    kernel_id: str,
    problem_id: str,
    arch: str,
    device_name: str | None,
    every_block: bool,
    as_json: bool,
    html: Path | None,
    baseline: Path | None,
    update: bool,
    plugins: tuple[str, ...],
) -> None:
    """Count the memory traffic and instructions of a CUDA kernel.

    Counts sectors, wavefronts, idle lanes and instructions in the emulator and in the machine code, without a GPU.
    Nothing is timed: the last table gives a lower bound on the time, from the limits that NVIDIA publishes for a GPU.
    """
    _require_baseline(baseline, update)
    registry = discover(plugins)
    limits = machine.usual(arch) if device_name is None else machine.published(device_name, arch)
    kernel, problem = counted.counted_kernel(registry.named(kernel_id)), registry.problem(problem_id)
    device = typical(arch)
    if not kernel.runs_on(arch):
        wanted = ", ".join(kernel.archs) or f"sm_{kernel.min_arch} and later"
        raise UsageError(f"--arch {arch}: {kernel.id} is for {wanted}")
    if reason := kernel.refuses(problem, device):
        raise UsageError(f"{reason}; choose another problem")
    if html is not None:
        view.require(html)
    counts = view.profiled(kernel, problem, arch, limits, every_block)
    if html is not None:
        view.write_page(counts, html)
    if baseline is None or as_json:
        click.echo(json.dumps(msgspec.to_builtins(counts), indent=2) if as_json else "\n\n".join(view.sections(counts)))
    if baseline is not None:
        command = _words(plugins, "profile", kernel_id, problem_id, "--every-block" * every_block, arch=arch)
        _end(*pins.gate(baseline, command, pins.of_profile(counts), update, counts.no_machine), as_json)
