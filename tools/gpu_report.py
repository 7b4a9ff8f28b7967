"""Write the report of a GPU, `reports/<device>/`: its README, from the store and the agenda, and other files.

Each table names the run, date, host and driver of its rows. Ratios are formed only within a run.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import groupby
from math import inf
from pathlib import Path
from typing import NamedTuple

import agenda
import gpu_bars
from agenda import Agenda, Answer, Task
from gpu_slot import STORE
from gpu_tasks import FOUNDING, TURNED
from kernelmark.bench.claims.answer import claims_rows
from kernelmark.bench.claims.views import read_csv, write_files
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.status import AGAINST
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Run, Store
from kernelmark.bench.report import contest
from kernelmark.bench.report.anonymity import hidden
from kernelmark.bench.report.contest import Ratio, by_columns
from kernelmark.bench.report.export import write_text
from kernelmark.bench.report.figures import Drawn
from kernelmark.bench.report.format import count, digits, rate, seconds, short
from kernelmark.bench.report.founding import QUESTION
from kernelmark.bench.report.layout import github_table
from kernelmark.bench.report.publish import CLAIMS, FILES, README, Publication, Report, figures, listed
from kernelmark.bench.report.publish_index import write_index

#: Files of a GPU's report in addition to those of every report.
OWN = {
    STORE: "every sample; `kernelmark show --db results.db` reads it",
    "clocks.md": "work of known length, timed through each way of launching",
    "emulator.md": "the emulator's verdicts next to the device's",
    "counters.md": "instructions, sectors and conflicts measured by Nsight Compute, next to the counts of `profile`",
    "sanitizer.md": "compute-sanitizer over our kernels",
    "cudnn.md": "which of cuDNN's algorithms run",
}
#: The remark on a verdict whose task is open again.
OUTDATED = "its kernels have changed since"
#: The most tasks that are named among those that were not finished.
NAMED = 12


class SlotFacts(NamedTuple):
    """A slot that has ended: the seconds available and used, the tasks answered, and the tasks left out."""

    deadline_s: float
    used_s: float
    ended: list[str]
    left: list[str]


def publish(folder: Path, agenda_: Agenda, tasks: Sequence[Task], slot: SlotFacts, identify: bool = False) -> None:
    """Write the files of the report; if one cannot be written, the others still are."""
    if not (folder / STORE).exists():
        _write(folder / README, lambda: _page(agenda_, tasks, slot, None, folder))
        return
    with Store(folder / STORE) as store:
        # A task may have several runs, and each needs a different heading.
        runs = {f"{_purpose(store.run(run), agenda_)}, {run}": run for run in store.run_ids()}
        date = max((store.run(run).started_at for run in runs.values()), default="")[:10]
        about = Publication(title=agenda_.device, date=date, runs=runs, command="make gpu", identify=identify)
        answering = {answer.run for answer in agenda_.answers.values() if answer.digest}
        report = Report(store, about, folder, [run for run in runs.values() if run in answering])
        for name, make in report.texts().items():
            _write(folder / name, make)
        _guarded(lambda: write_files(folder, claims_rows(store, list(runs.values()), here=True), agenda_.device))
        drawn: list[Drawn] = []
        if find_spec("matplotlib"):
            _guarded(lambda: drawn.extend(report.draw(folder, None)))
        _write(folder / README, lambda: _page(agenda_, tasks, slot, store, folder, drawn))
    _guarded(lambda: write_index(folder.parent))


def _purpose(run: Run, agenda_: Agenda) -> str:
    """Return a run's purpose, from its command or its suites, with the number of further tasks that it answers."""
    name = run.command.partition("make gpu: ")[2] or ", ".join(run.suites) or "an earlier report"
    others = sum(answer.run == run.run_id and other != name for other, answer in agenda_.answers.items())
    return f"{name} and {others} more" if others else name


def _write(path: Path, make: Callable[[], str]) -> None:
    _guarded(lambda: write_text(path, lambda out: out.write(make())))


def _guarded(step: Callable[[], object]) -> None:
    try:
        step()
    except (OSError, UsageError) as error:  # a full disk, say
        print(f"make gpu: {error}", file=sys.stderr)


def against(folder: Path, agenda_: Agenda) -> int:
    if not (folder / STORE).exists():
        return 0
    with Store(folder / STORE) as store:
        runs = {answer.run for answer in agenda_.answers.values() if answer.run}
        return sum(store.statuses(run)[status] for run in runs for status in AGAINST)


