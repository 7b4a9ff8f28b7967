"""Measure `kernelmark tune`: the tiles that it finds and adopts, and its cost.

Searches are replayed on spaces in which every tile was timed (tools/data/tuning/). The cost of a tile is its time
divided by the default's, from samples taken in turn on one thread, as the median of three exhaustive searches.
"""

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

from kernelmark.bench.plan.options import GUIDED, RANDOM
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import Ratio, contests
from kernelmark.bench.tune.search import Config, SearchDomain, SearchWay, search
from took import ROOT, Found, kernelmark

DATA = ROOT / "tools" / "data"
SHARE, SEEDS, TUNINGS, NOOPS = 0.15, 20, 20, 400
ALONE = ("--mode", "hot", "--threads", "1", "--spread", "0", "--no-ceilings")


class Truth(NamedTuple):
    """A space in which every tile was timed. costs: each tile's time divided by the default's."""

    kernel: str
    problem: str
    field: SearchDomain
    costs: dict[Config, float]

    @property
    def budget(self) -> int:
        return int(SHARE * len(self.costs))

    def found(self, strategy: str, seed: int) -> float:
        """Return the speed of the best tile that a search finds, or of the default, relative to the best of all."""
        seen = [self.costs[self.field.default]]

        def evaluate(configs: list[Config]) -> list[float]:
            costs = [self.costs[config] for config in configs]
            seen.extend(costs)
            return costs

        search(self.field, evaluate, SearchWay(strategy, self.budget), seed)  # type: ignore[arg-type]
        return min(self.costs.values()) / min(seen)

    def median_found(self, strategy: str) -> float:
        return median(self.found(strategy, seed) for seed in range(SEEDS))


def truths() -> Iterator[Truth]:
    for path in sorted((DATA / "tuning").glob("*.json")):
        space = json.loads(path.read_text())
        costs = {tuple(config): cost for *config, cost in space["costs"]}
        field = SearchDomain(space["names"], list(costs), tuple(space["default"]))
        yield Truth(space["kernel"], space["problem"], field, costs)


def replay() -> Found:
    speeds = [(truth.kernel, truth.median_found(GUIDED[0]), truth.median_found(RANDOM)) for truth in truths()]
    text = "; ".join(f"{kernel} {guided:.3f} of the best, random {drawn:.3f}" for kernel, guided, drawn in speeds)
    yield "replay.found", min(guided for _, guided, _ in speeds), text
    yield "replay.random", min(guided / drawn for _, guided, drawn in speeds), text


def tune() -> Found:
    for name, kernel, best in (("default", "equal", None), ("planted", "planted", "PLANTED=7")):
        tiles = [tuned(f"copy/mine.{kernel}", "copy/m128n128/f32", "--max-time", "0.02") for _ in range(TUNINGS)]
        yield f"tune.{name}", sum(tile == best for tile in tiles), f"of {TUNINGS}"
    with tempfile.TemporaryDirectory() as name:
        words = ("--strategy", "exhaustive", "--max-time", "0.001", "--processes", "2", "--db", f"{name}/t.db")
        tuned("copy/mine.noop", "copy/m8n8/f32", *words)
        with closing(sqlite3.connect(f"{name}/t.db")) as db:
            starts = "SELECT started_at FROM result WHERE run_id = (SELECT run_id FROM run ORDER BY rowid LIMIT 1)"
            times = sorted(datetime.fromisoformat(start) for (start,) in db.execute(starts))
    before = sum(start < times[-1] for start in times)
    each_ms = 1e3 * (times[-1] - times[0]).total_seconds() / before
    yield "tune.overhead", each_ms, f"{len(times)} of {NOOPS} tiles of a copy of 256 bytes"


def again() -> Found:
    """Tune the kernels of the recorded spaces; then time adopted tiles and defaults again, in fresh processes."""
    slower = []
    for kernel, problem, budget in ((truth.kernel, truth.problem, truth.budget) for truth in truths()):
        tile = tuned(kernel, problem, "--strategy", GUIDED[0], "--budget", str(budget), "--max-time", "0.05")
        ratio = timed(kernel, f"{kernel}@{tile}", problem) if tile else None
        text = f"{kernel}@{tile}: {ratio} as fast as the default" if ratio else f"{kernel}: the default stays"
        slower.append((bool(ratio and ratio.certain and ratio.median < 1), text))
    yield "again.slower", sum(is_slower for is_slower, _ in slower), "; ".join(text for _, text in slower)


def tuned(kernel: str, problem: str, *options: str) -> str | None:
    with tempfile.TemporaryDirectory() as name:
        path, plugin = Path(name, "tuned.json"), DATA / "tuning_kernels.py"
        words: list[str | Path] = ["--plugin", plugin, "--tuned", path, *ALONE, "--db", f"{name}/t.db", *options]
        kernelmark("tune", kernel, problem, *words, silent=True)
        entries = json.loads(path.read_text())["tiles"] if path.is_file() else []
        return entries[0]["tile"] if entries else None


def timed(default: str, tile: str, problem: str) -> Ratio:
    """Return how many times as fast a tile is as the default, timed in turn in five processes."""
    with tempfile.TemporaryDirectory() as name:
        words = ("--kernels", default, "--kernels", tile, "--processes", "5", "--max-time", "0.5", *ALONE)
        kernelmark("run", problem, *words, "--db", f"{name}/r.db", silent=True)
        with Store(Path(name, "r.db"), create=False) as store:
            (contest,) = contests([row for row, _ in store.results(store.run_ids()[-1])], store)
            first, tiled = contest.of(default), contest.of(tile)
            assert first is not None
            assert tiled is not None
            return contest.faster(tiled, first)
