"""What the commands share: exit statuses and options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bench.plan.options import PLUGIN, Option

OK, AGAINST, USAGE, INTERRUPTED = 0, 1, 2, 130


def db_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--db FILE`."""
    help_text = "The store to read or write. [default: $XDG_DATA_HOME/kernelmark/results.db]"
    return click.option("--db", type=click.Path(path_type=Path, dir_okay=False), help=help_text)(function)


def file_option(*names: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option for a file to write."""
    return click.option(*names, type=click.Path(path_type=Path, dir_okay=False), help=text)


def plan_option(option: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option to a plan, under the name of the plan's field."""
    if isinstance(option.default, bool):
        names = f"--{option.name}/--no-{option.name}" if option.default else f"--{option.name}"
        return click.option(names, option.field, is_flag=True, default=option.default, help=option.text)

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            return option.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return click.option(
        f"--{option.name}",
        option.field,
        type=click.Choice(option.choices) if option.choices else str,
        multiple=option.many,
        default=option.default,
        metavar=option.metavar,
        callback=read,
        help=option.text,
    )


#: `--plugin FILE.py`, any number of times.
plugin_option = plan_option(PLUGIN)
