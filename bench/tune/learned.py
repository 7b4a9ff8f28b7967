"""What a tuning has found, in words and tables: the space, how flat its top is, each tunable, and the verdict."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median

from bench.plan.options import EXHAUSTIVE
from bench.report.format import count, factor, percent, rate
from bench.report.layout import Column, table
from bench.tune.race import Verdict
from bench.tune.screen import Screen
from bench.tune.search import Config

#: A tile is near the best where its rate is at least this share of the best.
NEAR = 0.95
TUNABLES = (
    Column("tunable"),
    Column("value", "right"),
    Column("tiles", "right"),
    Column("best", "right"),
    Column("median", "right"),
)
SUITE = (
    Column("problem"),
    Column("default", "right"),
    Column("best tile"),
    Column("faster", "right"),
    Column("one for all", "right"),
    Column("regret", "right"),
)


def progress(screen: Screen) -> str:
    """Return `12 of 100 tiles, best RUN=512 1.08x the default (3.21 GB/s)`."""
    done = f"{len(screen.trials)} of {screen.choice.budget} tiles"
    best, default = screen.ranked[0], f"the default ({rate(screen.default)})"
    if best.config == screen.subject.tiles.default:
        return f"{done}, best so far {default}"
    return f"{done}, best so far {screen.subject.text(best.config)}: {factor(best.speed)} {default}"


def learned(screen: Screen) -> str:
    """Return what the search of a problem has found."""
    return "\n\n".join(filter(None, (_space(screen), _tunables(screen))))


def _space(screen: Screen) -> str:
    """Return how large the space is, what became of the tiles that were measured, and how many are near the best."""
    statuses = Counter(trial.status for trial in screen.trials.values())
    timed = screen.ranked
    near = sum(trial.cost <= timed[0].cost / NEAR for trial in timed)
    how = "" if screen.choice.strategy == EXHAUSTIVE else f" by {screen.choice.strategy}"
    found = ", ".join(f"{number} {status}" for status, number in statuses.items())
    flat = f"{near} of {len(timed)} within {percent(1 - NEAR)} of the best"
    return f"{screen.subject.tiles}; {count(len(screen.trials), 'tile')} measured{how}: {found}; {flat}"


def _tunables(screen: Screen) -> str:
    """Return a table of the speed by each value of each tunable that was varied, relative to the default."""
    cells = []
    for i, name in enumerate(screen.subject.tiles.names):
        values = sorted({trial.config[i] for trial in screen.ranked})
        for value in values if len(values) > 1 else ():
            speeds = [trial.speed for trial in screen.ranked if trial.config[i] == value]
            cells.append((name, str(value), str(len(speeds)), factor(max(speeds)), factor(median(speeds))))
    return table(TUNABLES, cells)


def sentence(verdict: Verdict, where: str) -> str:
    """Return which tile to take and what to do with it, or that none is certainly faster. where: after `--tuned`."""
    subject, (ratios, best, tied) = verdict.subject, verdict.decision
    subjects = f"{subject.kernel.base_id} on {subject.problem.id}"
    default = f"the default ({subject.text(subject.tiles.default)})"
    over = f"over {verdict.default.processes} processes"
    names = ", ".join(subject.text(config) for config in tied)
    if best is None:
        same = f"; it cannot be distinguished from {names}" if tied else ""
        return (
            f"{subjects}: {default} stays: of {count(len(verdict.rows), 'tile')} none is certainly faster {over}{same}"
        )
    same = f" ({names} cannot be distinguished from it)" if tied else ""
    faster = f"{subject.text(best)} is {ratios[best]} as fast as {default} {over}{same}"
    return f"{subjects}: {faster}; `kernelmark run {subject.problem.id} --tuned {where}` uses it"


def over_suite(verdicts: Sequence[Verdict], overall: Config) -> str:
    """Return the best tile of each problem, and what the one tile that is best over the suite costs on each."""
    shares = [_shares(verdict, overall) for verdict in verdicts]
    cells = [_cells(verdict, overall) for verdict in verdicts]
    mean = math.exp(fmean(math.log(own) for own, _ in shares))
    worst, where = max((best / own - 1, v.subject.problem.id) for v, (own, best) in zip(verdicts, shares, strict=True))
    tile = verdicts[0].subject.text(overall)
    most = f"at most {percent(worst)} slower than the best of a problem ({where})"
    return f"{table(SUITE, cells)}\n\none tile for all: {tile}, {factor(mean)} the default (geometric mean), {most}"


def _shares(verdict: Verdict, overall: Config) -> tuple[float, float]:
    """Return the speed of the one tile for all and that of the fastest, relative to the default, as they were raced."""
    ratios = {config: ratio.median for config, ratio in verdict.decision.ratios.items()}
    speeds = {**ratios, verdict.subject.tiles.default: 1.0}
    return speeds.get(overall, 1.0), max(speeds.values())


def _cells(verdict: Verdict, overall: Config) -> tuple[str, ...]:
    subject, (ratios, best, _) = verdict.subject, verdict.decision
    own, most = _shares(verdict, overall)
    tile, faster = (subject.text(best), str(ratios[best])) if best else ("the default", "")
    return subject.problem.id, rate(verdict.default), tile, faster, factor(own), percent(most / own - 1)
