"""Find the fastest kernel of each problem of a suite, and where another kernel takes over, as tables, CSV and JSON."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import IO, Any, NamedTuple

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.sweep import Entry, Sweep
from kernelmark.bench.plan.text import as_json
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import APART, TIE, Contest, Ratio, Setting, contests, grouped, is_timed, know_leads
from kernelmark.bench.report.format import count, ends, row_time, seconds, short, spread, yes_or_no
from kernelmark.bench.report.layout import TableColumn, paragraph, table_of
from kernelmark.bench.report.noise import MARK, marked, noise_of
from kernelmark.bench.report.runs import RunSummary, summary_of
from kernelmark.bench.report.variants import held_first

#: The number of points on each side of a takeover that are searched for a winner whose lead is certain.
REACH = 8
#: The columns that a contest and its table use.
NEEDED = (
    "run_id", "problem", "kernel", "device", "device_name", "mode", "dtype", "numerics", "threads", "time_s_median",
    "time_s_ci95_low", "time_s_ci95_high", "disturbed", "isa", "job", "host", "device_uuid", "against",
)  # fmt: skip
#: The most problems that a suite may have here; listing this many takes six seconds.
MOST_LISTED = 200_000


class Change(NamedTuple):
    """A takeover along an axis: before it, `old` is certainly faster; after it, `new` is.

    here, there: the values of the axis before and after. gain_before: the speed of `old` over `new` before the
    takeover; gain: the speed of `new` over `old` after it.
    """

    along: str
    here: Any
    there: Any
    before: Contest
    after: Contest
    old: str
    new: str
    gain_before: Ratio
    gain: Ratio


#: Contests along an axis, each with the axis's value.
Line = list[tuple[Any, Contest]]


class Listed(Sweep, frozen=True):
    """A sweep whose problems are stored in a list, so that they can be iterated several times."""

    made: Sequence[list[Entry]] = ()

    def groups(self) -> Iterator[list[Entry]]:
        return iter(self.made)


def listed(suite: Suite) -> Suite:
    """Return the suite with its problems in lists. Raises UsageError if there are too many."""
    size = sum(sweep.size for sweep in suite.sweeps)
    if size > MOST_LISTED:
        message = f"{suite.name}: has {size:,} problems, expected at most {MOST_LISTED:,}"
        raise UsageError(f"{message}; use a suite with fewer problems")
    sweeps = (Listed(**msgspec.structs.asdict(sweep), made=list(sweep.groups())) for sweep in suite.sweeps)
    return msgspec.structs.replace(suite, sweeps=tuple(sweeps))


class Kin(NamedTuple):
    """A kernel on two variants of a problem. ratio: how many times faster it is in `row` than in `other`."""

    setting: Setting
    row: Result
    other: Result
    ratio: Ratio


def standings(suite: Suite, store: Store, run_id: str) -> list[Contest]:
    """Return the contests on the problems of a suite, in the order of the suite."""
    problems = dict.fromkeys(entry.problem.id for entry in suite.entries())
    order = {problem: place for place, problem in enumerate(problems)}
    measured = contests([r for r in store.table(run_id, NEEDED).rows if r.problem in order], store)
    know_leads(measured, store, run_id)
    return sorted((c.by_lead() for c in measured), key=lambda c: order[c.problem])


def fastest_fft(c: Contest) -> Result | None:
    """Return the fastest kernel that convolves by FFT."""
    return next((r for r in c.ranked if r.numerics == "fft"), None)


def fft_speedup(c: Contest) -> Ratio | None:
    """Return the speedup of the fastest FFT over the fastest kernel that is not an FFT."""
    fft, rest = fastest_fft(c), next((r for r in c.ranked if r.numerics != "fft"), None)
    return c.faster(fft, rest) if fft and rest else None


def changes(suite: Suite, contests: Sequence[Contest]) -> list[Change]:
    """Return each certain takeover of one kernel from another along the axes that the suite sweeps."""
    by_problem = grouped(contests, lambda c: c.problem)
    return [
        change
        for sweep in suite.sweeps
        for axis in sweep.along
        for line in _lines(sweep, axis, by_problem)
        for change in _takeovers(axis, line)
    ]


def _takeovers(axis: str, line: Line) -> list[Change]:
    """Return the takeovers between neighbouring points of a line of sizes and across ties, without duplicates."""
    certain = [i for i, (_, contest) in enumerate(line) if (lead := contest.lead) and lead.certain]
    turns = sorted({*pairwise(range(len(line))), *pairwise(certain)})
    takeovers = (change for turn in turns if (change := _takeover(axis, line, *turn)))
    return list({(change.here, change.there, change.old, change.new): change for change in takeovers}.values())


def _takeover(axis: str, line: Line, i: int, k: int) -> Change | None:
    """Return the takeover between two points of a line, or None unless the winner is certain on both sides."""
    old, new = (line[place][1].fastest.kernel for place in (i, k))
    before = _nearest_certain(line[max(0, i + 1 - REACH) : i + 1][::-1], old, new) if old != new else None
    after = _nearest_certain(line[k : k + REACH], new, old) if before else None
    if before is None or after is None:
        return None
    (here, earlier, lead), (there, later, gain) = before, after
    return Change(axis, here, there, earlier, later, old, new, lead, gain)


def _nearest_certain(line: Iterable[tuple[Any, Contest]], kernel: str, other: str) -> tuple[Any, Contest, Ratio] | None:
    """Return the first point where `kernel` is certainly faster than `other`; None if the opposite is certain first."""
    for at, contest in line:
        ours, theirs = contest.of(kernel), contest.of(other)
        ratio = contest.faster(ours, theirs) if ours and theirs else None
        if ratio and ratio.certain:
            return (at, contest, ratio) if ratio.side == "faster" else None
    return None


def kin_of(suite: Suite, contests: Sequence[Contest]) -> list[Kin]:
    """Return each kernel's ratio of times between the first variant of a group and each other variant of the group."""
    at = {(contest.problem, contest.setting): contest for contest in contests}
    settings = list(dict.fromkeys(contest.setting for contest in contests))
    return [
        Kin(setting, *(pair := held_first(first, row)), contest.faster(*pair))
        for base, *others in ([entry.problem.id for entry in group] for group in suite.groups())
        if others
        for setting in settings
        for contest in (at.get((other, setting)) for other in others)
        if contest is not None and (base, setting) in at
        for row in contest.ranked
        if (first := at[base, setting].of(row.kernel))
    ]


