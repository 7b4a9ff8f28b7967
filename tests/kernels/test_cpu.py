"""Every CPU kernel is right on ragged shapes, in every layout, and honest about memory."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.plan.discovery import discover
from support.kernels import LAYOUTS, allocated_by, set_up, verified

OPTIONS = ("", "/beta1", "/alpha-0.5/beta2", "/batch3", "/lda+3/ldb+1/ldc+2")
PROBLEMS = [
    *(f"copy/m{m}n{n}/{dtype}" for m, n in ((1, 1), (31, 33), (257, 129)) for dtype in ("f64", "f32", "f16", "bf16")),
    *(
        f"transpose/m{m}n{n}/{dtype}/{place}"
        for m, n in ((1, 7), (7, 1), (31, 33), (64, 64), (257, 129))
        for dtype in ("f64", "f32", "f16", "bf16")
        for place in ("out", "in")
    ),
    *(
        f"gemm/m{m}n{n}k{k}/{dtype}/{layout}{options}"
        for m, n, k in ((1, 1, 1), (31, 33, 17), (1, 64, 127), (65, 1, 3))
        for dtype in ("f32", "f64")
        for layout in LAYOUTS
        for options in OPTIONS
    ),
    *(
        f"gemm/m{m}n{n}k{k}/s8.s32/{layout}{options}"
        for m, n, k in ((1, 1, 1), (31, 33, 17), (65, 1, 1030))
        for layout in LAYOUTS
        for options in ("", "/batch3", "/lda+3/ldb+1/ldc+2")
    ),
]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_cpu_kernel_is_right_or_says_why_not(problem: str) -> None:
    registry = discover()
    parsed = registry.problem(problem)
    kernels = [
        k.id
        for k in registry.kernels.values()
        if k.op == parsed.op and k.device == "cpu" and k.provider in PROVIDERS and k.outside(parsed) is None
    ]
    for measured in verified(problem, *kernels):
        assert measured.status in ("ok", "unsupported"), f"{measured.kernel}: {measured.reason}"
        if measured.status == "unsupported":
            assert "batch" in measured.reason or "padding" in measured.reason


PROVIDERS = ("numba", "numpy", "scipy", "openblas")


@pytest.mark.parametrize("k", [1024, 1025, 131071])
def test_widened_integers_hold_the_largest_sums(k: int) -> None:
    launch, operands, *_ = set_up(f"gemm/m3n5k{k}/s8.s32/NT", "gemm/numpy.widened", threads=1)
    operands.flat["a"][:] = operands.flat["b"][:] = -128
    launch()
    assert (operands.flat["c"] == 2**14 * k).all()
    operands.flat["a"][0] = operands.flat["b"][0] = -127  # an odd sum, which FP32 rounds from 2^24 on
    launch()
    assert operands.flat["c"][0] == 127**2 + 2**14 * (k - 1)


PEAK = """
import re, sys
import numpy as np
from kernelmark.kernels.transpose._openblas import imatcopy
def resident(key):
    return int(re.search(key + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
m, n = int(sys.argv[1]), int(sys.argv[2])
a = np.random.default_rng(0).random((m, n), dtype=np.float32)
launch = imatcopy(a.ctypes.data, m, n, "f32")
open("/proc/self/clear_refs", "w").write("5")
before = resident("VmRSS")
launch()
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads peak memory from /proc")
@pytest.mark.parametrize(("m", "n"), [(1024, 8192), (8192, 1024), (2048, 2048)])
def test_imatcopy_declares_the_memory_that_it_touches(m: int, n: int) -> None:
    kernel = discover().kernels["transpose/openblas.imatcopy"]
    problem = discover().problem(f"transpose/m{m}n{n}/f32/in")
    out = subprocess.run([sys.executable, "-c", PEAK, str(m), str(n)], check=True, capture_output=True, text=True)
    assert int(out.stdout) == pytest.approx(kernel.library_scratch(problem), abs=2e6)


@pytest.mark.parametrize(("name", "flags"), [("sgemm", (True, False)), ("sgemm_colmajor", (False, True))])
def test_nt_of_scipy_is_the_call_that_its_label_has(
    name: str, flags: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr("scipy.linalg.blas.sgemm", lambda *arguments: calls.append(arguments))
    set_up("gemm/m3n5k7/f32/NT", f"gemm/scipy.{name}", threads=1)[0]()
    assert [call[5:7] for call in calls] == [flags]
    ops = ", ".join("OP_T" if flag else "OP_N" for flag in flags)
    assert f"NT is the call ({ops})" in discover().kernels[f"gemm/scipy.{name}"].label


@pytest.mark.parametrize("name", ["sgemm", "sgemm_colmajor"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scipy_gemm_makes_no_copies(name: str, layout: str) -> None:
    # f2py copies what it cannot pass on: then the result would not land in C, and memory would grow by an operand.
    launch, operands, *_ = set_up(f"gemm/m300n200k400/f32/{layout}", f"gemm/scipy.{name}", threads=1)
    launch()
    operands.poison()
    assert allocated_by(launch) < 10_000
    assert not np.isnan(operands.flat["c"]).any()
