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

from kernelmark.bench.plan.discovery import discover

MOST_S = 5.0
#: Small problems: sizes change no code, but 1x1 filters and groups have code of their own.
POINTWISE = "n2c32h28w28k32r1s1"
CONVOLUTIONS = (("n2c32h28w28k32r3s3pad1", ("", "/g8", "/g32")), (POINTWISE, ("",)))
PROBLEMS = (
    *(
        f"conv/{shape}/f32/{layout}/{direction}{groups}"
        for layout, direction in product(("nchw", "nhwc"), ("fprop", "dgrad", "wgrad"))
        for shape, found in CONVOLUTIONS
        for groups in found
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
    found = sorted(((_setup_s(problem, kernel), kernel, problem) for kernel, problem in _calls()), reverse=True)
    seconds, kernel, problem = found[0]
    slow = sum(each > MOST_S for each, _, _ in found)
    shown = f"at most {seconds:.1f} s ({kernel} on {problem}), {slow} of {len(found)} longer"
    yield f"first calls with a cold cache in {MOST_S:g} s", shown, slow == 0


def _calls() -> Iterator[tuple[str, str]]:
    """Yield each kernel with the problems that it has code of its own for; a kernel of any groups has one for all."""
    registry, seen = discover(), set()
    for name in PROBLEMS:
        problem = registry.problem(name)
        for kernel in registry.kernels.values():
            compiles = kernel.device == "cpu" and kernel.provider in ("numba", "cpu")
            code = kernel.id, POINTWISE in name, *name.split("/")[3:5]
            if compiles and kernel.op == problem.op and kernel.refuses(problem) is None and code not in seen:
                seen.add(code)
                yield kernel.id, name


def _setup_s(problem: str, kernel: str) -> float:
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as cache:
        paths = {"XDG_CACHE_HOME": cache, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tools'}"}
        command = [sys.executable, "-c", FIRST, problem, kernel]
        out = subprocess.run(command, env={**os.environ, **paths}, check=True, capture_output=True, text=True)
    return float(out.stdout)
