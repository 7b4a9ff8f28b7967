"""`kernelmark compare`: whether two runs can be compared, what differs, and the outcome as text, CSV and JSON."""

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from heapq import nlargest
from pathlib import Path
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
    Side,
)
from kernelmark.bench.compare.stats import POWER
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import Ratio, faster, is_timed
from kernelmark.bench.report.export import check_writable, write_text
from kernelmark.bench.report.format import count, interval, percent, seconds, short
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.runs import RunSummary, summary_of

#: Pairs of siblings that are read, the first of NEW: each costs eight queries.
MOST_PAIRS = 200


class Siblings(NamedTuple):
    """A kernel on two problems of one job: how many times faster it is on `one` than on `other`, in each run."""

    one: Result
    other: Result
    base: Ratio
    new: Ratio

    @property
    def change(self) -> Ratio:
        """Return the ratio in NEW over the one in BASE; what slowed both siblings of a run is not in it."""
        return self.new.over(self.base)


def siblings(base: Side, new: Side) -> Iterator[Siblings]:
    """Yield the pairs that both runs have measured in turn, each in one job, in the order of NEW."""
    for pair in new.store.sibling_cases(new.run_id, MOST_PAIRS):
        if all(base.store.has(base.run_id, case) for case in pair):
            before, now = ([side.store.result(side.run_id, case)[0] for case in pair] for side in (base, new))
            if before[0].job == before[1].job != "" and all(map(is_timed, before)):
                ratios = [faster(side.store, other, first) for side, (first, other) in ((base, before), (new, now))]
                yield Siblings(now[1], now[0], *ratios)


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
    shown = sorted(pairs, key=lambda pair: -abs(math.log(pair.change.median)))[:LISTED]
    cells = [
        (short(pair.one.kernel), pair.one.problem, pair.other.problem, str(pair.base), str(pair.new), pair.change.words)
        for pair in shown
    ]
    if not cells:
        return ""
    more = f"\nand {len(pairs) - LISTED} more, of the first {MOST_PAIRS} of NEW" if len(pairs) > LISTED else ""
    return table(PAIRS, cells, titled=True) + more


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


Asked = tuple[Store, str]


def compare_runs(
    base: Asked,
    new: Asked,
    margin: float,
    fail_slower: float | None,
    anyway: bool,
    csv_path: Path | None,
    json_to: IO[str] | None = None,
) -> tuple[str, bool]:
    """Return the comparison as text, and whether a case fails. Raises UsageError for runs that cannot be compared.

    base, new: a store and what its run is named by. margin, fail_slower: fractions.
    """
    if csv_path is not None:
        check_writable(csv_path)
    with ExitStack() as stack:
        for store in {base[0], new[0]}:
            stack.enter_context(store.snapshot())
        old, now = (store.find_run(run_id) for store, run_id in (base, new))
        machines = _machines(old, now, anyway)
        _check_tiles(old, now, anyway)
        comparison = Comparison(Side(base[0], old["run_id"]), Side(new[0], now["run_id"]), margin)
        _check_cases(comparison, anyway)
        if fail_slower is not None:
            _check_decidable(comparison)
        machines += [f"device: {a} -> {b}" for a, b in sorted(comparison.devices)]
        cases: list[ComparedCase] = []
        keep = (lambda case: None) if json_to is None else (lambda case: cases.append(as_row(case)))
        found = _gathered(comparison, machines, csv_path, keep)
        if json_to is not None:
            one, other = (summary_of(side.store, side.run_id) for side in (comparison.base, comparison.new))
            differs, alone = _differences(_settings(old), _settings(now)), (comparison.base_only, comparison.new_only)
            document = CompareDocument(one, other, machines, differs, margin, dict(found.verdicts), *alone, cases)
            json_to.write(msgspec.json.encode(document).decode() + "\n")
        text = f"{_header(old, now, machines, margin)}\n\n{render(comparison, found)}"
        return text, fail_slower is not None and found.fails(fail_slower)


