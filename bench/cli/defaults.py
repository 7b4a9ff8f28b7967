"""Defaults of options from a file: kernelmark.toml, or [tool.kernelmark] in pyproject.toml, here or in a folder above.

Each key names an option; each table names a command.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from kernelmark.bench.plan.errors import UsageError

FILES = (("kernelmark.toml", ()), ("pyproject.toml", ("tool", "kernelmark")))
#: Options that no file may set. They name, continue or remove a run, choose its tiles or its shard, or measure nothing.
NEVER = ("name", "resume", "reproduce", "delete", "prune", "tuned", "shard", "list", "dry-run")
Commands = Mapping[str, click.Command]


class Defaults(NamedTuple):
    """The tables of a file of defaults. table: the enclosing table, such as `tool.kernelmark`, or "" if none."""

    path: Path
    table: str
    values: Mapping[str, Any]

    def refusal(self, command: str, key: str, reason: str) -> UsageError:
        """Return the complaint about a key: `kernelmark.toml: [run] max-time: is 'x', expected a number above 0`."""
        table = ".".join(filter(None, (self.table, command)))
        where = " ".join(filter(None, (table and f"[{table}]", key)))
        return UsageError(f"{self.path}: {where}: {reason}")


def _read(path: Path, tables: tuple[str, ...]) -> Mapping[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8-sig") if path.is_file() else None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if text is None or not all(name in text for name in tables):
        return None
    import tomllib

    try:
        document: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML: {error}") from None
    for name in tables:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else None


class Values(Mapping[str, Mapping[str, Any]]):
    """The default values of each command's parameters. Commands without a table are imported only when looked up."""

    def __init__(self, defaults: Defaults, commands: Commands) -> None:
        """Raise UsageError, which names the file and the key, if a table has a value that its command does not take."""
        self._defaults, self._commands = defaults, commands
        self._entries = list(_entries(defaults, commands))
        for table in {table for table, _, _ in self._entries if table}:
            self[table]

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        """Return the file's defaults for a command. Raises UsageError for a value that the option does not take."""
        command, values = self._commands[name], {}
        for table, key, value in self._entries:
            if table in ("", name) and (option := _option(command, key)) is not None:
                values[str(option.name)] = _checked(self._defaults, table, option, command, value)
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


def default_map(commands: Commands, folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the defaults of the nearest file; empty if there is none. Raises UsageError for a file with errors."""
    for place in (folder, *folder.parents):
        for name, tables in FILES:
            if (values := _read(place / name, tables)) is not None:
                return Values(Defaults(place / name, ".".join(tables), values), commands)
    return {}


def _entries(defaults: Defaults, commands: Commands) -> Iterator[tuple[str, str, Any]]:
    """Yield the table (or ""), the key and the value of each entry. Entries of tables come last, to override others."""
    tables = {name: value for name, value in defaults.values.items() if isinstance(value, dict)}
    entries = [("", key, value) for key, value in defaults.values.items() if key not in tables]
    for name, table in tables.items():
        if name not in commands:
            raise defaults.refusal(name, "", f"is not a command; expected one of {', '.join(sorted(commands))}")
        entries += [(name, key, value) for key, value in table.items()]
    for table_name, key, value in entries:
        if all(_option(commands[name], key) is None for name in ([table_name] if table_name else commands)):
            of = f"`{table_name}`" if table_name else "any command"
            raise defaults.refusal(table_name, key, f"is not an option of {of} that a file can set")
        yield table_name, key, value


def _option(command: click.Command, key: str) -> click.Option | None:
    if key in NEVER:
        return None
    options = (param for param in command.params if isinstance(param, click.Option))
    return next((option for option in options if f"--{key}" in option.opts), None)


def _checked(defaults: Defaults, table: str, option: click.Option, command: click.Command, value: Any) -> Any:
    """Return a value as the command line would pass it. Raises UsageError if the option does not accept the value."""
    key = option.opts[-1].removeprefix("--")
    scalars = value if isinstance(value, list) else [value]
    if option.is_flag != isinstance(value, bool) or not all(isinstance(word, str | int | float) for word in scalars):
        expected = "true or false" if option.is_flag else "a string, a number or a list of them"
        raise defaults.refusal(table, key, f"is {value!r}, expected {expected}")
    texts = [_in_folder(defaults.path.parent, option, str(word)) for word in scalars]
    given = value if option.is_flag else texts if option.multiple else ",".join(texts)
    context = click.Context(command)
    try:
        cast = option.type_cast_value(context, given)
        if option.callback is not None:
            option.callback(context, option, cast)
    except click.BadParameter as error:
        raise defaults.refusal(table, key, error.message) from None
    except ValueError as error:  # a path cannot contain NUL
        raise defaults.refusal(table, key, f"is {value!r}: {error}") from None
    return given


def _in_folder(folder: Path, option: click.Option, text: str) -> str:
    """Resolve a file's name against the folder of the defaults; return any other text unchanged."""
    is_file = isinstance(option.type, click.Path) or option.name == "plugins"
    return str(folder / os.path.expanduser(text)) if is_file else text  # noqa: PTH111 # a user may have no home
