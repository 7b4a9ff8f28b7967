"""`kernelmark compare`: check whether two runs can be compared, and write the outcome as text, CSV and JSON."""

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from heapq import nlargest
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from kernelmark.bench.compare.cases import FASTER, REGRESSED, SAME, SLOWER, UNCLEAR, UNTIMED, CasePair, Comparison, Side
from kernelmark.bench.compare.variant_ratios import ComparedRatio, compared_pairs, pairs_table
from kernelmark.bench.compare.variant_ratios import as_row as ratio_row
from kernelmark.bench.measure.disturbance import was_noisy
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.numbers import finite
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.text import as_json
from kernelmark.bench.record.records import CaseRow
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.anonymity import hidden
from kernelmark.bench.report.export import check_writable, opened
from kernelmark.bench.report.format import count, ends, percent, seconds
from kernelmark.bench.report.layout import TableColumn, paragraph, table_of
from kernelmark.bench.report.noise import MARK
from kernelmark.bench.report.runs import RunSummary, differences, settings_of, summary_of
from kernelmark.bench.report.welch import POWER

#: The remedy in messages about cases with fewer than two processes.
REMEDY = "`kernelmark run --processes 5` measures in several processes"
#: The most cases that are printed.
LISTED = 50
SHOWN = (
    TableColumn("case", wraps=30, cell=lambda c: c.base.case),
    TableColumn("BASE", "right", spare=1, cell=lambda c: _time(c.base)),
    TableColumn("NEW", "right", spare=1, cell=lambda c: _time(c.new)),
    TableColumn("NEW/BASE", cell=lambda c: f"{c.ratio:.4g} {ends(c.low, c.high, 4)}".rstrip()),
    TableColumn("p (Holm)", "right", spare=2, cell=lambda c: "" if math.isnan(c.p_holm) else f"{c.p_holm:.2g}"),
    TableColumn("verdict", cell=lambda c: c.verdict),
    TableColumn("why", wraps=24, cell=lambda c: c.reason),
)
_RANK = {SLOWER: 2, UNCLEAR: 1, FASTER: 0}


class ComparedCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case that both runs have. ratio: NEW's time over BASE's; p: its p-value; p_holm: corrected for all tests."""

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
    base_disturbed: str
    new_disturbed: str


class CompareDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document of `compare --json`. machines, differs: differences between the runs, as `name: base -> new`.

    base_only, new_only: the numbers of cases that only one run has. gate: the messages of --fail-slower. ratios: the
    ratios of variants that both runs measured in turn.
    """

    base: RunSummary
    new: RunSummary
    machines: list[str]
    differs: list[str]
    margin: float
    verdicts: dict[str, int]
    base_only: int
    new_only: int
    cases: list[ComparedCase]
    gate: list[str]
    ratios: list[ComparedRatio] = []


COLUMNS = ("base_run", "new_run", "machines", *ComparedCase.__struct_fields__)


class Gate(NamedTuple):
    """The conditions under which `compare` exits with 1: a case is too slow, or has a time only in BASE.

    slower: the largest allowed slowdown, as a fraction. unclear: also exit with 1 if a larger slowdown could go
    undetected. allow_missing: ignore cases that NEW lacks or did not time, unless they failed a check.
    """

    slower: float
    unclear: bool = False
    allow_missing: bool = False


class Findings(NamedTuple):
    """The number of cases with each verdict, the cases that differ most, and changes of status.

    counts: `open` is the number of cases whose slowdown may exceed the gate's limit; `lost` is the number of cases in
    both runs that are `ok` only in BASE.
    """

    verdicts: Counter[str]
    worst: list[CasePair]
    regressed: list[CasePair]
    changed: list[CasePair]
    untimed: Counter[str]
    counts: Counter[str]


