"""CPU kernels of every provider: right on ragged shapes, honest about memory, on the threads that they are given."""

import os
import re
import subprocess
import sys
from itertools import product
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from kernelmark import Unsupported
from kernelmark.kernels import _worth
from kernelmark.kernels._worth import launch_s, pays, rates, threads_that_pay
from kernelmark.kernels.transpose._openblas import imatcopy
from support.kernels import DIRECTIONS, LAYOUTS, REGISTRY, allocated_by, compiled_by, failures, set_up, verified

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


PROVIDERS = ("numba", "numpy", "scipy", "openblas")


@pytest.mark.parametrize("sizes", dict.fromkeys(problem.split("/")[1] for problem in PROBLEMS))
def test_every_cpu_kernel_is_right_or_gives_a_reason(sizes):
    known = [k for k in REGISTRY.kernels.values() if k.device == "cpu" and k.provider in PROVIDERS]
    for problem in (REGISTRY.problem(text) for text in PROBLEMS if text.split("/")[1] == sizes):
        kernels = [k.id for k in known if k.op == problem.op and k.outside(problem) is None]
        reasons = failures(problem.id, *kernels)
        why = "unsupported: .*(batch|padding|is a vector, whose elements)"
        assert all(re.match(why, text) for text in reasons.values()), (problem.id, reasons)


@pytest.mark.parametrize("k", [1024, 1025, 131071])
def test_widened_integers_hold_the_largest_sums(k):
    launch, operands, *_ = set_up(f"gemm/m3n5k{k}/s8.s32/NT", "gemm/numpy.widened", threads=1)
    operands.flat["a"][:] = operands.flat["b"][:] = -128
    launch()
    assert (operands.flat["c"] == 2**14 * k).all()
    operands.flat["a"][0] = operands.flat["b"][0] = -127  # an odd sum, which FP32 rounds from 2^24 on
    launch()
    assert operands.flat["c"][0] == 127**2 + 2**14 * (k - 1)


IMATCOPY = "transpose/openblas.imatcopy"
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
@pytest.mark.parametrize(("m", "n"), [(1024, 8192), (2048, 2048)])
def test_imatcopy_declares_the_memory_that_it_touches(m, n):
    kernel, problem = REGISTRY.kernels[IMATCOPY], REGISTRY.problem(f"transpose/m{m}n{n}/f32/in")
    out = subprocess.run([sys.executable, "-c", PEAK, str(m), str(n)], check=True, capture_output=True, text=True)
    assert int(out.stdout) == pytest.approx(kernel.library_scratch(problem), abs=2e6)


def test_imatcopy_is_refused_if_its_allocation_would_end_the_process():
    tall = REGISTRY.problem("transpose/m10000000n1/f32/in")
    assert REGISTRY.kernels[IMATCOPY].library_scratch(tall) == 4 * 10**14  # more than there are addresses
    with pytest.raises(MemoryError, match="imatcopy allocates 4e\\+05 GB internally"):
        imatcopy(0, tall.m, tall.n, "f32")


@pytest.mark.parametrize(("name", "flags"), [("sgemm", (True, False)), ("sgemm_colmajor", (False, True))])
def test_nt_of_scipy_is_the_call_that_its_label_names(name, flags, monkeypatch):
    calls = []
    monkeypatch.setattr("scipy.linalg.blas.sgemm", lambda *arguments: calls.append(arguments))
    set_up("gemm/m3n5k7/f32/NT", f"gemm/scipy.{name}", threads=1)[0]()
    assert [call[5:7] for call in calls] == [flags]
    ops = ", ".join("OP_T" if flag else "OP_N" for flag in flags)
    assert f"NT is the call ({ops})" in REGISTRY.kernels[f"gemm/scipy.{name}"].label


