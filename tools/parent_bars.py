"""What the parent of a run by an executor takes: a broker answers at once, with rows that were measured before."""

import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from dispatching import single_rows
from kernelmark.bench.run.station import measure
from kernelmark.bench.run.task import Answer, Found, Task
from merging import FAKE

TESTS = str(Path(__file__).resolve().parents[1] / "tests")
ROWS = 20_000
#: Prints the processor seconds of a parent without those of its broker, and the samples of a row.
PARENT = """
import sys, time
sys.path[:0] = [{tests!r}, {tools!r}]
from pathlib import Path
from parent_bars import Canned
from dispatching import dispatch
from merging import asked
suite, db, plugin = sys.argv[1:]
broker = Canned()
began = time.process_time()
dispatch(Path(db), asked(Path(suite), (plugin,), kernels=("copy/fake.noop",)), broker=broker)
print(time.process_time() - began - broker.own_s, broker.samples)
"""


def parent(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """The rows that a parent records in a second of its processor, what it holds, and what the store holds."""
    suite, db = single_rows(folder, ROWS), folder / "parent.db"
    code = PARENT.format(tests=TESTS, tools=str(Path(__file__).parent))
    words = [sys.executable, "-c", code, str(suite), str(db), FAKE]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    cpu_s, samples = map(float, done.stdout.split())
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    found = f"{ROWS / cpu_s:.0f} rows, {peak_bytes * 1e-6:.0f} MB for {ROWS} rows at most"
    yield "rows that the parent records in a second of processor time", found, True
    with closing(sqlite3.connect(db)) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found = f"{db.stat().st_size / ROWS:.0f} bytes, {8 * samples:.0f} of them samples"
    yield "bytes of a row in the store", found, True


class Canned:
    """A broker that answers at once with the rows of one task that was measured; own_s: what it took for itself."""

    workers, state = 1000, ""

    def __init__(self) -> None:
        self.own_s, self.samples, self._answers = 0.0, 0, list[Answer]()
        self._known: Found | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End nothing."""

    def ask(self, number: int, task: Task) -> None:
        """Answer with the rows of the first task, under the names of this one."""
        began = time.process_time()
        if self._known is None:
            self._known = msgspec.msgpack.decode(measure(msgspec.msgpack.encode(task)), type=Found)
            self.samples = len(self._known.rows[0][0].samples)
        (row,), (job,) = self._known.rows[0], task.jobs
        rows = [[msgspec.structs.replace(row, problem=job.job.problems[0])]]
        found = msgspec.structs.replace(self._known, rows=rows)
        self._answers.append(Answer(number, msgspec.msgpack.encode(found)))
        self.own_s += time.process_time() - began

    def answer(self, within_s: float) -> Answer:
        """Return the next answer."""
        return self._answers.pop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for promise, found, _ in parent(Path(name)):
            print(f"{promise}: {found}", flush=True)
