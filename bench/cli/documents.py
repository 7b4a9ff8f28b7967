"""The types of the documents that commands print with `--json`; docs/schemas holds their JSON Schemas."""

from typing import Any

import msgspec

from kernelmark.bench.claims.answer import Answer
from kernelmark.bench.cli.doctor import ExaminedPart
from kernelmark.bench.cli.listing import ListedKernel, ListedSuite
from kernelmark.bench.compare.runs import CompareDocument
from kernelmark.bench.measure.measurement import Ceiling
from kernelmark.bench.plan.text import indented
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.records import RunFacts
from kernelmark.bench.report.crossover import CrossoverDocument
from kernelmark.bench.report.history import HistoryDocument
from kernelmark.bench.report.runs import RunDocument, RunSummary
from kernelmark.bench.report.scaling import ScalingDocument
from kernelmark.bench.report.trend import TrendDocument
from kernelmark.bench.selftest.finding import Checks
from kernelmark.bench.tune.inspect import InspectRow
from kernelmark.bench.tune.pins import Pins
from kernelmark.bench.tune.profile.view import Profile
from kernelmark.bench.tune.select.model import Model, SelectDocument


class ExportedCeiling(Ceiling, frozen=True, kw_only=True):
    """A ceiling of a run, in flop/s or bytes/s. doubt: the reason why it is invalid, or ""."""

    doubt: str


class ExportedRow(Result, kw_only=True):
    """A row with its samples, in seconds per call, in the order in which they were taken."""

    samples_s: list[float]


class Export(msgspec.Struct, forbid_unknown_fields=True):
    """The output of `export --format json` for one run. For several runs it is a list of such objects."""

    run: RunFacts
    results: list[ExportedRow]
    ceilings: list[ExportedCeiling]


#: By the name of a document's file in docs/schemas: the commands that print the document, and its type.
DOCUMENTS: dict[str, tuple[str, Any]] = {
    "run": ("run --json, verify --json, show --json", RunDocument),
    "runs": ("runs --json", list[RunSummary]),
    "export": ("export --format json", Export | list[Export]),
    "compare": ("compare --json", CompareDocument),
    "crossover": ("crossover --json", CrossoverDocument),
    "scaling": ("scaling --json", ScalingDocument),
    "select": ("select --json", SelectDocument),
    "selector": ("select --format json", Model),
    "claims": ("claims --json", list[Answer]),
    "list": ("list --json", list[ListedKernel]),
    "suites": ("list --suites --json", list[ListedSuite]),
    "doctor": ("doctor --json", list[ExaminedPart]),
    "trend": ("trend --json", TrendDocument),
    "history": ("history --json", HistoryDocument),
    "inspect": ("inspect --format json", list[InspectRow]),
    "profile": ("profile --json", Profile),
    "pins": ("inspect --baseline, profile --baseline", Pins),
    "selftest": ("selftest --json", Checks),
}


def schema(name: str) -> str:
    """Return a document's JSON Schema as the text of a file."""
    commands, kind = DOCUMENTS[name]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"kernelmark {commands}"}
    return indented(head | msgspec.json.schema(kind)) + "\n"
