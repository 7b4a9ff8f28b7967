"""Write docs/figures.md: each kind of figure of a report at the width of a print column, with its commands.

`python tools/figures.py` measures the runs; with --db FILE, a store with the runs of an earlier call, it only draws.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.figures import Drawn, draw, kinds
from kernelmark.bench.report.figures.style import Kind, file_name
from kernelmark.bench.report.format import count
from kernelmark.bench.report.method import software
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.tune.select.train import train
from kernelmark.bench.tune.select.view import choice_figures, regret_figure
from took import COMMAND

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDER = "figures"
MOST_BYTES = 60_000
#: The suite of the first run, from the tutorial.
QUESTION = "question.toml"
#: The run that a selector is trained on, and its suite.
SHAPES = "shapes.toml --processes 4 --spread 0 --max-time 0.02 --kernels conv/numba.direct --kernels conv/pyfftw.tiled"
#: The runs that together have the data for every kind of figure.
RUNS = (
    QUESTION,
    "gemm/m256n512k512/f32/NN gemm/m256n512k512/f32/NT gemm/m256n512k512/f32/TN gemm/m256n512k512/f32/TT --threads 1,2",
    "conv/n1c16h8w8k16r3s3pad1/f32/nchw/fprop conv/n1c32h16w16k32r3s3pad1/f32/nchw/fprop "
    "conv/n1c64h28w28k64r3s3pad1/f32/nchw/fprop conv/n1c64h56w56k64r3s3pad1/f32/nchw/fprop "
    "conv/n1c256h56w56k256r3s3pad1/f32/nchw/fprop "
    "--threads 1,2 --kernels conv/numba.direct --kernels conv/cpu.im2col --kernels conv/cpu.winograd",
    "filter-sweep",
    "transposition",
    "transfer aggregate/w4n14198784/f32/ef aggregate/w4n1048576/f32/ef "
    "--kernels gemm/numpy.matmul --kernels aggregate/cpu.*",
    SHAPES,
)
HEAD = r"""# Figures

`kernelmark report --out out/report` draws every figure for which a run has data, as SVG and PDF in
`out/report/figures/`. This page shows one figure of each kind, and names the run it comes from. The files are made for
print: 85 mm wide, with 8-point text. `python tools/figures.py` measures these runs and writes this page.

The report also has tables for a paper. `out/report/tables/results.tex` holds a table of problems x kernels for each
operation, with captions, labels, intervals and a mark on noisy cells. Files such as `results-gemm.tex` hold one
operation each, for `\input`. `kernelmark export --format latex -o table.tex` writes the same tables. The tables need
`\usepackage{booktabs,graphicx,longtable}`, and fit a column in `\scriptsize`. The tables of a run of more than 10,000
rows are written only as CSV.

The report of a search by `kernelmark tune` also has a figure of the speed of each value of a tunable
([Tuning](tuning.md) shows one). Once a case has three runs, the report also shows its time in each run.
"""


class Shown(NamedTuple):
    """A figure on the page: its kind, file, heading and caption, and its run's command words and origin."""

    title: str
    name: str
    heading: str
    caption: str
    words: str
    origin: str