def _gathered(
    comparison: Comparison, machines: Sequence[str], csv_path: Path | None, keep: Callable[[CasePair], object]
) -> Findings:
    if csv_path is None:
        return gather(comparison, keep)
    found: list[Findings] = []

    def write(out: IO[str]) -> None:
        row = csv_writer(comparison, machines, out)
        found.append(gather(comparison, lambda case: (row(case), keep(case))))

    write_text(csv_path, write)
    return found[0]


def _machines(base: Mapping[str, Any], new: Mapping[str, Any], anyway: bool) -> list[str]:
    if base["run_id"] == new["run_id"]:
        raise UsageError(f"BASE and NEW are both run {base['run_id']}; expected two runs")
    found = _differences(base["machine"], new["machine"])
    if found and not anyway:
        which = f"runs {base['run_id']} and {new['run_id']}"
        raise UsageError(f"{which} are of different machines: {'; '.join(found)}; --anyway compares them")
    return found


def _check_tiles(base: Mapping[str, Any], new: Mapping[str, Any], anyway: bool) -> None:
    """Raise UsageError for runs whose kernels had different tiles: their times are not of the same code."""
    tiles = [{_tile(tile) for tile in run["plan"].get("tiles", ())} for run in (base, new)]
    if tiles[0] != tiles[1] and not anyway:
        only = min(tiles[0] ^ tiles[1])
        which = f"runs {base['run_id']} and {new['run_id']}"
        raise UsageError(f"{which} differ in tuned tiles: {only} is of one alone; --anyway compares them")


def _tile(tile: Mapping[str, Any]) -> str:
    return f"{tile['kernel']}@{tile['tile']} on {tile['problem']}, {tile['threads']} threads"


def _check_cases(comparison: Comparison, anyway: bool) -> None:
    if not len(comparison.p_holm):
        counts = f"{comparison.base_only} in BASE, {comparison.new_only} in NEW"
        raise UsageError(f"the runs have no case in common: {counts}; a case is kernel, problem, mode, threads and isa")
    if comparison.devices and not anyway:
        old, now = min(comparison.devices)
        raise UsageError(f"cases ran on different devices: {old} in BASE, {now} in NEW; --anyway compares them")


def _check_decidable(comparison: Comparison) -> None:
    """Raise UsageError for a comparison that cannot find a slower case: it must not pass for one that found none."""
    if not comparison.timed:
        raise UsageError("--fail-slower: no case has a time in both runs, so none can be found slower")
    if comparison.alone:
        which = f"{comparison.alone} of {comparison.timed} cases"
        raise UsageError(f"--fail-slower: {which} have fewer than two processes in BASE or NEW; {REMEDY}")


def _header(base: Mapping[str, Any], new: Mapping[str, Any], machines: Sequence[str], margin: float) -> str:
    lines = [f"{name} {run['run_id']}, {run['started_at']}" for name, run in (("BASE", base), ("NEW ", new))]
    lines += [f"DIFFERENT MACHINES: {line}" for line in machines]
    lines += [f"differs: {line}" for line in _differences(_settings(base), _settings(new))]
    lines.append(
        "NEW/BASE: geometric means of the processes' medians, 95 % interval of each case by itself (Welch); "
        "slower, faster: with at most 5 % error over all cases (Holm); "
        f"same: the interval lies within {100 * margin:g} % of 1"
    )
    return "\n".join(map(paragraph, lines))


def _differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return `numpy: 2.4.5 -> 2.4.6` for each value that is not the same in both."""
    pairs = ((name, base.get(name, "none"), new.get(name, "none")) for name in dict.fromkeys([*base, *new]))
    return [f"{name}: {old} -> {now}" for name, old, now in pairs if old != now]


def _settings(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may vary from run to run on one machine: commit, plan, versions, variables."""
    environment = run["environment"]
    nested = {name: value for part in environment.values() if isinstance(part, dict) for name, value in part.items()}
    flat = {name: value for name, value in environment.items() if not isinstance(value, dict)}
    return {"git_commit": run["git_commit"], **run["plan"], **flat, **nested}
