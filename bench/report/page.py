"""The report of a run: a folder with a page that works offline, and figures, tables, the method and the environment."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.store import Store
from kernelmark.bench.report import figures, findings, founding, method, tuning
from kernelmark.bench.report.anonymity import facts, mask
from kernelmark.bench.report.export import write_file, write_table, write_text, writing
from kernelmark.bench.report.figures.style import Kind, ratio_ticks
from kernelmark.bench.report.format import short
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.report.page_data import page_columns, page_data
from kernelmark.bench.report.places import places
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.tables import ceiling_table

TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile("[a-z0-9-]+")
#: The scripts of the page, joined in this order; they share one scope.
SCRIPTS = ("columns.js", "detail.js", "table.js")
#: Matches the places in an id where a line may break.
_PIECES = re.compile(r"(?<=[/@=])(?=\w)|(?<=[a-z]\.)(?=\w{12})")
TABLES = {"csv": "results.csv", "markdown": "results.md", "latex": "results.tex"}
#: A report of more rows has their table as CSV only, not as Markdown and LaTeX.
MOST_TABLED = 10_000
#: The columns that figures are drawn from, and a bound that no real value exceeds.
_DRAWN, _MOST = ("time_s_median", "gflop_per_s", "gbyte_per_s", "speedup", "roofline_pct"), 1e30
#: The placeholder for the page's data.
_DATA = '<script type="application/json" id="data">'

_Figure = TypeVar("_Figure")
Claims = Mapping[str, object]


def write_report(
    store: Store,
    run_id: str,
    folder: Path,
    registry: Registry | None = None,
    claims: Claims | None = None,
    pdf: bool = True,
) -> Path:
    """Write the report to `folder`, with figures as SVG and optionally PDF, and return the page's path.

    claims: texts on claims, from `statements` in bench/claims/views.py. On one machine, the same data give the same
    bytes. Raises UsageError if a package is missing or a file cannot be written.
    """
    for module in ("jinja2", "matplotlib"):
        if find_spec(module) is None:
            raise UsageError(f"report: {module} is not installed; pip install 'kernelmark[report]'")
    with writing(folder, "; --out names another folder"):
        for part in ("figures", "tables"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        with store.snapshot():
            data = RunData(store, run_id)
            with _measurable(data):
                tables = _write_tables(store, data, folder / "tables")
                _write_page(data, claims, tables, folder, registry, pdf)
    return folder / "index.html"


@contextmanager
def _measurable(data: RunData) -> Iterator[None]:
    """Raise UsageError if arithmetic fails in the context because a row has an impossible value."""
    try:
        yield
    except (ArithmeticError, ValueError):
        for r, name in product(data.rows, _DRAWN):
            if (value := getattr(r, name)) and not 1 / _MOST < value < _MOST:
                message = f"{r.case}: {name} is {value:g}, expected from {1 / _MOST:g} to {_MOST:g}"
                raise UsageError(f"run {data.run_id}: {message}; `kernelmark show` prints tables") from None
        raise


def _write_tables(store: Store, data: RunData, folder: Path) -> list[str]:
    write_text(folder / TABLES["csv"], lambda out: write_table(data.table, out))
    others = [style for style in TABLES if style != "csv"]
    if len(data.rows) <= MOST_TABLED:
        for style in others:
            write_file(store, [data.run_id], style, folder / TABLES[style])
        return list(TABLES.values())
    for path in (path for style in others for path in folder.glob(f"results*{Path(TABLES[style]).suffix}")):
        path.unlink()  # left by an earlier report of fewer rows; it would look like a table of this run
    return [TABLES["csv"]]


def _write_page(
    data: RunData, claims: Claims | None, tables: Sequence[str], folder: Path, registry: Registry | None, pdf: bool
) -> None:
    planned = figures.kinds(data, registry)
    drawn = list(figures.draw(planned, folder / "figures", pdf))
    _forget(folder / "figures", drawn)
    environment = json.dumps(facts(data.store, data.run_id), indent=2, sort_keys=True)
    text = mask({r.host for r in data.rows if r.host})(method.paragraph(data))
    (folder / "environment.json").write_text(environment + "\n", encoding="utf-8")
    (folder / "method.txt").write_text(text + "\n", encoding="utf-8")
    parts = {"claims": None if data.tunes else claims, "method": text, "environment": environment, "tables": tables}
    before, begin, after = _page(data, registry, _figures(planned, drawn) | parts).partition(_DATA)
    pieces = _json_pieces(page_data(data), page_columns(data))
    write_text(folder / "index.html", lambda out: out.writelines(chain([before + begin], pieces, [after])))


def _forget(folder: Path, drawn: Sequence[figures.Drawn]) -> None:
    """Remove figures of an earlier report that this one does not draw, since they would look like this run's."""
    captions, known = folder / "captions.json", dict[str, str]()
    require_file(captions)
    with suppress(FileNotFoundError, msgspec.MsgspecError):  # the file is missing, or another program's
        known = msgspec.json.decode(captions.read_bytes(), type=dict[str, str])
    for name in filter(_NAME.fullmatch, known.keys() - {figure.name for figure in drawn}):
        for kind in ("svg", "pdf"):
            (folder / f"{name}.{kind}").unlink(missing_ok=True)
    texts = {figure.name: f"{figure.title}. {figure.caption}" for figure in drawn}
    captions.write_text(json.dumps(texts, indent=2) + "\n", encoding="utf-8")


