"""Run every tile of a kernel in the emulator (docs/emulator.md) on small problems, and report each bug once."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from kernelmark.bench.emulator.build import HostCompileError, missing_tool
from kernelmark.bench.emulator.counters import Loop
from kernelmark.bench.emulator.sweep import Defect, EmulatedCase, cases, entries, looks
from kernelmark.bench.emulator.worker import LIMIT_S, ORDERS, WorkerError
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.tensormap import extents
from kernelmark.bench.plan.kernel import CudaKernel, Tile
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.bench.report.format import count, size
from kernelmark.bench.report.layout import paragraph


class Emulated(msgspec.Struct, frozen=True):
    """The emulator's reports and their cases. chosen: the tile that a run uses for the problem.

    untested: tiles that take the problem, but none of the small problems. skipped: why nothing was tested. refused: why
    the emulator refuses the source or its plan, with the compiler's log. left: cases that were not run after the first
    timeout. share: text on the part of the user's problem that was run. once: loops that never had a second iteration.
    """

    chosen: Tile
    tested: tuple[EmulatedCase, ...] = ()
    findings: tuple[Defect, ...] = ()
    untested: tuple[Tile, ...] = ()
    skipped: str = ""
    refused: str = ""
    left: tuple[EmulatedCase, ...] = ()
    share: str = ""
    once: tuple[Loop, ...] = ()


def emulate(registry: Registry, kernel: CudaKernel, problem: Problem, device: DeviceLimits) -> Emulated:
    """Run each tile of the kernel on the CPU, with all accesses checked, on small problems of the same kind.

    Also run as many blocks of the problem itself as a few seconds allow.
    """
    tile = kernel.default_tile(problem, device)
    if kernel.emulated:
        return Emulated(tile, skipped=f"{kernel.id} cannot be emulated: {kernel.emulated}")
    if reason := missing_tool():
        return Emulated(tile, skipped=reason)
    every, axes = cases(registry, kernel, device), ("dtype", "layout", "place", "direction", "kind", "unit")
    chosen = [c for c in every if all(getattr(c.problem, a, "") == getattr(problem, a, "") for a in axes)] or every
    taken = [case.tile for case in chosen]
    untested = [t for t in kernel.tiles(device) if t not in taken and kernel.unwanted(problem, t, device) is None]
    trips: dict[Loop, int] = {}
    try:
        looked = list(_looked_at(chosen, trips))
        share, more = "", list[Defect]()
        if not any(some for _, some in looked):
            share, more = _of_itself(EmulatedCase(kernel, problem, tile, device), trips)
    except (HostCompileError, WorkerError, ValueError) as error:  # the last: a waiver without a reason
        return Emulated(tile, refused=str(error))
    defects = (*(finding for _, some in looked for finding in some), *more)
    tested, left = tuple(case for case, _ in looked), tuple(chosen[len(looked) :])
    once = tuple(sorted(loop for loop, most in trips.items() if most < 2 and _sizes(loop)))
    return Emulated(tile, tested, defects, tuple(untested), left=left, share=share, once=once)


#: Limits for running the user's problem: operations plus bytes of traffic, some seconds' worth; and bytes of operands,
#: for which the emulator's records take eight times as many bytes.
SECONDS_WORTH, HELD_BYTES = 30_000_000, 2**28
#: The maximum number of clusters in a sample of the problem, which has the first and the last, and of CPU seconds.
SAMPLED, OWN_S = 9, 60


def _of_itself(case: EmulatedCase, trips: dict[Loop, int]) -> tuple[str, list[Defect]]:
    """Run the problem or a sample of its blocks. Return text (the part run, or why none was run) and the defects."""
    problem, calls = case.problem, case.calls
    work, needed = problem.flop + problem.traffic_bytes, problem.footprint_bytes
    not_run = f"{problem.id} itself was not run: "
    if needed > HELD_BYTES:
        return f"{not_run}its operands take {size(needed)}, expected at most {size(HELD_BYTES)}", []
    sample, extent = {}, "all blocks"
    if work > SECONDS_WORTH:
        blocks = math.prod(extents(calls[0][1].grid))
        if len(calls) > 1 or case.kernel.cooperative:
            return f"{not_run}it takes minutes, and its blocks cannot be run separately; see verify --emulated", []
        clusters = blocks // calls[0][1].cluster
        most = SECONDS_WORTH * clusters // work
        if not most:
            return f"{not_run}even one of its {clusters:,} blocks takes minutes; see verify --emulated", []
        steps = min(most, SAMPLED) - 1
        sample = {i * (clusters - 1) // steps if steps else clusters - 1: 1 for i in range(steps + 1)}
        extent = f"{len(sample) * calls[0][1].cluster:,} of {blocks:,} blocks, whose results were not compared,"
    defects, reached = _look(case, entries([case]), OWN_S, sample)
    if not sample:
        _add(trips, reached)
    return f"{problem.id} itself: {extent} in {len(ORDERS)} schedules", defects


def _looked_at(chosen: list[EmulatedCase], trips: dict[Loop, int]) -> Iterator[tuple[EmulatedCase, list[Defect]]]:
    """Yield each case with its defects, up to the first timeout, since a kernel that hangs would take minutes.

    Adds the iterations of loops to `trips`.
    """
    names = entries(chosen)
    with ThreadPoolExecutor(cpu_count()) as pool:
        for case, (defects, reached) in zip(chosen, pool.map(lambda case: _look(case, names), chosen), strict=True):
            _add(trips, reached)
            yield case, defects
            if any(finding.report and finding.report.kind == "timeout" for finding in defects):
                pool.shutdown(cancel_futures=True)
                return


def _look(
    case: EmulatedCase, names: tuple[str, ...], limit_s: int = LIMIT_S, sample: Mapping[int, int] = MappingProxyType({})
) -> tuple[list[Defect], dict[Loop, int]]:
    """Return the defects of a case, and for each loop that was reached, its highest number of iterations."""
    defects, trips = list[Defect](), dict[Loop, int]()
    for outcome, some in looks(case, names, limit_s=limit_s, sample=sample, trips=True):
        defects += some
        _add(trips, outcome.trips)
    return defects, trips


def _add(trips: dict[Loop, int], more: Mapping[Loop, int]) -> None:
    trips |= {loop: max(most, trips.get(loop, 0)) for loop, most in more.items()}


#: Matches a size that may differ between problems: a name that begins with a small letter, except sizes of the block.
_SIZE = re.compile(r"\b(?!blockDim\b|warpSize\b|sizeof\b|unsigned\b|int\b)(?<![.\w])[a-z]\w*\b(?!:)")
#: Matches the name of a `constexpr` constant in its declaration.
_CONSTANT = re.compile(r"\bconstexpr\b[^=;({]*?(\w+)\s*[={(]")


def _sizes(loop: Loop) -> set[str]:
    """Return the names of sizes in a loop's condition, except the name at its start and constants of the file."""
    parts = loop.head.split(";")
    bound = re.sub(r"^\s*\w+", "", parts[1] if len(parts) == 3 else loop.head)
    return set(_SIZE.findall(bound)) - set(_CONSTANT.findall(Path(loop.file).read_text(errors="replace")))


