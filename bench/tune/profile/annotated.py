"""The page of `kernelmark profile --html`: the sources of a kernel with what each line does beside it."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kernelmark.bench.emulator.build import CUDA
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.report.export import write_text
from kernelmark.bench.report.layout import table
from kernelmark.bench.report.page import TEMPLATES
from kernelmark.bench.tune.profile.bound import render
from kernelmark.bench.tune.profile.counted import LineCounts
from kernelmark.bench.tune.profile.machine import MIX, MachineCode, described, mix
from kernelmark.bench.tune.profile.view import LINES, TOTALS, Profile, cells, head, totals

#: The columns of LINES that stand between the number of a line and its text.
_COUNTS = slice(1, -1)


class SourceLine(NamedTuple):
    """A line of a source. cells: what it does, empty where it does nothing.

    heat: its warp instructions for a hundred of the line that has the most.
    """

    number: int
    text: str
    cells: Sequence[str]
    heat: int
    above_least: bool


class AnnotatedSource(NamedTuple):
    """A source below cuda/, or a header of another place, of which only the lines that do something are known."""

    name: str
    warp_instructions: int
    lines: Sequence[SourceLine]


def require(path: Path) -> None:
    """Raise UsageError where no page can be written to the path: before anything is counted for it."""
    if find_spec("jinja2") is None:
        raise UsageError("profile --html: jinja2 is not installed; pip install 'kernelmark[report]'")
    require_file(path)
    if not path.parent.is_dir():
        raise UsageError(f"{path}: cannot be written: {path.parent} is no folder")


def write_page(found: Profile, path: Path) -> None:
    """Write a page that needs no network. Raises UsageError."""
    page = _page(found)
    write_text(path, lambda out: print(page, file=out))


def sources(lines: Sequence[LineCounts]) -> list[AnnotatedSource]:
    """Return the annotated sources, those that execute the most first."""
    most = max((line.warp_instructions for line in lines), default=0)
    by_file: dict[str, dict[int, LineCounts]] = {}
    for line in lines:
        by_file.setdefault(line.file, {})[line.line] = line
    found = (
        AnnotatedSource(
            file, sum(line.warp_instructions for line in those.values()), list(_annotated(file, those, most))
        )
        for file, those in by_file.items()
    )
    return sorted(found, key=lambda source: -source.warp_instructions)


def _annotated(file: str, counted: dict[int, LineCounts], most: int) -> Iterator[SourceLine]:
    path = Path(CUDA, file)
    texts = path.read_text().splitlines() if path.is_file() else []
    numbers = range(1, len(texts) + 1) if texts else sorted(counted)
    for number in numbers:
        text, line = texts[number - 1] if texts else "", counted.get(number)
        if line is None:
            yield SourceLine(number, text, (), 0, False)
            continue
        above = line.sectors > line.least_sectors or line.wavefronts > line.least_wavefronts
        heat = round(100 * line.warp_instructions / most) if most else 0
        yield SourceLine(number, text, cells(line)[_COUNTS], heat, above)


def _page(found: Profile) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    jinja = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    counts, machine = found.counts, found.machine
    page: str = jinja.get_template("annotated.html").render(
        title=f"{counts.kernel} on {counts.problem}",
        head=list(head(counts)),
        totals=Markup(table(TOTALS, list(totals(counts)), "html")),
        missing=counts.missing,
        machine=machine,
        functions=[described(function) for function in machine.sass.functions] if machine else [],
        tables=[Markup(drawn) for drawn in _tables(machine)] if machine else [],
        no_machine=found.no_machine,
        columns=[column.header for column in LINES][_COUNTS],
        sources=sources(counts.lines),
        css=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
    )
    return page


def _tables(machine: MachineCode) -> Iterator[str]:
    """Yield the mix of the main loop and the bound, where there are any."""
    if machine.sass.main.loop is not None:
        yield table(MIX, list(mix(machine.sass.main)), "html")
    if machine.bound is not None:
        yield render(machine.bound, "html")
