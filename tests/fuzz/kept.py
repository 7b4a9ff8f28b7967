"""What a run that was killed has kept: every row once, none of them changed, and at the end all that was planned."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from fuzz.execute import Found
from fuzz.inputs import Input

#: Shows the rows before a run is resumed, and after.
SHOWN = ("show", "mine", "--json")
#: What makes a row another one than that of its problem and kernel.
_CASE = ("problem", "kernel", "mode", "threads", "isa")


def lost(given: Input, found: Found) -> Iterator[str]:
    """Yield what is wrong with the rows of a run that was killed and resumed, if this input is one."""
    shown = [json.loads(done.out) for step, done in zip(given.steps, found.outcomes, strict=True)
             if step.words[: len(SHOWN)] == SHOWN and done.status == 0]  # fmt: skip
    for document in shown:
        cases = _cases(document)
        if len(cases) < len(document["results"]):
            yield f"a row is doubled: {len(document['results'])} rows of {len(cases)} cases"
        for case, row in cases.items():
            if row["status"] != "ok":
                yield f"a kill cost a row: {' '.join(map(str, case))} is {row['status']}: {row['reason']}"
    for before, after in pairwise(shown):
        if not _cases(before).items() <= _cases(after).items():
            yield "a row was lost or changed by what followed"
    if shown and found.outcomes[-2].status == 0 and shown[-1]["run"]["cases_planned"] != len(shown[-1]["results"]):
        yield f"rows are missing: {shown[-1]['run']['cases_done']} of {shown[-1]['run']['cases_planned']}"


def _cases(document: Any) -> dict[tuple[Any, ...], Any]:
    return {tuple(row[key] for key in _CASE): row for row in document["results"]}