def _lines(sweep: Sweep, axis: str, by_problem: dict[str, list[Contest]]) -> Iterable[Line]:
    """Group contests that differ only in this axis (and axes tied to it), sorted by its value."""
    moving = {axis, *sweep.tied} if axis in sweep.tied else {axis}
    lines: dict[Any, Line] = defaultdict(list)
    for entry in sweep.entries():
        rest = tuple(getattr(entry.problem, name) for name in entry.problem.axes() if name not in moving)
        for contest in by_problem.get(entry.problem.id, []):
            lines[contest.setting, rest].append((getattr(entry.problem, axis), contest))
    return [sorted(line, key=lambda pair: pair[0]) for line in lines.values()]


def find_run(suite: Suite, store: Store, run_id: str | None) -> str:
    """Return the named run, or the latest run that timed a problem of the suite. Raises UsageError."""
    if run_id is not None:
        return str(store.find_run(run_id)["run_id"])
    wanted = {entry.problem.id for entry in suite.entries()}
    for known in reversed(store.run_ids()):
        if any(r.problem in wanted and is_timed(r) for r, _ in store.results(known)):
            return known
    raise UsageError(f"{suite.name}: no run in {store.path} has timed it; `kernelmark run {suite.name}` times it")


STANDING = (
    TableColumn("problem", cell=lambda c: c.problem),
    TableColumn("fastest", cell=lambda c: short(c.fastest.kernel)),
    TableColumn("time", "right", cell=lambda c: marked(seconds(c.fastest.time_s_median), c.fastest)),
    TableColumn("95 %", "right", spare=4, cell=lambda c: spread(*row_time(c.fastest))),
    TableColumn("next", spare=2, cell=lambda c: short(c.ranked[1].kernel) if c.lead else ""),
    TableColumn("ahead of next", wraps=18, cell=lambda c: _words(c.lead)),
    TableColumn("FFT", spare=3, cell=lambda c: short(fft.kernel) if (fft := fastest_fft(c)) else ""),
    TableColumn("FFT against the rest", spare=1, wraps=18, cell=lambda c: _words(fft_speedup(c))),
)
KIN = (
    TableColumn("kernel", cell=lambda kin: short(kin.row.kernel)),
    TableColumn("variant", cell=lambda kin: kin.row.problem),
    TableColumn("against", spare=1, cell=lambda kin: kin.other.problem),
    TableColumn("variant's speed", wraps=18, cell=lambda kin: _words(kin.ratio)),
)


class CrossoverRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"before": "from"}):
    """A problem in a setting, with the time of its fastest kernel. An unknown value is "" or null.

    ratio: the fastest kernel's speed over the runner-up's. Set only at a takeover: along, the axis; previous, the
    kernel that led before; from, the last problem on which `previous` certainly led; gain, the speed over `previous`.
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
    """The document of `crossover --json`. problems: the number of problems in the suite, timed or not."""

    run: RunSummary
    suite: str
    problems: int
    rows: list[CrossoverRow]


COLUMNS = CrossoverRow.__struct_encode_fields__


def render(suite: Suite, contests: Sequence[Contest]) -> str:
    """Return a table for each setting, the takeovers along the axes of the suite, and the ratios of variants."""
    if not contests:
        return f"{suite.name}: this run has no time for any problem of the suite"
    turned = changes(suite, contests)
    kin = kin_of(suite, contests)
    parts = [_section(suite, rows, turned, kin) for rows in grouped(contests, lambda c: c.setting).values()]
    measured = len({contest.problem for contest in contests})
    total = len({entry.problem for entry in suite.entries()})
    return "\n\n".join([*parts, f"{suite.name}: {measured} of {count(total, 'problem')} timed"])


def _section(suite: Suite, rows: Sequence[Contest], turned: Sequence[Change], kin: Sequence[Kin]) -> str:
    setting = rows[0].setting
    parts = [paragraph(setting.title), table_of(STANDING, rows, titled=True)]
    if sentence := noise_of(r for contest in rows for r in contest.ranked).sentence:
        parts.append(paragraph(f"{MARK} {sentence}", "  "))
    takeovers = [_sentence(change) for change in turned if change.after.setting == setting]
    if axes := ", ".join(dict.fromkeys(axis for sweep in suite.sweeps for axis in sweep.along)):
        parts += ["", *(paragraph(text, "  ") for text in takeovers or [f"no takeover along {axes} is certain"])]
    if variants := [each for each in kin if each.setting == setting]:
        parts += ["", table_of(KIN, variants, titled=True)]
    return "\n".join(parts)


def _words(ratio: Ratio | None) -> str:
    """Return `1.4x [1.3, 1.5]`, or `tie [0.9, 1.1]` if the interval includes 1, with remarks."""
    if ratio is None:
        return ""
    if ratio.side == TIE:
        tie = f"{TIE} {ends(ratio.low, ratio.high)}"
        return tie if ratio.in_turn else f"{tie} ({APART})"
    return ratio.words


def _sentence(change: Change) -> str:
    """Return `r 3 to 5: cpu.im2col, ahead 1.4x [1.3, 1.5], gives way to pyfftw.tiled, ahead 1.8x [1.7, 1.9] (ID)`."""
    old = f"{short(change.old)}, ahead {change.gain_before.words}"
    new = f"{short(change.new)}, ahead {change.gain.words}"
    return f"{change.along} {change.here} to {change.there}: {old}, gives way to {new} ({change.after.problem})"


def write_csv(suite: Suite, run_id: str, contests: Sequence[Contest], out: IO[str]) -> None:
    """Write a row for each problem and setting, or several for several takeovers, with the columns of `CrossoverRow`.

    `ratio_in_turn` and similar columns: whether the two kernels shared a job, so that the interval comes from paired
    samples.
    """
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows(suite, run_id, contests):
        values = msgspec.to_builtins(row)
        writer.writerow({name: yes_or_no(v) if isinstance(v, bool) else v for name, v in values.items()})


def write_json(suite: Suite, store: Reader, run_id: str, contests: Sequence[Contest], out: IO[str]) -> None:
    """Write a `CrossoverDocument`."""
    problems = len({entry.problem.id for entry in suite.entries()})
    document = CrossoverDocument(summary_of(store, run_id), suite.name, problems, list(rows(suite, run_id, contests)))
    out.write(as_json(document) + "\n")


def rows(suite: Suite, run_id: str, contests: Sequence[Contest]) -> Iterator[CrossoverRow]:
    """Yield a row for each problem and setting, or several if kernels take over there along several axes."""
    turned: dict[object, list[dict[str, Any]]] = defaultdict(list)
    for change in changes(suite, contests):
        turn: dict[str, Any] = {"along": change.along, "before": change.before.problem, "previous": change.old}
        turns = turned[change.after.problem, change.after.setting]
        turn |= _ratio("gain", change.gain)
        if turn not in turns:  # sweeps may overlap
            turns.append(turn)
    for c in contests:
        for turn in turned.get((c.problem, c.setting), [{}]):
            yield CrossoverRow(suite=suite.name, run_id=run_id, **_row(c), **turn)


def _row(c: Contest) -> dict[str, Any]:
    lead, fft = c.lead, fastest_fft(c)
    return {
        "problem": c.problem,
        **{name: getattr(c.setting, name) for name in ("device", "threads", "mode", "precision")},
        "device_name": c.setting.machine,
        "fastest": c.fastest.kernel,
        "numerics": c.fastest.numerics,
        **{name: getattr(c.fastest, name) for name in COLUMNS if name.startswith("time_s_")},
        "runner_up": c.ranked[1].kernel if lead else "",
        **_ratio("ratio", lead),
        "fft": fft.kernel if fft else "",
        **_ratio("fft_speedup", fft_speedup(c)),
    }


def _ratio(name: str, ratio: Ratio | None) -> dict[str, Any]:
    if ratio is None:
        return {}
    ends = {f"{name}_ci95_low": ratio.low, f"{name}_ci95_high": ratio.high}
    return {name: ratio.median, **ends, f"{name}_in_turn": ratio.in_turn}