def judged(gate: Gate, comparison: Comparison, findings: Findings) -> tuple[list[str], bool]:
    """Return the gate's messages and whether the gate fails. Messages on undetectable slowdowns come first."""
    _, least = comparison.detectable() or (0.0, 0.0)
    blind = [
        f"cannot detect {percent(gate.slower)} here; the smallest detectable slowdown is {percent(least)} (median of "
        f"{count(comparison.tested, 'case')}); more processes detect smaller ones"
    ] * (least > gate.slower)
    if still := findings.counts["open"]:
        blind.append(f"{count(still, 'case')} may be slower by more than {percent(gate.slower)}: unclear")
    broken = findings.verdicts[REGRESSED]
    missing = len(comparison.vanished) + findings.counts["lost"] - broken
    lines = [f"FAILS: {count(broken, 'case')} broke"] * (broken > 0)
    if missing and not gate.allow_missing:
        lost = [case.base.case for case in findings.changed if case.base.status == Status.OK]
        which = f"missing or no longer `ok` in NEW: {count(missing, 'case')}"
        lines.append(f"FAILS: {which}: {', '.join(comparison.vanished[:LISTED] + lost)}; --allow-missing allows this")
    most = max((case.ratio for case in findings.worst if case.verdict == SLOWER), default=0.0)
    if most > 1 + gate.slower:
        lines.append(f"FAILS: a case is slower by {percent(most - 1)}, more than {percent(gate.slower)}")
    if blind and gate.unclear:
        lines.append("FAILS: unclear (--fail-unclear)")
    return [*blind, *lines], bool(lines)


def gather(comparison: Comparison, gate: Gate | None, writers: Sequence[Callable[[ComparedCase], object]]) -> Findings:
    """Return the findings of one pass over all cases; call every writer with each case as a row."""
    findings = Findings(Counter(), [], [], [], Counter(), Counter())
    bound = 1 + gate.slower if gate else math.inf

    def timed() -> Iterator[CasePair]:
        for case in comparison.compared():
            if writers:
                row = as_row(case)
                for write in writers:
                    write(row)
            findings.verdicts[case.verdict] += 1
            findings.counts["lost"] += case.base.status == Status.OK != case.new.status
            if case.verdict in _RANK:
                is_beyond = case.verdict == SLOWER and case.ratio > bound
                findings.counts["open"] += not is_beyond and not case.high <= bound
                yield case
            elif case.verdict == REGRESSED and len(findings.regressed) < LISTED:
                findings.regressed.append(case)
            elif case.verdict == UNTIMED:
                findings.untimed[case.reason if case.base.status == case.new.status else ""] += 1
                if case.base.status != case.new.status and len(findings.changed) < LISTED:
                    findings.changed.append(case)

    findings.worst.extend(nlargest(LISTED, timed(), key=lambda case: (_RANK[case.verdict], finite(case.ratio) or 0.0)))
    return findings


def render(comparison: Comparison, findings: Findings) -> str:
    """Return a comparison as text: cases, ratios of variants, changes of status, detectable differences, the tally."""
    pairs = list(compared_pairs(comparison.base, comparison.new))
    untested = f"{count(comparison.alone, 'case')} cannot be tested; {REMEDY}" if comparison.alone else ""
    notes = _statuses(findings), [_smallest(comparison), untested], [_tally(comparison, findings.verdicts)]
    return "\n\n".join(filter(None, (_table(findings), pairs_table(pairs), *map(_lines, notes))))


def _lines(texts: Sequence[str]) -> str:
    return "\n".join(paragraph(text) for text in texts if text)


def _table(findings: Findings) -> str:
    if not findings.worst:
        return ""
    drawn, shown = table_of(SHOWN, findings.worst, titled=True), Counter(case.verdict for case in findings.worst)
    more = {verdict: findings.verdicts[verdict] - shown[verdict] for verdict in _RANK}
    hidden = ", ".join(f"{number} {verdict}" for verdict, number in more.items() if number)
    drawn += f"\n  {MARK} measured under noise" * (f" {MARK}" in drawn)
    return f"{drawn}\nand {hidden} more; --csv FILE has all" if hidden else drawn


def _time(row: CaseRow) -> str:
    return MARK * was_noisy(row.disturbed) + seconds(row.time_s_median)


def _statuses(findings: Findings) -> list[str]:
    lines = [f"{case.verdict}: {case.base.case}: {case.reason}" for case in findings.regressed]
    lines += [f"{case.base.case}: {case.reason}" for case in findings.changed]
    hidden = findings.verdicts[REGRESSED] + findings.untimed[""] - len(lines)
    lines += [f"and {hidden} more changes of status; --csv FILE has all"] if hidden else []
    return lines + [f"no time: {number} {what}" for what, number in findings.untimed.most_common() if what]