@pytest.mark.parametrize("name", ["sgemm", "sgemm_colmajor"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scipy_gemm_makes_no_copies(name, layout):
    # f2py copies arrays that it cannot pass: the result would not be in C, and memory would grow by an operand.
    launch, operands, *_ = set_up(f"gemm/m300n200k400/f32/{layout}", f"gemm/scipy.{name}", threads=1)
    launch()
    operands.poison()
    assert allocated_by(launch) < 10_000
    assert not np.isnan(operands.flat["c"]).any()


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        *(("copy/m100n100/f32", "copy/numba.streaming"), ("fma/n1000k10/f64", "fma/numba.fma")),
        *((f"transpose/{sizes}/f64/out", "transpose/numba.blocked") for sizes in ("m96n1003", "m1003n96", "m100n100")),
        *((f"transpose/{sizes}/f64/in", "transpose/numba.tiles") for sizes in ("m96n1003", "m1003n96", "m100n100")),
    ],
)
def test_nothing_is_compiled_after_set_up(problem, kernel):
    assert not compiled_by(set_up(problem, kernel).launch)


KERNEL, PRODUCT = "conv/torch.conv2d", "gemm/torch.matmul"
ONEDNN = r" oneDNN [\d.]+ \S+:\S+"
SIZES = ("n2c6h13w9k4r3s3pad1stride2", "n1c64h30w31k32r5s7pad2x3", "n2c8h1w33k8r1s5", "n1c16h28w28k16r3s3pad1")


@pytest.fixture
def torch():
    if os.environ.get("CI"):
        import torch
    else:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install 'kernelmark[torch]'")
    threads = torch.get_num_threads()
    yield torch
    torch.set_num_threads(threads)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("words", ["", "/dil1x2", "/g2"])
def test_conv2d_of_pytorch_is_right_in_every_direction_and_layout(torch, layout, direction, words):
    for sizes in SIZES:
        assert not failures(f"conv/{sizes}/f32/{layout}/{direction}{words}", KERNEL), sizes


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_conv2d_of_pytorch_is_right_in_bfloat16(torch, layout, direction):
    refused = direction != "fprop" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    for sizes in SIZES:
        (measured,) = verified(f"conv/{sizes}/bf16/{layout}/{direction}", KERNEL)
        assert measured.status == ("unsupported" if refused else "ok"), f"{sizes}: {measured.reason}"
    if refused:
        assert measured.reason == f"oneDNN has no bf16 {direction} on this CPU; expected one with AVX-512"
        return
    assert re.search(rf"({ONEDNN}|PyTorch's own loops, not oneDNN)$", measured.versions), measured.versions


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_pytorch_are_right(torch, dtype, layout):
    options = ("", "/beta1", "/alpha0.5/beta-2", "/batch3", "/beta1/batch3", "/lda+3/ldb+1/ldc+5")
    for sizes, words in product(("m65n33k31", "m1n70k257", "m128n96k64"), options):
        (measured,) = verified(f"gemm/{sizes}/{dtype}/{layout}{words}", PRODUCT)
        refused = dtype == "bf16" and "ldc" in words
        assert measured.status == ("unsupported" if refused else "ok"), f"{sizes}{words}: {measured.reason}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_integer_products_of_pytorch_are_right(torch, layout):
    for sizes, words in product(("m65n33k31", "m2n70k257", "m128n96k64", "m33n2k1030"), ("", "/lda+3/ldb+1")):
        (measured,) = verified(f"gemm/{sizes}/s8.s32/{layout}{words}", "gemm/torch.int_mm")
        assert measured.status == "ok", f"{sizes}{words}: {measured.reason}"
    assert re.search(rf"({ONEDNN}|PyTorch's loops|without oneDNN)$", measured.versions), measured.versions
    assert not failures("gemm/m1n1k5/s8.s32/NN", "gemm/torch.int_mm")


def test_a_product_of_pytorch_records_the_library_that_ran(torch):
    blas = r"PyTorch's BLAS, \w+( [\d.]+)?"
    for dtype, ran in (("f32", blas), ("bf16", f"({ONEDNN}|{blas})")):  # oneDNN's product needs instructions for bf16
        (measured,) = verified(f"gemm/m128n96k64/{dtype}/NT", PRODUCT)
        assert re.search(ran + "$", measured.versions), measured.versions


