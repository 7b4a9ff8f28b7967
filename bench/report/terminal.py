"""How wide a terminal is, and what tables gain on it: bold text, and bars for shares of the roofline."""

import shutil
from collections.abc import Mapping, Sequence
from typing import TextIO

#: The style of tables for a terminal.
TERMINAL = "terminal"
BAR_WIDTH = 8
#: Characters in a line where there is no terminal: files, mails and the logs of CI show about that many.
PIPE = 100
#: Tables do not shrink below this, whatever the terminal.
NARROWEST = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BOLD, _RESET = "\033[1m", "\033[0m"


def is_wanted(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a person reads the stream: a terminal with bold and blocks, and no NO_COLOR (no-color.org)."""
    plain = environ.get("NO_COLOR") or environ.get("TERM") == "dumb"
    return stream.isatty() and not plain and (stream.encoding or "").lower().replace("-", "") == "utf8"


def width() -> int:
    """Return how many characters a line may have: `COLUMNS`, or what the terminal has, or `PIPE` without one."""
    return max(shutil.get_terminal_size((PIPE, 24)).columns, NARROWEST)


def bar(percent: float) -> str:
    """Return a bar that is full at 100 %, to an eighth of a character, as wide as any other."""
    eighths = round(min(max(percent, 0.0), 100.0) / 100 * BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(BAR_WIDTH)


def with_bars(cells: Sequence[Sequence[str]], column: int) -> list[list[str]]:
    """Return the cells of a table, each number of this column with its bar after it; none where the column is empty."""
    shown = any(row[column] for row in cells)
    return [
        [f"{text} {bar(float(text or 0))}" if shown and i == column else text for i, text in enumerate(row)]
        for row in cells
    ]


def bold(line: str) -> str:
    """Return a line in bold."""
    return f"{_BOLD}{line}{_RESET}"
