"""A tuning run in a report: its search for tiles, the race between the best tiles, the verdict and three numbers."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean, median
from typing import NamedTuple

from kernelmark.bench.measure.stats import ALPHA
from kernelmark.bench.plan.options import EXHAUSTIVE
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.bench.plan.tuned import SearchSpace, Tunes
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.records import Groups
from kernelmark.bench.record.versions import LaunchResources
from kernelmark.bench.report.contest import APART, BEYOND, Ratio, grouped, is_fair, is_timed, paired, speedup_of
from kernelmark.bench.report.format import count, ends, factor, percent, rate, some, yes_or_no
from kernelmark.bench.report.layout import TableColumn, paragraph, table, table_of
from kernelmark.bench.report.noise import marked
from kernelmark.bench.report.run_data import RunData

#: A tile is near the best if its speed is at least this share of the best speed.
NEAR = 0.95
TUNABLES = (
    TableColumn("tunable"),
    TableColumn("value", "right"),
    TableColumn("tiles", "right"),
    TableColumn("best", "right"),
    TableColumn("median", "right"),
)


class TimedTile(NamedTuple):
    """A timed tile, and its speed relative to the default, sampled in turn."""

    row: Result
    tile: Mapping[str, int]
    ratio: Ratio

    @property
    def text(self) -> str:
        """Return the tile as text: `BM=64,BN=32`."""
        return tile_text(self.tile)


class Searched(NamedTuple):
    """The measurements of a search on a problem. trials: the tiles that have a time, the fastest first."""

    tunes: Tunes
    space: SearchSpace
    rows: Sequence[Result]
    trials: Sequence[TimedTile]
    resources: Mapping[str, LaunchResources]

    @property
    def default(self) -> Result:
        """Return the row of the default tile, which is in every job."""
        return next(row for row in self.rows if row.kernel == self.tunes.kernel)

    @property
    def near(self) -> int:
        return sum(trial.ratio.median >= NEAR * self.trials[0].ratio.median for trial in self.trials)

    @property
    def varied(self) -> dict[str, list[int]]:
        """Return the tunables with more than one timed value, and these values."""
        tried = {name: sorted({trial.tile[name] for trial in self.trials}) for name in self.trials[0].tile}
        return {name: values for name, values in tried.items() if len(values) > 1}

    def at(self, name: str, value: int) -> list[TimedTile]:
        """Return the tiles with this value of a tunable, the fastest first."""
        return [trial for trial in self.trials if trial.tile[name] == value]


def searches(data: RunData | None) -> list[Searched]:
    """Return a search for each problem on which the default tile was timed, in the order of the search spaces."""
    if data is None or data.tunes is None:
        return []
    kernel = data.tunes.kernel
    by_problem = grouped((r for r in data.rows if r.kernel.partition("@")[0] == kernel), lambda r: r.problem)
    searched, resources = [], data.store.resources(data.run_id)
    for space in data.tunes.spaces:
        rows = by_problem.get(space.problem, [])
        if any(row.kernel == kernel and is_timed(row) for row in rows):
            searched.append(Searched(data.tunes, space, rows, _trials(rows, kernel), resources))
    return searched


def _trials(rows: Sequence[Result], kernel: str) -> list[TimedTile]:
    timed = [row for row in rows if is_timed(row) and row.tunables and (row.speedup or row.kernel == kernel)]
    trials = [
        TimedTile(row, json.loads(row.tunables), Ratio(1.0, 1.0, 1.0) if row.kernel == kernel else speedup_of(row))
        for row in timed
    ]
    return sorted(trials, key=lambda trial: -trial.ratio.median)


def searched_words(search: Searched) -> str:
    """Return a search on one problem as text for a terminal: the search space, then the table of tunables.

    For each value of each varied tunable, the table has the best and the median speed over the default.
    """
    cells = []
    for name, values in search.varied.items():
        for value in values:
            speeds = [trial.ratio.median for trial in search.at(name, value)]
            cells.append((name, str(value), str(len(speeds)), factor(max(speeds)), factor(median(speeds))))
    return "\n\n".join(filter(None, (paragraph(space_words(search), rest=""), table(TUNABLES, cells))))


def size_words(space: SearchSpace) -> str:
    """Return the size of the space: `112 tiles, 56 valid`."""
    about = "" if space.exact else f"about {space.valid} valid, {space.listed} of them drawn"
    return f"{count(space.size, 'tile')}, {about or f'{space.valid} valid'}"


def space_words(search: Searched) -> str:
    """Return a text on a search: the size of its space, the statuses of the tiles, and how many are near the best."""
    statuses = Counter(row.status for row in search.rows)
    how = "" if search.tunes.how == EXHAUSTIVE else f" by {search.tunes.how.partition(',')[0]}"
    each = ", ".join(f"{number} {status}" for status, number in statuses.items())
    flat = f"{search.near} of {len(search.trials)} within {percent(1 - NEAR)} of the best"
    parts = (f"{count(len(search.rows), 'tile')} measured{how}: {each}", compiled_words(search), flat)
    return "; ".join([size_words(search.space), *filter(None, parts)])


def compiled_words(search: Searched) -> str:
    """Return `38 compiled, 3 of them spilling` for the tiles of a CUDA kernel, or "" if none was compiled."""
    known = [search.resources[row.case] for row in search.rows if row.case in search.resources]
    if not known:
        return ""
    return f"{len(known)} compiled, {sum(used.spill_bytes > 0 for used in known)} of them spilling"


#: The error probability of a race; lower than in tables, since an adopted tile stays in use for months.
RISK = ALPHA / 5
DEFAULT = "the default"
SUITE = (
    TableColumn("problem", cell=lambda race: race.space.problem),
    TableColumn(DEFAULT, "right", cell=lambda race: marked(rate(race.default), race.default)),
    TableColumn("best tile", cell=lambda race: race.leader or ""),
    TableColumn("its speed", "right", cell=lambda race: str(race.decision.ratios.get(race.leader, ""))),
    TableColumn("adopted", cell=lambda race: yes_or_no(race.decision.best is not None)),
    TableColumn("one for all", "right", cell=lambda race: factor(race.overall) if race.overall else race.lacking),
    TableColumn("regret", "right", cell=lambda race: percent(race.regret) if race.overall else ""),
)


class Decision(NamedTuple):
    """The decision of a race between the default tile and others.

    ratios: how many times faster than the default each tile is. best: the tile to adopt, if one is certainly faster.
    tied: tiles that cannot be distinguished from the tile to use: `best`, or else the default.
    """

    ratios: dict[str, Ratio]
    best: str | None
    tied: list[str]


class Raced(NamedTuple):
    """The outcome of a race of tiles on one problem: the default's row, the other tiles' rows, and the decision."""

    tunes: Tunes
    space: SearchSpace
    default: Result
    rows: Mapping[str, Result]
    decision: Decision

    @property
    def overall(self) -> float | None:
        """Return the speed of the suite's best tile on this problem, relative to the default; None without a ratio."""
        return self._speeds.get(self.tunes.overall)

    @property
    def lacking(self) -> str:
        """Return why the suite's best tile, if there is one, has no ratio on this problem."""
        if self.overall or not self.tunes.overall:
            return ""
        row = self.rows.get(self.tunes.overall)
        if row is None or row.status != Status.OK:
            return row.status if row else "not measured"
        if not (is_fair(row) and is_fair(self.default)):
            return BEYOND
        return "too few samples" if row.job == self.default.job else APART

    @property
    def regret(self) -> float:
        """Return the fraction by which the suite's best tile is slower than the fastest tile on this problem."""
        return max(self._speeds.values()) / (self.overall or math.nan) - 1

    @property
    def leader(self) -> str | None:
        """Return the tile to adopt, or else the one with the highest ratio, even if uncertain."""
        ratios = self.decision.ratios
        return self.decision.best or max(ratios, key=lambda tile: ratios[tile].median, default=None)

    @property
    def _speeds(self) -> dict[str, float]:
        ratios = {tile: ratio.median for tile, ratio in self.decision.ratios.items()}
        return {**ratios, self.space.default: 1.0}


