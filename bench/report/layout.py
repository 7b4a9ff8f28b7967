"""Lay out tables and paragraphs for a terminal's width: wrap texts, leave out spare columns, keep ids whole.

In Markdown, names and texts are escaped, so that they cannot form cells, tags or links.
"""

import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TextIO

from kernelmark.bench.plan.text import escaped

#: Matches text that GitHub would interpret: a bar ends a cell, a backslash undoes the escape after it, an entity is
#: replaced by its character, `](` and `][` end the text of a link, and an address becomes a link.
_MARKUP = re.compile(r"[\\|<>]|&(?=#?\w+;)|\](?=[(\[])|:(?=//)|(?<=www)\.", re.IGNORECASE)
_SHOWN = {"\\": r"\\", "|": r"\|", "<": "&lt;", ">": "&gt;", "&": "&amp;", "]": r"\]", ":": "&#58;", ".": "&#46;"}


def in_markdown(text: str) -> str:
    """Escape a text so that GitHub shows it literally, on one line, inside or outside a table."""
    return _MARKUP.sub(lambda match: _SHOWN[match[0]], escaped(text))


def github_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in GitHub's Markdown, or "" without rows."""
    from tabulate import tabulate  # not at the top: the import takes a fifth of the time of `kernelmark list`

    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return str(tabulate(cells, heads, tablefmt="github", disable_numparse=True)) if cells else ""


#: The style of tables for a terminal.
TERMINAL = "terminal"
BAR_WIDTH = 8
#: Characters in a line without a terminal: about as many as files, mails and CI logs show.
PIPE = 100
#: The least width of a table, even on a narrower terminal.
NARROWEST = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BOLD, _RESET = "\033[1m", "\033[0m"


