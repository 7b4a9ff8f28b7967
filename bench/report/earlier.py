"""What a published report has of earlier runs, whose store is gone: a report grows, and loses no row."""

import csv
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from kernelmark.bench.plan.errors import UsageError

Row = dict[str, str]


class EarlierRun(NamedTuple):
    """A run of an earlier report: its id, when it began, how many rows it has, the commit that was measured."""

    run: str
    began: str
    rows: int
    commit: str


def rows(results: Path, runs: Collection[str]) -> list[Row]:
    """Return the rows of a report's results.csv that are of none of these runs. Raises UsageError."""
    try:
        with results.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            found = [row for row in reader if row["run_id"] not in runs]
    except FileNotFoundError:
        return []
    except (OSError, KeyError, csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{results}: {error}; expected the rows of a published report, move the file away") from None
    return found


def runs_of(found: Collection[Row]) -> list[EarlierRun]:
    """Return the runs that rows are of, the earliest first."""
    kept: dict[str, list[Row]] = {}
    for row in found:
        kept.setdefault(row["run_id"], []).append(row)
    began = {run: min(row["started_at"] for row in own) for run, own in kept.items()}
    known = (EarlierRun(run, began[run], len(own), own[0]["git_commit"]) for run, own in kept.items())
    return sorted(known, key=lambda one: one.began)


def facts(environment: Path, runs: Collection[str]) -> list[dict[str, Any]]:
    """Return the machine and the environment of each earlier publication of other runs, the earliest first."""
    try:
        before = json.loads(environment.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    known: list[dict[str, Any]] = before.pop("earlier", [])
    before.pop("report", None)
    return [one for one in (*known, before) if not set(one.get("runs", {}).values()) & set(runs)]
