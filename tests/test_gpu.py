"""Tests that need a GPU: every CUDA kernel is right with both launchers. Without one, they are skipped."""

from collections.abc import Iterable
from itertools import product

import pytest

from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.measure.stats import MIN_SAMPLES
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.job import run_job

pytestmark = pytest.mark.gpu

COPIES = ("copy/m31n33/{dtype}", "copy/m1n1/{dtype}")
TRANSPOSITIONS = tuple(
    f"transpose/m{m}n{n}/{{dtype}}/{place}"
    for m, n in ((1, 7), (31, 33), (64, 64), (257, 129))
    for place in ("out", "in")
)
LAYOUTS = ("NN", "NT", "TN", "TT")


def _gemms(
    sizes: Iterable[tuple[int, int, int]], words: Iterable[str], layouts: Iterable[str] = LAYOUTS
) -> tuple[str, ...]:
    problems = product(sizes, layouts, words)
    return tuple(f"gemm/m{m}n{n}k{k}/{{dtype}}/{layout}{text}" for (m, n, k), layout, text in problems)


RAGGED = ((1, 1, 1), (31, 33, 17))
GEMMS = _gemms((*RAGGED, (128, 64, 96)), ("", "/beta1", "/alpha-0.5/beta2", "/batch3", "/lda+3/ldb+1/ldc+2"))
#: Sizes that are ragged for every tile, with rows for TMA and 16-byte accesses; the second has more tiles than a wave.
ALIGNED = ((264, 136, 200), (1928, 2184, 328))
ALIGNED_GEMMS = _gemms(ALIGNED, ("", "/alpha-0.5/beta2", "/batch3", "/lda+8/ldb+16/ldc+24"))
#: The same for FP8, whose rows have half as many bytes.
HALF = ((264, 136, 208), (1928, 2184, 336))
FP8_GEMMS = _gemms(HALF, ("", "/alpha-0.5/beta2", "/batch3", "/lda+16/ldb+32/ldc+24"), ("NT",))
#: The same for 8-bit integers, without factors, and sizes whose rows do not begin at multiples of 16 bytes.
INT8_GEMMS = _gemms((*RAGGED, *HALF), ("", "/batch3", "/lda+16/ldb+32/ldc+24"), ("NT",))
#: The FP8 products with scales, whose last blocks are partial.
SCALED_GEMMS = tuple(f"{problem}/scale-blocks" for problem in FP8_GEMMS)
GROUPS = ("NT/groups1-equal", "NN/alpha-0.5/beta2/groups7-skewed", "NT/lda+8/ldb+16/ldc+24/groups40-equal")
GROUPED_GEMMS = _gemms(((1, 8, 8), (31, 40, 24), ALIGNED[1]), GROUPS, ("",))
EPILOGUES = _gemms(
    (*RAGGED, *ALIGNED),
    (
        "NT/epi-bias-relu",
        "NN/alpha-0.5/beta2/batch3/ldc+3/epi-bias-relu",
        "NT/alpha0.0625/epi-sigmoid",
        "TN/alpha2/batch2/lda+8/ldb+16/ldc+24/epi-update",
    ),
    ("",),
)
FMAS = ("fma/n1k1/{dtype}", "fma/n100003k1001/{dtype}", "fma/n8192k33/{dtype}/mma", "fma/n100003k1001/{dtype}/mma")
FFTS = tuple(
    f"fft/b{b}h{h}w{w}/{{dtype}}/{kind}"
    for b, h, w in ((1, 1, 8), (33, 1, 64), (5, 1, 1000), (7, 16, 16), (65, 32, 32), (3, 15, 34))
    for kind in ("r2c", "c2r", "c2c", "c2c/inverse")
)
#: Ragged with every option; for Winograd, FFT and tensor cores; several waves of tiles; few channels; depthwise;
#: strides and one-sided padding by the TMA.
CONVOLUTIONS = tuple(
    f"conv/{sizes}/{{dtype}}/{layout}/{direction}{options}"
    for sizes, options in (
        ("n1c1h1w1k1r1s1", ""),
        ("n2c6h9w7k4r3s2pad0-1x2-0stride2x1", "/dil1x2/g2"),
        ("n3c5h31w33k9r5s7pad2x3stride2x1", ""),
        ("n8c64h56w57k72r3s3pad1", ""),
        ("n4c128h33w35k136r3s3pad1-0x1", ""),
        ("n2c3h97w101k40r11s11pad2", ""),
        ("n4c48h30w31k48r3s3pad1", "/g48"),
        ("n3c24h31w34k16r5s3pad0-2x3-1stride2x3", ""),
    )
    for layout in ("nchw", "nhwc")
    for direction in ("fprop", "dgrad", "wgrad")
)
REAL = ("f64", "f32", "f16", "bf16")


