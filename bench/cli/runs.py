"""The command `runs`: which runs a store holds, and removing some."""

import re
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import click

from kernelmark.bench.cli import completion
from kernelmark.bench.cli.options import db_option, json_option
from kernelmark.bench.plan.errors import UsageError

_HOURS = {"h": 1, "d": 24, "w": 24 * 7}


def _moment(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Read `30d`, `12h`, `2w` or a date in UTC as a moment of the past. Raises click.BadParameter."""
    if value is None:
        return None
    now = datetime.now(UTC)
    try:
        if age := re.fullmatch(r"([1-9]\d*)([hdw])", value):
            then = now - timedelta(hours=int(age[1]) * _HOURS[age[2]])
        else:
            then = datetime.fromisoformat(value)
            then = then.astimezone(UTC) if then.tzinfo else then.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        then = None
    if then is None or then > now:
        raise click.BadParameter(f"is {value!r}, expected an age such as 12h, 30d or 8w, or a past date: 2026-01-31")
    return then.isoformat(timespec="seconds")


@click.command()
@click.option(
    "--delete", multiple=True, metavar="RUN", shell_complete=completion.runs, help="Remove this run; may be repeated."
)
@click.option(
    "--prune", metavar="OLDER", callback=_moment, help="Remove runs begun before: an age (30d) or a date (2026-01-31)."
)
@json_option
@db_option
def runs(delete: tuple[str, ...], prune: str | None, json_to: IO[str] | None, db: Path | None) -> None:
    """List the runs of the store, the newest first, or remove some.

    --delete and --prune list what they remove, and ask nothing. A RUN is an id, a name, or the beginning of one.
    """
    from kernelmark.bench.record.store import Store, default_store
    from kernelmark.bench.report.runs import removed_line, runs_table, summaries

    if delete and prune:
        raise UsageError("--delete and --prune: each chooses the runs to remove; take one")
    with closing(Store(db or default_store(), create=False)) as store:
        found = summaries(store)
        if delete or prune:
            named = {store.find_run(text)["run_id"] for text in delete}
            found = [run for run in found if run.run_id in named or run.started_at < (prune or "")]
            _remove(store, [run.run_id for run in found])
    if json_to is not None:
        _write(found, json_to)
        return
    click.echo(runs_table(found))
    if delete or prune:
        click.echo(f"\n{removed_line(found)}")


def _remove(store: Any, run_ids: list[str]) -> None:
    """Remove all or none. Raises UsageError where one is being measured."""
    from kernelmark.bench.measure.lock import held_run

    with ExitStack() as locks:
        for run_id in run_ids:
            locks.enter_context(held_run(store.path, run_id, "end it with Ctrl-C"))
        store.remove(run_ids)


def _write(found: list[Any], out: IO[str]) -> None:
    import msgspec

    out.write(msgspec.json.format(msgspec.json.encode(found).decode(), indent=2) + "\n")


COMMANDS = (runs,)
