"""What `kernelmark compare` prints of its cases: the worst, a tally; and CSV and JSON with every case."""

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from typing import IO, Any, NamedTuple

import msgspec

from kernelmark.bench.compare.cases import (
    FASTER,
    REGRESSED,
    REMEDY,
    SAME,
    SLOWER,
    UNCLEAR,
    UNTIMED,
    CasePair,
    Comparison,
)
from kernelmark.bench.compare.siblings import Siblings, siblings
from kernelmark.bench.compare.stats import POWER
from kernelmark.bench.report.format import count, interval, percent, seconds, short
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.runs import RunSummary

#: Cases that the terminal is shown.
LISTED = 50
SHOWN = (
    TableColumn("case", wraps=30),
    TableColumn("BASE", "right", spare=2),
    TableColumn("NEW", "right", spare=2),
    TableColumn("NEW/BASE"),
    TableColumn("p (Holm)", "right", spare=1),
    TableColumn("verdict"),
    TableColumn("why", wraps=24),
)
PAIRS = (
    TableColumn("kernel"),
    TableColumn("sibling"),
    TableColumn("against", spare=1),
    TableColumn("speed in BASE"),
    TableColumn("speed in NEW"),
    TableColumn("NEW/BASE", wraps=18),
)
_RANK = {SLOWER: 2, UNCLEAR: 1, FASTER: 0}


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


COLUMNS = ("base_run", "new_run", "machines", *ComparedCase.__struct_fields__)


class Findings(NamedTuple):
    """How many cases have each verdict, the worst of those that are not the same, and changes of status."""

    verdicts: Counter[str]
    worst: list[CasePair]
    regressed: list[CasePair]
    changed: list[CasePair]
    untimed: Counter[str]

    def fails(self, slower: float) -> bool:
        """Whether a case regressed, or is slower by more than this fraction."""
        most = max((c.ratio for c in self.worst if c.verdict == SLOWER), default=0.0)
        return self.verdicts[REGRESSED] > 0 or most > 1 + slower


def gather(comparison: Comparison, write: Callable[[CasePair], object]) -> Findings:
    """Go through all cases once, handing each to `write`."""
    found = Findings(Counter(), [], [], [], Counter())
    found.worst.extend(nlargest(LISTED, _timed(comparison.compared(), found, write), key=_badness))
    return found


def _timed(cases: Iterator[CasePair], found: Findings, write: Callable[[CasePair], object]) -> Iterator[CasePair]:
    """Yield the cases to show in the table and note the others."""
    for case in cases:
        write(case)
        found.verdicts[case.verdict] += 1
        if case.verdict in _RANK:
            yield case
        elif case.verdict == REGRESSED:
            _keep(found.regressed, case)
        elif case.verdict == UNTIMED:
            found.untimed[case.reason if case.base.status == case.new.status else ""] += 1
            if case.base.status != case.new.status:
                _keep(found.changed, case)


def _keep(cases: list[CasePair], case: CasePair) -> None:
    if len(cases) < LISTED:
        cases.append(case)


def _badness(case: CasePair) -> tuple[int, float]:
    return _RANK[case.verdict], case.ratio if math.isfinite(case.ratio) else 0.0


def render(comparison: Comparison, found: Findings) -> str:
    """Return the table, pairs of siblings, statuses that changed, what one run alone has, and the tally."""
    pairs = list(siblings(comparison.base, comparison.new))
    untested = f"{count(comparison.alone, 'case')} cannot be tested; {REMEDY}" if comparison.alone else ""
    notes = _statuses(found), [_smallest(comparison), untested]
    paragraphs = [_table(found), _pairs(pairs), *map(_lines, notes)]
    tally = _lines([_tally(comparison, found.verdicts)])
    return "\n\n".join(filter(None, (*paragraphs, tally)))


def _lines(texts: Sequence[str]) -> str:
    return "\n".join(paragraph(text) for text in texts if text)


