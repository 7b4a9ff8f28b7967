"""What selectors promise, measured: rows of (promise, found, holds) for `make bars`. Needs a C compiler (`cc`)."""

import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.record.store import Store
from kernelmark.bench.tune.select.export import as_c
from kernelmark.bench.tune.select.model import Model
from kernelmark.bench.tune.select.train import train
from planted import Took, convolutions, plant
from throughput_bars import main

ROWS, KERNELS, TRAIN_S, CALL_NS = 5000, 8, 5.0, 100.0
CALLS, SHAPES = 20_000_000, 4096
#: Chosen by inputs that the compiler cannot know, each answer needed for the next question's place.
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


def select_bars() -> Iterator[tuple[str, str, bool]]:
    """Train on planted rows, and call the C code of a selector of convolutions."""
    registry = discover()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder, "planted.db"))
        plant(store, _kernels(), _shapes(ROWS // KERNELS))
        start, before_s = time.perf_counter(), time.process_time()
        train(store, registry, ["planted"], ())
        took, busy_s = time.perf_counter() - start, time.process_time() - before_s
        promise = f"training a selector on {ROWS} rows of {KERNELS} kernels, its regret included, under {TRAIN_S:g} s"
        yield promise, f"{took:.2f} s, {busy_s:.2f} s of a processor", took < TRAIN_S
        convolutions(store, 600)
        model = train(store, registry, ["conv"], ()).model
        call_ns = called_ns(model, Path(folder))
        promise = f"a choice by the C code of a tree of {len(model.leaves)} leaves under {CALL_NS:g} ns"
        yield promise, f"{call_ns:.1f} ns a call, {CALLS:,} calls on {SHAPES} shapes", call_ns < CALL_NS
        store.close()


def called_ns(model: Model, folder: Path) -> float:
    """Return nanoseconds a call of the exported code on drawn shapes, compiled by cc -O2."""
    names = [*model.inputs, *model.words]
    rng = random.Random(1)
    rows = [
        [
            *(2 ** rng.randint(0, 11) for _ in model.inputs),
            *(rng.randrange(len(words)) for words in model.words.values()),
        ]
        for _ in range(SHAPES)
    ]
    arguments = ", ".join(f"{'(int)' * (name in model.words)}x[{i}]" for i, name in enumerate(names))
    facts = {"shapes": SHAPES, "inputs": len(names), "calls": CALLS, "op": model.op, "arguments": arguments}
    (folder / "select.h").write_text(as_c(model))
    (folder / "main.c").write_text(PROGRAM.format(**facts))
    subprocess.run(["cc", "-O2", "main.c", "-o", "main", "-lm"], cwd=folder, check=True)
    text = "\n".join(" ".join(map(str, row)) for row in rows)
    done = subprocess.run([folder / "main"], input=text, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def _kernels() -> dict[str, Took]:
    """Return kernels that are each the fastest for some sizes."""

    def took(i: int) -> Took:
        return lambda m, n, k: 1e-9 * m * n * k * (1 + abs(math.log2(m * n / k) - 2 * i) / 8)

    return {f"gemm/numpy.k{i}": took(i) for i in range(KERNELS)}


def _shapes(count: int) -> list[tuple[int, int, int]]:
    rng = random.Random(0)
    return [(rng.randint(1, 2**12), rng.randint(1, 2**12), rng.randint(1, 2**12)) for _ in range(count)]


if __name__ == "__main__":
    main(select_bars)
