"""Measure commands on stores of made-up rows: reading, merging, reporting and training.

Commands are timed as whole processes, so every figure includes Python's start.
"""

import json
import math
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from kernelmark.bench.plan.case import case_key
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.record.store import Store
from kernelmark.bench.tune.select.export import as_c
from kernelmark.bench.tune.select.model import Model
from kernelmark.bench.tune.select.train import train
from took import Found, copies, kernelmark, slowest_and_largest, took

SAMPLES, SCATTER = 40, 0.02
#: Columns that vary from row to row on a machine that reports everything.
MEASURED = (
    "max_error", "error_bound", "setup_s", "steal_pct", "roofline_pct", "roofline_pct_cycles", "call_overhead_s",
    "clock_mhz", "temperature_c", "power_w", "energy_j", "speedup_of_minima", "ceiling_gflop_per_s",
    "ceiling_gbyte_per_s", "gflop_per_s", "gbyte_per_s",
)  # fmt: skip


class Row(NamedTuple):
    """A made-up row of a GEMM: its sizes and layout, the kernel's name, and the time in seconds."""

    sizes: tuple[int, int, int]
    layout: str
    kernel: str
    seconds: float

    @property
    def problem(self) -> str:
        m, n, k = self.sizes
        return f"gemm/m{m}n{n}k{k}/f32/{self.layout}"


def products(count: int, kernels: int) -> Iterator[Row]:
    rng = random.Random(count)
    for i in range(count):
        size = 16 + i // kernels
        yield Row((size, size, size), ("NN", "NT", "TN", "TT")[size % 4], f"k{i % kernels}", rng.uniform(0.5e-3, 2e-3))


def make(db: Path, processes: int = 1, **runs: Iterable[Row]) -> Path:
    """Make a store whose rows are copies of a measured row with other problems, kernels and numbers."""
    words = ["gemm/m64n64k64/f32/NN", "--kernels", "gemm/numpy.matmul", "--mode", "hot", "--max-time", "0.01"]
    kernelmark("run", *words, "--no-ceilings", "--db", db, silent=True)
    with closing(sqlite3.connect(db)) as opened, opened:
        opened.row_factory = sqlite3.Row
        run, row = (dict(opened.execute(f"SELECT * FROM {table}").fetchone()) for table in ("run", "result"))
        opened.execute("DELETE FROM result")
        del row["result_id"]
        listed, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        for run_id, rows in runs.items():
            new_run = {**run, "run_id": run_id, "name": run_id}
            opened.execute(f"INSERT INTO run VALUES ({', '.join('?' * len(new_run))})", tuple(new_run.values()))
            insert = f"INSERT INTO result ({listed}) VALUES ({marks})"
            opened.executemany(insert, _values(row, run_id, processes, rows))
        opened.execute("DELETE FROM run WHERE run_id = ?", (run["run_id"],))
    return db