def decide(default: Groups, tiles: Mapping[str, Groups], raced: int) -> Decision:
    """Decide a race from samples of the default and of each tile, grouped by process. raced: the number of tiles."""
    ratios = _ratios(default, tiles, raced)
    faster = [name for name, ratio in ratios.items() if ratio.certain and ratio.median > 1]
    best = max(faster, key=lambda name: ratios[name].median, default=None)
    others = {name: groups for name, groups in tiles.items() if name != best}
    close = ratios if best is None else _ratios(tiles[best], others, raced)
    return Decision(ratios, best, [name for name, ratio in close.items() if not ratio.certain])


def _ratios(base: Groups, tiles: Mapping[str, Groups], raced: int) -> dict[str, Ratio]:
    """Return the speedup of each tile over the base; the intervals hold jointly in 99 % of the races (Bonferroni)."""
    ratios = {name: paired(base, times, RISK / raced) for name, times in tiles.items()}
    return {name: ratio for name, ratio in ratios.items() if ratio is not None}


def races(data: RunData | None) -> list[Raced]:
    """Return the outcome on each problem on which the default is ok, in the order of the search spaces."""
    if data is None or data.tunes is None:
        return []
    by_problem: dict[str, dict[str, Result]] = {}
    for row in data.rows:
        kernel, _, tile = row.kernel.partition("@")
        if kernel == data.tunes.kernel:
            by_problem.setdefault(row.problem, {})[tile] = row
    known = ((space, by_problem.get(space.problem, {})) for space in data.tunes.spaces)
    return [_raced(data, space, rows) for space, rows in known if "" in rows and rows[""].status == Status.OK]