def _cuda_kernels(problem: str, pattern: str = "") -> tuple[str, ...]:
    registry = discover()
    parsed = registry.problem(problem)
    of_op = [k for k in registry.kernels.values() if k.op == parsed.op and k.device == "cuda"]
    return tuple(k.id for k in of_op if k.outside(parsed) is None and pattern in k.id)


@pytest.mark.parametrize("launcher", ["cuda-core", "pycuda"])
@pytest.mark.parametrize(
    ("problems", "dtype"),
    [
        *((COPIES, dtype) for dtype in REAL),
        *((TRANSPOSITIONS, dtype) for dtype in REAL),
        *((GEMMS + ALIGNED_GEMMS, dtype) for dtype in (*REAL, "f16.f32", "bf16.f32")),
        *((FP8_GEMMS, dtype) for dtype in ("e4m3.f32", "e4m3.bf16", "e5m2.f32")),
        (INT8_GEMMS, "s8.s32"),
        *((SCALED_GEMMS, dtype) for dtype in ("e4m3.f32", "e4m3.bf16")),
        *((GROUPED_GEMMS, dtype) for dtype in (*REAL, "f16.f32", "bf16.f32")),
        (EPILOGUES, "f32"),
        *((FMAS, dtype) for dtype in REAL),
        *((FFTS, dtype) for dtype in ("f32", "f64")),
        *((CONVOLUTIONS, dtype) for dtype in ("f32", "f16", "bf16")),
    ],
)
def test_every_cuda_kernel_is_right_on_the_device(problems: tuple[str, ...], dtype: str, launcher: str) -> None:
    if launcher == "pycuda" and (missing := module_missing("pycuda.driver")):
        pytest.skip(missing)
    complaints = []
    for problem in (text.format(dtype=dtype) for text in problems):
        kernels = _cuda_kernels(problem, "cuda." if launcher == "pycuda" else "")
        job = Job((problem,), kernels, Mode.VERIFY, (), 0, Budget(), threads=1, launcher=launcher)
        bad = [row for row in run_job(job) if row.status not in ("ok", "unsupported")]
        complaints += [f"{row.kernel} on {problem}: {row.reason}" for row in bad]
    assert not complaints


@pytest.mark.parametrize("mode", [Mode.COLD, Mode.HOT, Mode.GRAPH])
def test_cuda_kernels_and_the_cpu_baseline_are_timed_in_turn(mode: Mode) -> None:
    problem = "gemm/m256n256k256/f32/NT"
    kernels = ("gemm/numpy.matmul", *_cuda_kernels(problem))
    job = Job((problem,), kernels, mode, (), 0, Budget(max_time_s=0.2), threads=2, baseline=kernels[0])
    for measured in run_job(job):
        if mode == Mode.GRAPH and measured.kernel == kernels[0]:
            assert measured.status == "unsupported"
            continue
        assert measured.status == "ok", f"{measured.kernel}: {measured.reason}"
        assert len(measured.samples) >= MIN_SAMPLES
        assert mode == Mode.GRAPH or measured.kernel == kernels[0] or measured.over_baseline is not None
