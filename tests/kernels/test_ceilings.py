"""Ceilings of bandwidth and arithmetic: every byte is copied, and every step of a sum is made once."""

import math
import os
import platform
import subprocess
import sys
from itertools import product

import numba
import numpy as np
import pytest

from kernelmark.bench.plan.dtypes import numpy_dtype
from kernelmark.bench.plan.limits import H100
from kernelmark.kernels.copy import _numba as moves
from kernelmark.kernels.fma.problem import LONGEST, TILES, coarse
from support.kernels import CUDA, REGISTRY, failures, referenced, refusal

VECTORISED = CUDA["copy/cuda.vectorised"]


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 63), (1, 64), (1, 65), (31, 33), (257, 129), (1000, 1031)])
def test_streaming_copies_every_byte(m, n):
    for dtype, threads in product(("f64", "f32", "f16", "bf16"), (1, 2, 3, 7)):
        assert not failures(f"copy/m{m}n{n}/{dtype}", "copy/numba.streaming", threads=threads), (dtype, threads)


@pytest.mark.parametrize("size", [1, 5, 63, 64, 65, 127, 128, 1000])
def test_lines_are_streamed_wherever_the_bytes_lie(size):
    a = np.random.default_rng(0).integers(1, 255, size, np.uint8)
    for offset in (*range(0, 64, 7), 63):
        raw = np.zeros(size + 256, np.uint8)
        start = -raw.ctypes.data % 64 + 64 + offset
        moves.stream(raw[start : start + size], a, min(size, -offset % 64), (0,), (0,), 0, True)
        assert np.array_equal(raw[start : start + size], a), offset
        assert not raw[:start].any(), offset
        assert not raw[start + size :].any(), offset


def test_streaming_stores_past_the_caches():
    fresh = numba.njit(moves.stream.py_func)  # numba shows no code that it read from its cache
    arguments = np.zeros(1, np.uint8), np.zeros(1, np.uint8), 0, (0,), (0,), 0, True
    fresh.compile(types := tuple(map(numba.typeof, arguments)))
    assert any(word in fresh.inspect_asm(types) for word in ("movnt", "stnp"))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (31, 33), (1024, 4096), (1024, 4097), (26752, 26752)])
def test_one_round_of_blocks_covers_the_matrix_and_none_is_idle(m, n):
    for dtype, tile in product(("f64", "f32", "f16", "bf16"), VECTORISED.tiles()):
        problem = REGISTRY.problem(f"copy/m{m}n{n}/{dtype}")
        (call,) = VECTORISED.plan(problem, tile, H100)
        vectors = tile.THREADS * tile.LOADS * call.grid
        assert vectors * 16 >= problem.footprint_bytes // 2 or call.grid == tile.BLOCKS
        assert (vectors - tile.THREADS * tile.LOADS) * 16 < problem.footprint_bytes // 2
        assert call.args[-1] == m * n
        assert isinstance(call.args[-1], np.int64)