def _raced(data: RunData, space: SearchSpace, rows: dict[str, Result]) -> Raced:
    assert data.tunes is not None
    default = rows.pop("")
    in_turn = {tile: row for tile, row in rows.items() if row.status == Status.OK and row.job == default.job}
    fair = {tile: row for tile, row in in_turn.items() if is_fair(row) and is_fair(default)}
    groups = {tile: data.store.by_process(row.run_id, row.case) for tile, row in fair.items()}
    base = data.store.by_process(default.run_id, default.case)
    return Raced(data.tunes, space, default, rows, decide(base, groups, max(1, len(rows))))


def sentence(race: Raced) -> str:
    """Return a sentence: which tile to use and how, or that no tile is certainly faster than the default."""
    ratios, best, tied = race.decision
    subject = f"{race.tunes.kernel} on {race.space.problem}"
    default = f"{DEFAULT} ({race.space.default})"
    over = f"over {race.default.processes} process{'es' * (race.default.processes != 1)}"
    names = ", ".join(tied)
    if best is None:
        same = f"; it cannot be distinguished from {names}" if tied else ""
        tiles = count(len(race.rows), "tile")
        return f"{subject}: {default} stays, as none of {tiles} is certainly faster {over}{same}"
    same = f" ({names} cannot be distinguished from it)" if tied else ""
    faster = f"{best} is {ratios[best]} as fast as {default} {over}{same}"
    return f"{subject}: {faster}; `kernelmark run {race.space.problem} --tuned {race.tunes.where}` uses it"


def over_suite(raced: Sequence[Raced], style: str = "simple") -> str:
    """Return a table of problems, each with its best tile and the speed of the tile that is best over the suite."""
    return table_of(SUITE, raced, style)


def overall_words(raced: Sequence[Raced]) -> str:
    """Return a text: the tile that is best over the suite, its mean speed, and the problem where it loses most."""
    name, lacking = f"one tile for all: {raced[0].tunes.overall}", _lacking(raced)
    if not (speeds := _speeds(raced)):
        return f"{name}{lacking}"
    worst = max((each for each in raced if each.overall), key=lambda each: each.regret)
    most = f"at most {percent(worst.regret)} slower than the best of a problem ({worst.space.problem})"
    return f"{name}, {factor(geometric_mean(speeds))} {DEFAULT} (geometric mean), {most}{lacking}"


def _speeds(raced: Sequence[Raced]) -> list[float]:
    return [each.overall for each in raced if each.overall]


