"""What the search of a tuning has found, from its rows: the space, how flat its top is, and each tunable."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from kernelmark.bench.plan.options import EXHAUSTIVE
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.bench.plan.tuned import SearchSpace, Tunes
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.versions import LaunchResources
from kernelmark.bench.report.contest import Ratio, is_timed, speedup_of
from kernelmark.bench.report.format import count, factor, percent
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.report.run_data import RunData

#: A tile is near the best where its speed is at least this share of the best.
NEAR = 0.95
TUNABLES = (
    TableColumn("tunable"),
    TableColumn("value", "right"),
    TableColumn("tiles", "right"),
    TableColumn("best", "right"),
    TableColumn("median", "right"),
)


class TimedTile(NamedTuple):
    """A tile that was timed, and its speed over that of the default, in turn."""

    row: Result
    tile: Mapping[str, int]
    ratio: Ratio

    @property
    def text(self) -> str:
        """Return `BM=64,BN=32`."""
        return tile_text(self.tile)


class Searched(NamedTuple):
    """What was measured on a problem. trials: the tiles that have a time, the fastest first."""

    tunes: Tunes
    space: SearchSpace
    rows: Sequence[Result]
    trials: Sequence[TimedTile]
    resources: Mapping[str, LaunchResources]

    @property
    def default(self) -> Result:
        """Return the row of the default, which every job has."""
        return next(row for row in self.rows if row.kernel == self.tunes.kernel)

    @property
    def near(self) -> int:
        """Count the tiles that are near the best."""
        return sum(trial.ratio.median >= NEAR * self.trials[0].ratio.median for trial in self.trials)

    @property
    def varied(self) -> dict[str, list[int]]:
        """Return the values of each tunable that more than one value was timed of."""
        found = {name: sorted({trial.tile[name] for trial in self.trials}) for name in self.trials[0].tile}
        return {name: values for name, values in found.items() if len(values) > 1}

    def at(self, name: str, value: int) -> list[TimedTile]:
        """Return the tiles with this value of a tunable, the fastest first."""
        return [trial for trial in self.trials if trial.tile[name] == value]


def searches(data: RunData | None) -> list[Searched]:
    """Return what a search has measured on each problem whose default has a time, in the order of its spaces."""
    if data is None or data.tunes is None:
        return []
    kernel, by_problem = data.tunes.kernel, dict[str, list[Result]]()
    for row in data.rows:
        if row.kernel.partition("@")[0] == kernel:
            by_problem.setdefault(row.problem, []).append(row)
    found = []
    for space in data.tunes.spaces:
        rows = by_problem.get(space.problem, [])
        if any(row.kernel == kernel and is_timed(row) for row in rows):
            found.append(Searched(data.tunes, space, rows, _trials(rows, kernel), data.resources))
    return found


def _trials(rows: Sequence[Result], kernel: str) -> list[TimedTile]:
    timed = [row for row in rows if is_timed(row) and row.tunables and (row.speedup or row.kernel == kernel)]
    trials = [
        TimedTile(row, json.loads(row.tunables), Ratio(1.0, 1.0, 1.0) if row.kernel == kernel else speedup_of(row))
        for row in timed
    ]
    return sorted(trials, key=lambda trial: -trial.ratio.median)


def learned(found: Searched) -> str:
    """Return what the search of a problem has found, for a terminal."""
    return "\n\n".join(filter(None, (paragraph(space_words(found), rest=""), tunables_table(found))))


def size_words(space: SearchSpace) -> str:
    """Return `112 tiles, 56 valid`."""
    about = "" if space.exact else f"about {space.valid} valid, {space.listed} of them drawn"
    return f"{count(space.size, 'tile')}, {about or f'{space.valid} valid'}"


def space_words(found: Searched) -> str:
    """Return how large the space is, what became of the tiles that were measured, and how many are near the best."""
    statuses = Counter(row.status for row in found.rows)
    how = "" if found.tunes.how == EXHAUSTIVE else f" by {found.tunes.how.partition(',')[0]}"
    each = ", ".join(f"{number} {status}" for status, number in statuses.items())
    flat = f"{found.near} of {len(found.trials)} within {percent(1 - NEAR)} of the best"
    parts = (f"{count(len(found.rows), 'tile')} measured{how}: {each}", compiled_words(found), flat)
    return "; ".join([size_words(found.space), *filter(None, parts)])


def compiled_words(found: Searched) -> str:
    """Return `38 compiled, 3 of them spilling` of a CUDA kernel; nothing for one that no compiler was asked about."""
    known = [found.resources[row.case] for row in found.rows if row.case in found.resources]
    if not known:
        return ""
    return f"{len(known)} compiled, {sum(used.spill_bytes > 0 for used in known)} of them spilling"


def failures(found: Searched) -> int:
    """Count the tiles that were measured without a result."""
    return sum(row.status != Status.OK for row in found.rows)


def tunables_table(found: Searched, style: str = "simple") -> str:
    """Return a table of the speed by each value of each tunable that was varied, relative to the default."""
    cells = []
    for name, values in found.varied.items():
        for value in values:
            speeds = [trial.ratio.median for trial in found.at(name, value)]
            cells.append((name, str(value), str(len(speeds)), factor(max(speeds)), factor(median(speeds))))
    return table(TUNABLES, cells, style)
