"""Compare our CPU kernels with others and with ceilings, by ratios of samples taken in turn on two threads."""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from honest import alarms
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.operands import Operands, ScratchBuffers, loaded
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.measure.ratio import speedup
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import Kernel, Launch
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.networks import overlaps
from kernelmark.bench.run.job import run_job
from kernelmark.bench.selftest.wrong.aggregate import COMPRESSED
from kernelmark.bench.selftest.wrong.library import trial
from kernelmark.kernels._launches import in_bands
from kernelmark.kernels.aggregate import _plans
from kernelmark.kernels.aggregate._formats import FORMATS
from kernelmark.kernels.aggregate._threads import on_threads
from took import COMMAND, ROOT, Found, in_turn


def hot(problem: str, *kernels: str, max_time_s: float = 3.0, threads: int = 2) -> list[Measurement]:
    """Return rows of kernels sampled in turn, with ratios to the first kernel. Raises AssertionError if one fails."""
    rows = run_job(Job((problem,), kernels, Mode.HOT, (), 0, Budget(max_time_s), threads, baseline=kernels[0]))
    for row in rows:
        assert row.status == Status.OK, f"{row.kernel}: {row.reason}"
    return rows


def hot_s(problem: str, kernel: str, **options: Any) -> float:
    interval = hot(problem, kernel, **options)[0].interval
    assert interval is not None
    return interval.median


def gain(row: Measurement) -> float:
    assert row.over_baseline is not None
    return row.over_baseline.median


def shown(interval: Any, form: str = ".2f") -> str:
    return f"{interval.median:{form}} [{interval.low:{form}}, {interval.high:{form}}]"


BARE_LOOP = """
import time
import numpy as np
rng = np.random.default_rng(0)
a = rng.random((1024, 26752), dtype=np.float32) * 2 - 1
b = rng.random((2048, 26752), dtype=np.float32) * 2 - 1
c = np.empty((1024, 2048), np.float32)
np.matmul(a, b.T, out=c)
for _ in range(7):
    start = time.perf_counter()
    np.matmul(a, b.T, out=c)
    print(time.perf_counter() - start)
"""


def loop() -> Found:
    """Compare NumPy NT's hot median with bare loops in processes just before and after; take the best of 3 tries."""

    def bare() -> list[float]:
        out = subprocess.run([sys.executable, "-c", BARE_LOOP], check=True, capture_output=True, text=True)
        return [float(line) for line in out.stdout.split()]

    errors: list[float] = []
    while len(errors) < 3 and min(map(abs, errors), default=100) > 3:
        before = bare()
        own_s = hot_s("gemm/m1024n2048k26752/f32/NT", "gemm/numpy.matmul", max_time_s=5.0, threads=cpu_count())
        errors.append(100 * (own_s / median(before + bare()) - 1))
    yield "loop.bare", min(map(abs, errors)), ", ".join(f"{error:+.1f} %" for error in errors)


COPIES = ("copy/numpy.threaded", "copy/numba.streaming")
ROUNDS = 15


def transpose() -> Found:
    """Transpose the founding operands, which exceed most last-level caches, so that even hot mode reads memory.

    In place, all kernels share a job. Out of place, a kernel is compared with a copy, which is another operation: their
    jobs alternate, and the ratio is the median of rounds. Each job has one kernel, since some kernels are slowed by the
    cache contents that others leave.
    """
    gains, shares, others = {}, {}, {}
    for m in (1024, 2048):
        names = ("transpose/openblas.imatcopy", "transpose/numba.tiles", "transpose/openblas.omatcopy_and_back")
        _, tiles, full = hot(f"transpose/m{m}n26752/f32/in", *names)
        gains[shown(tiles.over_baseline)] = gain(tiles)
        others[f"{shown(full.over_baseline)} by a full copy and back"] = gain(tiles) / gain(full)
        shares[m] = 100 * (tiles.scratch_bytes or 0) / (4 * m * 26752)
    yield "transpose.in_place", min(gains.values()), "; ".join(gains)
    yield "transpose.scratch", max(shares.values()), f"the most of {len(shares)} shapes"
    yield "transpose.full_copy", min(others.values()), "; ".join(others)
    reached = {m: [_share_of_copy(m) for _ in range(ROUNDS)] for m in (1024, 2048)}
    text = "; ".join(f"{m} rows {min(each):.0f} to {max(each):.0f} % in {ROUNDS} rounds" for m, each in reached.items())
    yield "transpose.out_of_place", min(map(median, reached.values())), text