def _table(found: Findings) -> str:
    if not found.worst:
        return ""
    drawn = table(SHOWN, [_cells(case) for case in found.worst], titled=True)
    shown = Counter(case.verdict for case in found.worst)
    more = {verdict: found.verdicts[verdict] - shown[verdict] for verdict in _RANK}
    hidden = ", ".join(f"{number} {verdict}" for verdict, number in more.items() if number)
    return f"{drawn}\nand {hidden} more; --csv FILE has all" if hidden else drawn


def _pairs(pairs: Sequence[Siblings]) -> str:
    """Return the siblings that were measured in turn in both runs, those that changed most first."""
    shown = sorted(pairs, key=lambda pair: -abs(math.log(pair.change.median)))[:LISTED]
    cells = [
        (short(pair.one.kernel), pair.one.problem, pair.other.problem, str(pair.base), str(pair.new), pair.change.words)
        for pair in shown
    ]
    return table(PAIRS, cells, titled=True) if cells else ""


def _cells(case: CasePair) -> Sequence[str]:
    return (
        case.base.case,
        seconds(case.base.time_s_median),
        seconds(case.new.time_s_median),
        f"{case.ratio:.4g} {interval(case.low, case.high, '{:.4g}'.format)}".rstrip(),
        "" if math.isnan(case.p_holm) else f"{case.p_holm:.2g}",
        case.verdict,
        case.reason,
    )


def _statuses(found: Findings) -> list[str]:
    """Return a line for each case that has another status now, those that regressed first."""
    lines = [f"{case.verdict}: {case.base.case}: {case.reason}" for case in found.regressed]
    lines += [f"{case.base.case}: {case.reason}" for case in found.changed]
    hidden = found.verdicts[REGRESSED] + found.untimed[""] - len(lines)
    lines += [f"and {hidden} more changes of status; --csv FILE has all"] if hidden else []
    return lines + [f"no time: {number} {what}" for what, number in found.untimed.most_common() if what]


def _smallest(comparison: Comparison) -> str:
    found = comparison.detectable()
    if found is None:
        return ""
    alone, among = map(percent, found)
    among = f", {among} among {comparison.tested} (Holm)" if comparison.tested > 1 else ""
    found_in = f"{100 * POWER:.0f} % of comparisons like this one"
    return f"smallest difference that {found_in} would find, in the median case: {alone} by itself{among}"


def _tally(comparison: Comparison, verdicts: Counter[str]) -> str:
    """Return `120 cases: 3 slower, 1 faster, 100 same, 16 unclear`, then other verdicts, where there are any."""
    counts = [f"{verdicts[verdict]} {verdict}" for verdict in (SLOWER, FASTER, SAME, UNCLEAR)]
    counts += [f"{verdicts[verdict]} {verdict}" for verdict in (REGRESSED, UNTIMED) if verdicts[verdict]]
    total, only = verdicts.total(), {"BASE": comparison.base_only, "NEW": comparison.new_only}
    alone = "".join(f"; {number} in {side} only" for side, number in only.items() if number)
    return f"{count(total, 'case')}: {', '.join(counts)}{alone}"


def csv_writer(comparison: Comparison, machines: Sequence[str], out: IO[str]) -> Callable[[CasePair], object]:
    """Return a function that writes a case as a row of CSV below the columns' names; unknown is empty."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    runs = (comparison.base.run_id, comparison.new.run_id, "; ".join(machines) or "same")

    return lambda case: writer.writerow([*runs, *msgspec.structs.astuple(as_row(case))])


def as_row(case: CasePair) -> ComparedCase:
    """Return a case as it is written; unknown is None."""
    base, new = case.base, case.new
    statuses = (base.status, new.status, len(base.medians), len(new.medians))
    numbers = [x if math.isfinite(x) else None for x in (case.ratio, case.low, case.high, case.p, case.p_holm)]
    times = (base.time_s_median, new.time_s_median)
    values: list[Any] = [*base[:6], *statuses, *times, *numbers, case.verdict, case.reason]
    return ComparedCase(*values)
