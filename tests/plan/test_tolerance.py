"""The constants of rounding errors, held against simulated sums; and checks of errors as a whole."""

import numpy as np
import pytest

from kernelmark.bench.plan.dtypes import DTYPES, numpy_dtype
from kernelmark.bench.plan.tolerance import accumulation_error, accumulation_rms, sum_bound
from kernelmark.bench.plan.verdict import Bound, compare, error_variance, sums_limit

SUMS = 4000


def drawn(count, rng):
    return rng.uniform(-1, 1, (count, SUMS)).astype(np.float32).astype(np.float64)


def chain(length, step, round_, rng):
    """The errors of sums that are rounded to FP32 after every `step` products."""
    found, exact = np.zeros(SUMS), np.zeros(SUMS)
    for start in range(0, length, step):
        count = min(step, length - start)
        products = (drawn(count, rng) * drawn(count, rng)).sum(axis=0)
        found, exact = round_(found + products), exact + products
    return found - exact


def nearest(values):
    return values.astype(np.float32).astype(np.float64)


def towards_zero(values):
    found = values.astype(np.float32)
    return np.where(abs(found) > abs(values), np.nextafter(found, np.float32(0)), found).astype(np.float64)


@pytest.mark.parametrize("length", [1, 2, 4, 16, 100, 3000])
@pytest.mark.parametrize(("numerics", "step", "round_"), [("fp32", 1, nearest), ("f16", 4, towards_zero)])
def test_the_bound_of_the_rms_error_holds_and_is_less_than_twice_too_wide_for_long_chains(
    numerics, step, round_, length
):
    errors = chain(length, step, round_, np.random.default_rng(length))
    rms = np.sqrt(np.mean(errors**2))
    bound = accumulation_rms(numerics, "f16", length)
    assert rms <= bound
    assert abs(errors).max() <= accumulation_error(numerics, "f16", length)
    if length >= 16:
        assert bound < 2 * rms


def exponents(values):
    return np.frexp(np.where(values == 0, 2.0**-99, values))[1] - 1


def limited(sums, a, b, cut):
    """`sums` and as many products as `a` and `b` have rows, with 14 bits, as published of Hopper (dtypes.py)."""
    products = a * b
    unit = 2.0 ** (np.maximum((exponents(a) + exponents(b)).max(axis=0), exponents(sums)) - 13)
    found = cut(products / unit).sum(axis=0) * unit + cut(sums / unit) * unit
    unit = 2.0 ** (exponents(found) - 13)
    return cut(found / unit) * unit


def errors_of_fp8(dtype, length, promoted, step, cut):
    rng = np.random.default_rng(length)
    found, exact, sums = np.zeros(SUMS, np.float32), np.zeros(SUMS), np.zeros(SUMS)
    for start in range(0, length, step):
        a, b = (drawn(min(step, length - start), rng).astype(numpy_dtype(dtype)).astype(float) for _ in "ab")
        sums, exact = limited(sums, a, b, cut), exact + (a * b).sum(axis=0)
        if (start + step) % promoted == 0 or start + step >= length:
            found, sums = found + sums.astype(np.float32), np.zeros(SUMS)
    return found - exact


@pytest.mark.parametrize("length", [1, 3, 8, 32, 128, 613, 1024])
@pytest.mark.parametrize(("step", "cut"), [(32, np.floor), (32, np.trunc), (16, np.floor)])
def test_the_bound_of_promoted_sums_of_fp8_holds_whichever_way_they_are_cut(length, step, cut):
    errors = errors_of_fp8("e4m3", length, 128, step, cut)
    rms, bound = np.sqrt(np.mean(errors**2)), accumulation_rms("e4m3", "e4m3", length)
    assert rms <= bound
    assert abs(errors).max() <= accumulation_error("e4m3", "e4m3", length)
    if cut is np.floor and length > 32:
        assert bound < 2 * rms


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_sums_of_fp8_that_are_not_promoted_exceed_the_bound(dtype):
    errors = errors_of_fp8(dtype, 1024, 1024, 32, np.floor)
    assert np.sqrt(np.mean(errors**2)) > 1.5 * accumulation_rms(dtype, dtype, 1024)


