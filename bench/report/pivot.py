"""Make pivots for papers and Markdown: tables of an operation, problems x kernels, whose cells show one metric."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from statistics import geometric_mean
from typing import NamedTuple

from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.report.contest import (
    Contest,
    Ratio,
    Setting,
    comparable,
    contests,
    grouped,
    is_timed,
    multithreaded,
    order,
    slowdowns,
    speedup_of,
    speedups_in_turn,
    time_of,
)
from kernelmark.bench.report.format import digits, flop_unit, rounded, short, unit
from kernelmark.bench.report.layout import in_markdown
from kernelmark.bench.report.noise import MARK, is_noisy
from kernelmark.bench.report.variants import ratio_of, variant_pairs

#: The most problems of a pivot; a longer suite gets several pivots, so that the whole suite need not be in memory.
MOST_PROBLEMS = 200
#: The width of a page's column, in millimetres.
COLUMN_MM = 85.0
#: The words for statuses in cells without a time.
_STATUS = {Status.UNSUPPORTED.value: "--", Status.OK.value: "right"}


class Cell(NamedTuple):
    """A printed number with its interval, or a word instead. best: whether it is certainly the best in its line."""

    text: str
    interval: str = ""
    best: bool = False
    noisy: bool = False
    number: bool = True


class PivotLine(NamedTuple):
    """A problem, its sizes if these have columns, the unit of its cells, and a cell (None: no row) for each kernel."""

    label: str
    unit: str
    cells: list[Cell | None]
    sizes: Sequence[str] = ()


class Options(NamedTuple):
    """Options of an export.

    columns: the columns of CSV and JSON, in this order; all by default. filled: leave out columns of CSV that are empty
    in all rows. metric, sizes: the metric of pivots, and whether each size of a problem has a column. width, siunitx:
    for LaTeX, the millimetres beyond which tables are split, and whether to use the package siunitx.
    """

    columns: Sequence[str] = ()
    filled: bool = False
    metric: str = "time"
    sizes: bool = False
    width: float = COLUMN_MM
    siunitx: bool = False


ALL = Options()
#: The metrics of a pivot, each with a description.
METRICS = {
    "time": "Median times in the unit of the line",
    "rate": "Rates in the unit of the line",
    "speedup": "Speedups over the baseline",
    "roofline": "Shares of the roofline in per cent",
    "ratio": "Speeds relative to a variant of the problem (by the same kernel, or else its provider's fastest)",
}


class Pivot(NamedTuple):
    """A table of an operation's kernels in a setting. shared: the common part of the problems' ids.

    sizes: the names of the sizes that have columns. words: a description of the cells.
    """

    suite: str
    op: str
    shared: str
    setting: Setting
    kernels: list[str]
    lines: list[PivotLine]
    processes: int
    sizes: Sequence[str]
    words: str

    @property
    def title(self) -> str:
        """Return the title of the table: `gemm, k512 f32 NT`."""
        return f"{self.op}, {self.shared}" if self.shared else self.op


def chunks(groups: Iterable[list[Result]]) -> Iterator[tuple[str, str, list[list[Result]]]]:
    """Yield each suite and operation with its groups of rows, at most `MOST_PROBLEMS` groups at a time."""
    for (suite, op), remaining in groupby(groups, key=lambda rows: (rows[0].suite, rows[0].op)):
        while part := list(islice(remaining, MOST_PROBLEMS)):
            yield suite, op, part


def all_pivots(store: Reader, run_id: str, options: Options = ALL) -> Iterator[Pivot]:
    """Yield the pivots of a run, in the order of the run."""
    for suite, op, groups in chunks(store.groups(run_id)):
        yield from pivots(suite, op, groups, store, options)


def pivots(suite: str, op: str, groups: list[list[Result]], store: Reader, options: Options) -> list[Pivot]:
    """Return pivots of the rows of one operation: one for each setting and each group of problems that share kernels.

    A setting without times has no pivot. A single problem has no pivot of times: a list of kernels shows more columns.
    """
    rows = [r for group in groups for r in group]
    if len({r.problem for r in rows}) < 2 and options.metric == "time" and not options.sizes:
        return []
    by_setting: dict[Setting, dict[str, Contest]] = defaultdict(dict)
    plan, threaded = store.find_run(rows[0].run_id)["plan"], multithreaded(rows)
    for contest in speedups_in_turn(contests(rows, store), threaded, plan):
        by_setting[contest.setting][contest.problem] = contest
    places = {r.case: i for i, r in enumerate(rows)}
    untimed = (r for r in rows if not is_timed(r))
    failed = grouped(untimed, lambda r: (r.device, r.mode, r.isa, comparable(r), order(r), r.threads))

    def belong(setting: Setting, timed: dict[str, Contest]) -> list[Result]:
        """Return, in run order, a setting's timed rows and untimed ones of its thread count or one-thread kernels."""
        key = (setting.device, setting.mode, setting.isa, setting.precision, setting.order)
        others = (r for threads in {setting.threads, 1} for r in failed.get((*key, threads), []))
        here = [r for r in others if r.threads == setting.threads or r.kernel not in threaded]
        return sorted(chain(here, *(c.ranked for c in timed.values())), key=lambda r: places[r.case])

    return [
        _pivot(suite, op, setting, {p: timed[p] for p in problems if p in timed}, members, options)
        for setting, timed in by_setting.items()
        for problems, members in _connected(belong(setting, timed))
    ]