def is_wanted(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether a stream gets bold text and bars: a UTF-8 terminal, unless NO_COLOR is set (no-color.org)."""
    plain = environ.get("NO_COLOR") or environ.get("TERM") == "dumb"
    return stream.isatty() and not plain and (stream.encoding or "").lower().replace("-", "") == "utf8"


def width() -> int:
    """Return the maximum length of a line: `COLUMNS`, or the terminal's width, or 100 if there is no terminal."""
    return max(shutil.get_terminal_size((PIPE, 24)).columns, NARROWEST)


def bar(percent: float) -> str:
    """Return a bar of constant width that is full at 100 %, with steps of an eighth of a character."""
    eighths = round(min(max(percent, 0.0), 100.0) / 100 * BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(BAR_WIDTH)


def with_bars(cells: Sequence[Sequence[str]], column: int) -> list[list[str]]:
    """Return the cells of a table with a bar after each number of this column; without bars if the column is empty."""
    shown = any(row[column] for row in cells)
    return [
        [f"{text} {bar(float(text or 0))}" if shown and i == column else text for i, text in enumerate(row)]
        for row in cells
    ]


#: The gap between columns, and the indent of rows if the first column is above them.
GAP = "  "
_COMMAND = re.compile(r"`[^`]*`|\bpip install \S+")
_KEPT_SPACE = "\x1f"  # replaces spaces in commands while a paragraph is wrapped

Rows = Sequence[Sequence[str]]


class TableColumn(NamedTuple):
    """A column of a table.

    spare: 0 if the column is always shown. On a narrow terminal, columns with the highest number are left out first.
    wraps: 0 if cells are never wrapped, otherwise the least width of a wrapped cell in characters.
    cell: for `table_of`, a function from an item to its text in this column.
    """

    header: str
    align: str = "left"
    spare: int = 0
    wraps: int = 0
    cell: Callable[[Any], str] = str


def table_of(columns: Sequence[TableColumn], items: Iterable[Any], style: str = "simple", titled: bool = False) -> str:
    """Return a table with a row for each item; the cells come from the columns' functions."""
    return table(columns, [[column.cell(item) for column in columns] for item in items], style, titled)


def table(
    columns: Sequence[TableColumn], rows: Rows, style: str = "simple", titled: bool = False, best: int = -1
) -> str:
    """Return a table, without the columns whose cells are all empty; "" if no column is left.

    style: `simple` and `terminal` fit the terminal's width, and name omitted columns below the table; `github` and
    `html`, the styles of files, have no width limit. titled: if the table is too wide, the first column becomes titles
    above the rows. best: the index of the row in bold.
    """
    filled = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    columns, rows = [columns[i] for i in filled], [[row[i] for i in filled] for row in rows]
    if not rows or not columns:
        return ""
    if style == "github":
        return "\n".join(_markdown(columns, rows))
    if style == "html":
        from tabulate import tabulate  # not at the top: the import takes a fifth of the time of `kernelmark list`

        html: str = tabulate(rows, [c.header for c in columns], tablefmt="html", disable_numparse=True)
        return html
    return "\n".join(_fitted(columns, [[*map(escaped, row)] for row in rows], width(), titled, best))


def natural_width(columns: Sequence[TableColumn], rows: Rows) -> int:
    """Return the width of a table if no cell is wrapped and only empty columns are left out."""
    return _total([max(map(len, (c.header, *cells))) for c, *cells in zip(columns, *rows, strict=True) if any(cells)])


def wrapped(text: str, room: int, first: str = "", rest: str = "") -> list[str]:
    """Return the lines of a paragraph, wrapped between words; a command that fits on one line is not split."""
    text = escaped(text)
    if len(first) + len(text) <= room:
        return [first + text]

    def whole(match: re.Match[str]) -> str:
        return match[0].replace(" ", _KEPT_SPACE) if len(match[0]) <= room - len(rest) else match[0]

    lines = textwrap.wrap(
        _COMMAND.sub(whole, text),
        room,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_KEPT_SPACE, " ") for line in lines]


def paragraph(text: str, first: str = "", rest: str = "    ", style: str = "simple") -> str:
    """Wrap a text to the terminal's width, with later lines indented; in style `github`, keep it on one line."""
    return first + in_markdown(text) if style == "github" else "\n".join(wrapped(text, width(), first, rest))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _fitted(columns: Sequence[TableColumn], rows: Rows, room: int, titled: bool, best: int) -> Iterator[str]:
    """Yield the lines of the first layout that fits the room, without spare columns if needed.

    The first column is on the left or, if the table is then too wide, above its rows; if `titled`, it is on the left
    only if all columns fit. In both positions, texts are wrapped to the width `wraps` or, if that is too wide, to
    single words. If no layout fits, each cell gets its own line.
    """
    cells = [(column.header, *texts) for column, *texts in zip(columns, *rows, strict=True)]
    natural = [max(map(len, texts)) for texts in cells]
    words = [max((len(word) for text in texts for word in text.split()), default=0) for texts in cells]
    tight = [word if c.wraps else cell_width for c, word, cell_width in zip(columns, words, natural, strict=True)]
    least = [min(cell_width, max(word, c.wraps)) for c, word, cell_width in zip(columns, tight, natural, strict=True)]
    above = len(columns) > 1
    beside = not titled or not above or _total(least) <= room
    for under, widths in [(False, least), (False, tight)] * beside + [(True, least), (True, tight)] * above:
        every, space = range(under, len(columns)), room - len(GAP) * under
        if shown := _fewer(columns, widths, every, space):
            widened = _widened([widths[i] for i in shown], [natural[i] for i in shown], space)
            yield from _drawn(columns, rows, shown, widened, under, room, best)
            if hidden := [columns[i].header for i in every if i not in shown]:
                needed = len(GAP) + _total(least[1:]) if titled else _total(least)
                text = f"left out to fit: {', '.join(hidden)} (COLUMNS={needed} or a wider terminal shows all)"
                yield from wrapped(text, room, GAP, 2 * GAP)
            return
    yield from _listed(columns, rows, room)


def _fewer(columns: Sequence[TableColumn], least: Sequence[int], shown: Sequence[int], room: int) -> list[int]:
    """Return the columns that fit after leaving out spare ones; [] if the others do not fit either."""
    fitting = list(shown)
    for i in sorted((i for i in shown if columns[i].spare), key=lambda i: -columns[i].spare):
        if _total([least[k] for k in fitting]) > room:
            fitting.remove(i)
    return fitting if _total([least[k] for k in fitting]) <= room else []


def _widened(widths: list[int], natural: Sequence[int], room: int) -> list[int]:
    """Return the widths after giving each remaining character to the column that is furthest from its natural width."""
    for _ in range(min(room - _total(widths), sum(natural) - sum(widths))):
        widths[max(range(len(widths)), key=lambda i: natural[i] - widths[i])] += 1
    return widths


def _drawn(
    columns: Sequence[TableColumn], rows: Rows, at: Sequence[int], widths: list[int], titled: bool, room: int, best: int
) -> Iterator[str]:
    indent = GAP if titled else ""
    if titled:
        yield columns[0].header
    shown, previous = [columns[i] for i in at], None
    yield from _row(shown, widths, [c.header for c in shown], indent)
    yield indent + GAP.join("-" * cell_width for cell_width in widths)
    for number, row in enumerate(rows):
        lines = list(_row(shown, widths, [row[i] for i in at], indent))
        if titled and row[0] != previous:
            lines, previous = [*wrapped(row[0], room, "", 2 * GAP), *lines], row[0]
        yield from (f"{_BOLD}{line}{_RESET}" if number == best else line for line in lines)


def _listed(columns: Sequence[TableColumn], rows: Rows, room: int) -> Iterator[str]:
    """Yield a line for each cell, indented except in the first column; a word that is too long gets a separate line."""
    for title, *texts in rows:
        yield from wrapped(title, room, "", 2 * GAP)
        for column, text in zip(columns[1:], texts, strict=True):
            yield from wrapped(f"{column.header}: {text}", room, GAP, 3 * GAP) if text else ()


def _row(columns: Sequence[TableColumn], widths: Sequence[int], row: Sequence[str], indent: str) -> Iterator[str]:
    cells = [wrapped(text, room) if c.wraps else [text] for c, room, text in zip(columns, widths, row, strict=True)]
    for line in zip_longest(*cells, fillvalue=""):
        yield (indent + GAP.join(map(_aligned, line, widths, columns))).rstrip()


def _aligned(text: str, room: int, column: TableColumn) -> str:
    return text.rjust(room) if column.align == "right" else text.ljust(room)


def _markdown(columns: Sequence[TableColumn], rows: Rows) -> Iterator[str]:
    lines = [[c.header for c in columns], *([*map(in_markdown, row)] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    drawn = [f"| {' | '.join(map(_aligned, line, widths, columns))} |" for line in lines]
    rules = [
        f"{'-' * (cell_width + 1)}:" if c.align == "right" else f":{'-' * (cell_width + 1)}"
        for c, cell_width in zip(columns, widths, strict=True)
    ]
    yield drawn[0]
    yield f"|{'|'.join(rules)}|"
    yield from drawn[1:]
