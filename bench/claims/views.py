"""Write verdicts as text, JSON, CSV and Markdown."""

import csv
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import msgspec

from kernelmark.bench.claims.answer import VERDICTS, Answer, JudgedRatio
from kernelmark.bench.plan.text import indented
from kernelmark.bench.report.export import write_text
from kernelmark.bench.report.format import count, yes_or_no
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.page import Claims

_FIELDS = (
    "id", "verdict", "said", "notes", "words", "source", "applies", "experiment", "number", "expected",
    "device_names", "interval", "run_ids",
)  # fmt: skip
_LISTS = ("said", "notes", "device_names", "run_ids", "rows")
COLUMNS = (*_FIELDS, "where", "by", "answer", "ratio", "ci95_low", "ci95_high", "in_turn", "rows")
_IN_FILES = (TableColumn("verdict"), TableColumn("claim"), TableColumn("in words"), TableColumn("found"))


def heading(answers: Sequence[Answer], run_ids: Sequence[str], here: bool) -> str:
    """Return a heading with the runs and devices that the rows come from."""
    used = dict.fromkeys(run_id for a in answers for run_id in a.run_ids) or run_ids[-1:]
    names = ", ".join(dict.fromkeys(name for a in answers for name in a.device_names)) or "no device that a claim uses"
    runs = f"run{'s' * (len(used) > 1)} {', '.join(used)}" if used else "no run"
    return "\n".join(map(paragraph, (runs, f"{'latest rows of this machine' if here else 'measured on'}: {names}")))


def render(answers: Sequence[Answer]) -> str:
    """Return a paragraph for each claim: verdict, id, words, the number that would confirm it, and the result."""
    return "\n\n".join([*map(_answer, answers), paragraph(tally(answers))])


def _answer(a: Answer) -> str:
    claim = paragraph(f"{a.verdict.upper()}  {a.id}: {a.words}")
    return "\n".join([claim, *(paragraph(text, "    ", "        ") for text in _evidence(a))])


def _evidence(a: Answer) -> list[str]:
    if not a.findings:
        return [f"missing: {text}" for text in a.said]
    return [_question(a), *a.said, *a.notes]


def _question(a: Answer) -> str:
    return f"{a.number} must be {a.expected}" + (f" ({a.interval} intervals)" if a.interval else "")


def tally(answers: Sequence[Answer]) -> str:
    """Return how many claims have each verdict: `39 claims: 4 confirmed, 9 depends, 26 not testable here`."""
    counts = Counter(a.verdict for a in answers)
    return f"{count(len(answers), 'claim')}: " + ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])


def write_json(answers: Sequence[Answer], out: IO[str]) -> None:
    """Write a list with an object for each claim, with its findings."""
    out.write(indented(list(answers), 1) + "\n")


def write_csv(answers: Sequence[Answer], out: IO[str]) -> None:
    """Write a row for each finding, with the claim's columns repeated; a claim without findings has one row."""
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for a in answers:
        fields = {name: getattr(a, name) for name in _FIELDS}
        fields |= {name: "; ".join(getattr(a, name)) for name in _LISTS}
        for finding in a.findings or (None,):
            if finding:
                fields |= msgspec.structs.asdict(finding) | {"in_turn": yes_or_no(finding.in_turn)}
                fields["rows"] = "; ".join(finding.rows)
            writer.writerow(fields)


def read_csv(path: Path) -> list[Answer]:
    """Return the claims of a claims.csv, or an empty list if the file does not exist."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        by_claim = [list(rows) for _, rows in groupby(csv.DictReader(file), itemgetter("id"))]
    return [_read(rows) for rows in by_claim]


def _read(rows: Sequence[dict[str, str]]) -> Answer:
    fields: dict[str, Any] = {name: rows[0][name] for name in _FIELDS}
    fields |= {name: _split(rows[0][name]) for name in _LISTS}
    findings = []
    for row in filter(itemgetter("ratio"), rows):
        low, high = (float(row[name]) if row[name] else None for name in ("ci95_low", "ci95_high"))
        ratio = float(row["ratio"]), low, high, row["in_turn"] == yes_or_no(True), _split(row["rows"])
        findings.append(JudgedRatio(row["where"], row["by"], row["answer"], *ratio))
    return Answer(**fields, findings=tuple(findings))


def _split(cell: str) -> tuple[str, ...]:
    return tuple(cell.split("; ")) if cell else ()


def write_markdown(answers: Sequence[Answer], title: str, out: IO[str]) -> None:
    """Write a table of the verdicts with their numbers."""
    rows = [(a.verdict, a.id, a.words, "; ".join(_evidence(a))) for a in answers]
    out.write(f"# Claims: {title}\n\n{tally(answers)}.\n\n{table(_IN_FILES, rows, 'github')}\n")


def statements(answers: Sequence[Answer]) -> Claims:
    """Return texts for a run's page: the number of claims with each verdict, and the claims that have a number."""

    def statement(a: Answer) -> dict[str, object]:
        rows = f"{count(len(a.rows), 'row')} of {', '.join(a.run_ids)}, named in claims.csv"
        number, lines = f"{_question(a)} {a.source}.", (*a.said, *a.notes, rows)
        return {"verdict": a.verdict, "words": a.words, "number": number, "lines": lines}

    return {"tally": tally(answers), "shown": [statement(a) for a in answers if a.findings]}


def write_files(folder: Path, answers: Sequence[Answer], title: str) -> None:
    """Write claims.csv and claims.md in a folder of `reports/`. Raises UsageError."""
    write_text(folder / "claims.csv", lambda out: write_csv(answers, out))
    write_text(folder / "claims.md", lambda out: write_markdown(answers, title, out))