def _page(
    agenda_: Agenda,
    tasks: Sequence[Task],
    slot: SlotFacts,
    store: Store | None,
    folder: Path,
    drawn: Sequence[Drawn] = (),
) -> str:
    page = Page(agenda_, tasks, store)
    parts = [f"# {agenda_.device}", *(f"> {note}" for note in agenda_.notes), *page.dirty(), *page.founding()]
    parts += [*page.bars(), *page.across(), *page.groups(), *figures(drawn), *page.claims(folder), *page.state()]
    parts += [*_slot(slot, agenda_), *page.runs(), listed(folder, FILES | OWN)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _slot(slot: SlotFacts, agenda_: Agenda) -> Iterator[str]:
    yield "## The last slot"
    yield f"Of {slot.deadline_s:.0f} s, {slot.used_s:.0f} s were used, and {count(len(slot.ended), 'task')} answered."
    together = groupby(slot.ended, lambda name: agenda_.answers[name].run or name)
    rows = [_took([(name, agenda_.answers[name]) for name in names]) for _, names in together]
    yield github_table(("tasks", "state", "expected", "took"), rows)
    if slot.left:
        more = f", and {len(slot.left) - NAMED} more" if len(slot.left) > NAMED else ""
        yield f"Not finished, or not begun for lack of time: {', '.join(slot.left[:NAMED])}{more}."


def _took(together: Sequence[tuple[str, Answer]]) -> tuple[str, ...]:
    (first, _), *others = together
    answers = [answer for _, answer in together]
    states = ", ".join(dict.fromkeys(answer.state for answer in answers))
    expected = f"{sum(answer.expected_s for answer in answers):.1f} s" + " (assumed)" * any(a.assumed for a in answers)
    name = f"{first} and {len(others)} more" if others else first
    return name, states, expected, f"{sum(answer.seconds for answer in answers):.1f} s"


class Page:
    """The parts of the README that are made from rows."""

    def __init__(self, agenda_: Agenda, tasks: Sequence[Task], store: Store | None) -> None:
        self._agenda, self._tasks, self._store = agenda_, {task.name: task for task in tasks}, store
        self._registry = discover()
        self._rows: dict[str, list[Result]] = {}

    def rows(self, task: str) -> list[Result]:
        """Return the rows that answer a task, whatever the answer's digest. Their run may answer other tasks, too."""
        answer = self._agenda.answers.get(task)
        if self._store is None or answer is None or answer.state != "done" or not answer.run:
            return []
        if answer.run not in self._rows:
            self._rows[answer.run] = [r for r, _ in self._store.results(answer.run)]
        problems = self._tasks[task].problems if task in self._tasks else ()
        return [r for r in self._rows[answer.run] if r.problem in problems or not problems]

    def dirty(self) -> Iterator[str]:
        if self._store:
            runs = self._store.run_ids()
            bad = [run for run in runs if self._store.run(run).git_commit.endswith("-dirty")]
            if bad:
                yield f"> {count(len(bad), 'run')} of {len(runs)} measured a tree with changes that were not committed."

    def founding(self) -> Iterator[str]:
        yield f"**{QUESTION}**"
        rows = {(r.kernel, r.problem): r for r in self.rows("founding") if r.time_s_median}
        nt, nn, out, turned = FOUNDING[0], FOUNDING[1], TURNED[0], "gemm/cublas.tnn_geam"
        base = rows.get(("gemm/cublas.sgemm", nt)), rows.get(("gemm/cublas.sgemm", nn))
        if self._store is None or base[0] is None or base[1] is None:
            yield "Not measured yet in one job on this device; the first slot of `make gpu` does so."
            return
        yield f"cuBLAS: op_T is {contest.faster(self._store, base[0], base[1]).words} times as fast as op_N, in turn."
        if first := rows.get((turned, nt)):
            ratio = contest.faster(self._store, first, base[0])
            yield f"Transposing B first ({short(turned)}) is {ratio.words} times as fast as NT alone."
        if all(r.launched for r in base if r):
            yield "cuBLAS launches other kernels for the two (name, then grid x block):"
            yield "\n".join(f"- {name}: `{r.launched}`" for name, r in zip(("NT", "NN"), base, strict=True) if r)
        kernels = {kernel: r.numerics for (kernel, problem), r in rows.items() if problem in (nt, nn)}
        lines = [(short(k), kernels[k], *self._nt_nn(rows.get((k, nt)), rows.get((k, nn)))) for k in kernels]
        yield github_table(("kernel", "numerics", "NT", "NN", "NT over NN"), lines)
        best = min((r for (_, problem), r in rows.items() if problem == out), key=_time, default=None)
        if best:
            yield f"The fastest transposition out of place takes {seconds(best.time_s_median)} ({short(best.kernel)})."
        answer = self._agenda.answers["founding"]
        yield f"Run {answer.run} of {answer.at}; `## Runs` has its host and driver."

    def _nt_nn(self, nt: Result | None, nn: Result | None) -> tuple[str, str, str]:
        ratio = str(contest.faster(self._store, nt, nn)) if self._store and nt and nn else ""
        return rate(nt) if nt else "", rate(nn) if nn else "", ratio

    def bars(self) -> Iterator[str]:
        yield "## Bars"
        yield "Our fastest kernel over the vendors' fastest of the same numerics, from rows of one run."
        yield from self._verdicts(gpu_bars.bars())

    def across(self) -> Iterator[str]:
        yield "## Our fastest kernel over the vendors' fastest, in any arithmetic"
        yield from self._verdicts(gpu_bars.lines())

    def verdict(self, bar: gpu_bars.Bar) -> gpu_bars.Verdict:
        kernels, rivals = gpu_bars.contenders(bar, self._registry)
        work = 1.0
        if bar.on:
            ours, theirs = (self._registry.problem(name) for name in (bar.problem, bar.on))
            work = ours.traffic_bytes / theirs.traffic_bytes
        task = f"bar {bar.problem}"
        answered = task in self._tasks and not agenda.is_open(self._tasks[task], self._agenda)
        rows = self.rows(task)
        if not rows:
            return gpu_bars.Verdict("open", "failed" if answered else "not measured")
        verdict = gpu_bars.judge(bar, kernels, rivals, rows, work)
        return verdict if answered else verdict._replace(text="; ".join(filter(None, (verdict.text, OUTDATED))))

    def _verdicts(self, bars: Iterable[gpu_bars.Bar]) -> Iterator[str]:
        """Yield the table of measured bars, a line on each bar without a kernel, and one on bars not yet measured."""
        lines, absent, open_ = [], [], dict[str, list[str]]()
        for bar in bars:
            state, text, row, rival, ratio = self.verdict(bar)
            if row is not None and rival is not None:
                ratio_text = str(ratio) if (row.processes or 1) > 1 else _plain(ratio)
                words = "; ".join(filter(None, (ratio_text, text)))
                sides = [short(r.kernel) + f" ({r.numerics})" * (r.numerics != bar.numerics) for r in (row, rival)]
                where = bar.problem, bar.numerics or "any"
                lines.append((state, *where, f"{bar.least:g}x", words, *sides, bar.against, row.run_id))
            elif state == "open":
                open_.setdefault(bar.problem, []).append(bar.numerics)
            else:
                absent.append(f"- {state}: {bar.problem} ({bar.numerics or 'any'}): {text}")
        heads = ("verdict", "problem", "numerics", "at least", "found", "ours", "vendor", "compared with", "run")
        yield github_table(heads, lines)
        yield "\n".join(absent)
        if open_:
            named = (f"{name} ({', '.join(numerics)})" if any(numerics) else name for name, numerics in open_.items())
            yield f"{count(sum(map(len, open_.values())), 'comparison')} not measured yet: {', '.join(named)}."

    def groups(self) -> Iterator[str]:
        groups: dict[str, list[str]] = {}
        for name, task in self._tasks.items():
            if task.kind == "time" and task.group not in ("Bars", "The founding question"):
                groups.setdefault(task.group, []).append(name)
        for group, names in groups.items():
            lines = [line for name in names for line in self._fastest(name)]
            if lines:
                yield f"## {group}"
                yield f"{len({line[0] for line in lines})} of {len(names)} problems are answered."
                heads = ("problem", "mode", "ours", "time", "rate", "vendor", "time", "ours over vendor", "run")
                yield github_table(heads, lines)
            yield from self._sums(names)

    def _sums(self, names: Sequence[str]) -> Iterator[str]:
        """Yield seconds and joules per batch, for passes of a network whose layers were all measured on one host."""
        passes: dict[tuple[str, str], list[tuple[int, list[Result]]]] = {}
        for task in (self._tasks[name] for name in names if self._tasks[name].detail):
            _, _, dtype, _, direction = task.problems[0].split("/")[:5]
            timed = [r for r in self.rows(task.name) if r.time_s_median]
            passes.setdefault((direction, dtype), []).append((int(task.detail), timed))
        whole = {
            key: layers
            for key, layers in passes.items()
            if all(rows for _, rows in layers) and len({r.host for _, rows in layers for r in rows}) == 1
        }
        for what, amount, unit in (
            ("Seconds", _time, seconds),
            ("Joules", lambda r: (r.energy_j if r else None) or inf, lambda joules: f"{digits(joules)} J"),
        ):
            lines = []
            for key, layers in whole.items():
                totals = [sum(times * min(map(amount, _of(rows, side))) for times, rows in layers) for side in SIDES]
                if min(totals) < inf:
                    shown = (unit(total) if total < inf else "" for total in totals)
                    lines.append((*key, *shown, str(len(layers))))
            if lines:
                yield f"{what} per batch: for each layer, the least of all kernels, times the layer's count."
                yield github_table(("pass", "storage", "any kernel", "ours", "vendors'", "layers"), lines)

    def _fastest(self, task: str) -> Iterator[tuple[str, ...]]:
        rows = [r for r in self.rows(task) if r.time_s_median]
        for problem, here in contest.grouped(rows, lambda r: r.problem).items():
            sides = [[r for r in here if (r.provider == "cuda") is ours] for ours in (True, False)]
            row, rival = (min(side, key=_time, default=None) for side in sides)
            ratio = _plain(by_columns(row, rival)) if row and rival else ""
            first = row or rival
            assert first is not None
            told = (f"{short(row.kernel)} ({row.numerics})", seconds(row.time_s_median)) if row else ("", "")
            theirs = (f"{short(rival.kernel)} ({rival.numerics})", seconds(rival.time_s_median)) if rival else ("", "")
            yield problem, first.mode, *told, rate(first), *theirs, ratio, first.run_id

    def claims(self, folder: Path) -> Iterator[str]:
        if answers := read_csv(folder / CLAIMS):
            yield "## Founding claims"
            told = ", ".join(f"{n} {verdict}" for verdict, n in Counter(each.verdict for each in answers).items())
            yield f"{count(len(answers), 'claim')}: {told}. [claims.md](claims.md) has each with its rows."

    def state(self) -> Iterator[str]:
        yield "## The agenda"
        lines = []
        for kind, tasks in contest.grouped(self._tasks.values(), lambda task: task.kind).items():
            tally = agenda.tally(tasks, self._agenda)
            left_s = sum(task.seconds for task in tasks if agenda.is_open(task, self._agenda))
            lines.append((kind, *map(str, tally.values()), f"{left_s / 60:.1f} min"))
        yield github_table(("tasks", "answered", "failed", "open", "time left"), lines)
        failed = {name: answer for name, answer in self._agenda.answers.items() if answer.state == "failed"}
        yield "\n".join(f"- {name}: failed: {answer.text}" for name, answer in failed.items())
        yield "\n".join(f"- {kernel} is left out: {crash.reason}" for kernel, crash in self._agenda.left_out.items())
        ways = self._agenda.disagreeing.items()
        yield "\n".join(f"- {way}: gave wrong times, so `{globs}` get no rows" for way, globs in ways)

    def runs(self) -> Iterator[str]:
        if self._store:
            yield "## Runs"
            heads = ("run", "for", "answers", "began, UTC", "host", "driver", "commit", "rows")
            yield "Ratios never mix rows of several runs; [tables.md](tables.md) has the tables of each run."
            yield github_table(heads, [self._run(run) for run in self._store.run_ids()])

    def _run(self, run: str) -> Sequence[str]:
        assert self._store is not None
        record, tally = self._store.run(run), self._store.statuses(run)
        answers = "yes" if any(answer.run == run and answer.digest for answer in self._agenda.answers.values()) else ""
        rows = ", ".join(f"{n} {status}" for status, n in tally.items()) or "none: not finished"
        driver, commit = str(record.machine.get("cuda_driver", "")), record.git_commit
        short_ = commit[:12] + "-dirty" * commit.endswith("-dirty")
        began = record.started_at.partition("+")[0].replace("T", " ")
        host = next((str(hidden("host", r.host)) for r, _ in self._store.results(run) if r.host), "")
        return (run, _purpose(record, self._agenda), answers, began, host, driver, short_, rows)


def _plain(ratio: Ratio | None) -> str:
    return f"{ratio.median:.3g}x" if ratio else ""


#: The kernels in a sum over layers: all, ours, the vendors'.
SIDES = (None, True, False)


def _of(rows: Sequence[Result], ours: bool | None) -> Sequence[Result | None]:
    """Return the rows of one side, or [None] if the side has no kernel for the layer."""
    return [r for r in rows if ours is None or (r.provider == "cuda") is ours] or [None]


def _time(r: Result | None) -> float:
    return (r.time_s_median if r else None) or inf
