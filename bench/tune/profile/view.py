"""Format the output of `kernelmark profile` and its HTML page: totals, and the counts of each source line."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from kernelmark.bench.emulator.build import CUDA
from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.measure.occupancy import typical
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.report.contest import grouped
from kernelmark.bench.report.export import write_text
from kernelmark.bench.report.format import digits, size
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.page import TEMPLATES
from kernelmark.bench.tune.profile.counted import Counts, LineCounts, counts_of
from kernelmark.bench.tune.profile.machine import MIX, MachineCode, Published, described, machine, mix, render
from kernelmark.bench.tune.profile.machine import sections as of_machine
from kernelmark.bench.tune.profile.sass import analyse

TOTALS = (
    TableColumn("total"),
    TableColumn("counted", "right"),
    TableColumn("ideal", "right"),
    TableColumn("over ideal", wraps=12),
)
LINES = (
    TableColumn("line"),
    TableColumn("warp instructions", "right", wraps=12),
    TableColumn("lanes", "right", spare=3),
    TableColumn("sectors", "right"),
    TableColumn("over ideal", "right", wraps=5),
    TableColumn("wavefronts", "right"),
    TableColumn("over ideal", "right", wraps=5),
    TableColumn("instructions", spare=2, wraps=20),
    TableColumn("source", spare=4, wraps=30),
)


class Profile(msgspec.Struct, frozen=True):
    """The document of `profile --json`. machine: None without machine code. no_machine: why there is none, or ""."""

    counts: Counts
    machine: MachineCode | None = None
    no_machine: str = ""


def profiled(kernel: CudaKernel, problem: Problem, arch: str, limits: Published | None, every_block: bool) -> Profile:
    """Return the profile of a kernel, with the tile that a run uses, on a problem.

    limits: published figures of the GPU whose bound is computed. Raises UsageError if the kernel fails in the emulator,
    and CompileError if it does not compile.
    """
    device = typical(arch)
    tile = kernel.default_tile(problem, device)
    case = EmulatedCase(kernel, problem, tile, device)
    try:
        sass = analyse(kernel, problem, tile, arch, device)
    except Unsupported as missing:
        return Profile(counts_of(case, every_block), no_machine=str(missing))
    counts = counts_of(case, every_block, sass.widths)
    return Profile(counts, machine(counts, sass, kernel, problem, device, limits))


def sections(profile: Profile) -> Iterator[str]:
    """Yield the sections of the printed output."""
    counts = profile.counts
    yield "\n".join(head(counts))
    yield table(TOTALS, list(totals(counts)))
    yield table(LINES, [cells(line) for line in counts.lines], titled=True)
    yield from (paragraph(f"Not counted: {text}") for text in counts.missing)
    if profile.machine is not None:
        yield from of_machine(profile.machine)
    if profile.no_machine:
        yield paragraph(f"No machine code: {profile.no_machine}")


def head(counts: Counts) -> Iterator[str]:
    """Yield lines that name the counted kernel with its tile, the problem and the launches."""
    tile = f"@{counts.tile}" if counts.tile else ""
    yield paragraph(f"{counts.kernel}{tile} on {counts.problem} as planned for {counts.arch}: counted, not timed")
    for launch in counts.launches:
        part = f"{launch.run_blocks:,}" if launch.sample else "all"
        places = f": {'; '.join(launch.sample)}" if launch.sample else ""
        yield paragraph(f"{launch.entry}: {part} of {launch.blocks:,} blocks ran{places}")


def totals(counts: Counts) -> Iterator[Sequence[str]]:
    """Yield the rows of the table TOTALS."""
    total = counts.total
    yield _row("warp instructions counted", total.warp_instructions)
    if total.warp_instructions:
        yield "active lanes per warp instruction", digits(total.active_lanes / total.warp_instructions), "32", ""
    if total.fma:
        yield _row("  multiply-adds", total.fma)
    for kind, numbers in (("loads", total.loads), ("stores", total.stores), ("copies", total.copies)):
        yield from (_row(f"  {kind}: {name}", number) for name, number in numbers.items())
    yield from (_row(f"  {name}s", number) for name, number in total.others.items())
    yield _row("global memory: sectors", total.sectors, total.least_sectors, "uncoalesced accesses")
    if total.global_requests:
        yield "  sectors per request", digits(total.sectors / total.global_requests), "", ""
    yield _row("shared memory: wavefronts", total.wavefronts, total.least_wavefronts, "bank conflicts; pad the tile")
    if total.serial_lanes:
        atomics = sum(number for name, number in total.stores.items() if name.startswith("atomic"))
        yield _row("atomics: lanes serialised on one word", total.serial_lanes, atomics)
    least = counts.traffic_bytes
    for name, moved in _moved(counts):
        yield f"to and from {name}", size(moved), size(least), _ratio(moved, least)


def _moved(counts: Counts) -> Iterator[tuple[str, int]]:
    """Yield the bytes moved under each assumption on the caches."""
    yield "L2, if L1 keeps nothing", counts.total.bytes_read + counts.total.bytes_written
    yield "L2, if L1 keeps a block's sectors", counts.block_bytes_read + counts.block_bytes_written
    if counts.bytes_read_once is not None and counts.bytes_written_once is not None:
        yield "memory, if L2 keeps everything", counts.bytes_read_once + counts.bytes_written_once
    for waves in counts.waves:
        blocks = " and ".join(f"{number:,}" for number in dict.fromkeys(waves.blocks))
        yield f"memory, in waves of {blocks} blocks", waves.bytes_read + waves.bytes_written


def _row(name: str, number: int, least: int | None = None, cause: str = "") -> Sequence[str]:
    """Return a row of TOTALS. cause: added if `number` exceeds the ideal by more than a twentieth."""
    if least is None:
        return name, f"{number:,}", "", ""
    why = f" ({cause})" if cause and number > 1.05 * least else ""
    return name, f"{number:,}", f"{least:,}", _ratio(number, least) + why


def _ratio(number: int, least: int) -> str:
    return f"{number / least:.2f}x" if least else ""


def cells(line: LineCounts) -> Sequence[str]:
    """Return a source line's row of the table LINES."""
    texts = _texts(line.file)
    return (
        f"{line.file}:{line.line}",
        f"{line.warp_instructions:,}",
        digits(line.active_lanes / line.warp_instructions) if line.warp_instructions else "",
        f"{line.sectors:,}" if line.sectors else "",
        _ratio(line.sectors, line.least_sectors),
        f"{line.wavefronts:,}" if line.wavefronts else "",
        _ratio(line.wavefronts, line.least_wavefronts),
        ", ".join(_kinds(line)),
        texts[line.line - 1].strip() if 0 < line.line <= len(texts) else "",
    )


