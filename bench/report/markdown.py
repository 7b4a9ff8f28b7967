"""Texts in Markdown: what others named or wrote is shown as it is, and becomes no cell, no tag and no link."""

import re
from collections.abc import Iterable, Sequence

from kernelmark.bench.plan.text import escaped

#: A bar would end a cell, and a backslash undo the escape that follows it; an entity would be replaced; `](` and `][`
#: end the text of a link; and GitHub makes links of addresses by themselves.
_MARKUP = re.compile(r"[\\|<>]|&(?=#?\w+;)|\](?=[(\[])|:(?=//)|(?<=www)\.", re.IGNORECASE)
_SHOWN = {"\\": r"\\", "|": r"\|", "<": "&lt;", ">": "&gt;", "&": "&amp;", "]": r"\]", ":": "&#58;", ".": "&#46;"}


def in_markdown(text: str) -> str:
    """Return a text that GitHub shows as these words, on one line, in a cell of a table or out of it."""
    return _MARKUP.sub(lambda found: _SHOWN[found[0]], escaped(text))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as GitHub shows it; nothing for no row."""
    from tabulate import tabulate  # which takes a fifth of `kernelmark list`

    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return str(tabulate(cells, heads, tablefmt="github", disable_numparse=True)) if cells else ""