def _smallest(comparison: Comparison) -> str:
    smallest = comparison.detectable()
    if smallest is None:
        return ""
    alone, among = map(percent, smallest)
    among = f", {among} corrected for {comparison.tested} cases (Holm)" if comparison.tested > 1 else ""
    detected = f"smallest difference detected with a probability of {100 * POWER:.0f} % in the median case"
    return f"{detected}: {alone} if it is tested alone{among}"


def _tally(comparison: Comparison, verdicts: Counter[str]) -> str:
    """Return `120 cases: 3 slower, 1 faster, 100 same, 16 unclear`, and other verdicts if there are any."""
    named = (SLOWER, FASTER, SAME, UNCLEAR, *(verdict for verdict in (REGRESSED, UNTIMED) if verdicts[verdict]))
    counts = [f"{verdicts[verdict]} {verdict}" for verdict in named]
    total, only = verdicts.total(), {"BASE": comparison.base_only, "NEW": comparison.new_only}
    alone = "".join(f"; {number} in {side} only" for side, number in only.items() if number)
    return f"{count(total, 'case')}: {', '.join(counts)}{alone}"


def as_row(case: CasePair) -> ComparedCase:
    """Return a case as a row of the CSV and the JSON, with None for unknown values."""
    base, new = case.base, case.new
    statuses = (base.status, new.status, len(base.medians), len(new.medians))
    numbers = map(finite, (case.ratio, case.low, case.high, case.p, case.p_holm))
    words = (case.verdict, case.reason, base.disturbed, new.disturbed)
    values: list[Any] = [*base[:6], *statuses, base.time_s_median, new.time_s_median, *numbers, *words]
    return ComparedCase(*values)


def compare_runs(
    base: tuple[Store, str],
    new: tuple[Store, str],
    margin: float,
    gate: Gate | None,
    anyway: bool,
    csv_path: Path | None,
    json_to: IO[str] | None = None,
) -> tuple[str, bool]:
    """Return the comparison as text, and whether the gate fails. Raises UsageError for runs that cannot be compared.

    base, new: a store and the name of a run in it. margin: the fraction up to which times count as the same. anyway:
    compare runs of different machines, devices or tiles, too.
    """
    if csv_path is not None:
        check_writable(csv_path)
    with ExitStack() as stack:
        for store in {base[0], new[0]}:
            stack.enter_context(store.snapshot())
        old, now = (store.find_run(run_id) for store, run_id in (base, new))
        machines, updated = _machines(old, now, anyway)
        _check_tiles(old, now, anyway)
        comparison = Comparison(Side(base[0], old["run_id"]), Side(new[0], now["run_id"]), margin)
        _check_cases(comparison, gate, anyway)
        machines += [f"device: {a} -> {b}" for a, b in sorted(comparison.devices)]
        differs = [*differences(settings_of(old), settings_of(now)), *updated, *_places(comparison)]
        cases: list[ComparedCase] = []
        writers: list[Callable[[ComparedCase], object]] = [cases.append] if json_to is not None else []
        with ExitStack() as files:
            if csv_path is not None:
                writer = csv.writer(files.enter_context(opened(csv_path)), lineterminator="\n")
                writer.writerow(COLUMNS)
                runs = (comparison.base.run_id, comparison.new.run_id, "; ".join(machines) or "same")
                writers.append(lambda case: writer.writerow([*runs, *msgspec.structs.astuple(case)]))
            findings = gather(comparison, gate, writers)
        lines, fails = judged(gate, comparison, findings) if gate else ([], False)
        if json_to is not None:
            before, after = (summary_of(side.store, side.run_id) for side in (comparison.base, comparison.new))
            alone = comparison.base_only, comparison.new_only
            verdicts = dict(findings.verdicts)
            ratios = [ratio_row(pair) for pair in compared_pairs(comparison.base, comparison.new)]
            document = CompareDocument(before, after, machines, differs, margin, verdicts, *alone, cases, lines, ratios)
            json_to.write(as_json(document) + "\n")
        parts = [_lines(lines), _header(old, now, machines, differs, margin), render(comparison, findings)]
        return "\n\n".join(filter(None, parts)), fails


