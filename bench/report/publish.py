"""Write a published report: a folder `reports/<machine>/` of pages that GitHub and other hosts render.

`make publish` and `make gpu` use these functions, on the runs in a store. Files are made independently, so that a
failure affects only one file.
"""

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.modes import TIMED
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import AGAINST
from kernelmark.bench.record.columns import COLUMNS, Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report import findings, method
from kernelmark.bench.report.anonymity import Mask, hidden, mask
from kernelmark.bench.report.contest import Contest, Setting, contests, grouped, over_vendors
from kernelmark.bench.report.export import writing
from kernelmark.bench.report.figures import Drawn, draw, first, kinds
from kernelmark.bench.report.format import count, row_time, seconds, short, some, spread
from kernelmark.bench.report.founding import QUESTION, answers
from kernelmark.bench.report.layout import github_table
from kernelmark.bench.report.networks import network_table
from kernelmark.bench.report.noise import Noise, is_noisy, noise_of
from kernelmark.bench.report.pivot import all_pivots, markdown
from kernelmark.bench.report.publish_index import Price, summary
from kernelmark.bench.report.run_data import Dims, RunData
from kernelmark.bench.report.tables import ceiling_table, run_table, status_line

README, RESULTS, ENVIRONMENT, TABLES, CLAIMS, FIGURES = (
    "README.md", "results.csv", "environment.json", "tables.md", "claims.csv", "figures",
)  # fmt: skip
#: The files of a published report; claims and agenda are written by the tools that judge and measure.
FILES = {
    README: "the question, the answer, figures, claims, how it was measured and what was noisy",
    RESULTS: "every row of every run; docs/columns.md explains the columns",
    ENVIRONMENT: "the machine, its libraries, the runs, and the numbers that the index of reports shows",
    TABLES: "problems x kernels, then a table for each problem",
    CLAIMS: "each number of each founding claim, with its verdict",
    "claims.md": "the founding claims as a page",
    "agenda.json": "the questions that are answered, each with its run and digest",
    FIGURES: "the figures as SVG",
}
#: The most figures of a published report; `kernelmark report` draws all.
MOST_FIGURES = 3
#: The widths of a figure of one column and of the widest figure, in pixels, and of one column in points.
COLUMN, WIDEST, COLUMN_PT = 560, 960, 85 / 25.4 * 72
MOST_NOISY, MOST_FOUND, MOST_KERNELS = 20, 3, 4
Row = dict[str, str]


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a published report. title: the machine; runs: the id of each run, by its purpose.

    main: the run that the README's first lines are about; if "", the run with the most timed rows. command: the command
    that made the report. sections: further sections of the README, each as heading and text. identify: whether to
    publish names of hosts and users. anyway: whether to publish even noisy runs.
    """

    title: str
    date: str
    runs: Mapping[str, str]
    command: str
    main: str = ""
    sections: Sequence[tuple[str, str]] = ()
    price: Price | None = None
    identify: bool = False
    anyway: bool = False


def folder_name(machine: str) -> str:
    """Return the name of the machine's folder: `amd-epyc-2-cpus`."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(\w+\)", "", machine).lower()).strip("-")


def noise(store: Store, runs: Mapping[str, str]) -> Noise:
    """Return how noisy these runs are."""
    return noise_of(result for run in runs.values() for result, _ in store.results(run))