def _kinds(line: LineCounts) -> Iterator[str]:
    """Yield the kinds of a line's instructions, such as `load shared 16` and `multiply-add`, without their numbers."""
    for word, numbers in (("load ", line.loads), ("store ", line.stores), ("", line.copies)):
        yield from (f"{word}{name}" for name in numbers)
    if line.fma:
        yield "multiply-add"
    yield from line.others


def _texts(file: str) -> list[str]:
    path = Path(CUDA, file)
    return path.read_text().splitlines() if path.is_file() else []


#: The columns of LINES between the number of a line and its text.
_COUNTS = slice(1, -1)


class SourceLine(NamedTuple):
    """A line of a source. cells: its counts; empty if it has none.

    heat: its warp instructions, in percent of the warp instructions of the busiest line.
    """

    number: int
    text: str
    cells: Sequence[str]
    heat: int
    above_least: bool


class AnnotatedSource(NamedTuple):
    """A source file with the counts of its lines. If its text is not available, it has only the counted lines."""

    name: str
    warp_instructions: int
    lines: Sequence[SourceLine]


def require(path: Path) -> None:
    """Raise UsageError, before anything is counted, if the HTML page cannot be written."""
    if find_spec("jinja2") is None:
        raise UsageError("profile --html: jinja2 is not installed; pip install 'kernelmark[report]'")
    require_file(path)
    if not path.parent.is_dir():
        raise UsageError(f"{path}: cannot be written: {path.parent} is not a folder")


def write_page(profile: Profile, path: Path) -> None:
    """Write a page that needs no network. Raises UsageError."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    loader = FileSystemLoader(Path(__file__).parent)
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    counts, machine = profile.counts, profile.machine
    tables = [table(MIX, list(mix(machine.sass.main)), "html")] if machine and machine.sass.main.loop else []
    tables += [render(machine.bound, "html")] if machine and machine.bound else []
    page = jinja.get_template("annotated.html").render(
        title=f"{counts.kernel} on {counts.problem}",
        head=list(head(counts)),
        totals=Markup(table(TOTALS, list(totals(counts)), "html")),
        missing=counts.missing,
        machine=machine,
        functions=[described(function) for function in machine.sass.functions] if machine else [],
        tables=map(Markup, tables),
        no_machine=profile.no_machine,
        columns=[column.header for column in LINES][_COUNTS],
        sources=sources(counts.lines),
        css=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
    )
    write_text(path, lambda out: print(page, file=out))


def sources(lines: Sequence[LineCounts]) -> list[AnnotatedSource]:
    """Return the annotated sources, sorted by warp instructions in descending order."""
    most = max((line.warp_instructions for line in lines), default=0)
    by_file = grouped(lines, lambda line: line.file)
    executed = {file: sum(line.warp_instructions for line in those) for file, those in by_file.items()}
    files = sorted(by_file, key=lambda file: -executed[file])
    return [AnnotatedSource(file, executed[file], [*_annotated(file, by_file[file], most)]) for file in files]


def _annotated(file: str, lines: Sequence[LineCounts], most: int) -> Iterator[SourceLine]:
    texts, counted = _texts(file), {line.line: line for line in lines}
    for number in range(1, len(texts) + 1) if texts else sorted(counted):
        text, line = texts[number - 1] if texts else "", counted.get(number)
        if line is None:
            yield SourceLine(number, text, (), 0, False)
        else:
            above = line.sectors > line.least_sectors or line.wavefronts > line.least_wavefronts
            heat = round(100 * line.warp_instructions / most) if most else 0
            yield SourceLine(number, text, cells(line)[_COUNTS], heat, above)
