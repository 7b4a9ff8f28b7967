"""What the emulator promises of its speed, measured: rows of (promise, found, holds) for `make bars`."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SGEMM = "gemm/m128n128k64/f32/NN"
SWEEP, CORPUS = "tests/emulator/test_kernels.py", "tests/emulator/test_corpus.py"
#: The sources whose sweep, with the corpus, has a limit of its own; each later kernel may add so much to it.
FIRST = (
    "naive.cu/gemm",
    "coalesced.cu/gemm",
    "tiled.cu/gemm",
    "naive.cu/transpose",
    "tiled.cu/transpose",
    "square_inplace.cu/transpose",
)
LATER_S = 3.0


def emulator_bars() -> Iterator[tuple[str, str, bool]]:
    """The checked SGEMM; sweep and corpus with a cold and a warm cache of compiled kernels; what later kernels add."""
    sys.path.insert(0, str(ROOT / "tests"))
    yield checked_sgemm()
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = (_run(cache, SWEEP, CORPUS, "-k", f"planted or accused or {' or '.join(FIRST)}") for _ in "12")
        yield "first kernels' sweep and the corpus, cold cache, in at most 180 s", f"{cold:.0f} s", cold <= 180
        yield "first kernels' sweep and the corpus, warm cache, in at most 60 s", f"{warm:.1f} s", warm <= 60
        _, every = (_run(cache, SWEEP) for _ in "12")
        _, first = (_run(cache, SWEEP, "-k", " or ".join(FIRST)) for _ in "12")
    count = _emulated() - len(FIRST)
    found = (every - first) / count
    yield f"each of {count} later kernels, warm cache, adds at most {LATER_S:g} s", f"{found:.2f} s", found <= LATER_S


def checked_sgemm() -> tuple[str, str, bool]:
    """Run time of one tiled SGEMM under the checker, without compiling and without starting the process."""
    from kernelmark.bench.emulator.build import CUDA, program
    from kernelmark.bench.emulator.worker import Buffer, Launch, run
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.plan.kernel import CudaKernel

    registry = discover()
    problem, kernel = registry.problem(SGEMM), registry.kernels["gemm/cuda.tiled"]
    assert isinstance(kernel, CudaKernel)
    ((entry, call),) = kernel.calls(problem, next(kernel.tiles()))
    rng = np.random.default_rng(0)
    shapes = {operand.name: (operand.role, operand.elements) for operand in problem.operands()}
    buffers = {name: Buffer(role, rng.random(count, np.float32)) for name, (role, count) in shapes.items()}
    worker = program(CUDA / kernel.source, (entry,))
    launches = [Launch(entry, call.grid, call.block, call.args, call.shared_bytes)]
    times = [outcome.time_s for _ in range(5) for outcome in run(worker, buffers, launches, orders=("forward",))]
    found = f"median of 5: {median(times) * 1e3:.0f} ms"
    return "128x128x64 tiled SGEMM under the checker in at most 60 ms", found, median(times) <= 0.06


def _emulated() -> int:
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.plan.kernel import CudaKernel

    kernels = discover().kernels.values()
    return sum(isinstance(kernel, CudaKernel) and not kernel.emulated for kernel in kernels)


def _run(cache: str, *words: str) -> float:
    """Wall time of a run of pytest, seconds."""
    command = [sys.executable, "-m", "pytest", "--quiet", *words]
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": cache}, check=True, capture_output=True)
    return time.perf_counter() - start
