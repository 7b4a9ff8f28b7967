"""Strategies on a GPU mean their problem: cuBLAS stood for by NumPy, our transpositions by what they are to do."""

from typing import Any

import numpy as np
import pytest

from kernelmark import kernel
from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.operands import Operands, OperandSet, ScratchBuffers
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.limits import H100
from kernelmark.kernels.gemm import _cublas
from support.blas import Blas, HostOperands, blas_stand_in, matrix
from support.kernels import REGISTRY, refusal

NT = ("gemm/cublas.tnn_geam", "gemm/cublas.tnn", "gemm/cublas.inplace")
TWO_STEP = "gemm/cublas.two_step"
F32 = 4


class Lab(HostOperands):
    """Operands in host memory, for strategies that launch other kernels."""

    def __init__(self, problem: str) -> None:
        self.problem = REGISTRY.problem(problem)
        self.launched: list[str] = []
        super().__init__(self.problem)

    def run(self, kernel_id: str) -> None:
        """Set up and launch twice: what one launch leaves must not change the next."""
        launch = REGISTRY.kernels[kernel_id].setup(self.problem, self)
        launch()
        if "c" in self.before:
            self.views["c"][...] = self.before["c"]
        launch()

    @property
    def scratch_bytes(self) -> int:
        return sum(part.nbytes for part in self.kept)

    def launch(self, kernel_id: str, problem: str, **arrays: Any) -> Any:
        """One of our transpositions, if it takes the problem."""
        parsed, chosen = REGISTRY.problem(problem), REGISTRY.kernels[kernel_id]
        assert chosen.refuses(parsed) is None
        self.launched.append(f"{kernel_id} {problem}")
        m, n = parsed.m, parsed.n

        def move() -> None:
            source = matrix(arrays["a"].data.ptr, "f32", n, n, m).T.copy()
            target = arrays["b"] if parsed.place == "out" else arrays["a"]
            matrix(target.data.ptr, "f32", m, m, n)[...] = source

        return move


@pytest.fixture(autouse=True)
def blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cublas, "_cublas", blas_stand_in(Blas()))


@pytest.mark.parametrize("options", ["", "/alpha0.5/beta2"])
@pytest.mark.parametrize("shape", ["m5n7k4", "m3n6k6", "m1n1k1", "m2n1k9"])
@pytest.mark.parametrize("kernel_id", NT)
def test_transposing_first_is_the_product_and_leaves_the_inputs(kernel_id: str, shape: str, options: str) -> None:
    lab = Lab(f"gemm/{shape}/f32/NT{options}")
    lab.run(kernel_id)
    assert lab.complaint(lab.problem, "fp32") is None


@pytest.mark.parametrize(
    ("kernel_id", "launched", "scratch_bytes"),
    [
        ("gemm/cublas.tnn_geam", [], 7 * 4 * F32),
        ("gemm/cublas.tnn", ["transpose/cuda.vectorised transpose/m7n4/f32/out"], 7 * 4 * F32),
        (
            "gemm/cublas.inplace",
            ["transpose/cuda.c2r transpose/m7n4/f32/in", "transpose/cuda.c2r transpose/m4n7/f32/in"],
            0,
        ),
    ],
)
def test_each_strategy_transposes_b_as_it_says(kernel_id: str, launched: list[str], scratch_bytes: int) -> None:
    lab = Lab("gemm/m5n7k4/f32/NT")
    lab.run(kernel_id)
    assert (lab.launched, lab.scratch_bytes) == (launched, scratch_bytes)


def test_squares_are_transposed_in_place_by_the_kernel_for_squares() -> None:
    lab = Lab("gemm/m5n8k8/f32/NT")
    lab.run("gemm/cublas.inplace")
    assert lab.launched == ["transpose/cuda.vectorised_inplace transpose/m8n8/f32/in"] * 2


@pytest.mark.parametrize("alpha", ["", "/alpha-0.01", "/alpha0"])
@pytest.mark.parametrize("shape", ["m5n7k4", "m1n1k1"])
def test_two_steps_are_the_update(shape: str, alpha: str) -> None:
    lab = Lab(f"gemm/{shape}/f32/TN{alpha}/beta1")
    lab.run(TWO_STEP)
    assert lab.complaint(lab.problem, "fp32") is None
    assert lab.scratch_bytes == lab.problem.m * lab.problem.n * F32


@pytest.mark.parametrize("kernel_id", [*NT, TWO_STEP])
def test_a_strategy_takes_one_dense_product(kernel_id: str) -> None:
    tail = "TN/beta1" if kernel_id == TWO_STEP else "NT"
    assert refusal(kernel_id, f"gemm/m8n8k8/f32/{tail}") == ""
    for option, reason in (("/batch2", "take batch 1"), ("/ldb+4", "without padding")):
        assert reason in refusal(kernel_id, f"gemm/m8n8k8/f32/{tail}{option}")


def test_the_seed_suite_sets_every_strategy_of_every_provider_side_by_side() -> None:
    founding = REGISTRY.problem("gemm/m1024n2048k26752/f32/NT")
    taken = {k.id for k in REGISTRY.kernels.values() if k.op == "gemm" and k.refuses(founding) is None}
    cpu = {"gemm/numpy.matmul", "gemm/scipy.sgemm", "gemm/numpy.tnn", "gemm/openblas.tnn", "gemm/openblas.inplace"}
    assert taken > cpu | set(NT) | {"gemm/cublas.sgemm", "gemm/cuda.streamk"}


def _operands(problem: str) -> Operands:
    return Operands(OperandSet(REGISTRY.problem(problem), Cpu()), "C", Cpu(), 1, ScratchBuffers(Cpu()))


def test_a_kernel_launches_another_on_arrays_of_its_choice(registry: Any) -> None:
    seen = []

    def set_up(problem: Any, x: Any) -> Any:
        seen.append((problem.id, x.a, x.b, x.threads, x.scratch((2, 3), "f32").shape))
        return lambda: np.copyto(x.b, x.a.T)

    kernel("transpose", name="mine", provider="p", device="cpu", numerics="exact")(set_up)
    x = _operands("gemm/m2n3k4/f32/NT")
    turned = x.scratch((4, 3), "f32")
    x.b[...] = np.arange(12).reshape(3, 4)
    x.launch("transpose/p.mine", "transpose/m3n4/f32/out", a=x.b, b=turned)()
    assert np.array_equal(turned, x.b.T)
    ((problem, a, b, threads, scratch),) = seen
    assert (problem, threads, scratch) == ("transpose/m3n4/f32/out", 1, (2, 3))
    assert a is x.b
    assert b is turned


def test_what_the_other_kernel_refuses_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelmark.bench.measure.launch.present_limits", lambda: H100)
    x = _operands("gemm/m2n3k4/f32/NT")
    with pytest.raises(Unsupported, match="square"):
        x.launch("transpose/cuda.vectorised_inplace", "transpose/m3n4/f32/in", a=x.b)
