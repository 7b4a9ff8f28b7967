"""PyTorch's convolutions and products: right, on the threads that they are given, and what they ran is known."""

import os
import re
import subprocess
import sys

import pytest

from support.kernels import DIRECTIONS, set_up, verified

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
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("words", ["", "/dil1x2", "/g2"])
def test_it_is_right_in_every_direction_and_layout(torch, layout: str, direction: str, words: str) -> None:
    for sizes in SIZES:
        (measured,) = verified(f"conv/{sizes}/f32/{layout}/{direction}{words}", KERNEL)
        assert measured.status == "ok", f"{sizes}: {measured.reason}"


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_bfloat16_is_right(torch, layout: str, direction: str) -> None:
    refused = direction != "fprop" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    for sizes in SIZES:
        (measured,) = verified(f"conv/{sizes}/bf16/{layout}/{direction}", KERNEL)
        assert measured.status == ("unsupported" if refused else "ok"), f"{sizes}: {measured.reason}"
    if refused:
        assert measured.reason == f"{direction} of bf16 is not by oneDNN on this CPU; expected one with AVX-512"
        return
    assert re.search(rf"({ONEDNN}|PyTorch's own loops, not oneDNN)$", measured.versions), measured.versions


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("words", ["", "/beta1", "/alpha0.5/beta-2", "/batch3", "/beta1/batch3", "/lda+3/ldb+1/ldc+5"])
def test_products_are_right(torch, dtype: str, layout: str, words: str) -> None:
    for sizes in ("m65n33k31", "m1n70k257", "m128n96k64"):
        (measured,) = verified(f"gemm/{sizes}/{dtype}/{layout}{words}", PRODUCT)
        refused = dtype == "bf16" and "ldc" in words
        assert measured.status == ("unsupported" if refused else "ok"), f"{sizes}: {measured.reason}"


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("words", ["", "/lda+3/ldb+1"])
def test_products_of_integers_are_right(torch, layout: str, words: str) -> None:
    for sizes in ("m65n33k31", "m2n70k257", "m128n96k64", "m33n2k1030"):
        (measured,) = verified(f"gemm/{sizes}/s8.s32/{layout}{words}", "gemm/torch.int_mm")
        assert measured.status == "ok", f"{sizes}: {measured.reason}"
    assert re.search(rf"({ONEDNN}|PyTorch's loops|without oneDNN)$", measured.versions), measured.versions


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("m3n4k5/s8.s32/NT/batch2", "has no batched path; take batch 1"),
        ("m3n4k5/s8.s32/NT/ldc+1", "ldc is padded by 1, expected 0: C must be contiguous"),
        ("m1n4k5/s8.s32/TN", "m is 1, expected more of a transposed operand: PyTorch 2.13 left C unwritten"),
        ("m4n1k5/s8.s32/NT", "n is 1, expected more of a transposed operand: PyTorch 2.13 left C unwritten"),
        ("m1n1k5/s8.s32/NN", ""),
    ],
)
def test_integers_that_pytorch_does_not_multiply_into_c_are_refused(torch, problem: str, reason: str) -> None:
    (measured,) = verified(f"gemm/{problem}", "gemm/torch.int_mm")
    assert (measured.status, measured.reason) == ("unsupported" if reason else "ok", reason)


def test_a_product_tells_what_ran(torch) -> None:
    blas = r"PyTorch's BLAS, \w+( [\d.]+)?"
    for dtype, ran in (("f32", blas), ("bf16", f"({ONEDNN}|{blas})")):  # oneDNN's needs instructions for it
        (measured,) = verified(f"gemm/m128n96k64/{dtype}/NT", PRODUCT)
        assert re.search(ran + "$", measured.versions), measured.versions


def test_padding_that_differs_between_two_ends_is_refused(torch) -> None:
    (measured,) = verified("conv/n1c4h9w9k4r3s3pad0x1-2/f32/nchw/fprop", KERNEL)
    assert measured.status == "unsupported"
    assert measured.reason == "pad is 0x1-2, expected the same before and after"


def test_rows_tell_what_onednn_ran(torch, capfd: pytest.CaptureFixture[str]) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    for direction in DIRECTIONS:
        (measured,) = verified(f"conv/n1c32h56w56k64r3s3pad1/f32/nchw/{direction}", KERNEL)
        assert re.search(r"torch [\d.]+\S*;.* oneDNN [\d.]+ [a-z_]+:\w+", measured.versions)
    # Small one-dimensional convolutions are PyTorch's own, and no implementation of oneDNN's may be named.
    (measured,) = verified("conv/n1c2h1w8k2r1s3/f32/nchw/fprop", KERNEL)
    assert measured.versions.endswith("PyTorch's own loops, not oneDNN")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_hold_whatever_another_kernel_has_set(torch, threads: int) -> None:
    problem = "conv/n1c8h16w16k8r3s3/f32/nchw/fprop"
    (launch, *_), (other, *_) = (set_up(problem, KERNEL, count) for count in (threads, 3 - threads))
    other()
    assert torch.get_num_threads() == 3 - threads
    launch()
    assert torch.get_num_threads() == threads


def test_what_c_code_prints_is_caught_and_what_follows_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    from kernelmark.kernels._torch import _printed

    def fail() -> None:
        os.write(1, b"lost")
        raise RuntimeError

    os.write(1, b"before ")
    assert _printed(lambda: os.write(1, b"caught")) == "caught"
    with pytest.raises(RuntimeError):
        _printed(fail)
    os.write(1, b"after")
    assert capfd.readouterr().out == "before after"


def test_discovery_imports_no_torch() -> None:
    code = (
        "import sys; from kernelmark.bench.plan.discovery import discover; "
        f"assert {KERNEL!r} in discover().kernels; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
