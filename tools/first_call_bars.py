"""What the first call of kernelmark's own kernels on a CPU costs, with nothing compiled: a row for `make bars`.

Each is set up in a process of its own, with an empty cache; the time is that of its row (`setup_s`).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from bench.plan.discovery import discover

MOST_S = 5.0
#: Small problems: sizes change no code. Strides and 1x1 filters have paths of their own.
CONVOLUTIONS = ("c32h28w28k32r3s3pad1", "c32h28w28k32r1s1", "c32h28w28k32r3s3pad1stride2")
GROUPS = ("/g32", "/g8")
PROBLEMS = (
    *(
        f"conv/n2{shape}/f32/{layout}/{direction}{groups}"
        for layout, direction in product(("nchw", "nhwc"), ("fprop", "dgrad", "wgrad"))
        for shape, groups in (*((shape, "") for shape in CONVOLUTIONS), *((CONVOLUTIONS[0], g) for g in GROUPS))
    ),
    *(f"transpose/m300n500/f32/{place}" for place in ("out", "in")),
    "copy/m300n500/f32",
)
FIRST = """
import sys
from hot_rows import hot
print(hot(*sys.argv[1:], max_time_s=0.01)[0].setup_s)
"""


def first_call_bars() -> Iterator[tuple[str, str, bool]]:
    """The slowest first call of those kernels that compile."""
    found = sorted(((_setup_s(problem, kernel), kernel, problem) for problem, kernel in _calls()), reverse=True)
    seconds, kernel, problem = found[0]
    slow = sum(each > MOST_S for each, _, _ in found)
    shown = f"at most {seconds:.1f} s ({kernel} on {problem}), {slow} of {len(found)} longer"
    yield f"first calls with a cold cache in {MOST_S:g} s", shown, slow == 0


def _calls() -> Iterator[tuple[str, str]]:
    registry = discover()
    for name in PROBLEMS:
        problem = registry.problem(name)
        for kernel in registry.kernels.values():
            compiles = kernel.device == "cpu" and kernel.provider in ("numba", "cpu")
            if compiles and kernel.op == problem.op and kernel.refuses(problem) is None:
                yield name, kernel.id


def _setup_s(problem: str, kernel: str) -> float:
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as cache:
        paths = {"XDG_CACHE_HOME": cache, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tools'}"}
        command = [sys.executable, "-c", FIRST, problem, kernel]
        out = subprocess.run(command, env={**os.environ, **paths}, check=True, capture_output=True, text=True)
    return float(out.stdout)
