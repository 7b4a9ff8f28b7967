"""Measure whole runs (in one process, by an executor, after kills) and the emulator."""

import math
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
from statistics import median

import numpy as np

from kernelmark.bench.emulator.build import CUDA, program
from kernelmark.bench.emulator.worker import Buffer, Launch, run
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.run.family import below
from took import COMMAND, ROOT, Found, copies, kernelmark

#: A plug-in with kernels that do almost nothing.
PLUGIN = ROOT / "tools" / "data" / "tuning_kernels.py"
OPTIONS = ("--mode", "hot", "--threads", "1", "--no-ceilings")


def durations() -> Found:
    """Run `selftest --only durations`, and yield its exit status: 0 if every duration was measured correctly."""
    words = [*COMMAND, "selftest", "--only", "durations"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    yield "durations.missed", done.returncode, done.stdout.strip().splitlines()[-1] if done.stdout else done.stderr


NO_OPS = 3000


def no_ops() -> Found:
    with tempfile.TemporaryDirectory() as name:
        words = (copies(Path(name), "copy/mine.noop", NO_OPS), "--plugin", PLUGIN, "--device", "cpu")
        db = ("--db", Path(name, "noops.db"))
        run, verify = (kernelmark(*line, *words, *db, silent=True) for line in (("run", *OPTIONS), ("verify",)))
    yield "no_ops.run", NO_OPS / run.wall_s, str(run)
    yield "no_ops.case", 1e3 * run.wall_s / NO_OPS, "including set-up, verification and the start of the command"
    yield "no_ops.verify", NO_OPS / verify.wall_s, str(verify)


#: The tests' fake device, on which no time passes, so that only kernelmark's overhead is measured.
FAKE = ROOT / "tests" / "support" / "plugins" / "fake_device.py"
FAKE_CASES, SETTLED = 100_000, 20_000
FAKE_RUN = """
import sys
from pathlib import Path
from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.suites import load_suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.session import Session, run_jobs
suite, db, plugin = sys.argv[1:]
registry = discover((plugin,))
suites, store = [load_suite(Path(suite), registry)], Store(Path(db))
plan = Plan(devices=("fake",), plugins=(plugin,), ceilings=False)
with Workers() as workers:
    run_jobs(Session(store, suites, plan, workers.run), lambda: jobs(suites, registry, plan))
"""


def fake() -> Found:
    """Record a no-op on a fake device whose clock stands still: rows per real second, and the growth of memory."""
    with tempfile.TemporaryDirectory() as name:
        db, suite = Path(name, "r.db"), copies(Path(name), "copy/fake.noop", FAKE_CASES // 100, 100)
        start, settled = time.perf_counter(), dict[str, float]()
        end = dict[str, float]()
        with subprocess.Popen([sys.executable, "-c", FAKE_RUN, suite, str(db), str(FAKE)]) as process:
            while process.poll() is None:
                time.sleep(0.1)
                with suppress(OSError):
                    end = peaks_mb(process.pid) or end
                    settled = settled or (end if len(recorded(db)) >= SETTLED else {})
        count, seconds = len(recorded(db)), time.perf_counter() - start
    yield "fake.rows", count, f"in {seconds:.0f} s"
    yield "fake.rate", count / seconds, f"{count} rows in {seconds:.0f} s"
    for name, most in end.items():
        before = (settled or end)[name]
        yield f"fake.{name}", 100 * (most / before - 1), f"{before:.0f} MB after {SETTLED} cases, {most:.0f} at the end"


def peaks_mb(parent: int) -> dict[str, float]:
    """Return the peak memory of a run's parent and of its worker, or nothing while there is no worker."""
    workers = [_peak_mb(member.pid) for member in below(parent) if _is(member.pid, "kernelmark.bench.run.worker")]
    return {"parent": _peak_mb(parent), "worker": max(workers)} if workers else {}


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024e-6 for line in lines if line.startswith("VmHWM"))


def _is(pid: int, word: str) -> bool:
    with suppress(OSError):
        return word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def recorded(db: Path) -> list[str]:
    return read(db, 'SELECT "case" FROM result')


def read(db: Path, query: str) -> list[str]:
    """Return the values of a query, or [] while there is no store."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as opened:
        return [value for (value,) in opened.execute(query)]
    return []


JOBS, SLEEPING_JOBS = 600, 120
#: The number of kills, the most rows between two kills, a seed, and the seconds without a row that end a stalled run.
KILLS, APART, SEED, STALLED_S = 30, 24, 20, 120.0
#: The run uses the tests' fake device, since CPU jobs of one host are measured one at a time.
DISPATCH = """
import sys
from pathlib import Path
from support.plugins import FAKE
from support.shards import LOCAL, config_file, dispatch, plan_of
suite, name, workers, resume = sys.argv[1:]
folder = Path(name)
plan = plan_of(Path(suite), (FAKE, str(folder / "sleeps.py")), kernels=())
dispatch(folder / "r.db", plan, config_file(folder, LOCAL, int(workers)), resume=resume or None)
"""
SLEEPS = """
import time
import numpy as np
from kernelmark import kernel
from kernelmark.bench.measure.devices import get_device

@kernel("copy", provider="slow", device="fake", numerics="exact")
def sleeps(problem, x):
    time.sleep(0.05)
    def launch():
        np.copyto(x.b, x.a)
        get_device("fake").spend("noop")
    return launch
"""
#: The processes to be killed, by a word of their command lines; the parent is killed directly.
VICTIMS = {
    "parent": "",
    "manager": "process_worker_pool",
    "worker": "multiprocessing",
    "job": "kernelmark.bench.run.worker",
}


class Run:
    """A run of copies on workers that Parsl starts on this host; its parent records rows in the store."""

    def __init__(self, folder: Path, kernel: str, jobs: int, workers: int) -> None:
        folder.mkdir()
        self.db = folder / "r.db"
        (folder / "sleeps.py").write_text(SLEEPS)
        self.words = [sys.executable, "-c", DISPATCH, copies(folder, kernel, jobs), str(folder), str(workers)]

    def started(self) -> "subprocess.Popen[bytes]":
        begun = read(self.db, "SELECT run_id FROM run")[-1:] or [""]
        env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
        return subprocess.Popen([*self.words, *begun], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def times(self) -> list[float]:
        """Return the seconds from the start to each row in the store. Raises CalledProcessError."""
        began, times = time.perf_counter(), list[float]()
        with self.started() as process:
            while process.poll() is None:
                time.sleep(0.02)
                times += [time.perf_counter() - began] * (len(recorded(self.db)) - len(times))
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, self.words)
        return times


def executor() -> Found:
    """Compare two workers with one on jobs that sleep, measure the rate of no-op jobs, and kill a run repeatedly."""
    if missing := module_missing("parsl"):
        for name in ("gain", "rate", "first", "lost"):
            yield f"executor.{name}", math.nan, missing
        return
    with tempfile.TemporaryDirectory() as name:
        sleeping = [Run(Path(name, f"gain{n}"), "copy/slow.sleeps", SLEEPING_JOBS, n).times() for n in (1, 2)]
        one_s, two_s = (times[-1] - times[0] for times in sleeping)
        yield "executor.gain", one_s / two_s, f"{one_s:.1f} and {two_s:.1f} s for {SLEEPING_JOBS} jobs"
        parsl_run = Run(Path(name, "rate"), "copy/fake.noop", JOBS, 2)
        times = parsl_run.times()
        size = f"{parsl_run.db.stat().st_size / JOBS:.0f} bytes per row in the store"
        yield "executor.rate", (len(times) - 1) / (times[-1] - times[0]), f"{JOBS} jobs, {size}"
        yield "executor.first", times[0], ""
        yield "executor.lost", *killed(Run(Path(name, "kills"), "copy/fake.noop", JOBS, 2))


def killed(parsl_run: Run) -> tuple[int, str]:
    """Kill a worker, Parsl's manager or the parent after random numbers of rows, until the run is complete.

    Return the number of faults and a text. Faults are rows that vanished from the store, rows that occur twice, rows
    absent at the end, and kills that were not made.
    """
    drawn, seen = random.Random(SEED), set[str]()
    lost = times = stalls = 0
    for _ in range(10 * KILLS):
        with parsl_run.started() as process:
            due, since_s = len(seen) + drawn.randint(1, APART), time.monotonic()
            while process.poll() is None and (times < KILLS or len(seen) < JOBS):
                time.sleep(0.02)
                known = set(recorded(parsl_run.db))
                since_s = time.monotonic() if known - seen else since_s
                if time.monotonic() - since_s > STALLED_S:  # a worker that was killed held the lock of Parsl's queue
                    stalls, since_s = stalls + 1, time.monotonic()
                    process.kill()
                lost, seen = lost + len(seen - known), seen | known
                if times < KILLS and len(seen) >= due and _strike(process.pid, drawn):
                    times, due = times + 1, len(seen) + drawn.randint(1, APART)
        if process.returncode == 0:
            break
    cases = recorded(parsl_run.db)
    doubled, missing = len(cases) - len(set(cases)), JOBS - len(set(cases))
    text = f"{times} kills, {lost} lost, {doubled} doubled, {missing} of {JOBS} missing, {stalls} stalls ended"
    return lost + doubled + missing + (KILLS - times), text


def _strike(parent: int, drawn: random.Random) -> bool:
    which = drawn.choice(list(VICTIMS))
    others = [member.pid for member in below(parent) if _is(member.pid, VICTIMS[which])]
    with suppress(ProcessLookupError, IndexError):
        os.kill(drawn.choice([parent] if which == "parent" else others), signal.SIGKILL)
        return True
    return False


SGEMM = "gemm/m128n128k64/f32/NN"
SWEEP, CORPUS = "tests/emulator/test_kernels.py", "tests/emulator/test_corpus.py"
#: The sources of the first kernels, whose sweep together with the corpus has a separate limit.
EARLY = (
    *(f"{name}.cu/gemm" for name in ("naive", "coalesced", "tiled")),
    *(f"{name}.cu/transpose" for name in ("naive", "tiled", "square_inplace")),
)


def emulator() -> Found:
    """Run a checked SGEMM, the first kernels' tests with a cold and a warm cache, and the tests of later kernels."""
    times = list(sgemm_ms())
    yield "emulator.sgemm", median(times), f"median of {len(times)}"
    with tempfile.TemporaryDirectory() as cache:
        chosen = " or ".join(EARLY)
        for name in ("cold", "warm"):
            yield f"emulator.{name}", tested_s(cache, SWEEP, CORPUS, "-k", f"planted or accused or {chosen}"), ""
        _, every = (tested_s(cache, SWEEP) for _ in "12")
        _, early = (tested_s(cache, SWEEP, "-k", chosen) for _ in "12")
    later = [k for k in discover().kernels.values() if isinstance(k, CudaKernel) and not k.emulated]
    count = len(later) - len(EARLY)
    yield "emulator.later", (every - early) / count, f"{count} kernels"


def sgemm_ms() -> Iterator[float]:
    """Yield run times of a tiled SGEMM under the checker, without compilation and process start."""
    registry = discover()
    problem, kernel = registry.problem(SGEMM), registry.kernels["gemm/cuda.tiled"]
    assert isinstance(kernel, CudaKernel)
    ((entry, call),) = kernel.calls(problem, next(kernel.tiles()))
    rng = np.random.default_rng(0)
    buffers = {o.name: Buffer(o.role, rng.random(o.elements, np.float32)) for o in problem.operands()}
    worker = program(CUDA / kernel.source, (entry,))
    launches = [Launch(entry, call.grid, call.block, call.args, call.shared_bytes)]
    for _ in range(5):
        yield from (1e3 * outcome.time_s for outcome in run(worker, buffers, launches, orders=("forward",)))


def tested_s(cache: str, *words: str) -> float:
    command = [sys.executable, "-m", "pytest", "--quiet", *words]
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": cache}, check=True, capture_output=True)
    return time.perf_counter() - start
