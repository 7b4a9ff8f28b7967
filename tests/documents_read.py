"""What commands print as JSON, read as strictly as other programs may read it."""

import json
from typing import Any

import msgspec

from kernelmark.bench.cli.documents import DOCUMENTS


def strict(text: str) -> Any:
    """The document, in which NaN and the infinities are refused."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def valid(text: str, name: str) -> Any:
    """The document, if it has the form of its schema."""
    msgspec.json.decode(text, type=DOCUMENTS[name][1], strict=True)
    return strict(text)