def _values(measured: dict[str, Any], run_id: str, processes: int, rows: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    rng = random.Random(run_id)
    drawn = [rng.uniform(0.5, 2) for _ in range(4093)]
    times = {name: 1.0 for name in measured if name.startswith("time_s_")}
    times |= {"time_s_min": 0.95, "time_s_std": 0.02, "time_s_ci95_low": 0.98, "time_s_ci95_high": 1.02}
    samples = [1 + SCATTER * rng.uniform(-1, 1) for _ in range(SAMPLES)]
    interval = "between-processes" if processes > 1 else "within-process"
    common = {"run_id": run_id, "baseline": "gemm/some.k0", "samples": SAMPLES, "processes": processes}
    common |= {"interval": interval, "stopped_by": "interval", "suite": "many"}
    for i, row in enumerate(rows):
        kernel, problem, m = f"gemm/some.{row.kernel}", row.problem, row.sizes[0]
        cells: dict[str, Any] = {name: drawn[(19 * i + j) % 4093] for j, name in enumerate(MEASURED)}
        cells |= {name: share * row.seconds for name, share in times.items()}
        cells |= {"scratch_bytes": 4 * m * m, "executed_flop": 2 * m**3 + i}
        if row.kernel != "k0":
            ratio = drawn[(7 * i) % 4093]
            cells |= {"speedup": ratio, "speedup_ci95_low": 0.95 * ratio, "speedup_ci95_high": 1.05 * ratio}
        parts = [x for _ in range(processes) for x in (SAMPLES / processes, row.seconds * rng.uniform(0.99, 1.01))]
        cells |= {"sample_blob": array("d", [row.seconds * each for each in samples]), "part_blob": array("d", parts)}
        cells |= {"kernel": kernel, "problem": problem, "case": case_key(kernel, problem, "hot", measured["threads"])}
        cells |= {"layout": row.layout, "dims": json.dumps(dict(zip("mnk", row.sizes, strict=True))), "job": "all"}
        cells |= {"started_at": f"2026-01-01T{i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}.5+00:00", "place": i}
        yield tuple({**measured, **common, **cells}.values())


MILLION = """
import resource, time
from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.suites import load_suite
from pathlib import Path
registry = discover()
start = time.perf_counter()
suite = load_suite(Path("copies.toml"), registry)
cases = (entrant for job in jobs([suite], registry, Plan(devices=("cpu",))) for entrant in job.job.entrants)
next(cases)
first = time.perf_counter() - start
print(first, 1 + sum(1 for _ in cases), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def listing() -> Found:
    times = [took([str(Path(sys.executable).parent / "kernelmark"), "list"]).wall_s for _ in range(9)]
    yield "list.seconds", median(times), f"median of 9, {min(times):.3f} to {max(times):.3f} s"


def million() -> Found:
    with tempfile.TemporaryDirectory() as folder:
        copies(Path(folder), "copy/numpy.copyto", 1000, 1000)
        out = subprocess.run([sys.executable, "-c", MILLION], cwd=folder, check=True, capture_output=True, text=True)
    first, count, peak = (float(word) for word in out.stdout.split())
    yield "million.cases", count, "of a sweep of 1000 x 1000"
    yield "million.first", first, f"{count:.0f} cases"
    yield "million.memory", peak * 1e-6, f"{count:.0f} cases"


FEW, LARGE = 100_000, 1_000_000
STYLES = ("csv", "json", "markdown", "latex")
READ = (["show", "base"], *(["export", "base", "--format", style] for style in STYLES), ["compare", "base", "new"])


def scale() -> Found:
    """Read runs of five processes from two stores: yield the seconds for the smaller, and the memory for the larger."""
    with tempfile.TemporaryDirectory() as folder:
        usages = {}
        for count in (FEW, LARGE):
            runs = {run_id: products(count, 2) for run_id in ("base", "new")}
            db = make(Path(folder, f"{count}.db"), processes=5, **runs)
            usages[count] = {" ".join(words): kernelmark(*words, "--db", db) for words in READ}
    for count, judged in ((FEW, "seconds"), (LARGE, "memory")):
        yield from (each for each in slowest_and_largest("scale", usages[count]) if each[0].endswith(judged))


ROWS = 200_000
CROSSING = '[[sweep]]\nop = "gemm"\ndtype = ["f32"]\naxes = ["m", "n", "k", "layout"]\nalong = "m"\npoints = [\n{}\n]\n'


def many() -> Found:
    """Run commands that read or write all rows of a large run (`trend`: of two); `import` reads what `export` wrote."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db = ("--db", make(folder / "many.db", many=products(ROWS, 10)))
        runs = {run_id: products(ROWS // 2, 10) for run_id in ("base", "new")}
        two = ("--db", make(folder / "two.db", processes=5, **runs))
        points = dict.fromkeys(json.dumps([*row.sizes, row.layout]) for row in products(ROWS, 10))
        (folder / "many.toml").write_text(CROSSING.format(",\n".join(points)))
        commands: list[tuple[str | Path, ...]] = [
            ("show", *db),
            ("export", *db, "-o", folder / "many.csv"),
            ("import", folder / "many.csv", "--db", folder / "imported.db"),
            ("crossover", folder / "many.toml", *db),
            ("report", *db, "--out", folder / "report"),
            ("trend", "gemm", *two),
        ]
        usages = {str(words[0]): kernelmark(*words) for words in commands}
        usages["load"] = took([sys.executable, "-c", f"import kernelmark; kernelmark.load(db={str(db[1])!r}).ratios"])
        yield from slowest_and_largest("many", usages)


REPORTED, PAGED = 10_000, 100_000
#: Filters applied one after another: a reader narrows the rows to a few, then clears the filters.
FILTERS = (("kernel", "k3"), ("problem", "NT"), ("mode", "hot"), ("problem", "m10"), ("kernel", ""), ("problem", ""))
FILTER = """
const input = document.getElementById('filter-' + arguments[0]);
input.value = arguments[1];
const began = performance.now();
input.dispatchEvent(new Event(input.tagName === 'SELECT' ? 'change' : 'input'));
document.body.offsetHeight;
return performance.now() - began;
"""


def report() -> Found:
    with tempfile.TemporaryDirectory() as name:
        for count in (REPORTED, PAGED):
            db, out = make(Path(name, f"{count}.db"), many=products(count, 10)), Path(name, str(count))
            usage = kernelmark("report", "--db", db, "--out", out)
            if count == REPORTED:
                yield from slowest_and_largest("report", {f"{count} rows": usage})
        page = out / "index.html"
        yield "report.page", page.stat().st_size * 1e-6, str(usage)
        yield "report.filter", *filtering(page)


def filtering(page: Path) -> tuple[float, str]:
    """Return the milliseconds of the slowest filter, including layout, on the table before and after sorting."""
    from browser import browser_missing, chromium

    if missing := browser_missing():
        return math.nan, missing
    with chromium() as browser:
        browser.get(page.as_uri())
        times = [browser.execute_script(FILTER, *words) for words in FILTERS for _ in range(3)]
        browser.execute_script("document.querySelector('th[data-name=time_s_median] button').click()")
        times += [browser.execute_script(FILTER, *words) for words in FILTERS]
    return max(times), f"median {median(times):.0f} ms"


CASES, TIMES, SHARDS = 1200, 84, 8


def merge() -> Found:
    """Measure shards one by one, multiply their rows, merge them twice, and compare the result with a whole run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = ("run", copies(folder, "copy/numpy.copyto", CASES), "--device", "cpu", "--mode", "hot", "--no-ceilings")
        shards = [folder / f"{index}.db" for index in range(1, SHARDS + 1)]
        for index, db in enumerate([folder / "whole.db", *shards]):
            kernelmark(*run, "--db", db, *(["--shard", f"{index}/{SHARDS}"] if index else []), silent=True)
            _multiply(db)
        words: list[str | Path] = ["merge", *shards, "--db", folder / "all.db"]
        usages = {what: kernelmark(*words) for what in ("merge", "merge again")}
        whole, merged = (_cases(folder / f"{which}.db") for which in ("whole", "all"))
        slowest = max(each.wall_s for each in usages.values())
        yield "merge.rate", len(merged) / slowest, f"{len(merged)} rows: {'; '.join(map(str, usages.values()))}"
        yield "merge.memory", max(each.peak_mb for each in usages.values()), f"{len(merged)} rows"
        differ = sum(ours != theirs for ours, theirs in zip_longest(merged, whole))
        yield "merge.differ", differ, f"{len(merged)} rows of {SHARDS} shards"


def _multiply(db: Path) -> None:
    """Add copies of the existing rows with other problems: for `copy/m7`, `copy/m10000007` and so on."""
    with closing(sqlite3.connect(db)) as opened, opened:
        names = [name for _, name, *_ in opened.execute("PRAGMA table_info(result)") if name != "result_id"]
        terms = {name: f'"{name}"' for name in names}
        terms |= {name: f"""replace("{name}", 'copy/m', 'copy/m' || :by || '000000')""" for name in ("problem", "case")}
        terms |= {"place": f"place + :by * {CASES}"}
        listed, chosen = ", ".join(f'"{name}"' for name in names), ", ".join(terms.values())
        insert = f"INSERT INTO result ({listed}) SELECT {chosen} FROM result WHERE result_id <= :last"
        (last,) = opened.execute("SELECT max(result_id) FROM result").fetchone()
        for by in range(1, TIMES):
            opened.execute(insert, {"by": by, "last": last})


def _cases(db: Path) -> list[str]:
    with Store(db, create=False) as store:
        return [row.case for row, _ in store.results(store.run_ids()[-1])]


TRAINED, KERNELS, CALLS, SHAPES = 5000, 8, 20_000_000, 4096
#: Times the exported code. The compiler does not know the inputs, and each call depends on the previous result.
PROGRAM = """
#include <stdio.h>
#include <time.h>
#include "select.h"
static double v[{shapes}][{inputs}];
int main(void) {{
    for (int i = 0; i < {shapes}; i++) for (int j = 0; j < {inputs}; j++) if (scanf("%lf", &v[i][j]) != 1) return 1;
    struct timespec start, end;
    unsigned at = 0, sum = 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long i = 0; i < {calls}; i++) {{
        const double *x = v[at];
        const unsigned chosen = (unsigned)kernelmark_{op}_select({arguments}, 0);
        sum += chosen;
        at = (at + 1 + chosen) % {shapes};
    }}
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%g %u\\n", ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / {calls}, sum);
    return 0;
}}
"""


def select() -> Found:
    with tempfile.TemporaryDirectory() as name:
        db = make(Path(name, "planted.db"), processes=4, planted=_planted())
        with Store(db, create=False) as store:
            start, before_s = time.perf_counter(), time.process_time()
            model = train(store, discover(), ["planted"], ()).model
            seconds, cpu_s = time.perf_counter() - start, time.process_time() - before_s
        yield "select.train", seconds, f"{cpu_s:.2f} s of processor time"
        leaves = f"a tree of {len(model.leaves)} leaves, {CALLS:,} calls on {SHAPES} shapes"
        yield "select.call", called_ns(model, Path(name)), leaves


def _planted() -> Iterator[Row]:
    rng = random.Random(0)
    for _ in range(TRAINED // KERNELS):
        m, n, k = (rng.randint(1, 2**12) for _ in range(3))
        for i in range(KERNELS):
            step = round(math.log2(m)) // 2
            yield Row((m, n, k), "NT", f"k{i}", 1e-9 * m * n * k * (1 + abs(step + (n > k) - i) / 4))


def called_ns(model: Model, folder: Path) -> float:
    rng = random.Random(1)
    sizes, words = [lambda: 2 ** rng.randint(0, 11)] * len(model.inputs), list(model.words.values())
    draws: list[Callable[[], int]] = [*sizes, *(lambda names=names: rng.randrange(len(names)) for names in words)]
    arguments = ", ".join(f"{'(int)' * (i >= len(sizes))}x[{i}]" for i in range(len(draws)))
    facts = {"shapes": SHAPES, "inputs": len(draws), "calls": CALLS, "op": model.op, "arguments": arguments}
    (folder / "select.h").write_text(as_c(model))
    (folder / "main.c").write_text(PROGRAM.format(**facts))
    subprocess.run(["cc", "-O2", "main.c", "-o", "main", "-lm"], cwd=folder, check=True)
    text = "\n".join(" ".join(str(draw()) for draw in draws) for _ in range(SHAPES))
    done = subprocess.run([folder / "main"], input=text, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])