def _share_of_copy(m: int) -> float:
    copy_s = min(hot_s(f"copy/m{m}n26752/f32", name, max_time_s=0.5) for name in COPIES)
    return 100 * copy_s / hot_s(f"transpose/m{m}n26752/f32/out", "transpose/numba.blocked", max_time_s=0.5)


ONEDNN, FULL, TILED = "conv/torch.conv2d", "conv/pyfftw.full", "conv/numba.fft_tiled"
SEVEN = "conv/n1c64h224w224k64r7s7pad3/f32/nchw/fprop"
LAYERS = {
    "vgg": "conv/n1c256h56w56k256r3s3pad1/f32/nchw/fprop",
    "seven": SEVEN,
    "large": "conv/n1c16h128w128k16r31s31pad15/f32/nchw/fprop",
    "depthwise": "conv/n1c144h56w56k144r3s3pad1/f32/nchw/fprop/g144",
}


def conv() -> Found:
    """Compare our fastest kernel except FULL (FFTs of whole images) with oneDNN, and compare tiled FFTs with FULL."""
    registry, missing = discover(), module_missing("torch")
    for name, problem in LAYERS.items():
        parsed = registry.problem(problem)
        kernels = [k for k in registry.kernels.values() if k.op == "conv" and k.device == "cpu" and k.is_ours]
        ours = [k.id for k in kernels if k.id not in (ONEDNN, FULL) and k.refuses(parsed) is None]
        rows = [] if missing else sorted(hot(problem, ONEDNN, *ours)[1:], key=gain, reverse=True)
        text = ", ".join(f"{row.kernel} {_with_tile(row)}" for row in rows)
        yield f"conv.{name}", gain(rows[0]) if rows else math.nan, missing or text
    (tiled,) = (row for row in hot(SEVEN, FULL, TILED) if row.kernel == TILED)
    yield "conv.tiled", gain(tiled), _with_tile(tiled)


def _with_tile(row: Measurement) -> str:
    tile = json.loads(row.tunables or "{}").get("tile")
    return shown(row.over_baseline) + (f" (tile {tile})" if tile else "")


#: Small problems, since code does not depend on sizes; 1x1 filters and groups have separate code.
POINTWISE = "n2c32h28w28k32r1s1"
CONVOLUTIONS = (*(("n2c32h28w28k32r3s3pad1", groups) for groups in ("", "/g8", "/g32")), (POINTWISE, ""))
COMPILED = (
    *(
        f"conv/{shape}/f32/{layout}/{direction}{groups}"
        for layout, direction in product(("nchw", "nhwc"), ("fprop", "dgrad", "wgrad"))
        for shape, groups in CONVOLUTIONS
    ),
    *(f"transpose/m300n500/f32/{place}" for place in ("out", "in")),
    "copy/m300n500/f32",
)
FIRST = "import sys; from bars_kernels import hot; print(hot(*sys.argv[1:], max_time_s=0.01)[0].setup_s)"


def first() -> Found:
    """Set up each compiled kernel in its own process with an empty cache, and yield the slowest."""
    setups = sorted(((_setup_s(problem, kernel), kernel, problem) for kernel, problem in _calls()), reverse=True)
    yield "first.seconds", setups[0][0], f"{setups[0][1]} on {setups[0][2]}, the slowest of {len(setups)}"


def compiled(problem: Problem) -> list[Kernel]:
    kernels = [k for k in discover().kernels.values() if k.device == "cpu" and k.provider in ("numba", "cpu")]
    return [k for k in kernels if k.op == problem.op and k.refuses(problem) is None]


def _calls() -> Iterator[tuple[str, str]]:
    """Yield each kernel with one problem for each of its separately compiled variants."""
    seen = set()
    for name in COMPILED:
        for kernel in compiled(discover().problem(name)):
            code = kernel.id, POINTWISE in name, *name.split("/")[3:5]
            if code not in seen:
                seen.add(code)
                yield kernel.id, name


