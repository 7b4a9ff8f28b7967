"""A comparison as JSON for other programs: both runs, what differs between them, the verdicts, every case."""

from collections.abc import Sequence
from typing import IO

import msgspec

from kernelmark.bench.compare.cases import Compared, Comparison
from kernelmark.bench.compare.view import CASE_COLUMNS, Findings, case_values
from kernelmark.bench.report.runs import RunSummary, summary_of


class ComparedCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case that both runs have; ratio: NEW's time over BASE's; p: of this case alone, p_holm: among all."""

    case: str
    kernel: str
    problem: str
    mode: str
    threads: int
    isa: str
    base_status: str
    new_status: str
    base_processes: int
    new_processes: int
    base_time_s_median: float | None
    new_time_s_median: float | None
    ratio: float | None
    ratio_ci95_low: float | None
    ratio_ci95_high: float | None
    p: float | None
    p_holm: float | None
    verdict: str
    reason: str


class CompareDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `compare --json` prints. machines, differs: `what: base -> new`; base_only, new_only: cases of one alone."""

    base: RunSummary
    new: RunSummary
    machines: list[str]
    differs: list[str]
    margin: float
    verdicts: dict[str, int]
    base_only: int
    new_only: int
    cases: list[ComparedCase]


class Kept:
    """The cases of a comparison, kept until all is known that stands before them."""

    def __init__(self) -> None:
        self._cases: list[ComparedCase] = []

    def __call__(self, case: Compared) -> None:
        self._cases.append(ComparedCase(**dict(zip(CASE_COLUMNS, case_values(case), strict=True))))

    def write(
        self, comparison: Comparison, found: Findings, machines: Sequence[str], differs: Sequence[str], out: IO[str]
    ) -> None:
        """Write a `CompareDocument`."""
        base, new = (summary_of(side.store, side.run_id) for side in (comparison.base, comparison.new))
        alone = comparison.base_only, comparison.new_only
        lists = list(machines), list(differs), comparison.margin, dict(found.verdicts)
        document = CompareDocument(base, new, *lists, *alone, self._cases)
        out.write(msgspec.json.encode(document).decode() + "\n")
