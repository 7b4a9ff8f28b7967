"""What the project promises of shards, measured on the fake device: rows of (promise, found, holds).

Shards are measured one after the other, by processes of their own, and merged by the command; what they become is set
against a run of the same suite that was never divided.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from merging import rows, suite_file
from took import took

CASES, SHARDS = 100_000, 8
LEAST_PER_S, LARGEST_BYTES = 20_000, 200e6
#: Storage types and kernels of `merging.SUITE`.
CASES_A_SIZE = 2 * 3
COMMAND = "import sys; from bench.cli import main; main()"
MEASURE = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from merging import measure
measure(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
"""


def shard_bars() -> Iterator[tuple[str, str, bool]]:
    """Whether merged shards are the whole run, rows a second and memory of the merge, and of one that adds nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite = suite_file(folder, range(1, 1 + CASES // CASES_A_SIZE))
        shards = [folder / f"{index}.db" for index in range(1, SHARDS + 1)]
        _measure(folder / "whole.db", suite, "")
        for index, path in enumerate(shards, 1):
            _measure(path, suite, f"{index}/{SHARDS}")
        words = ("merge", *map(str, shards), "--db", str(folder / "all.db"))
        for what in ("merge", "merge again"):
            found = took([sys.executable, "-c", COMMAND, *words])
            rate = _count(folder / "whole.db") / found.wall_s
            promise = f"{what}: {LEAST_PER_S} rows a second, less than {LARGEST_BYTES * 1e-6:g} MB"
            yield (
                promise,
                f"{rate:.0f} rows a second: {found}",
                rate >= LEAST_PER_S and found.peak_bytes < LARGEST_BYTES,
            )
        same = rows(folder / "all.db") == rows(folder / "whole.db")
        total = _count(folder / "all.db")
        yield f"{SHARDS} shards merged are the run that was never divided", f"{total} rows, equal: {same}", same


def _measure(db: Path, suite: Path, shard: str) -> None:
    tests = str(Path(__file__).resolve().parents[1] / "tests")
    subprocess.run([sys.executable, "-c", MEASURE.format(tests=tests), str(db), str(suite), shard], check=True)


def _count(db: Path) -> int:
    from bench.record.store import Store

    with closing(Store(db, create=False)) as store:
        return sum(store.statuses(store.run_ids()[-1]).values())


if __name__ == "__main__":
    for promise, found, holds in shard_bars():
        print(f"{'holds ' if holds else 'MISSED'}  {promise}: {found}", flush=True)
