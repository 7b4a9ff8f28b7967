"""What a check has found, and the table of it."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from tabulate import tabulate


class Finding(NamedTuple):
    """A figure with its bound; `holds` is None where there is nothing to hold: it could not be tested, or informs."""

    check: str
    found: str
    bound: str
    holds: bool | None


MARKS = {True: "yes", False: "NO", None: "-"}


def table(findings: Sequence[Finding]) -> str:
    """One line a finding."""
    cells = [(f.check, f.found, f.bound, MARKS[f.holds]) for f in findings]
    text: str = tabulate(cells, ("check", "found", "bound", "holds"), tablefmt="simple", disable_numparse=True)
    return text


def as_json(findings: Sequence[Finding], left_out: Sequence[str]) -> str:
    """The findings, and the checks that were not asked for."""
    return json.dumps({"findings": [f._asdict() for f in findings], "left_out": list(left_out)}, indent=2)
