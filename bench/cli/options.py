"""What the commands share: exit statuses and options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

OK, AGAINST, USAGE, INTERRUPTED = 0, 1, 2, 130


def db_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--db FILE`."""
    help_text = "The store to read or write. [default: $XDG_DATA_HOME/kernelmark/results.db]"
    return click.option("--db", type=click.Path(path_type=Path, dir_okay=False), help=help_text)(function)


def plugin_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--plugin FILE.py`, any number of times."""
    help_text = "A Python file that registers kernels or operations; may be repeated."
    return click.option("--plugin", "plugins", multiple=True, metavar="FILE.py", help=help_text)(function)


def file_option(*names: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A file to write."""
    return click.option(*names, type=click.Path(path_type=Path, dir_okay=False), help=text)
