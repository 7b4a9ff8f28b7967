"""For the site: replace each link to a file outside of docs/, which is not on the site, by its text."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)\s]+\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return _OUTSIDE.sub(r"\1", markdown)
