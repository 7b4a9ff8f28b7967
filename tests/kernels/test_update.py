"""Gradient and update in two steps: right against float64, honest about its scratch, and only for updates."""

import pytest

from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.job import run_job
from support.kernels import LAYOUTS, refusal

TWO_STEP = "gemm/scipy.two_step"


def _measure(problem: str, mode: Mode = Mode.VERIFY):
    (measured,) = run_job(Job((problem,), (TWO_STEP,), mode, (), 0, Budget(0.05), threads=2))
    return measured


@pytest.mark.parametrize("sizes", ["m1n1k1", "m31n33k17", "m127n1k3", "m1n64k129"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("alpha", ["", "/alpha-0.01", "/alpha0"])
def test_two_steps_are_the_update(sizes: str, dtype: str, alpha: str) -> None:
    measured = _measure(f"gemm/{sizes}/{dtype}/TN{alpha}/beta1")
    assert (measured.status, measured.reason) == ("ok", "")


@pytest.mark.parametrize("mode", [Mode.COLD, Mode.HOT])
def test_two_steps_are_right_after_any_number_of_samples(mode: Mode) -> None:
    measured = _measure("gemm/m33n31k65/f32/TN/alpha-0.01/beta1", mode)
    assert (measured.status, measured.reason) == ("ok", "")


@pytest.mark.parametrize(("dtype", "size"), [("f32", 4), ("f64", 8)])
def test_the_gradient_is_counted_as_scratch(dtype: str, size: int) -> None:
    assert _measure(f"gemm/m31n33k17/{dtype}/TN/alpha-0.01/beta1").scratch_bytes == 31 * 33 * size


def test_an_update_is_of_weights_by_their_gradient_which_is_tn() -> None:
    assert [layout for layout in LAYOUTS if not refusal(TWO_STEP, f"gemm/m8n8k8/f32/{layout}/beta1")] == ["TN"]


@pytest.mark.parametrize("options", ["", "/beta2"])
def test_what_is_no_update_is_outside_its_domain(options: str) -> None:
    measured = _measure(f"gemm/m8n8k8/f32/TN{options}")
    assert measured.status == "unsupported"
    assert measured.reason.endswith("path; it has 1.0")


@pytest.mark.parametrize("options", ["/beta1/batch2", "/beta1/lda+1", "/beta1/ldb+1", "/beta1/ldc+1"])
def test_more_than_one_dense_matrix_is_refused_with_the_reason(options: str) -> None:
    measured = _measure(f"gemm/m8n8k8/f32/TN{options}")
    assert measured.status == "unsupported"
    assert "batch 1" in measured.reason or "without padding" in measured.reason