def _setup_s(problem: str, kernel: str) -> float:
    with tempfile.TemporaryDirectory() as cache:
        paths = {"XDG_CACHE_HOME": cache, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tools'}"}
        command = [sys.executable, "-c", FIRST, problem, kernel]
        out = subprocess.run(command, env={**os.environ, **paths}, check=True, capture_output=True, text=True)
    return float(out.stdout)


SUITE, CEILING = "resnet50", ("fma/n12288k8192/f32", "fma/numba.fma")
ROUNDS_OF_THREADS, LEAST_QUIET, LEAST_CALLS, LEAST_S = 15, 9, 3, 4e-3
#: The percentile of the ceiling's gains that counts as its full gain, and the least share of that in a quiet round.
BEST, QUIET = 90, 0.9
#: The fewest operations of a layer for which a share is promised.
LEAST_FLOP = 50e6


class Round(NamedTuple):
    """Speedups from one thread to two: of a kernel, and of the ceiling before and after it."""

    gain: float
    before: float
    after: float

    @property
    def share(self) -> float:
        return 2 * self.gain / (self.before + self.after)


def threads() -> Found:
    """Compare two threads with one on every layer: the least gain, and the least share of the ceiling's gain."""
    scaled = list(scalings())
    for name, least_flop in (("gain", 0), ("share", LEAST_FLOP)):
        layers = [(kernel, problem, rounds) for kernel, problem, rounds in scaled if problem.flop >= least_flop]
        intervals = [median_interval([getattr(each, name) for each in rounds]) for _, _, rounds in layers]
        worst = min(range(len(layers)), key=lambda i: intervals[i].median)
        kernel, problem, _ = layers[worst]
        text = f"{shown(intervals[worst])}, {kernel} on {problem.id}, the least of {len(layers)}"
        yield f"threads.{name}", intervals[worst].median, text


def scalings() -> Iterator[tuple[str, Problem, Sequence[Round]]]:
    """Verify every compiled kernel on every layer that it takes, and time it between runs of the arithmetic ceiling.

    Each round passes through all layers, so that a disturbance of some seconds affects one round of many layers.
    """
    registry = discover()
    ceiling = Pair(registry.kernels[CEILING[1]], registry.problem(CEILING[0]))
    problems = [entry.problem for entry in find_suite(SUITE, registry).entries()]
    for name in dict.fromkeys(kernel.id for problem in problems for kernel in compiled(problem)):
        kernel = registry.kernels[name]
        layers = [problem for problem in problems if kernel.op == problem.op and kernel.refuses(problem) is None]
        for layer in layers:
            hot(layer.id, name, max_time_s=0.01)
        pairs, rounds = [Pair(kernel, layer) for layer in layers], [list[Round]() for _ in layers]
        for _ in range(ROUNDS_OF_THREADS):
            for pair, layer_rounds in zip(pairs, rounds, strict=True):
                before, gained, after = ceiling.gain(), pair.gain(), ceiling.gain()
                layer_rounds.append(Round(gained, before, after))
        ceilings = [gained for layer_rounds in rounds for each in layer_rounds for gained in each[1:]]
        for layer, layer_rounds in zip(layers, rounds, strict=True):
            yield name, layer, quiet(layer_rounds, ceilings)


def quiet(rounds: Sequence[Round], ceilings: Sequence[float]) -> Sequence[Round]:
    """Return the rounds before and after which the ceiling had nearly its full gain, or all rounds if these are few.

    A virtual machine's CPUs may be separate cores in one second, and threads of one core in the next.
    """
    least = QUIET * np.percentile(ceilings, BEST)
    quiet_rounds = [each for each in rounds if min(each.before, each.after) >= least]
    return quiet_rounds if len(quiet_rounds) >= LEAST_QUIET else rounds


class Pair:
    """A kernel set up for one thread and for two on the same operands, which this object keeps alive."""

    def __init__(self, kernel: Kernel, problem: Problem) -> None:
        device = get_device("cpu")
        _, self.operands = loaded(problem, device, seed=1, memory=kernel.host_memory)
        self.scratch = [ScratchBuffers(device) for _ in "12"]
        self.launches = [
            kernel.launch(problem, Operands(self.operands, kernel.order, device, threads, scratch))
            for threads, scratch in enumerate(self.scratch, 1)
        ]

    def gain(self) -> float:
        one_s, two_s = map(typical_s, self.launches)
        return one_s / two_s


def typical_s(launch: Launch) -> float:
    """Return the median time of calls that together take LEAST_S, after an untimed call that fills the caches.

    There are at least LEAST_CALLS calls, so that one disturbed call does not change the median of a long kernel.
    """
    launch()
    times_s: list[float] = []
    while sum(times_s) < LEAST_S or len(times_s) < LEAST_CALLS:
        start = perf_counter()
        launch()
        times_s.append(perf_counter() - start)
    return median(times_s)


SUM, RUNS, ELEMENTS, WORKS = "aggregate/w4n51200000/f32", 9, 51_200_000, (16, 64, 256)


def judged() -> Found:
    """Judge wrong results of each compressed format on 20 draws, and right results of 200 drawn aggregations."""
    wrong = [f for family in COMPRESSED for f in trial((family,), lambda: None) if not f.holds]
    yield "judged.cheats", len(wrong), "; ".join(f"{finding.check}: {finding.found}" for finding in wrong)
    false_alarms = list(alarms(discover(), 200, 0, Counter(), "aggregate"))
    yield "judged.honest", len(false_alarms), "; ".join(false_alarms)


def sums() -> Found:
    """Compare sums on the host with the same run's ceiling for as many threads; take the median over short runs.

    In a run in which the memory's bandwidth changes, a sum may be compared with a ceiling of another bandwidth.
    """
    shares: dict[str, list[float]] = defaultdict(list)
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            for row, _ in measured(Path(folder), SUM, "--kernels", "aggregate/cpu.host_*", "--max-time", "1"):
                shares[row.kernel.partition(".")[2]].append(row.roofline_pct or math.nan)
    for name in ("host_serial", "host_parallel"):
        interval = median_interval(shares[name])
        yield f"sums.{name}", interval.median, f"{shown(interval, '.0f')} in {len(shares[name])} of {RUNS} runs"


def overlap() -> Found:
    """Compare the overlap of work and staging with the largest that the link's ceiling and the work's time allow."""
    reached: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        problems = [f"transfer/n{ELEMENTS}/f32/h2h/work{work}" for work in WORKS]
        rows = measured(Path(folder), *problems, "--max-time", "4")
        with Store(Path(folder, "r.db"), create=False) as store:
            for each in overlaps(store, rows):
                both_s, work_s = (r.time_s_median or 0.0 for r in (each.serial, each.arrived))
                link_s = 1e-9 * 4 * ELEMENTS / (each.row.ceiling_gbyte_per_s or math.inf)
                copy_s = both_s - work_s
                most = (both_s - max(copy_s, work_s, link_s)) / min(copy_s, work_s)
                reached[f"{each.row.problem} {shown(each.share)} of {most:.2f}"] = 100 * each.share.median / most
    text = "; ".join(reached) or "; ".join(f"{r.kernel} {r.status}: {r.reason}" for r, _ in rows if r.reason)
    yield "overlap.share", min(reached.values(), default=math.nan), text


def measured(folder: Path, *words: str) -> Sequence[Any]:
    command = [*COMMAND, "run", *words, "--device", "cpu", "--db", "r.db"]
    subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL)
    with Store(folder / "r.db", create=False) as store:
        return list(store.results(store.run_ids()[-1]))