class Report:
    """The files of a report, made from runs in a store and from rows of earlier runs in the report's folder.

    shown: the runs that the figures and first lines are about, the earliest first; if there are none, the main run.
    """

    def __init__(self, store: Store, about: Publication, folder: Path, shown: Sequence[str] = ()) -> None:
        self._store, self._about, self._folder = store, about, folder
        self._earlier = _earlier_rows(folder / RESULTS, set(about.runs.values()))
        #: The rows of all published runs, not only of the main one.
        self._results = rows = [r for run in about.runs.values() for r, _ in store.results(run)]
        self._mask: Mask = str if about.identify else mask({r.host for r in rows if r.host})
        counts = Counter(r.run_id for r in rows if r.time_s_median)
        main = about.main if about.main in counts else max(counts, key=lambda run: counts[run], default="")
        #: The data of the first lines and figures: the shown runs if there are any, otherwise the main run.
        self.main: RunData | None = RunData(store, main) if main else None
        if answering := [run for run in shown if run in counts]:
            self.main = SeveralRuns(store, answering)

    def texts(self) -> Mapping[str, Callable[[], str]]:
        """Return, for each file except the README, a function that makes its text; the README is made last."""
        files = {RESULTS: self._rows, ENVIRONMENT: self._environment, TABLES: self._tables}
        return {name: lambda make=make: self._mask(make()) for name, make in files.items()}  # type: ignore[misc]

    def readme(self, folder: Path, drawn: Sequence[Drawn] = ()) -> str:
        """Return the README, which begins with the answer. Claims are read from a file in the folder, if it exists."""
        parts = [f"# {self._about.title}, {self._about.date}", *self._answer(), *figures(drawn), *self._fastest()]
        parts += [*self._networks(), *self._judged(folder / CLAIMS), *self._measured(), *self._quality()]
        for heading, text in (*self._about.sections, *self._before()):
            parts += [f"## {heading}", text]
        return self._mask("\n\n".join([*filter(None, parts), listed(folder, FILES)]) + "\n")

    def _answer(self) -> Iterator[str]:
        if self.main is None:
            yield "Nothing has been timed yet."
            return
        if sentence := noise_of(self._results).sentence:
            anyway = " It is published anyway." if self._about.anyway else ""
            yield f"> **{sentence}.**{anyway} Numbers of such cases carry the mark `~` in the tables."
        question = QUESTION if answers(self.main) else "Who is fastest?"
        yield f"**{question}** {findings.verdict(self.main)}"
        yield "\n".join(f"- {sentence}" for sentence in findings.sentences(self.main))

    def _fastest(self) -> Iterator[str]:
        if self.main and self.main.contests:
            fastest, problems = findings.fastest(self.main)
            which = f"The {len(fastest)} problems that take longest, of {problems}." if len(fastest) < problems else ""
            heads = ("problem", "fastest", "time", "rate", "of the roofline", "lead")
            rows = [(f.problem, f.kernel, f.time, f.rate, f.roofline, f.lead) for f in fastest]
            yield f"## Fastest kernels\n\n{which} [tables.md](tables.md) has all.".replace("\n\n ", "\n\n")
            yield github_table(heads, rows)

    def _networks(self) -> Iterator[str]:
        if self.main and (layers := self._store.layers(self.main.run_id)):
            yield "## Whole networks: seconds a batch"
            told = network_table(layers, self._store.layer_results(self.main.run_id), "github")
            yield told.replace("\n|", "\n\n|", 1)

    def _judged(self, claims: Path) -> Iterator[str]:
        """Yield the number of claims with each verdict, and a table of the claims that have a number."""
        if not claims.is_file():
            return
        by_id = {row["id"]: row for row in csv.DictReader(io.StringIO(claims.read_text(encoding="utf-8")))}
        counts = Counter(row["verdict"] for row in by_id.values())
        yield "## Founding claims"
        told = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
        yield f"{count(len(by_id), 'claim')}: {told}."
        rows = [(row["verdict"], row["words"], _first(row["said"])) for row in by_id.values() if row["ratio"]]
        yield github_table(("verdict", "claim", "found"), rows)

    def _measured(self) -> Iterator[str]:
        yield f"## How it was measured\n\n`{self._about.command}` made this report."
        if self.main:
            yield method.paragraph(self.main)

    def _quality(self) -> Iterator[str]:
        if self.main is None:
            return
        rows = self._results
        noisy = [r for r in rows if is_noisy(r)]
        yield "## What was noisy"
        if noisy:
            yield f"{noise_of(rows).sentence}." + (f" The first {MOST_NOISY}:" if len(noisy) > MOST_NOISY else "")
            heads = ("problem", "kernel", "time", "95 %", "disturbed")
            cells = [
                (r.problem, short(r.kernel), seconds(r.time_s_median), spread(*row_time(r)), noise_of([r]).cause)
                for r in noisy[:MOST_NOISY]
            ]
            yield github_table(heads, cells)
        else:
            yield "Nothing: no case was disturbed during a tenth of its sampling or more."
        if refused := findings.refusals(self.main.rows):
            lines = (
                f"- {count(each.rows, f'{each.status} case')}: {each.reason} ({some(each.kernels, MOST_KERNELS)})"
                for each in refused
            )
            yield "## Rows without a result\n\n" + "\n".join(lines)

    def _before(self) -> Iterator[tuple[str, str]]:
        earlier = [
            (run, min(row["started_at"] for row in rows), len(rows), rows[0]["git_commit"])
            for run, rows in grouped(self._earlier, lambda row: row["run_id"]).items()
        ]
        earlier.sort(key=lambda run: run[1])
        if earlier:
            runs = github_table(("run", "began", "rows", "commit"), earlier)
            yield "Earlier runs", f"Their rows are in [{RESULTS}]({RESULTS}), but not above.\n\n{runs}"

    def draw(self, folder: Path, registry: Registry | None) -> list[Drawn]:
        """Draw at most `MOST_FIGURES` figures of the main run as SVG, and remove all other files in their folder."""
        if self.main is None:
            return []
        figures = folder / FIGURES
        figures.mkdir(parents=True, exist_ok=True)
        drawn = list(draw(first(kinds(self.main, registry), MOST_FIGURES), figures, pdf=False))
        for path in figures.iterdir():
            if path.stem not in {figure.name for figure in drawn}:
                path.unlink()
        return drawn

    def _rows(self) -> str:
        runs = self._about.runs.values()
        others = dict.fromkeys(name for run in runs for name in self._store.dimensions(run) if name not in COLUMNS)
        others |= dict.fromkeys(name for row in self._earlier for name in row if name not in COLUMNS)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*COLUMNS, *others])
        writer.writerows([row.get(name, "") for name in (*COLUMNS, *others)] for row in self._earlier)
        for run in runs:
            for values, dims, _ in self._store.records(run):
                writer.writerow([*map(self._named, COLUMNS, values), *(dims.get(name) for name in others)])
        return out.getvalue()

    def _named(self, column: str, value: Any) -> Any:
        return value if self._about.identify else hidden(column, value)

    def _environment(self) -> str:
        facts: dict[str, Any] = {"runs": dict(self._about.runs)}
        if self._about.runs:
            run = self._store.run(list(self._about.runs.values())[-1])
            facts |= {"machine": run.machine, "environment": run.environment, "git_commit": run.git_commit}
        if self.main:
            about = self._about
            facts["report"] = msgspec.to_builtins(summary(self._store, about.title, about.date, about.price, self.main))
        if before := _earlier_facts(self._folder / ENVIRONMENT, set(self._about.runs.values())):
            facts["earlier"] = before
        return json.dumps(facts, indent=2) + "\n"

    def _tables(self) -> str:
        parts = [f"# {self._about.title}, {self._about.date}"]
        parts.append(
            "Verified against float64 before and after timing. If the title of a table names no number of "
            "processes, its intervals hold for one process."
        )
        for what, run in self._about.runs.items():
            rows = [result for result, _ in self._store.results(run)]
            parts += [f"## {what}", self._origin(run, rows), _outcome(self._store.statuses(run), rows)]
            parts += self._paragraphs(run, within_device(rows))
        return "\n\n".join(filter(None, parts)) + "\n"

    def _origin(self, run: str, rows: Sequence[Result]) -> str:
        """Return the sentence above the tables of a run: its id, start, hosts and driver."""
        facts = self._store.run(run)
        hosts = " and ".join(sorted({str(self._named("host", r.host)) for r in rows if r.host}))
        driver = facts.machine.get("cuda_driver")
        told = (f"Run {run}", f"began {facts.started_at}", hosts and f"host {hosts}", driver and f"driver {driver}")
        return f"{', '.join(filter(None, told))}."

    def _paragraphs(self, run: str, rows: list[Result]) -> Iterator[str]:
        """Yield the tables of timed rows and of their ceilings or, if rows were only verified, a list of failures."""
        if rows and rows[0].mode in TIMED:
            yield from map(markdown, all_pivots(self._store, run))
            yield run_table(rows, "github")
            yield ceiling_table(self._store.ceilings(run), "github")
        else:
            yield "\n".join(f"- {r.status}: {r.kernel} on {r.problem}: {r.reason}" for r in rows if r.status in AGAINST)