@pytest.mark.parametrize("unit", ["", "/mma"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (130, 15), (257, 16), (31, 33)])
def test_the_reference_is_the_sum_of_the_steps(n, k, unit):
    problem, x, reference = referenced(f"fma/n{n}k{k}/f32{unit}")
    rows, cols, depth = TILES[problem.unit]
    a, b, d = (coarse(x[name]) for name in "abx")
    for i, s in product(range(n), range(k)):
        d[i] += a[i // cols % rows, s % depth] * b[s % depth, i % cols]
    assert np.array_equal(reference, d)


@pytest.mark.parametrize("unit", ["", "/mma"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_the_longest_sums_are_exact_in_the_accumulators_type(dtype, unit):
    problem = REGISTRY.problem(f"fma/n300k{LONGEST}/{dtype}{unit}")
    # 1 is coarsened to 1.25, the largest value.
    inputs = {o.name: np.ones(o.shape, numpy_dtype(o.dtype)) for o in problem.operands() if o.role == "in"}
    reference = problem.reference(inputs, np.random.default_rng(0))
    assert reference[0] == 1.25 + LONGEST * 1.25**2
    for sums in (reference, reference + 1 / 16):
        assert np.array_equal(sums.astype(numpy_dtype(problem.accumulator)), sums)


@pytest.mark.parametrize("problem", ["fma/n500k700/f32", "fma/n500k700/f64", "fma/n500k700/f16/mma"])
def test_one_step_too_few_or_too_many_is_wrong_in_every_accumulator(problem):
    right, x, reference = referenced(problem)
    for steps in (699, 701):
        other = REGISTRY.problem(problem.replace("k700", f"k{steps}"))
        outputs = other.reference(x, np.random.default_rng(0)).astype(numpy_dtype(right.accumulator))
        verdict = right.check({"d": outputs}, reference, "fp32")
        assert "500 of 500 elements wrong" in verdict.reason


def test_values_are_coarsened_to_odd_quarters_and_never_to_zero():
    values = np.array([-1.0, -0.51, -0.5, -0.01, 0.0, 0.49, 0.5, 0.99, 1.0])
    assert coarse(values).tolist() == [-0.75, -0.75, -0.25, -0.25, 0.25, 0.25, 0.75, 0.75, 1.25]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("n", [1, 31, 95, 96, 97, 191, 192, 193, 383, 384, 385, 1009, 4096])
def test_numba_is_right_below_a_group_of_registers_and_where_the_last_two_groups_overlap(n, dtype):
    for threads in (1, 2, 5):
        assert not failures(f"fma/n{n}k17/{dtype}", "fma/numba.fma", threads=threads), threads


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 7, 1000, LONGEST])
def test_numba_is_right_for_any_number_of_steps(k):
    assert not failures(f"fma/n400k{k}/f32", "fma/numba.fma", threads=1)


CODE = """
import numba, numpy as np
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.job import run_job
(row,) = run_job(Job(("fma/n1000k17/f32",), ("fma/numba.fma",), Mode.VERIFY, (), 0, Budget(), threads=2))
print(row.status, row.reason)
if row.status == "ok":
    from kernelmark.kernels._host import registers
    from kernelmark.kernels.fma import _numba as loops
    fresh = numba.njit(loops.groups.py_func)  # numba shows no code that it read from its cache
    d, a = np.zeros(10_000, np.float32), np.zeros(1, np.float32)
    types = tuple(map(numba.typeof, (d, d, a, a, 1, 1, 0, 1)))
    fresh.compile(types)
    blocks = [[]]
    for line in map(str.strip, fresh.inspect_asm(types).splitlines()):
        blocks.append([]) if line.endswith(":") or line.startswith(("j", "b.")) else blocks[-1].append(line)
    added = lambda lines: sum(line.startswith(("vfmadd231ps", "fmla")) for line in lines)
    loop = max(blocks, key=added)  # coarsening has as many multiply-adds of another form
    print(added(loop) // registers().accumulators, registers().accumulators)
    print(*(line for line in loop if "(" in line or "[" in line))
"""


def on_cpu(**environment):
    """Return the lines that CODE prints, in an environment in which Numba may generate code for another CPU."""
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=os.environ | environment, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


X86 = platform.machine() in ("x86_64", "AMD64")
HASWELL = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"}


@pytest.mark.parametrize("cpu", [{}, pytest.param(HASWELL, marks=pytest.mark.skipif(not X86, reason="AVX2 is x86's"))])
def test_no_accumulator_leaves_its_register_between_the_steps(cpu):
    status, counts, memory = on_cpu(**cpu)
    assert status.startswith("ok")
    whole_rounds, accumulators = map(int, counts.split())
    assert whole_rounds >= 1
    assert accumulators == 12 if cpu else accumulators in (12, 24)
    assert not memory


@pytest.mark.skipif(not X86, reason="other CPUs have fused multiply-adds from the start")
def test_a_cpu_without_fused_multiply_adds_is_unsupported():
    (line,) = on_cpu(NUMBA_CPU_NAME="nehalem", NUMBA_CPU_FEATURES="+sse4.2")
    assert line == "unsupported nehalem has no fused multiply-add; expected AVX2 with FMA, AVX-512 or NEON"


#: Accumulators of a thread, as in the .cu, and the problem's type and unit.
SUMS = {"ffma": (8, "f32"), "ffma_fed": (8 * 16, "f32/fed"), "mma": (8 * 4, "f32/mma"), "wgmma": (32 * 4, "f32/mma")}


@pytest.mark.parametrize("name", SUMS)
def test_every_accumulator_has_a_thread_and_no_block_is_idle(name):
    kernel, (accumulators, dtype) = CUDA[f"fma/cuda.{name}"], SUMS[name]
    for n in (1, 127, 128, 2048, 2049, 8192, 8193, 32768, 32769, 100_003):
        (call,) = kernel.plan(REGISTRY.problem(f"fma/n{n}k3/{dtype}"), next(kernel.tiles()), H100)
        assert call.block == 256
        assert call.grid == math.ceil(n / (256 * accumulators)), n


@pytest.mark.parametrize(
    ("name", "problem", "numerics"),
    [
        ("ffma", "fma/n1k1/f32", "fp32"),
        ("ffma", "fma/n1k1/f64", "fp64"),
        ("ffma_fed", "fma/n1k1/f32/fed", "fp32"),
        *(
            (name, f"fma/n1k1/{dtype}/mma", numerics)
            for name in ("mma", "wgmma")
            for dtype, numerics in (("f32", "tf32"), ("f16", "f16"), ("bf16", "bf16"))
        ),
    ],
)
def test_each_ceiling_has_the_numerics_of_its_unit_and_type(name, problem, numerics):
    assert refusal(f"fma/cuda.{name}", problem) == ""
    assert CUDA[f"fma/cuda.{name}"].numerics_for(REGISTRY.problem(problem)) == numerics
