"""The first page of a published report, in GitHub's Markdown."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape

import msgspec
from tabulate import tabulate

from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report import findings, method
from kernelmark.bench.report.figures import Drawn
from kernelmark.bench.report.format import count, row_time, seconds, short, spread
from kernelmark.bench.report.founding import QUESTION, answers
from kernelmark.bench.report.networks import network_table
from kernelmark.bench.report.noise import is_noisy, noise_of
from kernelmark.bench.report.run_data import RunData

#: Pixels of a figure of one column and of the widest, and points of that column.
COLUMN, WIDEST, COLUMN_PT = 560, 960, 85 / 25.4 * 72
MOST_NOISY, MOST_FOUND, MOST_KERNELS = 20, 3, 4


class Price(msgspec.Struct, frozen=True):
    """What an hour of a device costs, and from where; a declaration, not a measurement."""

    per_hour: float
    currency: str
    words: str


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """What is published: the machine, the runs (what each was for, and its id), and whether names stay as they are.

    main: the run that the first lines speak of; if empty, the one with the most times. command: what made it.
    sections: headings and text that a README has besides. anyway: it is noisy, and is published all the same.
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


class Readme:
    """The page of one report; claims: the text of the file of claims; files: those that are there, with their words."""

    def __init__(
        self,
        store: Store | None,
        about: Publication,
        data: RunData | None,
        drawn: Sequence[Drawn],
        claims: str,
        files: Mapping[str, str],
    ) -> None:
        self._store, self._about, self._data = store, about, data
        self._drawn, self._claims, self._files = drawn, claims, files

    def text(self) -> str:
        """Return the page, the answer first."""
        parts = [f"# {self._about.title}, {self._about.date}", *self._answer(), *figures(self._drawn)]
        parts += [*self._fastest(), *self._networks(), *self._judged(), *self._measured(), *self._quality()]
        for heading, text in self._about.sections:
            parts += [f"## {heading}", text]
        parts += ["## Files", "\n".join(f"- [{name}]({name}): {text}" for name, text in self._files.items())]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _answer(self) -> Iterator[str]:
        if self._data is None:
            yield "Nothing has been timed yet."
            return
        if sentence := noise_of(self._rows()).sentence:
            anyway = " It is published anyway." if self._about.anyway else ""
            yield f"> **{sentence}.**{anyway} Numbers of such cases carry the mark `~` in the tables."
        question = QUESTION if answers(self._data) else "Who is fastest?"
        yield f"**{question}** {findings.verdict(self._data)}"
        yield "\n".join(f"- {sentence}" for sentence in findings.sentences(self._data))

    def _rows(self) -> list[Result]:
        """Return the rows of all runs that are published, not of the main one alone."""
        if self._store is None:
            return list(self._data.rows) if self._data else []
        return [r for run in self._about.runs.values() for r, _ in self._store.results(run)]

    def _fastest(self) -> Iterator[str]:
        if self._data and self._data.contests:
            found, problems = findings.fastest(self._data)
            which = f"The {len(found)} problems that take longest, of {problems}." if len(found) < problems else ""
            heads = ("problem", "fastest", "time", "rate", "of the roofline", "lead")
            rows = [(f.problem, f.kernel, f.time, f.rate, f.roofline, f.lead) for f in found]
            yield f"## Fastest kernels\n\n{which} [tables.md](tables.md) has all.".replace("\n\n ", "\n\n")
            yield tabulate(rows, heads, tablefmt="github", disable_numparse=True)

    def _networks(self) -> Iterator[str]:
        if self._store and self._data and (layers := self._store.layers(self._data.run_id)):
            yield "## Whole networks: seconds a batch"
            yield network_table(layers, self._store.layer_results(self._data.run_id), "github").replace(
                "\n|", "\n\n|", 1
            )

    def _judged(self) -> Iterator[str]:
        """Yield the claims that have a number, and how many verdicts there are of each kind."""
        found: dict[str, dict[str, str]] = {row["id"]: row for row in csv.DictReader(io.StringIO(self._claims))}
        if not found:
            return
        counts = Counter(row["verdict"] for row in found.values())
        yield "## Founding claims"
        yield (
            f"{count(len(found), 'claim')}: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()) + "."
        )
        rows = [(row["verdict"], row["words"], _first(row["said"])) for row in found.values() if row["ratio"]]
        if rows:
            yield tabulate(rows, ("verdict", "claim", "found"), tablefmt="github", disable_numparse=True)

    def _measured(self) -> Iterator[str]:
        yield f"## How it was measured\n\n`{self._about.command}` made this report."
        if self._data:
            yield method.paragraph(self._data)

    def _quality(self) -> Iterator[str]:
        if self._data is None:
            return
        rows = self._rows()
        noisy = [r for r in rows if is_noisy(r)]
        yield "## What was noisy"
        if noisy:
            yield f"{noise_of(rows).sentence}." + (f" The first {MOST_NOISY}:" if len(noisy) > MOST_NOISY else "")
            heads = ("problem", "kernel", "time", "95 %", "disturbed")
            cells = [
                (r.problem, short(r.kernel), seconds(r.time_s_median), spread(*row_time(r)), noise_of([r]).cause)
                for r in noisy[:MOST_NOISY]
            ]
            yield tabulate(cells, heads, tablefmt="github", disable_numparse=True)
        else:
            yield "Nothing: no case was disturbed during a tenth of its sampling or more."
        if refused := findings.refusals(self._data.rows):
            told = [(count(one.rows, f"{one.status} case"), one.reason, _kernels(one.kernels)) for one in refused]
            lines = [f"- {cases}: {reason} ({kernels})" for cases, reason, kernels in told]
            yield "## What has no result\n\n" + "\n".join(lines)


def figures(drawn: Sequence[Drawn]) -> Iterator[str]:
    """Yield the figures with their captions."""
    if drawn:
        yield "## Figures"
    for figure in drawn:
        yield f'<img src="figures/{figure.name}.svg" alt="{escape(figure.title)}" width="{_width(figure.svg)}">'
        yield f"*{figure.title}.* {figure.caption}"


def _width(svg: str) -> int:
    """Return the pixels of a figure on the page, in proportion to its width on paper."""
    found = re.search(r'width="([\d.]+)pt"', svg)
    return min(WIDEST, round(COLUMN * float(found[1]) / COLUMN_PT)) if found else COLUMN


def _kernels(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_KERNELS} more" if len(names) > MOST_KERNELS else ""
    return ", ".join(names[:MOST_KERNELS]) + more


def _first(text: str) -> str:
    """Return the first of the answers to a claim, in a cell."""
    found = [" ".join(one.split()) for one in text.split("; ")]
    more = f"; {len(found) - MOST_FOUND} more in [claims.csv](claims.csv)" if len(found) > MOST_FOUND else ""
    return "; ".join(found[:MOST_FOUND]).replace("|", "\\|") + more
