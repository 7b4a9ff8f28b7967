"""GEMM's bounds where results are sigmoids or have few bits: right results pass, wrong ones do not."""

import numpy as np
import pytest

from kernelmark.bench.measure.draw import THIRD, Draw
from kernelmark.bench.selftest.wrong.library import nearest, truncated
from support.kernels import REGISTRY, referenced


def _truth(problem, x):
    a, b = (x[name].astype(float) for name in "ab")
    c = problem.alpha * (a @ (b.T if problem.op_b == "T" else b))
    return c + problem.beta * x["c"].astype(float) if problem.beta else c


def _sigmoid(x):
    return 0.5 + 0.5 * np.tanh(x / 2)


def _third_draw(text):
    problem = REGISTRY.problem(text)
    draw = Draw(problem, 1)
    for _ in range(THIRD):
        draw.redraw()
    x = draw.views("C")
    return problem, x, problem.reference(x, draw.rng)


@pytest.mark.parametrize("words", ["f32/NT/beta1/epi-bias-relu", "f32/TN/epi-update", "e4m3.f32/NT/scale-blocks"])
def test_no_operand_of_a_third_draw_has_a_value_above_1(words):
    _, x, _ = _third_draw(f"gemm/m4000n200k640/{words}")
    assert {name for name, values in x.items() if np.abs(values.astype(float)).max() > 1} == set()


@pytest.mark.parametrize(("numerics", "bits"), [("tf32", truncated(11)), ("bf16", nearest(8))])
@pytest.mark.parametrize("words", ["m64n64k256/f32/NT/alpha1000", "m32n32k16384/f32/NT"])
def test_the_bound_of_a_sigmoid_of_large_sums_follows_its_slope(words, numerics, bits):
    problem, x, reference = _third_draw(f"gemm/{words}/epi-sigmoid")
    c, cut = (_sigmoid(_truth(problem, {name: of(x[name]) for name in "ab"})) for of in (np.array, bits))
    wrong = [0 * c, 0 * c + 0.5, 1 - c]
    if (numerics, problem.k) == ("tf32", 16384):
        wrong.append(np.clip(0.2 * _truth(problem, x) + 0.5, 0, 1))
    reasons = [problem.check({"c": c.astype(np.float32)}, reference, numerics).reason for c in (c, cut, *wrong)]
    assert reasons[:2] == [None, None]
    assert all(reasons[2:])


@pytest.mark.parametrize("words", ["alpha0/beta3", "alpha0/beta1.5", "alpha0/beta1.002", "alpha1e-06/beta3"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "e4m3.bf16"])
def test_multiples_of_c_may_often_lie_half_way_between_stored_numbers(dtype, words):
    problem, x, reference = referenced(f"gemm/m256n256k64/{dtype}/NT/{words}")
    exact = _truth(problem, x)
    nearest = exact.astype(x["c"].dtype)
    assert problem.check({"c": nearest}, reference, dtype.partition(".")[0]).reason is None
    exact *= 1.01
    assert problem.check({"c": exact.astype(x["c"].dtype)}, reference, dtype.partition(".")[0]).reason


def test_a_sigmoid_of_small_sums_by_strassens_algorithm_may_be_rounded():
    problem, x, reference = _third_draw("gemm/m64n64k64/f32/NN/alpha0.001/epi-sigmoid")
    c = 1 / (1 + np.exp(-_truth(problem, x).astype(np.float32)))
    assert problem.check({"c": c}, reference, "strassen").reason is None
