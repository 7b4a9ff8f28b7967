"""Fourier transforms: the reference is the sum of the definition, CPU kernels are right, bad problems are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.plan.suites import find_suite
from support.kernels import REGISTRY, verified

KINDS = ("r2c", "c2r", "c2c", "c2c/inverse")
SIZES = [(1, 1, 1), (3, 1, 2), (2, 1, 7), (5, 1, 16), (2, 2, 1), (1, 6, 5), (3, 5, 6), (1, 8, 8), (2, 7, 3)]
LARGER = [(1, 1, 1021), (7, 1, 139), (1, 1, 4096), (65, 1, 32), (2, 31, 37), (3, 64, 48), (1, 113, 1), (4, 32, 32)]


def dft(length: int, sign: int) -> Any:
    """The matrix of the definition."""
    index = np.arange(length)
    return np.exp(sign * 2j * np.pi * (np.outer(index, index) % length) / length)


def by_definition(problem: Any, x: Any) -> Any:
    """Sums over matrices, in complex numbers."""
    sign = -1 if problem.direction == "forward" else 1
    rows, columns = dft(problem.h, sign), dft(problem.w, sign)
    if problem.kind == "r2c":
        return np.einsum("pi,bij,qj->bpq", rows, x, columns[: problem.half])
    x = x[..., 0] + 1j * x[..., 1]
    if problem.kind == "c2c":
        return np.einsum("pi,bij,qj->bpq", rows, x, columns)
    lines = np.einsum("pi,bij->bpj", rows, x)
    ends = {0, problem.w / 2}
    doubled = np.array([1 if j in ends else 2 for j in range(problem.half)])
    return np.einsum("bpj,qj,j->bpq", lines, columns[:, : problem.half], doubled).real


def drawn(problem: Any) -> Any:
    (shape,) = (operand.shape for operand in problem.operands() if operand.role == "in")
    return np.random.default_rng(1).uniform(-1, 1, shape)


def as_parts(values: Any) -> Any:
    return np.stack([values.real, values.imag], -1) if np.iscomplexobj(values) else values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("b", "h", "w"), SIZES)
def test_the_reference_is_the_sum_of_the_definition(b: int, h: int, w: int, kind: str) -> None:
    problem = REGISTRY.problem(f"fft/b{b}h{h}w{w}/f64/{kind}")
    x = drawn(problem)
    reference = problem.reference({"x": x}, np.random.default_rng(0))
    (y,) = (operand for operand in problem.operands() if operand.role == "out")
    assert reference.shape == y.shape
    np.testing.assert_allclose(reference, as_parts(by_definition(problem, x)), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("h", "w"), [(1, 8), (1, 9), (6, 8), (6, 7), (5, 4), (2, 2)])
def test_c2r_of_a_spectrum_is_that_of_its_hermitian_part(h: int, w: int) -> None:
    problem = REGISTRY.problem(f"fft/b2h{h}w{w}/f64/c2r")
    x = drawn(problem)
    part = hermitian_part(x, w)
    references = [problem.reference({"x": values}, np.random.default_rng(0)) for values in (x, part)]
    assert not np.array_equal(x, part)
    np.testing.assert_allclose(*references, rtol=0, atol=1e-12)


def hermitian_part(x: Any, w: int) -> Any:
    """With the columns that are their own mirror images made Hermitian."""
    part = x.copy()
    for column in {0, w // 2} if w % 2 == 0 else {0}:
        mirrored = np.roll(x[:, ::-1, column], 1, axis=1) * [1, -1]
        part[:, :, column] = (x[:, :, column] + mirrored) / 2
    return part


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("b", "h", "w"), SIZES + LARGER)
def test_every_cpu_kernel_is_right(b: int, h: int, w: int, dtype: str, kind: str, plans: None) -> None:
    problem = REGISTRY.problem(f"fft/b{b}h{h}w{w}/{dtype}/{kind}")
    known = [k for k in REGISTRY.kernels.values() if k.op == "fft" and k.device == "cpu"]
    kernels = [k.id for k in known if not k.outside(problem)]
    assert len(kernels) == (3 if dtype == "f64" else 2)
    for threads in (1, 2):
        for measured in verified(problem.id, *kernels, threads=threads):
            assert measured.status == "ok", f"{measured.kernel}: {measured.reason}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_normalisation_or_sign_is_wrong(kind: str) -> None:
    problem = REGISTRY.problem(f"fft/b2h4w6/f32/{kind}")
    reference = problem.reference({"x": drawn(problem)}, np.random.default_rng(0))
    right = reference.astype(np.float32)
    assert problem.check({"y": right}, reference, "fp32").reason is None
    for wrong in (right / 24, -right, right * np.float32(1 + 1e-5), np.flip(right, -1)):
        assert problem.check({"y": wrong}, reference, "fp32").reason is not None


@pytest.fixture
def plans(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wisdom of this test's own, and little time to gather it."""
    import kernelmark.kernels._fftw as fftw

    wisdom = fftw.Wisdom(tmp_path / "wisdom.json")
    monkeypatch.setattr(fftw, "_wisdom", lambda: wisdom)
    monkeypatch.setattr(fftw, "PLANNING_S", 0.01)