def _machines(base: Mapping[str, Any], new: Mapping[str, Any], anyway: bool) -> tuple[list[str], list[str]]:
    """Return two lists: differences between distinct machines, and differences that an update of one may cause.

    Raises UsageError for a run compared with itself and, unless `anyway`, for different machines.
    """
    if base["run_id"] == new["run_id"]:
        raise UsageError(f"BASE and NEW are both run {base['run_id']}; expected two runs")
    old, now = base["machine"], new["machine"]
    names = {line.partition(":")[0] for line in differences(_coarse(old), _coarse(now, old))}
    lines = differences(old, now)
    others = [line for line in lines if line.partition(":")[0] in names]
    if names and not anyway:
        which = f"runs {base['run_id']} and {new['run_id']} were measured on different machines"
        raise UsageError(f"{which}: {'; '.join(others)}; --anyway compares them")
    return others, [line for line in lines if line not in others]


#: Matches a version, with its first two numbers as a group; in a Linux release, up to the machine type.
_PATCH = re.compile(r"(?<=^Linux-)(\d+\.\d+)\S*(?=-\w+-with-)|(\d+\.\d+)(?:\.\d+)+")
#: Memory sizes within this fraction count as equal, since versions of Linux leave different amounts to programs.
_LIKE = 0.01


def _coarse(machine: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a machine's facts without patch releases. If memory sizes differ by at most 1 %, return `other`'s."""
    facts_of = {name: _PATCH.sub(r"\1\2", fact) if isinstance(fact, str) else fact for name, fact in machine.items()}
    base_bytes, theirs = (facts.get("memory_bytes", 0) for facts in (machine, other or machine))
    alike = base_bytes and abs(base_bytes - theirs) <= _LIKE * theirs
    return {**facts_of, "memory_bytes": theirs} if alike else facts_of


def _places(comparison: Comparison) -> list[str]:
    """Return the differing hosts and GPUs that measured the cases; the GPUs may be of the same model."""
    sides = [(name, zip(*pairs, strict=True)) for name, pairs in comparison.places.items() if pairs]
    known = [(name, [sorted({hidden(name, place) for place in side}) for side in both]) for name, both in sides]
    return [f"{name}: {', '.join(old)} -> {', '.join(now)}" for name, (old, now) in known]


def _check_tiles(base: Mapping[str, Any], new: Mapping[str, Any], anyway: bool) -> None:
    """Raise UsageError for runs with different tuned tiles, since another tile is different code."""
    text = "{kernel}@{tile} on {problem}, {threads} threads"
    tiles = [{text.format(**tile) for tile in run["plan"].get("tiles", ())} for run in (base, new)]
    if tiles[0] != tiles[1] and not anyway:
        only = min(tiles[0] ^ tiles[1])
        which = f"runs {base['run_id']} and {new['run_id']}"
        raise UsageError(f"{which} differ in tuned tiles: only one has {only}; --anyway compares them")


def _check_cases(comparison: Comparison, gate: Gate | None, anyway: bool) -> None:
    """Raise UsageError if the runs have no common case or different devices, or if a gate could miss slower cases."""
    if not len(comparison.p_holm):
        counts = f"{comparison.base_only} in BASE, {comparison.new_only} in NEW"
        raise UsageError(f"the runs have no case in common: {counts}; a case is kernel, problem, mode, threads and isa")
    if comparison.devices and not anyway:
        old, now = min(comparison.devices)
        raise UsageError(f"cases ran on different devices: {old} in BASE, {now} in NEW; --anyway compares them")
    if gate and not comparison.timed:
        raise UsageError("--fail-slower: no case has a time in both runs, so none can be found slower")
    if gate and comparison.alone:
        which = f"{comparison.alone} of {comparison.timed} cases"
        raise UsageError(f"--fail-slower: {which} have fewer than two processes in BASE or NEW; {REMEDY}")


def _header(
    base: Mapping[str, Any], new: Mapping[str, Any], machines: Sequence[str], differs: Sequence[str], margin: float
) -> str:
    lines = [f"{name} {run['run_id']}, {run['started_at']}" for name, run in (("BASE", base), ("NEW ", new))]
    lines += [f"DIFFERENT MACHINES: {line}" for line in machines]
    lines += [f"differs: {line}" for line in differs]
    lines.append(
        "NEW/BASE: ratio of the geometric means of the processes' medians, with the 95 % interval of a case tested "
        "alone (Welch); slower, faster: certain, with at most 5 % error over all cases (Holm); "
        f"same: the interval lies within {100 * margin:g} % of 1"
    )
    return "\n".join(map(paragraph, lines))