def _outcome(statuses: Counter[str], rows: Sequence[Result]) -> str:
    """Return a sentence on how the cases of a run ended and whether they were only verified, or that it has no rows."""
    if not rows:
        return "Not finished: no row was recorded."
    verified = all(r.mode not in TIMED for r in rows)
    return status_line(statuses) + (". They were verified only, and not timed." if verified else "")


def within_device(rows: list[Result]) -> list[Result]:
    """Return the rows, without speedups for problems whose baseline ran on another device, such as NumPy on the CPU."""
    device = {r.kernel: r.device for r in rows}
    across = {r.problem for r in rows if device.get(r.baseline, r.device) != r.device}
    none = {"baseline": "", "speedup": None, "speedup_ci95_low": None, "speedup_ci95_high": None}
    return [msgspec.structs.replace(r, **none) if r.problem in across else r for r in rows]


def listed(folder: Path, files: Mapping[str, str]) -> str:
    """Return the section on the files in a folder, each with a description."""
    lines = (
        f"- [{name}]({name}): {text}" for name, text in files.items() if name == README or (folder / name).exists()
    )
    return "\n".join(["## Files\n", *lines])


def figures(drawn: Sequence[Drawn]) -> Iterator[str]:
    """Yield the figures with their captions."""
    if drawn:
        yield "## Figures"
    for figure in drawn:
        yield f'<img src="figures/{figure.name}.svg" alt="{escape(figure.title)}" width="{_width(figure.svg)}">'
        yield f"*{figure.title}.* {figure.caption}"


