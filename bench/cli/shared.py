"""Shared parts of the commands: exit statuses, options, and shell completion of their values."""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from kernelmark.bench.plan.errors import UsageError, meant
from kernelmark.bench.plan.options import PLUGIN, Option
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.selection import Selection

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
OK, AGAINST, USAGE, DEFECT, INTERRUPTED = 0, 1, 2, 3, 130
#: The message of an interrupted command that, if called again, continues where it stopped.
KEPT = "interrupted; all rows so far are stored, and the same command continues"


def complete_suites(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of the suites that come with kernelmark, and TOML files."""
    from kernelmark.bench.plan.suites import suite_names

    files = sorted(Path(incomplete.rpartition("/")[0]).glob("*.toml")) if not incomplete.startswith("/") else []
    return _beginning([(name, "") for name in (*suite_names(), *map(str, files))], incomplete)


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names and ids of the runs in the store, newest first, each with its suites."""
    from kernelmark.bench.record.store import Store, default_store

    with suppress(UsageError), Store(ctx.params.get("db") or default_store(), create=False) as store:
        known = [(text, ", ".join(run["suites"])) for run in store.runs() for text in (run["run_id"], run["name"])]
        return _beginning(known[::-1], incomplete)
    return []


def complete_kernels(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of kernels, including kernels of plug-ins named earlier on the command line."""
    from kernelmark.bench.plan.discovery import discover

    with suppress(UsageError):
        registry = discover(tuple(ctx.params.get("plugins") or ()))
        return _beginning([(kernel.id, kernel.label) for kernel in registry.kernels.values()], incomplete)
    return []


def _beginning(known: list[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(text, help=note) for text, note in known if text and text.startswith(incomplete)]


def file_option(*names: str, text: str) -> Decorator:
    """Return an option that takes the path of a file."""
    return click.option(*names, type=click.Path(path_type=Path, dir_okay=False), help=text)


def folder_option(*names: str, text: str, default: Path | None = None) -> Decorator:
    """Return an option that takes a folder to write to."""
    kind = click.Path(path_type=Path, file_okay=False)
    return click.option(*names, type=kind, default=default, metavar="DIR", help=text, show_default=default is not None)


def value_option(*names: str, kind: Any, text: str, **more: Any) -> Decorator:
    """Return an option that takes a value of a click type; its help shows the default, if there is one."""
    return click.option(*names, type=kind, show_default=bool(more.get("default")), help=text, **more)


def run_option(*names: str, text: str, **more: Any) -> Decorator:
    """Return an option that takes the id or name of a run."""
    return click.option(*names, metavar="RUN", shell_complete=complete_runs, help=text, **more)


run_argument = click.argument("run_id", required=False, metavar="[RUN]", shell_complete=complete_runs)
db_option = file_option("--db", text="The store to read or write. [default: $XDG_DATA_HOME/kernelmark/results.db]")


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json`. The command gets the stream for its JSON, or None; with JSON, all other output goes to stderr."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @wraps(function)
    def command(as_json: bool, **options: Any) -> Any:
        if not as_json:
            return function(json_to=None, **options)
        out = sys.stdout
        with redirect_stdout(sys.stderr):
            return function(json_to=out, **options)

    return command


def select_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--kernels`, `--op`, `--problem` and `--status`, each repeatable. The command gets them as a `selection`."""

    @click.option(
        "--kernels",
        multiple=True,
        metavar="GLOB",
        shell_complete=complete_kernels,
        help="Use only rows of kernels whose full id matches; may be repeated, like the next three options.",
    )
    @click.option("--op", multiple=True, metavar="OP", help="Use only rows of this operation.")
    @click.option("--problem", multiple=True, metavar="GLOB", help="Use only rows of problems whose full id matches.")
    @click.option(
        "--status",
        multiple=True,
        type=Choice([status.value for status in Status]),
        help="Use only rows with this status.",
    )
    @wraps(function)
    def command(
        kernels: tuple[str, ...], op: tuple[str, ...], problem: tuple[str, ...], status: tuple[str, ...], **options: Any
    ) -> Any:
        return function(selection=Selection(kernels, op, problem, status), **options)

    return command


class Read(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """The type of an option whose value a function parses."""

    name = "text"

    def __init__(self, parse: Callable[[str], Any]) -> None:
        """parse: the function. Its ValueErrors state the value found and the values expected."""
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Choice(click.Choice):  # type: ignore[type-arg] # not generic in earlier releases of click
    """The type of an option that takes one of several words. The error for another word suggests a similar one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(error.message.removesuffix(".") + meant(str(value), map(str, self.choices)), param, ctx)


def plan_option(option: Option) -> Decorator:
    """Return an option of a plan. The command's parameter has the name of the plan's field."""
    if isinstance(option.default, bool):
        names = f"--{option.name}/--no-{option.name}" if option.default else f"--{option.name}"
        return click.option(names, option.field, is_flag=True, default=option.default, help=option.text)

    return click.option(
        f"--{option.name}",
        option.field,
        type=Choice(option.choices) if option.choices else Read(option.parse),
        multiple=option.many,
        default=option.default,
        metavar=option.metavar,
        shell_complete=complete_kernels if option.field == "kernels" else None,
        help=option.text,
    )


plugin_option = plan_option(PLUGIN)
