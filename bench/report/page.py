"""The report of a run: a folder with a page that needs no network, figures, tables, the method and the environment."""

import base64
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from bench.plan.errors import UsageError
from bench.plan.registry import Registry
from bench.record.store import Store
from bench.report import findings, founding, method
from bench.report.export import write_file, writing
from bench.report.figures import Drawn, draw, kinds
from bench.report.figures.plan import Kind
from bench.report.page_data import page_data
from bench.report.run_data import RunData
from bench.report.tables import ceiling_table

TEMPLATES = Path(__file__).parent / "templates"
#: What was drawn, by file name, with the words for below it.
CAPTIONS = "captions.json"
#: One scope, in this order.
SCRIPTS = ("columns.js", "detail.js", "table.js")
TABLES = {"csv": "results.csv", "markdown": "results.md", "latex": "results.tex"}


class Statement(NamedTuple):
    """A claim as the page shows it: verdict, the claim in words, the number that it is about, and what was found."""

    verdict: str
    words: str
    number: str
    lines: Sequence[str]


class Statements(NamedTuple):
    """How many claims have which verdict, and the claims that the run has numbers for."""

    tally: str
    shown: Sequence[Statement]


def write_report(
    store: Store, run_id: str, folder: Path, registry: Registry | None = None, claims: Statements | None = None
) -> Path:
    """Write everything below `folder` and return the page. The same bytes for the same data. Raises UsageError."""
    for module in ("jinja2", "matplotlib"):
        if find_spec(module) is None:
            raise UsageError(f"report: {module} is not installed; pip install 'kernelmark[report]'")
    with writing(folder, "; --out names another folder"):
        for part in ("figures", "tables"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        with store.snapshot():
            _write_page(RunData(store, run_id), claims, folder, registry)
        for style, name in TABLES.items():
            write_file(store, run_id, style, folder / "tables" / name)
    return folder / "index.html"


def _write_page(data: RunData, claims: Statements | None, folder: Path, registry: Registry | None) -> None:
    planned = kinds(data, registry)
    drawn = list(draw(planned, folder / "figures"))
    _forget(folder / "figures", drawn)
    environment = json.dumps(data.facts, indent=2, sort_keys=True)
    text = method.paragraph(data)
    (folder / "environment.json").write_text(environment + "\n", encoding="utf-8")
    (folder / "method.txt").write_text(text + "\n", encoding="utf-8")
    (folder / "index.html").write_text(_page(data, claims, planned, drawn, text, environment), encoding="utf-8")


def _forget(folder: Path, drawn: Sequence[Drawn]) -> None:
    """Remove what an earlier report drew here and this one does not: it would pass for a figure of this run."""
    captions = folder / CAPTIONS
    known = json.loads(captions.read_text(encoding="utf-8")) if captions.is_file() else {}
    for name in known.keys() - {figure.name for figure in drawn}:
        for kind in ("svg", "pdf"):
            (folder / f"{name}.{kind}").unlink(missing_ok=True)
    found = {figure.name: f"{figure.title}. {figure.caption}" for figure in drawn}
    captions.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _page(
    data: RunData,
    claims: Statements | None,
    planned: Sequence[Kind],
    drawn: Sequence[Drawn],
    text: str,
    environment: str,
) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def raw(name: str) -> Markup:
        return Markup((TEMPLATES / name).read_text(encoding="utf-8"))

    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    fastest, problems = findings.fastest(data)
    page: str = jinja.get_template("page.html").render(
        data=data,
        devices=", ".join(data.run.machine[key] for key in ("cpu", "gpu") if key in data.run.machine),
        question=founding.QUESTION,
        verdict=findings.verdict(data),
        answers=founding.answers(data),
        sentences=findings.sentences(data),
        fastest=fastest,
        problems=problems,
        tally=findings.tally(data.rows),
        failures=findings.failures(data.rows),
        figures=[(figure, _inline(figure.svg)) for figure in drawn],
        omitted=[(kind.title, kind.omitted) for kind in planned if kind.omitted],
        claims=claims,
        method=text,
        environment=environment,
        ceilings=Markup(ceiling_table(data.all_ceilings, "html")) if data.all_ceilings else "",
        tables=TABLES,
        css=raw("page.css"),
        js=Markup().join(raw(name) for name in SCRIPTS),
        json=Markup(script_json(page_data(data))),
    )
    return page


def script_json(found: dict[str, Any]) -> str:
    """Return JSON that can stand in a script element: no text of a row ends it or begins another."""
    return json.dumps(found, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")


def _inline(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