def _lacking(raced: Sequence[Raced]) -> str:
    """Return a text on the problems on which the suite's best tile has no ratio, or ""."""
    left = [f"{each.space.problem} ({each.lacking})" for each in raced if not each.overall]
    return f"; without a ratio on {some(left, MOST_NAMED)}" if left else ""


#: The most problems whose spaces are described, since a suite may have hundreds; the most named that lack a ratio.
MOST_DESCRIBED, MOST_NAMED = 12, 3


class Number(NamedTuple):
    """A number, its meaning, and its uncertainty."""

    value: str
    label: str
    note: str


def verdict(data: RunData) -> str:
    """Return a sentence: the tile to use, or on how many problems a tile is certainly faster than the default."""
    raced, searched = races(data.race), searches(data.search)
    if not raced:
        return _undecided(searched) if searched else "Nothing was tuned: the default tile was not timed."
    if len(raced) == 1:
        return sentence(raced[0])
    kernel, certain = raced[0].tunes.kernel, sum(each.decision.best is not None for each in raced)
    if not certain:
        return f"{kernel}: the default stays, as no tile is certainly faster on any of {len(raced)} problems"
    use = f"`kernelmark run SUITE --tuned {raced[0].tunes.where}` uses them"
    return f"{kernel}: a tile is certainly faster than the default on {certain} of {len(raced)} problems; {use}"


def _undecided(searched: Sequence[Searched]) -> str:
    search = searched[0]
    best = search.trials[0]
    more = f" and {count(len(searched) - 1, 'more problem')}" if len(searched) > 1 else ""
    first = f"{search.tunes.kernel} on {search.space.problem}{more}: undecided, not yet compared with the default"
    return f"{first}; in the search {best.text} was fastest, {best.ratio} the default's speed (an optimistic estimate)"


def numbers(data: RunData) -> list[Number]:
    """Return the gain, the number of tiles near the best, and the measured share of the space."""
    searched, raced = searches(data.search), races(data.race)
    return [*_gain(raced), *(_of_search(searched) if searched else ())]


def _gain(raced: Sequence[Raced]) -> list[Number]:
    if len(raced) == 1:
        (race,) = raced
        if (tile := race.leader) is None:
            return []
        ratio = race.decision.ratios[tile]
        what = "speed of the adopted tile" if race.decision.best else "speed of the best tile raced"
        sure = f"{ends(ratio.low, ratio.high)} ({percent(1 - RISK)}), {ratio.side}"
        return [Number(factor(ratio.median), f"{what} over the default", sure)]
    if not (speeds := _speeds(raced)):
        return []
    most = f"at most {percent(max(each.regret for each in raced if each.overall))} slower than a problem's best"
    label = "speed of the one tile for all over the default (geometric mean)"
    return [Number(factor(geometric_mean(speeds)), label, most + _lacking(raced))]


def _of_search(searched: Sequence[Searched]) -> Iterator[Number]:
    near, timed = sum(search.near for search in searched), sum(len(search.trials) for search in searched)
    label = f"tiles within {percent(1 - NEAR)} of the best of their problem"
    yield Number(f"{near} of {timed}", label, "in the search")
    measured, valid = sum(len(search.rows) for search in searched), sum(search.space.valid for search in searched)
    size = sum(search.space.size for search in searched)
    about = "" if all(search.space.exact for search in searched) else "about "
    compiled = compiled_words(searched[0]) if len(searched) == 1 else ""
    note = "; ".join(filter(None, (f"of {size} in the product", compiled)))
    yield Number(f"{measured} of {about}{valid}", "valid tiles were measured", note)


def learned(data: RunData) -> dict[str, object]:
    """Return the page's texts on search and race, by name. outcome: an HTML table of the race, or "" without a race."""
    searched, raced = searches(data.search), races(data.race)
    stages = (("search", data.search), ("race", data.race))
    return {
        "spaces": [(search.space.problem, space_words(search)) for search in searched[:MOST_DESCRIBED]],
        "more": max(0, len(searched) - MOST_DESCRIBED),
        "outcome": over_suite(raced, "html"),
        "overall": overall_words(raced) if raced and raced[0].tunes.overall else "",
        "level": percent(1 - RISK),
        "runs": ", ".join(f"{stage}: run {each.run_id}" for stage, each in stages if each),
    }
