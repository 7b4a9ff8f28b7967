"""oneDNN through PyTorch: right, on the threads that it is given, and what it ran is known."""

import os
import re
import subprocess
import sys

import pytest

from kernel_rig import DIRECTIONS, set_up, verified

KERNEL = "conv/torch.conv2d"
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
    from kernels.conv.vendor._torch import _printed

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
        "import sys; from bench.plan.discovery import discover; "
        f"assert {KERNEL!r} in discover().kernels; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