def _connected(rows: list[Result]) -> Iterator[tuple[list[str], list[Result]]]:
    """Yield groups of problems that have kernels in common, in order, with their rows."""
    kernels: dict[str, set[str]] = defaultdict(set)
    for r in rows:
        kernels[r.problem].add(r.kernel)
    while kernels:
        first = next(iter(kernels))
        reached, before = set(kernels[first]), set[str]()
        while reached != before:
            before = set(reached)
            reached.update(*(names for names in kernels.values() if names & reached))
        problems = [problem for problem, names in kernels.items() if names & reached]
        yield problems, [r for r in rows if r.problem in problems]
        for problem in problems:
            del kernels[problem]


def _pivot(
    suite: str, op: str, setting: Setting, timed: dict[str, Contest], rows: list[Result], options: Options
) -> Pivot:
    failed = {(r.problem, r.kernel): r for r in rows if r.time_s_median is None}
    problems = list(dict.fromkeys(r.problem for r in rows))
    slower = slowdowns(timed.values())
    ranked = sorted(slower, key=lambda kernel: (-len(slower[kernel]), geometric_mean(slower[kernel])))
    kernels = list(dict.fromkeys([*ranked, *(r.kernel for r in failed.values())]))
    shared, labels, sizes = _named(problems, options.sizes)
    names = list(dict.fromkeys(name for by_name in sizes for name in by_name))
    lines = [
        _line(label, timed.get(problem), [failed.get((problem, kernel)) for kernel in kernels], kernels, options.metric)
        ._replace(sizes=[by_name.get(name, "") for name in names])
        for label, problem, by_name in zip(labels, problems, sizes, strict=True)
    ]  # fmt: skip
    if options.metric != "time":
        lines = [line for line in lines if any(cell and cell.number for cell in line.cells)]
    processes = min((r.processes for c in timed.values() for r in c.ranked), default=1)
    return Pivot(suite, op, shared, setting, kernels, lines, processes, names, METRICS[options.metric])


def _named(problems: Sequence[str], as_columns: bool) -> tuple[str, list[str], list[dict[str, str]]]:
    """Return the common part of the problems' ids, the rest of each, and its sizes if these are columns."""
    if not as_columns:
        return *labelled(problems), [{} for _ in problems]
    parts = [_tokens(problem) for problem in problems]
    sizes = [dict(_size(text) for place, text in tokens if place == 0) for tokens in parts]
    words = [[token for token in tokens if token[0]] for tokens in parts]
    shared, rests = _shared(words)
    return _joined(shared), list(map(_joined, rests)), sizes


def _size(text: str) -> tuple[str, str]:
    name = re.match("[a-z]+", text)
    assert name is not None  # a token of sizes begins with a letter
    return name[0].upper(), text[name.end() :]


def _line(
    label: str, contest: Contest | None, failed: Sequence[Result | None], kernels: Sequence[str], metric: str
) -> PivotLine:
    if contest is None:
        return PivotLine(label, "", [_word(r) for r in failed])
    name, factor = _unit(contest, metric)
    rows = {r.kernel: r for r in contest.ranked}
    certain = (lead := contest.lead) is not None and lead.side == "faster"
    cells = [
        _cell(rows[kernel], metric, factor, certain and rows[kernel] is contest.fastest)
        if kernel in rows
        else _word(other)
        for kernel, other in zip(kernels, failed, strict=True)
    ]
    return PivotLine(label, name, cells)


