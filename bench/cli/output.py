"""Input and output of commands: opening a store, printing JSON, writing files, drawing figures."""

from collections.abc import Sequence
from pathlib import Path

import click

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.record.store import Store, command_on, default_store
from kernelmark.bench.report.export import write_text, writing
from kernelmark.bench.report.figures.style import Kind


def reading(db: Path | None, selection: Selection | None = None) -> Store:
    """Return a store that must exist, with only the selected rows visible. Raises UsageError."""
    store = Store(db or default_store(), create=False)
    if selection is not None and any(selection):
        store.select(selection)
    return store


def selected(db: Path | None, run_id: str | None, selection: Selection) -> tuple[Store, str]:
    """Return the store, showing only selected rows, and the run's id. Raises UsageError if the run has no such row."""
    store = reading(db, selection)
    run: str = store.find_run(run_id)["run_id"]
    if any(selection) and not store.statuses(run):
        raise UsageError(f"{selection}: selects no row of run {run}; {command_on(store.path, f'show {run}')} shows all")
    return store, run


def print_or_write(text: str, output: Path | None) -> None:
    """Print a text unchanged, or write it to a file. Raises UsageError."""
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, lambda out: click.echo(text, out, nl=False))


def drawn_in(folder: Path, kinds: Sequence[Kind]) -> str:
    """Draw figures into a folder. Return their paths, and why others were not drawn, as text. Raises UsageError."""
    from kernelmark.bench.report.figures import draw

    with writing(folder, "; --figures DIR names another"):
        folder.mkdir(parents=True, exist_ok=True)
        drawn = [str(folder / f"{figure.name}.svg") for figure in draw(kinds, folder)]
    return "\n".join([*drawn, *(kind.omitted for kind in kinds if kind.omitted)])