#: The maximum number of reports shown; more would only fill the screen.
SHOWN = 8
#: The maximum number of problems, and of further places of a bug, that a report lists.
NAMED = 3
#: Kinds of report that one bug (a missing barrier, a wrong index) can cause. Reports of other kinds are separate bugs.
FAMILIES = dict.fromkeys(("race", "uninitialised-read"), "order")
FAMILIES |= dict.fromkeys(("out-of-bounds", "write-to-padding", "write-to-input"), "index")


@dataclass
class Bug:
    """A bug: all faults of one family that share source lines, or all wrong results, each with its case."""

    family: str
    lines: set[tuple[str, int]]
    seen: list[Defect]

    def __str__(self) -> str:
        sights: dict[object, str] = {}
        for finding in sorted(self.seen, key=lambda finding: "race" not in _kind_of(finding)):
            text = str(finding.report or f"wrong result: {finding.reason}")
            sights.setdefault((_kind_of(finding), frozenset(_lines(finding))), text)
        first, *others = sights.values()
        return "\n".join([first, *(f"  also {text}" for text in others[:NAMED])])


def bugs(findings: Sequence[Defect]) -> list[Bug]:
    """Return the bugs without duplicates, in order of appearance.

    Reports of one family that share a line are one bug; races that share a line come from the same missing barrier.
    If a case has a report, its wrong result counts as a consequence, not as a separate bug.
    """
    reported = {finding.case.id for finding in findings if finding.report}
    distinct: list[Bug] = []
    for finding in findings:
        if finding.report or finding.case.id not in reported:
            bug = Bug(FAMILIES.get(_kind_of(finding), _kind_of(finding)), _lines(finding), [finding])
            for same in [earlier for earlier in distinct if earlier.family == bug.family and earlier.lines & bug.lines]:
                distinct.remove(same)
                bug = Bug(bug.family, same.lines | bug.lines, same.seen + bug.seen)
            distinct.append(bug)
    return sorted(distinct, key=lambda bug: findings.index(bug.seen[0]))