def test_the_library_of_a_product_with_beta_is_determined_by_its_own_call(torch, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.Tensor, "addmm_", lambda *_, **__: calls.append("addmm_"))
    monkeypatch.setattr("kernelmark.kernels._torch.implementation", lambda launch, *_: launch())
    set_up("gemm/m9n8k7/f32/NT/beta1", PRODUCT)
    assert calls == ["addmm_"]


def test_rows_record_what_onednn_ran(torch, capfd):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    for direction in DIRECTIONS:
        (measured,) = verified(f"conv/n1c32h56w56k64r3s3pad1/f32/nchw/{direction}", KERNEL)
        assert re.search(r"torch [\d.]+\S*;.* oneDNN [\d.]+ [a-z_]+:\w+", measured.versions)
    # PyTorch computes small one-dimensional convolutions itself; no implementation of oneDNN may be named.
    (measured,) = verified("conv/n1c2h1w8k2r1s3/f32/nchw/fprop", KERNEL)
    assert measured.versions.endswith("PyTorch's own loops, not oneDNN")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_launch_sets_its_threads_after_another_kernel_has_changed_them(torch, threads):
    problem = "conv/n1c8h16w16k8r3s3/f32/nchw/fprop"
    (launch, *_), (other, *_) = (set_up(problem, KERNEL, count) for count in (threads, 3 - threads))
    other()
    assert torch.get_num_threads() == 3 - threads
    launch()
    assert torch.get_num_threads() == threads


def test_output_of_c_code_is_captured_and_later_output_is_not(capfd):
    from kernelmark.kernels._torch import _printed

    def fail():
        os.write(1, b"lost")
        raise RuntimeError

    os.write(1, b"before ")
    assert _printed(lambda: os.write(1, b"caught")) == "caught"
    with pytest.raises(RuntimeError):
        _printed(fail)
    os.write(1, b"after")
    assert capfd.readouterr().out == "before after"


def test_discovery_imports_no_torch():
    code = (
        "import sys; from kernelmark.bench.plan.discovery import discover; "
        f"assert {KERNEL!r} in discover().kernels; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


PAYS = pays  # the fixture of this folder replaces it
TINY, LARGE = "conv/n1c1h2w2k1r1s1/f32/nchw/fprop", "conv/n8c256h56w56k256r3s3pad1/f32/nchw/fprop"


@pytest.mark.parametrize("compiled", [True, False])
def test_threads_pay_on_large_problems_and_not_on_tiny_ones(compiled):
    answers = [PAYS(REGISTRY.problem(text), 2, compiled) for text in (TINY, LARGE)]
    assert answers == [False, True]


def test_threads_are_used_if_numba_has_no_multiply_adds_to_measure(monkeypatch):
    monkeypatch.setattr(_worth, "rates", Mock(side_effect=Unsupported("no fused multiply-add")))
    assert PAYS(REGISTRY.problem(TINY), 2, False)


def test_a_slow_launch_on_a_busy_machine_leaves_a_large_problem_its_threads(monkeypatch):
    rates()
    monkeypatch.setattr(_worth, "_time_s", lambda launch: 1.0)
    launch_s.cache_clear()
    try:
        assert launch_s(2, True) == _worth.MOST_S
        assert PAYS(REGISTRY.problem(LARGE), 2, True)
    finally:
        launch_s.cache_clear()


@pytest.mark.parametrize(("pay", "expected"), [(True, 3), (False, 1)])
def test_a_kernel_is_set_up_for_one_thread_if_several_do_not_pay(pay, expected, monkeypatch):
    monkeypatch.setattr(_worth, "pays", lambda problem, threads, compiled: pay)
    thread_counts = []

    @threads_that_pay()
    def set_up(problem, x):
        thread_counts.append(x.threads)
        return lambda: None

    set_up(REGISTRY.problem(TINY), SimpleNamespace(threads=3))
    assert thread_counts == [expected]
