"""What the project promises of `kernelmark tune`, measured: rows of (promise, found, holds).

Searches are replayed on spaces whose every tile was timed (tools/tuning_record.py); what tuning adopts, how often
it does so and how long that takes is measured here.

    python tools/tuning_bars.py again     tunes the three kernels, and times what is adopted again in fresh processes
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from kernelmark.bench.plan.options import EXHAUSTIVE, GUIDED, RANDOM
from kernelmark.bench.run.progress import Progress
from kernelmark.bench.tune.race import Verdict
from kernelmark.bench.tune.search import Choice, Config, Field, search
from kernelmark.bench.tune.tuning import Wanted
from throughput_bars import main
from tuning_record import FOLDER, PROCESSES, tuning

PLUGIN = str(Path(__file__).resolve().parent / "data" / "tuning_kernels.py")
LEAST_TILES, MOST_MEDIAN, SHARE, SEEDS, LEAST_FOUND = 300, 0.7, 0.15, 20, 0.97
TUNINGS, EXCEPTIONS = 20, 1
NOOPS, MOST_S = 400, 0.02
PARTS = ("replays", "overhead", "adopted", "again")


class Truth(NamedTuple):
    """A space of which every tile was timed: costs relative to the default."""

    kernel: str
    problem: str
    field: Field
    costs: dict[Config, float]

    @property
    def budget(self) -> int:
        """Return how many evaluations a search may have."""
        return int(SHARE * len(self.costs))

    def found(self, strategy: str, seed: int) -> float:
        """Return the speed of the best that a search finds, relative to the best; the default is known beforehand."""
        seen = [self.costs[self.field.default]]

        def evaluate(configs: list[Config]) -> list[float]:
            own = [self.costs[config] for config in configs]
            seen.extend(own)
            return own

        search(self.field, evaluate, Choice(strategy, self.budget), seed)  # type: ignore[arg-type]
        return min(self.costs.values()) / min(seen)


def truths() -> Iterator[Truth]:
    """Every recorded space."""
    for path in sorted(FOLDER.glob("*.json")):
        found = json.loads(path.read_text())
        costs = {tuple(config): cost for *config, cost in found["costs"]}
        field = Field(found["names"], list(costs), tuple(found["default"]))
        yield Truth(found["kernel"], found["problem"], field, costs)


def tuning_bars(parts: Sequence[str] = PARTS) -> Iterator[tuple[str, str, bool]]:
    """What searches find, what it costs, what is adopted rightly and wrongly, and whether it is slower tomorrow."""
    if "replays" in parts:
        yield from map(replayed, truths())
    if "overhead" in parts:
        yield overhead()
    if "adopted" in parts:
        least = f"in {TUNINGS - EXCEPTIONS} of {TUNINGS}"
        yield adopted("equal", f"the default stays {least} where all tiles are equal", "")
        yield adopted("planted", f"5 % faster: adopted {least}", "PLANTED=7")
    if "again" in parts:
        yield from map(again, truths())


def replayed(truth: Truth) -> tuple[str, str, bool]:
    """Replay the default strategy and random tiles on a recorded space."""
    guided, drawn = (median(truth.found(strategy, seed) for seed in range(SEEDS)) for strategy in (GUIDED[0], RANDOM))
    speeds = sorted(1 / cost for cost in truth.costs.values())
    middle = median(speeds) / speeds[-1]
    promise = (
        f"tune {truth.kernel}: {SHARE:.0%} of over {LEAST_TILES} tiles, whose median is at most {MOST_MEDIAN} of the "
        f"best, find {LEAST_FOUND} of the best and more than random ones"
    )
    found = f"{len(speeds)} tiles, median {middle:.2f}; {guided:.3f} of the best, random {drawn:.3f}"
    shaped = len(speeds) > LEAST_TILES and middle <= MOST_MEDIAN
    return promise, found, shaped and guided >= LEAST_FOUND and guided > drawn


def overhead() -> tuple[str, str, bool]:
    """Time a search of tiles that do next to nothing, all of which counts as overhead."""
    with tuning("copy/mine.noop", "copy/m8n8/f32", Wanted(EXHAUSTIVE), 0.001, PLUGIN) as whole:
        (subject,) = whole.subjects
        begun = time.perf_counter()
        whole.search()
        each = (time.perf_counter() - begun) / len(subject.tiles.configs)
    promise = f"tune: {NOOPS} tiles of a copy of 256 bytes, {MOST_S * 1e3:.0f} ms a tile with verifying and measuring"
    return promise, f"{each * 1e3:.1f} ms", each <= MOST_S


def raced(kernel: str, problem: str, wanted: Wanted, seconds: float, plugin: str = "") -> Verdict:
    """Tune a kernel, with the race in fresh processes."""
    with tuning(kernel, problem, wanted, seconds, plugin) as whole:
        whole.search()
        (verdict,) = whole.race(lambda jobs, processes: nullcontext(Progress()))
        return verdict


def adopted(kernel: str, promise: str, expected: str) -> tuple[str, str, bool]:
    """Tune a kernel whose best tile is known, again and again."""
    right = 0
    for _ in range(TUNINGS):
        verdict = raced(f"copy/mine.{kernel}", "copy/m128n128/f32", Wanted(), 0.02, PLUGIN)
        right += (verdict.raced.decision.best or "") == expected
    return f"tune: {promise}", f"{right} of {TUNINGS}", right >= TUNINGS - EXCEPTIONS


def again(truth: Truth) -> tuple[str, str, bool]:
    """Tune a kernel, then race what was adopted with the default once more in fresh processes."""
    promise = f"tune {truth.kernel}: what is adopted is not certainly slower, timed again in {PROCESSES} processes"
    first = raced(truth.kernel, truth.problem, Wanted(GUIDED[0], truth.budget), 0.05)
    tile = first.raced.decision.best
    if tile is None:
        return promise, "the default stays", True
    ratio = raced(f"{truth.kernel}@{tile}", truth.problem, Wanted(), 0.05).raced.decision.ratios[tile]
    return promise, f"{tile}: {ratio} as fast as the default", not (ratio.certain and ratio.median < 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    wanted = parser.parse_args().parts
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"{', '.join(unknown)}: unknown, expected some of {', '.join(PARTS)}")
    main(lambda: tuning_bars(wanted))