def _figures(planned: Sequence[Kind], drawn: Sequence[figures.Drawn]) -> dict[str, Any]:
    """Return the figures of each section of the page, and the reasons for figures that were left out.

    The first dot plot, heat map, roofline and figure of variants of each operation are visible, and so are the first
    figure of tunables and all figures of aggregation; other figures are folded.
    """
    files = iter(drawn)
    by_kind = {kind.title: list(islice(files, len(kind.figures))) for kind in planned}
    shown = {kind.title: [figure.data for figure in kind.figures] for kind in planned}
    plots = zip(shown[figures.speedups.TITLE], by_kind.pop(figures.speedups.TITLE), strict=True)
    maps = zip(shown.get(figures.heat.TITLE, []), by_kind.pop(figures.heat.TITLE, []), strict=True)
    first_plots, more_plots = _first(plots, lambda pair: (pair[0].op, short(pair[0].baseline)))
    first_maps, more_maps = _first(maps, lambda pair: pair[0].op)
    rooflines, others = _first(by_kind.pop(figures.roofline.TITLE), lambda each: each.title.partition(",")[0])
    ratios, more_ratios = _first(by_kind.pop(figures.variants.TITLE), lambda each: each.title.partition(":")[0])
    return {
        "plots": first_plots,
        "more_plots": more_plots,
        "maps": first_maps,
        "more_maps": more_maps,
        "rooflines": rooflines,
        "tunables": by_kind.pop(figures.tunables.TITLE, []),
        "aggregations": by_kind.pop(figures.aggregation.TITLE, []),
        "ratios": ratios,
        "others": [*others, *more_ratios, *(each for group in by_kind.values() for each in group)],
        "omitted": [(kind.title, kind.omitted) for kind in planned if kind.omitted],
    }


def _first(candidates: Iterable[_Figure], title: Callable[[_Figure], object]) -> tuple[list[_Figure], list[_Figure]]:
    first: dict[object, _Figure] = {}
    more = [figure for figure in candidates if first.setdefault(title(figure), figure) is not figure]
    return list(first.values()), more


def _page(data: RunData, registry: Registry | None, parts: dict[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def raw(name: str) -> Markup:
        return Markup((TEMPLATES / name).read_text(encoding="utf-8"))

    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    # `side` is the CSS class of a dot; a dot without an interval is grey, as a tie is.
    jinja.filters |= {"breakable": _breakable, "place": _place, "side": lambda r: r.side if r.certain else "tie"}
    jinja.filters |= {"base64": _base64, "ratio_ticks": ratio_ticks, "short": short}
    fastest, problems = findings.fastest(data)
    hosts = places(data.store, data.run_id, "html", identify=False)
    ceilings = [ceiling_table(data.all_ceilings, "html"), *hosts] if data.all_ceilings else []
    script = Markup('"use strict"; (() => {{\n{}}})();').format(Markup().join(raw(name) for name in SCRIPTS))
    page: str = jinja.get_template("page.html").render(
        data=data,
        title=findings.title(data, registry),
        devices=", ".join(str(data.run.machine[key]) for key in ("cpu", "gpu") if key in data.run.machine),
        date=findings.date(data),
        noise=noise_of(data.timed),
        verdict=findings.verdict(data, variants=False),
        variants=[] if data.tunes or founding.answers(data) else findings.variants_beside(data),
        numbers=findings.numbers(data),
        answers=founding.answers(data),
        learned=tuning.learned(data) if data.tunes else None,
        sentences=findings.sentences(data),
        fastest=fastest,
        problems=problems,
        tally=findings.tally(data.rows),
        refusals=findings.refusals(data.rows),
        ceilings=Markup("".join(ceilings)),
        css=raw("page.css"),
        script=script,
        script_hash=f"sha256-{_base64(hashlib.sha256(script.encode()).digest())}",
        **parts,
    )
    return page


def _json_pieces(document: dict[str, Any], columns: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Yield the page's data as JSON, column by column, since a single text would be in memory several times."""
    yield f'{script_json(document)[:-1]},"columns":{{'
    for i, (name, values) in enumerate(columns):
        yield f"{',' * (i > 0)}{script_json(name)}:{script_json(values)}"
    yield "}}"


def script_json(content: Any) -> str:
    """Return JSON that is safe in a script element: no text of a row can end the element or begin another."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _breakable(text: str) -> str:
    """Allow a line break within an id, but not between a number and its per cent sign."""
    from markupsafe import Markup

    broken: str = Markup("<wbr>").join(_PIECES.split(text.replace(" %", "\N{NO-BREAK SPACE}%")))
    return broken


def _place(ratio: float, low: float, high: float) -> float:
    """Return the position of a ratio on a logarithmic axis, in per cent."""
    return round(100 * min(1.0, max(0.0, math.log(ratio / low) / math.log(high / low))), 2)