def _unit(c: Contest, metric: str) -> tuple[str, float]:
    """Return the unit of a line, and this unit in seconds, GFLOP/s or GB/s (1 for other metrics)."""
    if metric == "time":
        return unit(time_of(c.fastest).median)
    if metric == "rate":
        rates = [r.gflop_per_s for r in c.ranked]
        return flop_unit(rates) if any(rates) else ("GB/s", 1.0)
    if metric == "ratio":
        pair = next((pair for pair in variant_pairs(c.ranked)), None)
        return f"over {pair.names[1]}" if pair else "", 1.0
    return "%" if metric == "roofline" else "", 1.0


def measured(r: Result, metric: str) -> Ratio | None:
    """Return a metric of a timed row with its interval, or None if it is not known."""
    if metric == "time":
        return time_of(r)
    if metric in ("speedup", "ratio"):
        return ratio_of(r) if metric == "ratio" else speedup_of(r) if r.speedup else None
    rate = r.roofline_pct if metric == "roofline" else r.gflop_per_s or r.gbyte_per_s
    work = (rate or 0.0) * time_of(r).median
    return Ratio(work, work, work).over(time_of(r)) if work else None


def _cell(r: Result, metric: str, factor: float, fastest: bool) -> Cell | None:
    """Return a cell. It is bold if it is certainly the best of its line, or a ratio that is certainly not 1."""
    if (ratio := measured(r, metric)) is None:
        return Cell("base", number=False) if metric == "speedup" and r.kernel == r.baseline else None
    text, interval = rounded(*(None if number is None else number / factor for number in ratio[:3]))  # type: ignore[arg-type]
    return Cell(text, interval, ratio.certain if metric == "ratio" else fastest, is_noisy(r))


def _word(r: Result | None) -> Cell | None:
    """Return the cell of a row without a median: its mean with the unit, or its status."""
    if r is None:
        return None
    if r.status == Status.OK and r.time_s_mean:
        name, factor = unit(r.time_s_mean)
        return Cell(f"{digits(r.time_s_mean / factor)} {name}", "mean", number=False)
    return Cell(_STATUS.get(r.status, r.status), number=False)


def labelled(problems: Sequence[str]) -> tuple[str, list[str]]:
    """Return the common part of the problems' ids and the rest of each: `k512 f32`, `m64n64 NT`."""
    shared, rests = _shared([_tokens(problem) for problem in problems])
    labels = list(map(_joined, rests))
    if not all(labels):
        labels = [short(problem).replace("/", " ") for problem in problems]
        return "", labels
    return _joined(shared), labels


#: A part of a problem's id: a size as (0, `m64`), any other part as (its place, `NT`).
Token = tuple[int, str]


def _shared(parts: Sequence[list[Token]]) -> tuple[list[Token], list[list[Token]]]:
    """Return the tokens that all lists share, in the order of the first list, and the rest of each list."""
    common = set(parts[0]).intersection(*parts)
    return [token for token in parts[0] if token in common], [[t for t in part if t not in common] for part in parts]


def _tokens(problem: str) -> list[Token]:
    sizes, *others = problem.partition("/")[2].split("/")
    return [(0, size) for size in re.findall(r"[a-z]+[^a-z]*(?:x[^a-z]+)?", sizes)] + list(enumerate(others, 1))


def _joined(tokens: Iterable[Token]) -> str:
    placed = list(tokens)
    sizes = "".join(text for place, text in placed if place == 0)
    return " ".join(filter(None, (sizes, *(text for place, text in placed if place))))


def markdown(pivot: Pivot) -> str:
    """Return the pivot as a table in GitHub's Markdown, below a description."""
    scope = f", {pivot.processes} processes each" if pivot.processes > 1 else ""
    what = pivot.words[0].lower() + pivot.words[1:].replace(" in the unit of the line", "")
    facts = in_markdown(f"(suite {pivot.suite}; {pivot.setting.title}{scope}): {what} and 95 % intervals")
    title = f"**{in_markdown(pivot.title)}** {facts}"
    heads = ["problem", *pivot.sizes, "", *(in_markdown(short(kernel)) for kernel in pivot.kernels)]
    rows = [[*map(in_markdown, (line.label, *line.sizes, line.unit)), *map(_shown, line.cells)] for line in pivot.lines]
    rule = "|".join([":---", *["---:"] * len(pivot.sizes), ":---", *["---:"] * len(pivot.kernels)])
    drawn = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    noisy = any(cell.noisy for line in pivot.lines for cell in line.cells if cell)
    note = f"\n\n{MARK} disturbed while it was measured" * noisy
    return "\n".join([f"{title}\n", drawn[0], f"|{rule}|", *drawn[1:]]) + note


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = f"**{cell.text}**" if cell.best else in_markdown(cell.text)
    return f"{MARK * cell.noisy}{text} {cell.interval}".rstrip()
