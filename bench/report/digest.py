"""Print a run: a line for each problem, or for each operation of a large suite, then the notes and the verdict."""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from kernelmark.bench.measure.disturbance import low_ceilings
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.status import AGAINST, Status
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store, command_on
from kernelmark.bench.report.contest import TIE, Contest, grouped, speedup_of
from kernelmark.bench.report.findings import refusals, variants_beside, verdict
from kernelmark.bench.report.format import count, operation, seconds, short, some
from kernelmark.bench.report.founding import OUT_OF_PLACE, is_founding
from kernelmark.bench.report.layout import GAP, TableColumn, natural_width, table, width, wrapped
from kernelmark.bench.report.noise import MARK, marked, noise_of, share
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tables import by_name_only, correct, kernel_table, scope_note, status_line
from kernelmark.bench.report.variants import variant_pairs

#: A run with more rows ends without a verdict; only its report has the verdict.
MOST_JUDGED = 5000
#: The most problems of a suite that are printed one per line, and the most kernels printed for a single problem.
MOST_LINES = 20
#: The most rows without a result that are listed, and the most kernels listed for one reason.
_MOST_NAMED, _MOST_KERNELS = 5, 3
#: The most characters in a line of notes, however wide the terminal is, and in the text of a reason.
_TEXT, _REASON = 80, 280
_EQUAL = "="
_LINES = (
    TableColumn("problem"),
    TableColumn("fastest"),
    TableColumn("time", "right"),
    TableColumn("speedup"),
    TableColumn("roof %", "right", spare=1),
)
_OPERATIONS = (
    TableColumn("operation"),
    TableColumn("problems", "right"),
    TableColumn("kernels", "right"),
    TableColumn("rows", "right"),
    TableColumn("ok", "right"),
    TableColumn("others", wraps=16),
)


def run_digest(store: Store, run_id: str, style: str = "simple") -> Iterator[str]:
    """Yield the paragraphs that `run` prints below the run's id, some of them empty; the last is the verdict."""
    tally = store.statuses(run_id)
    if tally.total() > MOST_JUDGED:
        yield from _of_many(store, run_id, tally)
        return
    data = RunData(store, run_id)
    suites = grouped(data.rows, lambda r: r.suite)
    is_single = len({(r.problem, r.mode, r.isa) for r in data.rows}) == 1
    many = {} if is_single else {suite: rows for suite, rows in suites.items() if _is_long(rows)}
    lines = [c for c in data.contests if c.fastest.suite not in many]
    if is_single:
        yield kernel_table(data.rows, style, MOST_LINES)
        yield "\n".join(map(_text, islice(filter(None, map(correct, data.rows)), MOST_LINES)))
    else:
        yield _lines(lines, data)
    for suite, rows in many.items():
        title = f"{suite}: {count(len({r.problem for r in rows}), 'problem')}, by operation"
        yield f"{title}\n{_operations((r.problem, r.kernel, r.status, 1) for r in rows)}"
    variants = map(_text, variants_beside(data))
    notes = [*variants, *_refused(data, many), *_remarks(data, [] if is_single else lines)]
    last = status_line(tally) if is_single and len(data.rows) <= MOST_LINES else _tallied(tally, store)
    yield "\n".join([*notes, *[last] * _is_timed(data)])
    yield verdict_line(data, variants=False)


def verdict_line(data: RunData, variants: bool = True) -> str:
    """Return the line that `--quiet` prints: the verdict or, if the run has no times, the counts of rows by status."""
    if not _is_timed(data):
        return status_line(Counter(r.status for r in data.rows))
    text = verdict(data, variants)
    return _text(f"Verdict: {text}" if data.leads or variant_pairs(data.timed) else text)


def _is_timed(data: RunData) -> bool:
    return data.run.plan.get("mode") != Mode.VERIFY and bool(data.rows)


def _of_many(store: Store, run_id: str, tally: Counter[str]) -> Iterator[str]:
    """Yield the paragraphs of a run with too many rows to be read at once."""
    rows = [(t.kernel, status, n) for t in store.kernel_totals(run_id) for status, n in t.statuses.items()]
    yield _operations((kernel, kernel, status, n) for kernel, status, n in rows)
    failed = [f"{status}: {kernel}: {count(n, 'row')}" for kernel, status, n in rows if status != Status.OK]
    yield "\n".join([*_first(failed, store, run_id), _tallied(tally, store)])
    writes = command_on(store.path, f"report {run_id} --out DIR")
    yield _text(f"no verdict is printed for {tally.total()} rows; {writes} writes one")


def _is_long(rows: Sequence[Result]) -> bool:
    """Return whether a suite has too many problems to print one per line, or was only verified."""
    return len({r.problem for r in rows}) > MOST_LINES or all(r.mode == Mode.VERIFY for r in rows)


def _lines(contests: Sequence[Contest], data: RunData) -> str:
    """Return a line for each problem, `is_founding` ones first, below headings with the setting and the baseline."""
    groups = grouped(sorted(contests, key=lambda c: not is_founding(data, c)), _setting)
    ordered = [(title, c) for title, group in groups.items() for c in group]
    cells = [_cells(c) for _, c in ordered]
    if len(GAP) + natural_width(_LINES, cells) > width():
        titles = [(c.problem + _against(c), *row[1:]) for (_, c), row in zip(ordered, cells, strict=True)]
        return table(_LINES, titles, titled=True)
    drawn, previous = table(_LINES, cells).splitlines(), ""
    lines = [GAP + line for line in drawn[:2]]
    for (title, _), line in zip(ordered, drawn[2:], strict=True):
        lines += wrapped(title, width()) * (title != previous)
        lines.append(GAP + line)
        previous = title
    return "\n".join(lines)


