"""Made-up rows and runs in a real store, for tests of its readers and for the bars of the report."""

import random

import msgspec

from kernelmark.bench.measure.disturbance import beyond
from kernelmark.bench.measure.measurement import Ceiling, ProcessPart
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.record.columns import Result, finite
from kernelmark.bench.record.store import Run


def result(**values):
    identity = {"run_id": "r1", "suite": "smoke", "op": "gemm", "problem": "gemm/m8n8k8/f32/NT", "kernel": "gemm/a.b"}
    device = {"provider": "a", "device": "cpu", "device_name": "some", "mode": "cold", "threads": 1}
    kind = {"dtype": "f32", "numerics": "fp32", "layout": "NT", "status": "ok", "reason": ""}
    return Result(**{**identity, **device, **kind, **values})


MACHINE = {"cpu": "Some CPU", "cpus": 4, "cpus_usable": 2, "llc_bytes": 32_000_000, "memory_bytes": 8_000_000_000}
ENVIRONMENT = {"kernelmark": "0.1.0", "versions": {"numpy": "2.4.6"}, "blas": ["openblas 0.3"], "variables": {}}
PLAN = {"suites": [], "seed": 3, "rel_ci": 0.01, "max_time_s": 0.5, "processes": 1, "plugins": []}
COMMIT, COMMAND = "c0ffee1234567", "kernelmark run mine"
RUN = Run("r1", MACHINE, "2026-01-01T10:00:00+00:00", ("mine",), COMMAND, ENVIRONMENT, COMMIT, PLAN)
#: The column `disturbed` of a row that other processes disturbed during most of its sampling.
DISTURBED = "other processes used 0.98 CPUs during 60 % of the sampling"
#: The column `disturbed` of a row whose kernel also used another CPU; the row has neither a ratio nor a rank.
BEYOND = beyond("2")
SHARED = {"provider": "some", "device": "cpu", "device_name": "Some CPU", "mode": "cold", "threads": 2, "reason": ""}


def begin(store, run_id="r1", **facts):
    store.begin(msgspec.structs.replace(RUN, run_id=run_id, **facts))


