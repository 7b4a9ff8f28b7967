"""What the project promises of shards, measured on the fake device: rows of (promise, found, holds).

Shards are measured one after the other, by processes of their own, and merged by the command; what they become is set
against a run of the same suite that was never divided. Their rows are multiplied before the merge, since 100,000 cases
take half an hour.
"""

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from merging import rows, suite_file
from throughput_bars import main
from took import kernelmark

CASES, TIMES, SHARDS = 1200, 84, 8
LEAST_PER_S, LARGEST_BYTES = 20_000, 200e6
#: Storage types and kernels of `merging.SUITE`.
CASES_A_SIZE = 2 * 3
MEASURE = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from merging import measure
measure(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
"""


def shard_bars() -> Iterator[tuple[str, str, bool]]:
    """Rows a second and memory of a merge, and of one that adds nothing; whether merged shards are the whole run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite = suite_file(folder, range(1, 1 + CASES // CASES_A_SIZE))
        shards = [folder / f"{index}.db" for index in range(1, SHARDS + 1)]
        for index, path in enumerate([folder / "whole.db", *shards]):
            _measure(path, suite, f"{index}/{SHARDS}" if index else "")
            _multiply(path)
        yield from merged(folder / "whole.db", shards, folder / "all.db")


def merged(whole: Path, shards: list[Path], target: Path) -> Iterator[tuple[str, str, bool]]:
    """Merge shards twice, and compare what they become with the whole run."""
    words = ("merge", *map(str, shards), "--db", str(target))
    for what in ("merge", "merge again"):
        found = kernelmark(*words)
        rate = _count(whole) / found.wall_s
        promise = f"{what}: {LEAST_PER_S} rows a second, less than {LARGEST_BYTES * 1e-6:g} MB"
        yield promise, f"{rate:.0f} rows a second: {found}", rate >= LEAST_PER_S and found.peak_bytes < LARGEST_BYTES
    same = rows(target) == rows(whole)
    promise = f"{len(shards)} shards merged are the run that was never divided"
    yield promise, f"{_count(target)} rows, equal: {same}", same


def _measure(db: Path, suite: Path, shard: str) -> None:
    tests = str(Path(__file__).resolve().parents[1] / "tests")
    subprocess.run([sys.executable, "-c", MEASURE.format(tests=tests), str(db), str(suite), shard], check=True)


def _multiply(db: Path) -> None:
    """Add rows of other problems like those that are there: in the place of `copy/m7`, `copy/m1000007`, and so on."""
    with closing(sqlite3.connect(db)) as opened, opened:
        names = [name for _, name, *_ in opened.execute("PRAGMA table_info(result)") if name != "result_id"]
        own = {name: f'"{name}"' for name in names}
        own |= {name: f"""replace("{name}", 'copy/m', 'copy/m' || :by || '000000')""" for name in ("problem", "case")}
        own |= {"place": f"place + :by * {CASES}"}
        listed = ", ".join(f'"{name}"' for name in names)
        insert = f"INSERT INTO result ({listed}) SELECT {', '.join(own.values())} FROM result WHERE result_id <= :last"
        (last,) = opened.execute("SELECT max(result_id) FROM result").fetchone()
        for by in range(1, TIMES):
            opened.execute(insert, {"by": by, "last": last})


def _count(db: Path) -> int:
    from kernelmark.bench.record.store import Store

    with closing(Store(db, create=False)) as store:
        return sum(store.statuses(store.run_ids()[-1]).values())


if __name__ == "__main__":
    main(shard_bars)
