"""What the project promises of 200,000 rows and of runs of no-ops, measured: rows of (promise, found, holds).

Commands are processes from start to end, so that what Python takes to start is in every figure.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from report_rows import many
from throughput_bars import main
from took import kernelmark

ROWS, KERNELS = 200_000, 10
LONGEST_S, LARGEST_BYTES = 10.0, 300e6
CASES, LEAST_PER_S = 3000, 300
#: Rows of `report_rows.many`, ten a problem.
SUITE = """
title = "Made-up products"
[[sweep]]
op = "gemm"
dtype = ["f32"]
axes = ["m", "n", "k", "layout"]
along = "m"
points = [
{points}
]
"""
NOOPS = """
import numpy as np
from kernelmark import kernel

@kernel("copy", provider="mine", device="cpu", numerics="exact")
def noop(problem, x):
    '''Next to nothing.'''
    return lambda: np.copyto(x.b, x.a)
"""
NOOP_SUITE = """
title = "No-ops"
max_time = 0.001
[[sweep]]
op = "copy"
kernels = ["copy/mine.noop"]
m = {{linear = [1, {count}, 1]}}
n = [1]
dtype = ["f64"]
"""


def many_bars() -> Iterator[tuple[str, str, bool]]:
    """Seconds and memory of what reads or writes all rows, then cases a second of `run` and `verify`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for words in commands(folder, ROWS):
            found = kernelmark(*words)
            promise = f"{words[0]}: {ROWS} rows in {LONGEST_S:g} s and less than {LARGEST_BYTES * 1e-6:g} MB"
            yield promise, str(found), found.wall_s <= LONGEST_S and found.peak_bytes < LARGEST_BYTES
        for words in noops(folder, CASES):
            found = kernelmark(*words, silent=True)  # `run` writes a line for each case
            rate = CASES / found.wall_s
            promise = f"{words[0]}: {CASES} no-ops, {LEAST_PER_S} a second from start to end"
            yield promise, f"{rate:.0f} a second: {found}", rate >= LEAST_PER_S


def commands(folder: Path, count: int) -> list[tuple[str, ...]]:
    """Return the commands over a store of `count` rows; `import` reads what `export` has written."""
    from kernelmark.bench.record.store import Store

    with closing(Store(folder / "many.db")) as store:
        many(store, count, KERNELS)
    sizes = ((16 + i, ("NN", "NT", "TN", "TT")[i % 4]) for i in range(count // KERNELS))
    points = ",\n".join(f'[{size}, {size}, {size}, "{layout}"]' for size, layout in sizes)
    (folder / "many.toml").write_text(SUITE.format(points=points))
    db, csv = ("--db", str(store.path)), str(folder / "many.csv")
    return [
        ("show", *db),
        ("export", *db, "-o", csv),
        ("import", csv, "--db", str(folder / "imported.db")),
        ("crossover", str(folder / "many.toml"), *db),
        ("report", *db, "--out", str(folder / "report")),
    ]


def noops(folder: Path, count: int) -> list[tuple[str, ...]]:
    """Return the commands that measure and that verify `count` cases of next to nothing."""
    (folder / "noops.py").write_text(NOOPS)
    (folder / "noops.toml").write_text(NOOP_SUITE.format(count=count))
    words = (str(folder / "noops.toml"), "--plugin", str(folder / "noops.py"), "--device", "cpu")
    db = ("--db", str(folder / "noops.db"))
    return [("run", *words, *db, "--mode", "hot", "--threads", "1", "--no-ceilings"), ("verify", *words, *db)]


if __name__ == "__main__":
    main(many_bars)