def _width(svg: str) -> int:
    """Return the width of a figure on the page in pixels, proportional to its width on paper."""
    match = re.search(r'width="([\d.]+)pt"', svg)
    return min(WIDEST, round(COLUMN * float(match[1]) / COLUMN_PT)) if match else COLUMN


def _first(text: str) -> str:
    parts = [" ".join(part.split()) for part in text.split("; ")]
    more = f"; {len(parts) - MOST_FOUND} more in [claims.csv](claims.csv)" if len(parts) > MOST_FOUND else ""
    return "; ".join(parts[:MOST_FOUND]) + more


def write(folder: Path, report: Report, registry: Registry) -> None:
    """Write all files except the claims, which the README includes if they exist already. Raises UsageError."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, make in report.texts().items():
            (folder / name).write_text(make(), encoding="utf-8")
        drawn = report.draw(folder, registry)
        (folder / README).write_text(report.readme(folder, drawn), encoding="utf-8")


def refuse_noise(noise: Noise, anyway: bool) -> None:
    """Raise UsageError for noisy runs unless `anyway`."""
    if noise.noisy and not anyway:
        raise UsageError(
            f"publish: {noise.sentence}; expected quiet runs: measure again in a quiet hour (--fresh), or publish them "
            "as noisy (--noisy-anyway)"
        )


def _earlier_rows(results: Path, runs: Collection[str]) -> list[Row]:
    """Return the rows of a report's results.csv that belong to none of these runs. Raises UsageError."""
    try:
        with results.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            rows = [row for row in reader if row["run_id"] not in runs]
    except FileNotFoundError:
        return []
    except (OSError, KeyError, csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{results}: {error}; expected the rows of a published report; move the file away") from None
    return rows


def _earlier_facts(environment: Path, runs: Collection[str]) -> list[dict[str, Any]]:
    """Return the machine and environment of earlier reports that had other runs, the earliest first."""
    try:
        before = json.loads(environment.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    known: list[dict[str, Any]] = before.pop("earlier", [])
    before.pop("report", None)
    return [facts for facts in (*known, before) if not set(facts.get("runs", {}).values()) & set(runs)]


class SeveralRuns(RunData):
    """Several runs as one, the earliest first: all their rows, but times on GPUs only. Facts come from the last run.

    Each contest comes from one run: the run with the most kernels in this contest (tiles not counted). In a tie, it
    is the run that measured the most problems in the same job, then the latest. No ratio is formed between runs.
    Contests of a single kernel are left out if there are others.
    """

    def __init__(self, store: Store, run_ids: Sequence[str]) -> None:
        super().__init__(store, run_ids[-1])
        self._runs = [RunData(store, run) for run in run_ids]
        self.all_ceilings = [ceiling for run in self._runs for ceiling in run.all_ceilings]
        self.tunes = None

    @property
    def rows(self) -> Sequence[Result]:
        return [r for run in self._runs for r in run.rows]

    @cached_property
    def timed(self) -> list[Result]:
        return [r for run in self._runs for r in run.timed if r.device != "cpu"]

    @cached_property
    def dims_of(self) -> dict[str, Dims]:
        return {problem: dims for run in self._runs for problem, dims in run.dims_of.items()}

    @cached_property
    def contests(self) -> list[Contest]:
        best: dict[tuple[str, Setting], Contest] = {}
        most: dict[tuple[str, Setting], tuple[int, int]] = {}
        for run in self._runs:
            in_turn: dict[str, set[str]] = defaultdict(set)
            for r in run.timed:
                in_turn[r.job].add(r.problem)
            for c in contests([r for r in run.timed if r.device != "cpu"], self.store):
                kernels = {r.kernel.partition("@")[0] for r in c.ranked}
                have, key = (len(kernels), max(len(in_turn[r.job]) for r in c.ranked)), (c.problem, c.setting)
                if not c.setting.order and have >= most.get(key, (0, 0)):
                    best[key], most[key] = c, have
        decided = [c for c in best.values() if len(c.ranked) > 1]
        return [c.by_lead() for c in over_vendors(decided or list(best.values()))]
