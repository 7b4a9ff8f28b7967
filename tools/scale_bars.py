"""What the project promises of long runs, measured: rows of (promise, found, holds) for `make bars`.

Stores with two runs of synthetic rows, five processes each, are read by `show`, `export` and `compare` as processes.
"""

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stored import RUN, result
from took import kernelmark

FEW, MANY = 100_000, 1_000_000
LONGEST_S = 5.0
LARGEST_BYTES = 200e6
KERNELS = ("copy/scale.base", "copy/scale.own")
PROCESSES, SAMPLES = 5, 40
STYLES = ("csv", "json", "markdown", "latex")
COMMANDS = (("show", "base"), *(("export", "base", "--format", style) for style in STYLES), ("compare", "base", "new"))


def scale_bars() -> Iterator[tuple[str, str, bool]]:
    """Each command over both stores: seconds over the smaller, memory over both."""
    with tempfile.TemporaryDirectory() as folder:
        few, many = (filled(Path(folder), count) for count in (FEW, MANY))
        for words in COMMANDS:
            name = " ".join(words)
            found = kernelmark(*words, "--db", str(few))
            yield f"{name}: {FEW} rows in {LONGEST_S:g} s", str(found), found.wall_s <= LONGEST_S
            found = kernelmark(*words, "--db", str(many))
            promise = f"{name}: {MANY} rows in less than {LARGEST_BYTES * 1e-6:.0f} MB"
            yield promise, str(found), found.peak_bytes < LARGEST_BYTES


def filled(folder: Path, count: int) -> Path:
    """Fill a store with the runs `base` and `new` of `count` rows each, in one transaction."""
    from kernelmark.bench.record.store import Store

    path = folder / f"{count}.db"
    with closing(Store(path)) as store:
        for run_id in ("base", "new"):
            store.begin(msgspec.structs.replace(RUN, run_id=run_id))
    with sqlite3.connect(path) as db:
        for seed, run_id in enumerate(("base", "new")):
            values = {**_template(), "run_id": run_id}
            names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
            rows = (tuple(row.values()) for row in _rows(values, count, seed))
            db.executemany(f"INSERT INTO result ({names}) VALUES ({marks})", rows)
    return path


def _template() -> dict[str, Any]:
    """What all rows have in common."""
    own: dict[str, Any] = {"op": "copy", "device_name": "Synthetic CPU @ 2.00GHz", "numerics": "exact", "layout": ""}
    own |= {"samples": SAMPLES, "processes": PROCESSES, "interval": "between-processes", "stopped_by": "ci"}
    own |= {"baseline": KERNELS[0], "versions": "numpy 2.4.6", "git_commit": "c0ffee" * 6}
    own |= {"started_at": "2026-01-01T00:00:00+00:00"}
    blob = np.random.default_rng(0).normal(1e-3, 2e-5, SAMPLES).tobytes()
    return {**msgspec.structs.asdict(result(**own)), "case": "", "dims": "", "sample_blob": blob, "part_blob": b""}


def _rows(common: dict[str, Any], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Two kernels a problem, whose processes scatter by 2 %."""
    from kernelmark.bench.plan.case import case_key

    rng = np.random.default_rng(seed)
    for i in range(count):
        m, kernel = 1 + i // 2, KERNELS[i % 2]
        problem = f"copy/m{m}n7/f32"
        parts = np.column_stack([np.full(PROCESSES, SAMPLES / PROCESSES), 1e-3 * rng.normal(1, 0.02, PROCESSES)])
        median = float(np.median(parts[:, 1]))
        yield common | {
            "problem": problem,
            "kernel": kernel,
            "case": case_key(kernel, problem, "cold", 1),
            "dims": json.dumps({"m": m, "n": 7}),
            "part_blob": parts.tobytes(),
            **_times(median),
            **({} if i % 2 == 0 else {"speedup": 1e-3 / median}),
        }


def _times(median: float) -> dict[str, float]:
    times = {"median": 1.0, "min": 0.95, "mean": 1.01, "std": 0.02, "ci95_low": 0.98, "ci95_high": 1.02}
    rates = {"gbyte_per_s": 1e-6 / median, "roofline_pct": 0.05 / median}
    return {f"time_s_{name}": factor * median for name, factor in times.items()} | rates