@pytest.mark.parametrize(
    ("text", "flop"),
    [
        ("fft/b1h1w1/f32/c2c", 0),
        ("fft/b3h1w1024/f32/c2c", 3 * 5 * 1024 * 10),
        ("fft/b3h1w1024/f32/r2c", 3 * 5 * 1024 * 5),
        ("fft/b64h32w32/f32/c2r", 64 * 5 * 1024 * 5),
        ("fft/b1h3w1/f64/c2c/inverse", 24),
    ],
)
def test_flop_are_counted_as_the_field_does(text: str, flop: int) -> None:
    assert REGISTRY.problem(text).flop == flop


def test_traffic_is_that_of_a_real_array_and_half_a_spectrum() -> None:
    for kind in ("r2c", "c2r"):
        assert REGISTRY.problem(f"fft/b2h5w6/f32/{kind}").traffic_bytes == 4 * 2 * 5 * (6 + 2 * 4)
    assert REGISTRY.problem("fft/b2h5w6/f64/c2c").traffic_bytes == 8 * 2 * 5 * 6 * 2 * 2


def test_ids_are_those_of_the_problem_they_name() -> None:
    for text in ("fft/b64h32w32/f32/r2c", "fft/b1h1w7/f64/c2r", "fft/b2h3w4/f32/c2c", "fft/b2h3w4/f32/c2c/inverse"):
        assert REGISTRY.problem(text).id == text
    assert REGISTRY.problem("fft/b1h1w7/f64/c2r").direction == "inverse"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fft/b1h1w0/f32/c2c", "w is 0, expected `int` >= 1"),
        ("fft/b1w8/f32/c2c", "sizes are 'b1w8', expected b<int>h<int>w<int>"),
        ("fft/b1h1w8/f16/c2c", "dtype is 'f16', expected one of f64, f32"),
        ("fft/b1h1w8/f32", "ends in '', expected r2c, c2r, c2c or c2c/inverse"),
        ("fft/b1h1w8/f32/r2r", "kind is 'r2r', expected one of r2c, c2r, c2c"),
        ("fft/b1h1w8/f32/r2c/inverse", "ends in 'r2c/inverse', expected r2c, c2r, c2c or c2c/inverse"),
        ("fft/b1h1w8/f32/c2c/forward", "ends in 'c2c/forward', expected r2c, c2r, c2c or c2c/inverse"),
    ],
)
def test_bad_ids_are_refused_in_one_line(text: str, expected: str, complaint: Callable[..., str]) -> None:
    assert expected in complaint(lambda: REGISTRY.problem(text))


def test_the_inverse_of_r2c_is_refused_in_suites(complaint: Callable[..., str]) -> None:
    values = {"b": 1, "h": 1, "w": 8, "dtype": "f32", "kind": "r2c", "direction": "inverse"}
    found = complaint(lambda: REGISTRY.operations["fft"].make(values, "here"))
    assert found == "here: direction is 'inverse', expected forward for r2c; the inverse of r2c is c2r"


def test_the_suite_has_each_problem_once_and_every_kind() -> None:
    problems = [entry.problem for entry in find_suite("fft", REGISTRY).entries()]
    assert len({problem.id for problem in problems}) == len(problems) > 40
    assert {(problem.kind, problem.direction) for problem in problems} == {  # type: ignore[attr-defined]
        ("r2c", "forward"),
        ("c2r", "inverse"),
        ("c2c", "forward"),
        ("c2c", "inverse"),
    }
    assert max(problem.footprint_bytes for problem in problems) < 64 * 2**20