def _setting(c: Contest) -> str:
    """Return `gemm: 2 threads, cold, fp32; speedup against numpy.matmul`; for a GPU, with the name of the device."""
    setting = c.setting._replace(device_name=c.setting.device_name * (c.setting.device != "cpu"))
    return f"{c.op}: {setting.title}{_against(c)}"


def _against(c: Contest) -> str:
    baseline = next((r.baseline for r in c.ranked if r.baseline), "")
    return f"; speedup against {short(baseline)}" if baseline else ""


def _cells(c: Contest) -> tuple[str, ...]:
    r = c.fastest
    return (
        c.problem.partition("/")[2],
        short(r.kernel) + "*" * by_name_only(r) + f" {_EQUAL}" * _is_tie(c),
        marked(seconds(r.time_s_median), r),
        "baseline" if r.kernel == r.baseline else "" if r.speedup is None else str(speedup_of(r)),
        share(r),
    )


def _is_tie(c: Contest) -> bool:
    return c.lead is not None and c.lead.side == TIE


def _operations(rows: Iterable[tuple[str, str, str, int]]) -> str:
    """Return a line for each operation: the numbers of problems and kernels, and of rows with each status."""
    problems, kernels = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    tallies = defaultdict[str, Counter[str]](Counter)
    for problem, kernel, status, rows_ in rows:
        op = operation(problem)
        problems[op].add(problem)
        kernels[op].add(kernel)
        tallies[op][status] += rows_
    cells = []
    for op, tally in tallies.items():
        counted = "" if problems[op] == kernels[op] else str(len(problems[op]))
        others = ", ".join(f"{n} {status}" for status, n in tally.most_common() if status != Status.OK)
        cells.append((op, counted, str(len(kernels[op])), str(tally.total()), str(tally[Status.OK]), others))
    return table(_OPERATIONS, cells)


def _refused(data: RunData, many: Collection[str]) -> Iterator[str]:
    """Yield a line for each failed row, failed checks first, then a line for each reason for `unsupported`.

    many: the long suites. Their unsupported rows are listed only for kernels whose rows all have the same reason.
    """
    several = len({r.problem for r in data.rows}) > 1
    failed = [r for r in data.rows if r.status not in (Status.OK, Status.UNSUPPORTED)]
    failed.sort(key=lambda r: r.status not in AGAINST)
    where = {r.problem: f" on {r.problem.partition('/')[2]}" * several for r in failed}
    lines = [f"{r.status}: {r.kernel}{where[r.problem]}: {_cut(r.reason)}" for r in failed]
    yield from _first(lines, data.store, data.run_id)
    lines = []
    outcomes: dict[str, set[str]] = defaultdict(set)
    for r in data.rows:
        outcomes[r.kernel].add(r.reason)
    refused = (r for r in data.rows if r.status == Status.UNSUPPORTED)
    for refusal in refusals([r for r in refused if r.suite not in many or len(outcomes[r.kernel]) == 1]):
        rows = f" ({refusal.rows} rows)" if refusal.rows > 1 else ""
        lines.append(f"{refusal.status}: {some(refusal.kernels, _MOST_KERNELS)}{rows}: {_cut(refusal.reason)}")
    yield from _first(lines, data.store, data.run_id)


def _cut(reason: str) -> str:
    return textwrap.shorten(reason, _REASON, placeholder=" ...") if len(reason) > _REASON else reason


def _first(lines: Sequence[str], store: Store, run_id: str) -> Iterator[str]:
    yield from map(_text, lines[:_MOST_NAMED])
    if (more := len(lines) - _MOST_NAMED) > 0:
        yield _text(f"and {more} more; {command_on(store.path, f'show {run_id}')} shows all")


def _remarks(data: RunData, lines: Sequence[Contest]) -> Iterator[str]:
    """Yield the remarks below the lines: the meaning of each mark, and the limits of a single process."""
    noise, fastest = noise_of(data.rows).sentence, [c.fastest for c in lines]
    if noise:
        yield _text(f"{MARK} {noise}")
    low = list(dict.fromkeys(low for r in fastest for low in low_ceilings(r.disturbed)))
    if low:
        yield _text(f"{MARK} roof %: {low[0]}{f'; and {len(low) - 1} more' * bool(low[1:])}")
    if any(map(_is_tie, lines)):
        yield _text(f"{_EQUAL} fastest in a tie with the next kernel: the interval of their ratio includes 1")
    if any(map(by_name_only, fastest)):
        yield _text("* in place in name only, since scratch exceeds a tenth of the matrix")
    if any(OUT_OF_PLACE in r.kernel for r in data.rows):
        yield _text("tnn: transpose B out of place, then multiply as NN")
    if scope := scope_note(data.rows):
        yield _text(scope)


def _tallied(tally: Counter[str], store: Store) -> str:
    return _text(f"{status_line(tally)}; {command_on(store.path, 'show')} prints a table per problem")


def _text(text: str) -> str:
    return "\n".join(wrapped(text, min(width(), _TEXT), "", GAP))
