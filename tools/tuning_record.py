"""Time every tile of a kernel on a problem, as the truth that searches are judged by: tools/data/tuning/NAME.json.

    PYTHONPATH=. python tools/tuning_record.py winograd conv/cpu.winograd conv/n1c64h14w14k256r3s3pad1/f32/nchw/fprop

A cost is the time of a tile over that of the default, measured in turn on one thread: the median of three searches.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from kernelmark.bench.measure.cpu import cpu_count, cpu_name
from kernelmark.bench.plan.case import Plan
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.options import EXHAUSTIVE
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.tune.screen import Rig, Screen
from kernelmark.bench.tune.subject import subjects_of
from kernelmark.bench.tune.tuning import Tuning, Wanted

FOLDER = Path(__file__).resolve().parent / "data" / "tuning"
SEARCHES, SECONDS_A_TILE, PROCESSES = 3, 0.1, 5


@contextmanager
def tuning(
    kernel: str, problem: str, wanted: Wanted, seconds: float = SECONDS_A_TILE, plugin: str = ""
) -> Iterator[Tuning]:
    """Give a tuning of a kernel on a problem, on one thread and without emptying caches, in a store of its own."""
    plugins = (plugin,) if plugin else ()
    registry = discover(plugins)
    suite = find_suite(problem, registry)
    plan = Plan(
        devices=("cpu",),
        kernels=(kernel,),
        mode=Mode.HOT,
        plugins=plugins,
        max_time_s=seconds,
        processes=PROCESSES,
        spread_s=0.0,
        ceilings=False,
        suites=(problem,),
    )
    with tempfile.TemporaryDirectory() as folder, Workers() as workers, closing(Store(Path(folder) / "t.db")) as store:
        rig = Rig(store, registry, workers.run, lambda: False, lambda screen: None)
        yield Tuning(subjects_of(registry, kernel, suite, 0), suite, plan, wanted, rig)


def searched(kernel: str, problem: str) -> Screen:
    """Return a search of all tiles."""
    with tuning(kernel, problem, Wanted(EXHAUSTIVE)) as whole:
        whole.search()
        return whole.screens[0]


def main() -> None:
    """Record one kernel on one problem."""
    name, kernel, problem = sys.argv[1:]
    screens = [searched(kernel, problem) for _ in range(SEARCHES)]
    tiles = screens[0].subject.tiles
    head: dict[str, Any] = {
        "machine": f"{cpu_name()}, {cpu_count()} CPUs",
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python tools/tuning_record.py {' '.join(sys.argv[1:])}",
        "searches": SEARCHES,
        "kernel": kernel,
        "problem": problem,
        "names": tiles.names,
        "default": tiles.default,
    }
    costs = [[*config, round(median(s.trials[config].cost for s in screens), 4)] for config in tiles.configs]
    lines = [*(f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()), '  "costs": [']
    rows = ",\n".join(f"    {json.dumps(row)}" for row in costs)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text("\n".join(["{", *lines, rows, "  ]", "}"]) + "\n")


if __name__ == "__main__":
    main()