def put(store, problem, kernel, median=1e-3, dims=None, taken=(), parts=(), **values):
    """Add a timed row with the samples `taken`, or with forty reproducible samples that scatter by a few per cent.

    Rows of one problem, mode, instruction set and thread count share a job, unless `job` is given.
    """
    rng = random.Random(f"{problem} {kernel} {values.get('threads')} {values.get('mode')}")
    samples = list(taken) or [median * (1 + 0.03 * rng.random()) for _ in range(40)]
    op, _, dtype, *words = problem.split("/")
    middle = sorted(samples)[len(samples) // 2]
    low, high = 0.99 * middle, 1.01 * middle
    if taken:
        interval = median_interval(taken)
        middle, low, high = interval.median, finite(interval.low), finite(interval.high)
    timed = {
        "status": "ok", "samples": len(samples), "time_s_median": middle, "time_s_min": min(samples),
        "time_s_mean": sum(samples) / len(samples), "time_s_std": 0.01 * median, "time_s_ci95_low": low,
        "time_s_ci95_high": high, "gflop_per_s": 1e-3 / middle, "gbyte_per_s": 1e-4 / middle,
        "stopped_by": "interval", "interval": "within-process", "started_at": "2026-01-01T10:00:01.123+00:00",
        "versions": "numpy 2.4.6", "git_commit": COMMIT, "outliers": 0, "repeated": 0, "load": 0.25,
    }  # fmt: skip
    layout = words[0] if op in ("gemm", "conv") and words else ""
    timed["job"] = " ".join([problem, *(str(values.get(name)) for name in ("mode", "isa", "threads"))])
    kind = {"op": op, "dtype": dtype, "numerics": "fp32", "layout": layout, "suite": "mine", "seed": 3}
    row = Result(**{"run_id": "r1", "problem": problem, "kernel": kernel, **SHARED, **kind, **timed, **values})
    stored = samples if row.status == "ok" and row.time_s_median else []
    store.add(row, dims or {}, stored, None, (parts or [ProcessPart(len(stored), middle)]) if stored else ())
    return row


def in_turn(store, problem, dims=None, baseline="", **times):
    """Add rows of kernels `some.NAME` that were sampled in turn; times vary by 1 % around the given ones."""
    for name, median in times.items():
        taken = [median * (1 + 0.01 * (i % 3 - 1)) for i in range(12)]
        kernel = f"{problem.partition('/')[0]}/some.{name}"
        put(store, problem, kernel, median, dims, taken, job="one", baseline=baseline)


def fail(store, problem, kernel, status="wrong", reason="c[0] is NaN", **values):
    none = dict.fromkeys(("time_s_median", "time_s_min", "time_s_mean", "time_s_std", "gflop_per_s", "gbyte_per_s"))
    none |= dict.fromkeys(("time_s_ci95_low", "time_s_ci95_high"))
    put(store, problem, kernel, **{**none, "samples": 0, "status": status, "reason": reason, **values})


def ceilings(store, threads=2):
    for kind, problem, kernel, rate in (
        ("fp32", "fma/n98304k8192/f32", "fma/some.fma", 5e10),
        ("memory", "copy/m16384n1024/f32", "copy/some.copy", 2e10),
    ):
        ends = (0.9 * rate, 1.1 * rate, 1.1 * rate)
        store.add_ceiling("r1", Ceiling("cpu", threads, kind, problem, kernel, "Some CPU", rate, *ends, "2026"))


def varied(store):
    begin(store)
    ceilings(store)
    for n in (16, 64, 256):
        for layout in ("NN", "NT"):
            problem = f"gemm/m{n}n{n}k{n}/f32/{layout}"
            dims = {"m": n, "n": n, "k": n}
            base = n**3 * 1e-10
            rates = {"gflop_per_s": n**3 * 2e-9 / base, "gbyte_per_s": n * n * 12e-9 / base}
            comparison = {"against": f"{problem[:-2]}NN", "ratio": 0.9, "ratio_ci95_low": 0.8, "ratio_ci95_high": 1.0}
            rates |= comparison if layout == "NT" else {}
            put(store, problem, "gemm/some.base", base, dims, baseline="gemm/some.base", **rates)
            ratio = {"speedup": 1.25, "speedup_ci95_low": 1.2, "speedup_ci95_high": 1.3}
            faster = {"baseline": "gemm/some.base", **ratio}
            for threads in (1, 2):
                put(store, problem, "gemm/other.fast", base * 1.6 / threads, dims, **faster, **rates, threads=threads)
    for r in (1, 3, 5):
        problem = f"conv/n1c8h16w16k8r{r}s{r}/f32/nchw/fprop"
        dims = {"n": 1, "c": 8, "h": 16, "w": 16, "k": 8, "r": r, "s": r, "direction": "fprop"}
        put(store, problem, "conv/some.direct", r * r * 1e-4, dims, layout="nchw")
        put(store, problem, "conv/some.fft", 1e-3, dims, layout="nchw", numerics="fft")
    fail(store, "gemm/m7n7k7/f32/NN", "gemm/some.bad")


def many(store, count):
    """Add a run with `count` rows: ten kernels on each product."""
    begin(store)
    for i in range(count):
        size, layout = 16 + i // 10, ("NN", "NT", "TN", "TT")[i // 10 % 4]
        columns = {"baseline": "gemm/some.k0", "scratch_bytes": 4 * size**2}
        if ratio := i % 10:
            columns |= {"speedup": ratio, "speedup_ci95_low": 0.95 * ratio, "speedup_ci95_high": 1.05 * ratio}
        problem, dims = f"gemm/m{size}n{size}k{size}/f32/{layout}", {"m": size, "n": size, "k": size}
        put(store, problem, f"gemm/some.k{ratio}", 1e-6 * (i + 1), dims, **columns)
