"""The command `kernelmark import`."""

from pathlib import Path
from typing import Any

import click

from kernelmark.bench.cli.options import db_option, plugin_option


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@plugin_option
@db_option
def import_command(files: tuple[Path, ...], plugins: tuple[str, ...], db: Path | None) -> None:
    """Import results of other programs, each file as a run.

    Reads the JSON of pytest-benchmark and nvbench, and the CSV of kernelmark. Either all files are imported or none.
    Where a benchmark's name, group or parameter is the id of a problem, its row stands beside the kernels on it.
    """
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.plan.text import escaped
    from kernelmark.bench.record.foreign.importing import import_files
    from kernelmark.bench.record.store import default_store
    from kernelmark.bench.run.session import new_run_id

    registry = discover(plugins)
    for found in import_files(db or default_store(), files, lambda text: _problem(registry, text), new_run_id):
        again = f" (imported before, as run {found.before})" if found.before else ""
        click.echo(
            f"run {found.run_id}: {found.rows} row{'s' * (found.rows != 1)} from {escaped(str(found.path))}{again}"
        )


def _problem(registry: Any, text: str) -> Any:
    """The problem with this id, or None for what is no id. Raises UsageError for one of a plug-in without figures."""
    from kernelmark.bench.plan.declared import is_foreign, require_figures
    from kernelmark.bench.plan.errors import UsageError

    try:
        problem = registry.problem(text)
    except UsageError:
        return None
    if is_foreign(type(problem)):
        require_figures(problem, text)
    return problem


COMMANDS = (import_command,)
