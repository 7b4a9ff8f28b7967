"""The fastest kernels of a suite as JSON for other programs."""

from collections.abc import Sequence
from typing import IO

import msgspec

from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.report.contest import Contest
from kernelmark.bench.report.crossover import rows
from kernelmark.bench.report.runs import RunSummary, summary_of


class CrossoverRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"before": "from"}):
    """A problem in a setting. Its first columns are those of the fastest kernel; "" and null stand for none.

    ratio: how many times faster than the runner-up. from, previous: the neighbour where another kernel won, and which.
    """

    suite: str
    run_id: str
    problem: str
    device: str
    device_name: str
    threads: int
    mode: str
    precision: str
    fastest: str
    numerics: str
    time_s_median: float
    time_s_ci95_low: float | None
    time_s_ci95_high: float | None
    runner_up: str = ""
    ratio: float | None = None
    ratio_ci95_low: float | None = None
    ratio_ci95_high: float | None = None
    fft: str = ""
    fft_speedup: float | None = None
    fft_speedup_ci95_low: float | None = None
    fft_speedup_ci95_high: float | None = None
    along: str = ""
    before: str = ""
    previous: str = ""
    gain: float | None = None
    gain_ci95_low: float | None = None
    gain_ci95_high: float | None = None
    ratio_in_turn: bool | None = None
    fft_speedup_in_turn: bool | None = None
    gain_in_turn: bool | None = None


class CrossoverDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `crossover --json` prints. problems: how many the suite has, with a time or without."""

    run: RunSummary
    suite: str
    problems: int
    rows: list[CrossoverRow]


def write_json(suite: Suite, store: Reader, run_id: str, found: Sequence[Contest], out: IO[str]) -> None:
    """Write a `CrossoverDocument`."""
    problems = {entry.problem.id for entry in suite.entries()}
    kept = [msgspec.convert(_typed(row), CrossoverRow) for row in rows(suite, run_id, found)]
    document = CrossoverDocument(summary_of(store, run_id), suite.name, len(problems), kept)
    out.write(msgspec.json.encode(document).decode() + "\n")


def _typed(row: dict[str, object]) -> dict[str, object]:
    """Return a row of CSV with truth values in the place of `yes` and `no`."""
    return {name: value == "yes" if name.endswith("_in_turn") else value for name, value in row.items()}
