"""Defaults of options from a file: kernelmark.toml, or [tool.kernelmark] in pyproject.toml, here or in a folder above.

What the keys may be, those who have the options know; here they are found.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kernelmark.bench.plan.errors import UsageError

FILES = (("kernelmark.toml", ()), ("pyproject.toml", ("tool", "kernelmark")))


class Defaults(NamedTuple):
    """The tables of a file. path: the file; table: the name of the outermost table, or ""."""

    path: Path
    table: str
    values: Mapping[str, Any]

    def refusal(self, command: str, key: str, reason: str) -> UsageError:
        """Return the complaint about a key: `kernelmark.toml: [run] max-time: is 'x', expected a number above 0`."""
        table = ".".join(filter(None, (self.table, command)))
        where = " ".join(filter(None, (table and f"[{table}]", key)))
        return UsageError(f"{self.path}: {where}: {reason}")


def find_defaults(folder: Path) -> Defaults | None:
    """Return the defaults of the nearest file; None where there is none. Raises UsageError for a file with errors."""
    for place in (folder, *folder.parents):
        for name, tables in FILES:
            found = _read(place / name, tables)
            if found is not None:
                return Defaults(place / name, ".".join(tables), found)
    return None


def _read(path: Path, tables: tuple[str, ...]) -> Mapping[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if text is None or not all(name in text for name in tables):
        return None
    import tomllib

    try:
        found: Any = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is no TOML: {error}") from None
    for name in tables:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