def _kind_of(finding: Defect) -> str:
    return finding.report.kind if finding.report else "wrong"


def _lines(finding: Defect) -> set[tuple[str, int]]:
    if (report := finding.report) is None:
        return {("", 0)}
    return {(report.file, report.line), (report.file, report.other_line or report.line)}


def verdict(emulated: Emulated) -> str:
    """Return a text with PASS or FAIL, the extent of the tests, the reports, and a line for each tile."""
    if emulated.refused:
        return f"FAIL: {emulated.refused}"
    if reports := bugs(emulated.findings):
        parts = [f"FAIL: {count(len(reports), 'report')} ({_extent(emulated)})"]
        parts += [f"{bug}\n{_where(bug, emulated.tested)}" for bug in reports[:SHOWN]]
        parts += [f"and {count(len(reports) - SHOWN, 'more report')}"] if len(reports) > SHOWN else []
    else:
        parts = [f"PASS: no races or memory errors ({_extent(emulated)})"]
    lines = [line for part in (*parts, *_tiles(emulated), *_problems(emulated)) for line in part.split("\n")]
    return "\n".join(paragraph(line) for line in lines)


def _extent(emulated: Emulated) -> str:
    """Return `13 problems x 3 schedules, 2 tiles`."""
    problems = {case.problem.id for case in emulated.tested}
    tiles = {tile_text(vars(case.tile)) for case in emulated.tested}
    with_tiles = f", {count(len(tiles), 'tile')}" if tiles != {""} else ""
    left = f"; {count(len(emulated.left), 'case')} left out after the timeout" if emulated.left else ""
    return f"{count(len(problems), 'problem')} x {len(ORDERS)} schedules{with_tiles}{left}"


def _problems(emulated: Emulated) -> list[str]:
    """Return lines on small problems, the user's problem, and loops with one iteration; [] after a failure."""
    if emulated.findings or emulated.left or not emulated.tested:
        return []
    places = ((f"{Path(loop.file).name}:{loop.line}", loop.head) for loop in emulated.once)
    once = [f"  not tested: a second iteration of the loop in {place}, `{head}`" for place, head in places]
    ordered = sorted({case.problem for case in emulated.tested}, key=lambda problem: problem.footprint_bytes)
    return [f"small problems: {ordered[0].id} to {ordered[-1].id}", *filter(None, [emulated.share]), *once]


def _where(bug: Bug, tested: Sequence[EmulatedCase]) -> str:
    problems = list(dict.fromkeys(finding.case.problem.id for finding in bug.seen))
    tiles = list(dict.fromkeys(filter(None, (tile_text(vars(finding.case.tile)) for finding in bug.seen))))
    orders = [order for order in ORDERS if any(finding.order == order for finding in bug.seen)]
    more = f" and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
    every = len({case.problem.id for case in tested})
    with_tiles = f"with {'; '.join(tiles)}, " if tiles else ""
    schedules = "all schedules" if len(orders) == len(ORDERS) else f"schedule {' and '.join(orders)}"
    seen = f"  seen in {len(problems)} of {every} problems: {' '.join(problems[:NAMED])}{more}"
    return f"{seen}\n  {with_tiles}in {schedules}"


def _tiles(emulated: Emulated) -> list[str]:
    wrong = {tile_text(vars(finding.case.tile)) for finding in emulated.findings}
    each = Counter(filter(None, (tile_text(vars(case.tile)) for case in emulated.tested)))
    width = max(map(len, each), default=0)
    chosen = tile_text(vars(emulated.chosen))
    lines = [
        f"  {'FAIL' if name in wrong else 'PASS'}  {name:<{width}}  {count(number, 'problem')}"
        + (", the tile of this problem" if name == chosen else "")
        for name, number in each.items()
    ]
    left = dict.fromkeys(tile_text(vars(case.tile)) for case in emulated.left)
    lines += [f"  not tested: {name}, left out after the timeout" for name in left if name and name not in each]
    untested = [tile_text(vars(tile)) for tile in emulated.untested]
    return lines + [f"  not tested: {tile}; it takes none of the small problems" for tile in untested]