def main(words: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(description="Draw docs/figures.md.")
    parser.add_argument("--db", type=Path, help="store that keeps the runs; a temporary one if left out")
    parser.add_argument("--max-time", default="0.1", help="seconds per case")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        db = options.db or Path(folder, "figures.db")
        tutorial = (DOCS / "tutorial.md").read_text(encoding="utf-8")
        text = tutorial.partition(f"`{QUESTION}`:\n\n```toml\n")[2].partition("```")[0]
        Path(folder, QUESTION).write_text(text, encoding="utf-8")
        shutil.copy(Path(__file__).with_name("data") / "shapes.toml", folder)
        for run in RUNS:
            _measure(db.absolute(), Path(folder), run, options.max_time)
        with Store(db, create=False) as store:
            shown = _drawn(store)
    first = {figure.words: figure.title for figure in reversed(shown)}
    sections = [_section(figure, first[figure.words]) for figure in shown]
    (DOCS / "figures.md").write_text("\n".join([HEAD, *sections]), encoding="utf-8")
    return 0


def _measure(db: Path, folder: Path, run: str, max_time: str) -> None:
    if run in _known(db):
        return
    command = [*COMMAND, "run", *run.split(), "--db", str(db), "--device", "cpu"]
    command += [] if "--max-time" in run else ["--max-time", max_time]
    status = subprocess.run(command, cwd=folder, check=False).returncode
    if status not in (0, 1):
        sys.exit(status)


def _known(db: Path) -> dict[str, str]:
    if not db.is_file():
        return {}
    with Store(db, create=False) as store:
        runs = {store.run(run).suites: run for run in store.run_ids()}
    return {run: runs[suites] for run in RUNS if (suites := _suites(run)) in runs}


def _suites(run: str) -> tuple[str, ...]:
    return tuple(word.removesuffix(".toml") for word in run.partition(" --")[0].split())


def _drawn(store: Store) -> list[Shown]:
    target = DOCS / FOLDER
    target.mkdir(exist_ok=True)
    shown: dict[str, Shown] = {}
    for words, run in _known(store.path).items():
        data = RunData(store, run)
        for kind in [*kinds(data, discover()), *(_selector(store, data.run_id) if words == SHAPES else [])]:
            name = file_name(kind.title if shown else QUESTION.removesuffix(".toml"))
            if kind.title not in shown and (figure := _first(kind, target / f"{name}.svg")):
                shown[kind.title] = Shown(kind.title, name, figure.title, figure.caption, words, _origin(data))
    for path in target.iterdir():
        if path.name not in {f"{figure.name}.svg" for figure in shown.values()}:
            path.unlink()
    return list(shown.values())


def _origin(data: RunData) -> str:
    machine, sentence = data.run.machine, noise_of(data.rows).sentence
    where = f"{machine.get('cpu')}, {count(machine.get('cpus_usable', 1), 'CPU')}"
    return f"Measured on {where}, with {software(data.run)}." + (f" {sentence}." if sentence else "")


def _selector(store: Store, run: str) -> list[Kind]:
    registry = discover()
    with store.snapshot():
        trained = train(store, registry, [run], [])
    return [regret_figure(trained.model, trained.lost), choice_figures(trained.model, registry)]


def _first(kind: Kind, path: Path) -> Drawn | None:
    with tempfile.TemporaryDirectory() as folder:
        for figure in draw([kind], Path(folder)):
            svg = slim(figure.svg)
            if len(svg.encode()) <= MOST_BYTES:
                path.write_text(svg, encoding="utf-8")
                return figure
    return None


def slim(svg: str) -> str:
    """Return an SVG without invisible parts: digits below a thousandth of a point, indents, long names of glyphs."""
    svg = re.sub(r"(\d\.\d{3})\d+", r"\1", svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    svg = re.sub(r'<g id="([^"]+)">', lambda match: match[0] if f"#{match[1]}" in svg else "<g>", svg)
    return svg.replace("DejaVuSans-Bold-", "b").replace("DejaVuSans-", "n")


def _section(shown: Shown, first: str) -> str:
    lines = [f"## {shown.title}", "", f"![{shown.heading}]({FOLDER}/{shown.name}.svg)", "", shown.caption, ""]
    if shown.title != first:
        return "\n".join([*lines, f"Drawn from the run of [{first}](#{file_name(first)}).", ""])
    return "\n".join([*lines, *_commands(shown.words), "", shown.origin, ""])


def _commands(words: str) -> Iterator[str]:
    if words == QUESTION:
        yield "Section 3 of the [tutorial](tutorial.md) makes this run."
        return
    if words == SHAPES:
        yield "The suite is [tools/data/shapes.toml](../tools/data/shapes.toml).\n"
    quoted = re.sub(r"\S*\*\S*", r"'\g<0>'", words)
    yield f"    kernelmark run {quoted}"
    if words == SHAPES:
        yield "    kernelmark select --train --figures out"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
