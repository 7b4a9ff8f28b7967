"""The command `select`."""

from pathlib import Path
from typing import IO

import click

from kernelmark.bench.cli import shared
from kernelmark.bench.cli.output import drawn_in, print_or_write, reading
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.tune.select.export import FORMATS
from kernelmark.bench.tune.select.model import answer, document, file_of, kept, write
from kernelmark.bench.tune.select.train import train as fit
from kernelmark.bench.tune.select.view import answered, choice_figures, regret_figure, trained


@click.command()
@click.argument("names", nargs=-1, metavar="PROBLEM | RUN...", shell_complete=shared.complete_runs)
@click.option("--train", is_flag=True, help="Train a selector for a device and an operation on the rows of RUN.")
@click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="RUN",
    help="With --train: test on the rows of this run, and train without its shapes; may be repeated.",
)
@click.option("--model", "where", default="auto", metavar="FILE", help="The selector to use. [default: this device's]")
@click.option("--format", "style", type=shared.Choice(["c", "python", "json"]), help="Print the selector as code.")
@shared.file_option("-o", "--output", text="The file for --format. [default: standard output]")
@shared.folder_option(
    "--figures", text="With --train: also draw figures of losses and choices to this folder, as SVG and PDF."
)
@shared.select_options
@shared.json_option
@shared.plugin_option
@shared.db_option
def select(
    names: tuple[str, ...],
    train: bool,
    tests: tuple[str, ...],
    where: str,
    style: str | None,
    output: Path | None,
    figures: Path | None,
    selection: Selection,
    json_to: IO[str] | None,
    plugins: tuple[str, ...],
    db: Path | None,
) -> None:
    """Choose the kernel to call for PROBLEM, measured or not.

    A selector, trained on measured rows, makes the choice. The answer states how much slower its choices were than the
    fastest kernels, on shapes that it was not trained on. If always calling one kernel would have been as fast on these
    shapes, the answer is that kernel. --train makes a selector from the rows of each RUN.
    """
    if not train and len(names) != 1:
        subject = f"{len(names)} names" if names else "no PROBLEM"
        remedy = "to make a selector from runs, name them with --train"
        raise UsageError(f"select: got {subject}, expected one problem; {remedy}")
    only = {"--test": tests, "--figures": figures, "--kernels, --op, --problem or --status": any(selection)}
    if not train and (given := next((name for name, value in only.items() if value), None)):
        raise UsageError(f"{given}: works only with --train; add --train, or leave it out")
    if output is not None and style is None:
        raise UsageError(f"-o {output}: applies only to --format; add --format c, python or json")
    if style is not None and json_to is not None:
        raise UsageError(f"--json: prints the answer, but --format {style} prints the selector; omit one of them")
    registry, choice = discover(plugins), None
    if train:
        store = reading(db, selection)
        with store.snapshot():
            runs = [store.find_run(name)["run_id"] for name in names or (None,)]
            model, lost = fit(store, registry, runs, [store.find_run(name)["run_id"] for name in tests])
        path = file_of(model.op, model.device_name, where)
        write(path, model)
        click.echo(f"selector: {path}", err=True)
    else:
        problem = registry.problem(names[0])
        model = kept(problem, where, registry)
        choice = answer(model, problem, registry) if style is None else None
    if style is not None:
        print_or_write(FORMATS[style](model), output)
    elif json_to is not None:
        json_to.write(document(model, choice))
    else:
        click.echo(answered(model, choice) if choice else trained(model))
    if figures is not None:
        kinds = [regret_figure(model, lost), choice_figures(model, registry)]
        click.echo("\n" + drawn_in(figures, kinds), err=style is not None)