@pytest.mark.parametrize(("numerics", "mantissa"), [("tf32", 10), ("bf16", 7)])
def test_rounded_operands_are_within_their_bound_and_those_of_a_bit_less_are_not(numerics, mantissa):
    rng = np.random.default_rng(1)
    a, b = drawn(64, rng), drawn(64, rng)

    def rms(bits):
        # Tensor cores truncate TF32, and conversions to BF16 round to nearest.
        cut = np.trunc if numerics == "tf32" else np.round
        rounded = []
        for values in (a, b):
            m, e = np.frexp(values)
            rounded.append(np.ldexp(cut(np.ldexp(m, bits)), e - bits))
        return np.sqrt(np.mean(((rounded[0] * rounded[1]).sum(axis=0) - (a * b).sum(axis=0)) ** 2))

    bound = accumulation_rms(numerics, "f32", 64)
    assert rms(mantissa + 1) <= bound < rms(mantissa)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_storing_is_bounded_element_by_element(dtype):
    want = np.random.default_rng(2).uniform(-100, 100, 5000)
    bound = Bound(0.0, 0.0, dtype)
    stored = want.astype(numpy_dtype(dtype))
    assert compare("x", stored, want, bound, dtype).reason is None
    small = int(abs(want).argmin())
    one_off = stored.copy()
    one_off[small] = stored[small] * (1 + 4 * DTYPES[dtype].roundoff)
    assert f"x[{small}] is" in compare("x", one_off, want, bound, dtype).reason


def test_numbers_too_small_to_be_normal_may_lose_all_their_bits():
    want = np.array([1e-8, -3e-8, 2.0**-25])
    assert compare("x", want.astype(np.float16), want, Bound(0.0, 0.0, "f16"), "f16").reason is None


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_errors_that_are_each_within_the_bound_are_too_large_together(size):
    want, bound = np.zeros(size), Bound(1.0, 0.01, "f64")
    assert compare("x", np.full(size, 0.01), want, bound, "f64").reason is None
    reason = compare("x", np.full(size, 0.1), want, bound, "f64").reason
    assert reason.startswith("x has an rms error of 0.1, expected at most 0.0")
    assert reason.endswith("from the declared arithmetic")


def test_the_rms_of_few_roundings_may_scatter_widely():
    want = np.zeros(4096)
    assert compare("x", np.full(4096, 0.03), want, Bound(1.0, 0.01, "f64"), "f64").reason
    assert compare("x", np.full(4096, 0.03), want, Bound(1.0, 0.01, "f64", roundings=1), "f64").reason is None


def test_right_samples_exceed_the_limit_of_their_rms_at_most_once_in_many():
    rng = np.random.default_rng(3)
    for size in (1, 4, 30, 1000):
        worst = np.sqrt(np.mean(rng.normal(0, 0.01, (20000, size)) ** 2, axis=1)).max()
        assert worst < Bound(1.0, 0.01, "f64").rms_limit(0.0, size)


def test_gaussian_sums_of_any_errors_stay_below_their_limit():
    rng = np.random.default_rng(4)
    errors = np.full(500, 0.01)  # all of one sign, as truncation makes them
    sums = rng.standard_normal((20000, 500)) @ errors
    limit = sums_limit(np.full(20000, 500 * 0.01**2), 0.0)
    assert abs(sums).max() < limit.min() < 2 * abs(sums).max()


def test_the_variance_of_errors_comes_of_the_sample_within_what_the_arithmetic_allows():
    want, bound = np.zeros(1000), Bound(1.0, 0.1, "f64")
    at = {error: error_variance(np.full(1000, error), want, bound, 10**6) for error in (0.0, 0.01, 1.0)}
    assert at[0.0] == pytest.approx((0.1 / 256) ** 2, rel=1e-4)
    assert at[0.01] == pytest.approx((4 * 0.01) ** 2, rel=1e-3)
    assert at[1.0] == pytest.approx(0.1**2)
    assert error_variance(want, want, bound, 1) > 0.99  # a single element may have the largest error of all


def test_a_plain_product_is_not_charged_for_scaling():
    assert sum_bound("fp32", "f32", 64, "f32").rms < sum_bound("fp32", "f32", 64, "f32", 1.5, 0.5).rms


@pytest.mark.parametrize("shape", [(3, 2_000_000), (2_000_000, 2), (1, 1, 7), (0, 5)])
def test_large_arrays_are_compared_block_by_block(shape):
    want = np.zeros(shape, np.float64)
    got = np.zeros(shape, np.float32)
    if got.size:
        last = tuple(n - 1 for n in shape)
        got[last] = 1
        reason = compare("x", got, want, 0.5, "f32").reason
        assert reason.startswith(f"x[{', '.join(map(str, last))}] is 1, expected 0 within 0.5 (1 of {got.size} ")
    else:
        assert compare("x", got, want, 0.5, "f32").reason is None
