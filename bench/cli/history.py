"""The command `kernelmark history`."""

from contextlib import closing
from pathlib import Path
from typing import IO

import click

from kernelmark.bench.cli import completion
from kernelmark.bench.cli.options import db_option, json_option
from kernelmark.bench.plan.errors import UsageError


@click.command()
@click.argument("kernel_id", metavar="KERNEL", shell_complete=completion.kernels)
@click.argument("problem_id", metavar="PROBLEM")
@click.option("--diff", is_flag=True, help="Also print the changes of the sources from version to version.")
@json_option
@db_option
def history(kernel_id: str, problem_id: str, diff: bool, json_to: IO[str] | None, db: Path | None) -> None:
    """List the versions of KERNEL that watch and tune have tried.

    Each has its verdict on PROBLEM, its rate, its resources and what changed. A rate without a mark comes from samples
    that were taken in turn with those of the version or kernel that it is compared with.
    """
    import msgspec

    from kernelmark.bench.record.store import Store, default_store
    from kernelmark.bench.report.history import history_document, history_page

    if "@" in kernel_id:
        raise UsageError(f"{kernel_id}: a history is that of a kernel with all its tiles; leave out the @ and the tile")
    with closing(Store(db or default_store(), create=False)) as store:
        found = store.versions(kernel_id, problem_id)
    if not found:
        _require_problem(problem_id)
    if json_to is not None:
        text = msgspec.json.encode(history_document(kernel_id, problem_id, found)).decode()
        json_to.write(msgspec.json.format(text, indent=2) + "\n")
        return
    click.echo("\n\n".join(history_page(kernel_id, problem_id, found, diff)))


def _require_problem(problem_id: str) -> None:
    """Raise UsageError for what is no problem. One with versions may be of a plug-in, which is not loaded here."""
    from kernelmark.bench.plan.discovery import discover

    discover().problem(problem_id)


COMMANDS = (history,)
