"""What the project promises of runs by an executor, measured on the fake device: rows of (promise, found, holds).

Parsl's executor starts its workers on this host. What the parent records is the store; processes are killed by their
numbers, and a run that was left is taken up again.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from dispatching import LOCAL, config_file, single_rows
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.run.family import below
from merging import FAKE
from parent_bars import parent
from throughput_bars import main

TESTS = str(Path(__file__).resolve().parents[1] / "tests")
JOBS, SLEEPING_JOBS, SLEEP_S = 600, 120, 0.05
LEAST_GAIN, LEAST_PER_S, FIRST_S = 1.6, 100.0, 15.0
#: Kills, the rows between two of them at most, and how long a run may take to its next row.
KILLS, APART, SEED, STALLED_S = 30, 24, 20, 120.0
SLEEPS = """
import time
import numpy as np
from kernelmark.bench.measure.devices import get_device
from kernelmark import kernel

@kernel("copy", provider="slow", device="fake", numerics="exact")
def sleeps(problem, x):
    time.sleep({seconds})
    def launch():
        np.copyto(x.b, x.a)
        get_device("fake").spend("noop")
    return launch
"""
#: Prints when the first row stands and when the last, in seconds from the start.
RUN = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from dispatching import dispatch
from merging import asked
suite, db, config, kernels, *plugins = sys.argv[1:]
resume = None
if Path(db).exists():
    from kernelmark.bench.record.store import Store
    store = Store(Path(db))
    resume = store.run_ids()[-1] if store.run_ids() else None
    store.close()
dispatch(Path(db), asked(Path(suite), tuple(plugins), kernels=tuple(kernels.split(","))), config=config, resume=resume)
"""


def cluster_bars() -> Iterator[tuple[str, str, bool]]:
    """The gain of a second worker, the rate of the parent, the first row, and what is left after kills."""
    if reason := module_missing("parsl"):
        yield "runs by an executor", reason, False
        return
    with tempfile.TemporaryDirectory() as name:
        yield from gain(Path(name))
        yield from rate(Path(name))
        yield from parent(Path(name))
        yield from kills(Path(name))


def gain(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """What two workers take for jobs that sleep, against one."""
    plugin = folder / "sleeps.py"
    plugin.write_text(SLEEPS.format(seconds=SLEEP_S))
    spans = []
    for workers in (1, 2):
        times = _recorded(_case(folder, f"gain{workers}", SLEEPING_JOBS, workers), "copy/slow.sleeps", plugin)
        spans.append(times[-1] - times[0])
    found = spans[0] / spans[1]
    each = f"{SLEEPING_JOBS} jobs that sleep {1e3 * SLEEP_S:g} ms"
    text = f"{found:.2f}x ({spans[0]:.1f}, {spans[1]:.1f} s)"
    yield f"{each}: two workers {LEAST_GAIN:g}x one", text, found >= LEAST_GAIN


def rate(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """The jobs a second through one parent, of jobs that take nothing, and when the first row stands."""
    case = _case(folder, "rate", JOBS, 2)
    times = _recorded(case, "copy/fake.noop")
    found = (len(times) - 1) / (times[-1] - times[0])
    yield f"{LEAST_PER_S:g} jobs a second through one parent", f"{found:.0f} jobs a second", found >= LEAST_PER_S
    yield f"the first row within {FIRST_S:g} s of the start", f"{times[0]:.1f} s", times[0] <= FIRST_S


def kills(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """Kill a worker, Parsl's manager or the parent after random numbers of rows, until the run is complete."""
    drawn, case, seen = random.Random(SEED), _case(folder, "kills", JOBS, 2), set[str]()
    lost = times = stalls = 0
    struck = dict.fromkeys(VICTIMS, 0)
    for _ in range(10 * KILLS):
        with _started(case, "copy/fake.noop", None) as process:
            due, since_s = len(seen) + drawn.randint(1, APART), time.monotonic()
            while process.poll() is None and (times < KILLS or len(seen) < JOBS):
                time.sleep(0.02)
                known = set(_cases(case[1]))
                since_s = time.monotonic() if known - seen else since_s
                if time.monotonic() - since_s > STALLED_S:  # a worker was killed that held the lock of Parsl's queue
                    stalls, since_s = stalls + 1, time.monotonic()
                    process.kill()
                lost, seen = lost + len(seen - known), seen | known
                if times == KILLS or len(seen) < due:
                    continue
                if _strike(process.pid, which := drawn.choice(list(VICTIMS)), drawn):
                    times, struck[which] = times + 1, struck[which] + 1
                    due = len(seen) + drawn.randint(1, APART)
        if process.returncode == 0:
            break
    found = _cases(case[1])
    doubled, missing = len(found) - len(set(found)), JOBS - len(set(found))
    told = ", ".join(f"{count} {which}" for which, count in struck.items())
    yield (
        f"{KILLS} random SIGKILLs: no acknowledged row lost, none doubled, the run resumes to its end",
        f"{times} kills ({told}): {lost} lost, {doubled} doubled, {missing} of {JOBS} missing, "
        f"{stalls} stalls of Parsl's pool ended by hand",
        (times, lost, doubled, missing) == (KILLS, 0, 0, 0),
    )


#: What is killed, by a word of its command line; the parent is killed as itself.
VICTIMS = {
    "parent": "",
    "manager": "process_worker_pool",
    "worker": "multiprocessing",
    "job": "kernelmark.bench.run.worker",
}
Case = tuple[Path, Path, str]


def _case(folder: Path, name: str, jobs: int, workers: int) -> Case:
    """The suite, the store and the executor's file of a run of this many jobs."""
    own = folder / name
    own.mkdir()
    return single_rows(own, jobs), own / "r.db", config_file(own, LOCAL, workers=workers, rest="")


def _started(case: Case, kernels: str, plugin: Path | None) -> "subprocess.Popen[bytes]":
    suite, db, config = case
    words = [str(suite), str(db), config, kernels, FAKE, *([str(plugin)] if plugin else [])]
    return subprocess.Popen([sys.executable, "-c", RUN.format(tests=TESTS), *words], stderr=subprocess.DEVNULL)


def _recorded(case: Case, kernels: str, plugin: Path | None = None) -> list[float]:
    """Measure, and return the seconds from the start after which each row was there."""
    began, times = time.perf_counter(), list[float]()
    with _started(case, kernels, plugin) as process:
        while process.poll() is None:
            time.sleep(0.02)
            times += [time.perf_counter() - began] * (len(_cases(case[1])) - len(times))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, "a run by an executor")
    return times


def _cases(db: Path) -> list[str]:
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as opened:
        return [case for (case,) in opened.execute('SELECT "case" FROM result')]
    return []


def _strike(parent: int, which: str, drawn: random.Random) -> bool:
    """Kill one of the processes of a run; return whether there was one."""
    others = [member.pid for member in below(parent) if _is(member.pid, VICTIMS[which])]
    with suppress(ProcessLookupError, IndexError):
        os.kill(drawn.choice([parent] if which == "parent" else others), signal.SIGKILL)
        return True
    return False


def _is(pid: int, word: str) -> bool:
    with suppress(OSError):
        return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


if __name__ == "__main__":
    main(cluster_bars)