ENCODED, WORKERS, THREADS, TURNS = 25_600_000, 2, 2, 40


def encode() -> Found:
    """Encode the gradients of two workers, in turn with NumPy copies of the gradients on the same pages.

    Rates count the compulsory bytes. Encoding reads a worker's gradient and residual, and writes the residual and the
    encoded gradient. A copy reads and writes the gradient.
    """
    shares_pct = {}
    for name in FORMATS:
        encoded, copy = _encoder(name)
        nbytes = WORKERS * (3 * 4 * ENCODED + FORMATS[name].nbytes(ENCODED)), 2 * 4 * WORKERS * ENCODED
        encodes, copies = ([s / n for s in each] for n, each in zip(nbytes, in_turn(TURNS, encoded, copy), strict=True))
        ratio = speedup([copies], [encodes])
        assert ratio is not None
        shares_pct[f"{name} {shown(ratio)}"] = 100 * ratio.median
    yield "encode.share", min(shares_pct.values()), f"{'; '.join(shares_pct)} in {TURNS} rounds"


def _encoder(name: str) -> tuple[Launch, Launch]:
    registry, device = discover(), get_device("cpu")
    kernel: Any = registry.kernels[f"aggregate/cpu.{name}"]
    problem: Any = registry.problem(f"aggregate/w{WORKERS}n{ENCODED}/f32/ef")
    _, operands = loaded(problem, device, memory=kernel.host_memory)
    x: Any = Operands(operands, "C", device, THREADS, ScratchBuffers(device, kernel.host_memory))
    plan = _plans.compressed(problem, name)
    encoded = on_threads(problem, x, plan._replace(phases=[p for p in plan.phases if p[0].function == "send"]))
    pages = device.host_memory(kernel.host_memory)
    source, target = (np.asarray(each).reshape(-1) for each in (x.g, pages.bytes(4 * WORKERS * ENCODED).view("f4")))
    return encoded, in_bands(source.size, THREADS, lambda i, j: partial(np.copyto, target[i:j], source[i:j]))
