"""Problems: their ids, and the rounding errors that their results may have."""

from itertools import product

import numpy as np
import pytest

from kernelmark.bench.plan.dtypes import DTYPES, numpy_dtype
from kernelmark.bench.plan.tolerance import accumulation_error, accumulation_rms, sum_bound
from kernelmark.bench.plan.verdict import Bound, compare, error_variance, sum_weights, sums_limit

STORED = ("f64", "f32", "f16", "bf16")
SIZES = (1, 31, 33, 127, 26752)


def test_every_product_is_parsed_from_its_id(registry):
    options = [
        {},
        {"beta": 1.0},
        {"alpha": -0.5, "beta": 0.25},
        {"batch": 8},
        {"lda_pad": 3},
        {"beta": 1.0, "batch": 8, "lda_pad": 3, "ldb_pad": 1, "ldc_pad": 7},
        {"alpha": 1e-30, "beta": 2048.0},
        {"alpha": 0.1234567, "beta": 1 / 3},
    ]
    dtypes, layouts = (*STORED, "f16.f32", "bf16.f32", "e4m3.f32", "e4m3.bf16", "e5m2.f32"), ("NN", "NT", "TN", "TT")
    kinds = *product(dtypes, options), ("s8.s32", {}), ("s8.s32", {"batch": 8, "ldb_pad": 1})
    kinds += tuple((dtype, {"beta": 1e30}) for dtype in dtypes if dtype != "f16")
    made = [
        registry.operations["gemm"](m=m, n=m + 1, k=2 * m, dtype=dtype, layout=layout, **option)
        for m, layout, (dtype, option) in product(SIZES, layouts, kinds)
    ]
    assert [p.id for p in made if registry.problem(p.id) != p] == []
    assert len({p.id for p in made}) == len(made) == 1640


def test_an_id_is_parsed_into_its_parts_and_printed_without_defaults(registry):
    assert registry.problem("gemm/m2n3k4/f32/NN/alpha1/beta0/batch1/lda+0").id == "gemm/m2n3k4/f32/NN"
    p = registry.problem("gemm/m2n3k4/f16.f32/NT/alpha2/beta1/batch5/lda+6/ldb+7/ldc+8")
    assert (p.op, p.m, p.n, p.k, p.dtype, p.layout) == ("gemm", 2, 3, 4, "f16.f32", "NT")
    assert (p.alpha, p.beta, p.batch, p.lda_pad, p.ldb_pad, p.ldc_pad) == (2, 1, 5, 6, 7, 8)


@pytest.mark.parametrize(
    ("text", "fault", "expected"),
    [
        ("gem/m1n1k1/f32/NN", "'gem'", "fma, gemm, transfer, transpose"),
        ("", "''", "fma, gemm, transfer, transpose"),
        ("gemm/", "''", "m<int>n<int>k<int>"),
        ("gemm/m8n8/f32/NT", "'m8n8'", "m<int>n<int>k<int>"),
        ("gemm/m8n8k8x/f32/NT", "'m8n8k8x'", "m<int>n<int>k<int>"),
        ("gemm/m8n8k8/f31/NT", "'f31'", "f64, f32, f16, bf16"),
        ("gemm/m8n8k8/f32", "no layout", "NN, NT, TN, TT"),
        ("gemm/m8n8k8/f32/NT/gamma1", "'gamma1'", "alphaX, betaX, batchN"),
        ("gemm/m8n8k8/f32/NT/betax", "'betax'", "number"),
        ("gemm/m8n8k8/f32/NT/alphainf", "inf", "finite"),
        ("gemm/m8n8k8/f32/NT/batch1.5", "'batch1.5'", "number"),
        ("gemm/m8n8k8/f32/NT/lda+-3", "'lda+-3'", "whole number"),
        ("gemm/m08n8k8/f32/NT", "'m08n8k8'", "without leading zeros"),
        ("gemm/m٣n8k8/f32/NT", "'m٣n8k8'", "m<int>n<int>k<int>"),
        ("gemm/m8n8k8/f32/NT/batch02", "'batch02'", "without leading zeros"),
        ("gemm/m8n8k8/f32/NT/beta1_0", "'beta1_0'", "finite number"),
        ("gemm/m8n8k8/f32/NT/beta1e999", "beta is inf", "finite number"),
        ("conv/n1c4h9w9k4r3s3pad٣/f32/nchw/fprop", "'n1c4h9w9k4r3s3pad٣'", "[pad<int>]"),
        ("conv/n1c4h9w9k4r3s3/f32/nchw/fprop/g02", "'g02'", "gN"),
        ("gemm/m8n8k8/f32/NT/batch2/batch3", "'batch3'", "only once"),
        ("gemm/m8n8k8/f32/NT/alpha2/alpha1", "'alpha1'", "only once"),
        ("gemm/m8n8k8/f32/NT/groups2-equal/groups2-equal", "'groups2-equal'", "only once"),
        (f"gemm/m8n8k8/f32/NT/lda+{2**63}", f"lda_pad is {2**63}", f"from 0 to {2**63 - 1}"),
        ("conv/n1c4h9w9k4r3s3/f32/nchw/fprop/g2/g4", "'g4'", "only once"),
        ("gemm/m8n8k8/f32/NT/lda3", "'lda3'", "lda+N"),
        ("transpose/m8n8/f32", "''", "/out or /in"),
        ("transpose/m8n8/f32/up", "'up'", "out, in"),
        ("transpose/m8n8/f32/out/in", "'out/in'", "/out or /in"),
        ("copy/m8n8/f32/out", "'out'", "copy"),
        ("gemm/m8n8k8/f32/NT/zeros/beta1", "'zeros'", "not a part of a gemm id"),
        ("gemm/m8n8k8/s8.s32/NT/normal", "normal", "uniform or zeros or ints with s8.s32"),
        ("fma/n8k8/f32/zeros", "'zeros'", "/fed, /mma or nothing"),
        ("transfer/n8/f32/h2h/ints", "'h2h/ints'", "a direction"),
        ("aggregate/w2n8/f32/normal", "'normal'", "update, ef"),
        ("copy/m8n8/f16.f32", "'f16.f32'", "f64, f32, f16, bf16"),
        ("transpose/b8m8n08/f32/out", "'b8m8n08'", "m<int>n<int>"),
        ("transpose/b8m8n8/f32/up", "'up'", "out, in"),
        ("transpose/b0m8n8/f32/out", "batch is 0", ">= 1"),
        pytest.param(f"copy/m{'9' * 5000}n8/f32", "digits", "limit", id="more digits than Python reads"),
        pytest.param(f"transpose/b{'9' * 5000}m1n1/f32/out", "digits", "limit", id="also in a batch"),
    ],
)
def test_a_bad_id_is_refused_in_one_line_with_fault_and_expectation(registry, complaint, text, fault, expected):
    line = complaint(lambda: registry.problem(text))
    assert line.startswith(f"{text}: ")
    assert fault in line
    assert expected in line


SUMS = 4000


def drawn(count, rng):
    return rng.uniform(-1, 1, (count, SUMS)).astype(np.float32).astype(np.float64)


def chain(length, step, round_, rng):
    """Return the errors of sums that are rounded to FP32 after every `step` products."""
    sums, exact = np.zeros(SUMS), np.zeros(SUMS)
    for start in range(0, length, step):
        count = min(step, length - start)
        products = (drawn(count, rng) * drawn(count, rng)).sum(axis=0)
        sums, exact = round_(sums + products), exact + products
    return sums - exact


def nearest(values):
    return values.astype(np.float32).astype(np.float64)


def towards_zero(values):
    rounded = values.astype(np.float32)
    return np.where(abs(rounded) > abs(values), np.nextafter(rounded, np.float32(0)), rounded).astype(np.float64)


@pytest.mark.parametrize("length", [1, 2, 4, 16, 100, 3000])
@pytest.mark.parametrize(("numerics", "step", "round_"), [("fp32", 1, nearest), ("f16", 4, towards_zero)])
def test_the_bound_of_the_rms_error_holds_and_is_below_twice_the_error_of_long_chains(numerics, step, round_, length):
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
    """Return `sums` plus the products of each row of `a` and `b`, with 14 bits, as published for Hopper (dtypes.py)."""
    products = a * b
    unit = 2.0 ** (np.maximum((exponents(a) + exponents(b)).max(axis=0), exponents(sums)) - 13)
    rounded = cut(products / unit).sum(axis=0) * unit + cut(sums / unit) * unit
    unit = 2.0 ** (exponents(rounded) - 13)
    return cut(rounded / unit) * unit


def errors_of_fp8(dtype, length, promoted, step, cut):
    rng = np.random.default_rng(length)
    totals, exact, sums = np.zeros(SUMS, np.float32), np.zeros(SUMS), np.zeros(SUMS)
    for start in range(0, length, step):
        a, b = (drawn(min(step, length - start), rng).astype(numpy_dtype(dtype)).astype(float) for _ in "ab")
        sums, exact = limited(sums, a, b, cut), exact + (a * b).sum(axis=0)
        if (start + step) % promoted == 0 or start + step >= length:
            totals, sums = totals + sums.astype(np.float32), np.zeros(SUMS)
    return totals - exact


@pytest.mark.parametrize("length", [1, 3, 8, 32, 128, 613, 1024])
@pytest.mark.parametrize(("step", "cut"), [(32, np.floor), (32, np.trunc), (16, np.floor)])
def test_the_bound_of_promoted_sums_of_fp8_holds_for_each_way_of_truncation(length, step, cut):
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
def test_rounded_operands_are_within_their_bound_and_those_with_one_bit_less_are_not(numerics, mantissa):
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
def test_the_error_of_storing_is_bounded_for_each_element(dtype):
    want = np.random.default_rng(2).uniform(-100, 100, 5000)
    bound = Bound(0.0, 0.0, dtype)
    stored = want.astype(numpy_dtype(dtype))
    assert compare("x", stored, want, bound, dtype).reason is None
    small = int(abs(want).argmin())
    wrong = stored.copy()
    wrong[small] = stored[small] * (1 + 4 * DTYPES[dtype].roundoff)
    assert f"x[{small}] is" in compare("x", wrong, want, bound, dtype).reason
    tiny = DTYPES[dtype].underflow * np.array([0.3, -1.0])  # may be stored as 0
    assert compare("x", np.zeros(2, numpy_dtype(dtype)), tiny, bound, dtype).reason is None


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_errors_that_are_within_the_bound_may_have_too_large_an_rms(size):
    want, bound = np.zeros(size), Bound(1.0, 0.01, "f64")
    assert compare("x", np.full(size, 0.01), want, bound, "f64").reason is None
    reason = compare("x", np.full(size, 0.1), want, bound, "f64").reason
    assert reason.startswith("x has an rms error 10 times that of the declared arithmetic, expected at most ")
    reason = compare("x", np.full(size, 0.03), want, bound._replace(roundings=1), "f64").reason
    assert reason is None, "the rms of few roundings varies widely"


def test_an_rms_error_that_is_nan_is_too_large():
    want = np.full(4, 1e175)  # whose squares overflow
    bound = Bound(1e-9, 1e-15, "f64", unit=1e175)
    assert "x has an rms error nan times" in compare("x", want * (1 + 1e-12), want, bound, "f64").reason


def test_20000_right_samples_are_below_the_limit_of_their_rms():
    rng = np.random.default_rng(3)
    for size in (1, 4, 30, 1000):
        worst = np.sqrt(np.mean(rng.normal(0, 1, (20000, size)) ** 2, axis=1)).max()
        assert worst < Bound(1.0, 0.01, "f64").rms_limit(size)


def test_weighted_sums_of_any_errors_stay_below_their_limit():
    rng = np.random.default_rng(4)
    errors = np.full(500, 0.01)  # all of one sign, as truncation makes them
    weights = sum_weights(rng, (20000, 500))
    sums, limits = weights @ errors, sums_limit(weights**2 @ errors**2, 0.0)
    assert (abs(sums) < limits).all()
    assert limits.min() < 2 * abs(sums).max()


def test_no_weight_of_a_sum_hides_the_error_of_an_element():
    assert abs(sum_weights(np.random.default_rng(5), 100_000)).min() >= 1


def test_the_variance_of_errors_is_estimated_from_a_sample_within_the_arithmetics_bounds():
    want, bound = np.zeros(1000), Bound(1.0, 0.1, "f64")
    variances = {error: error_variance(np.full(1000, error), want, bound, 10**6) for error in (0.0, 0.01, 1.0)}
    assert variances[0.0] == pytest.approx((0.1 / 256) ** 2, rel=1e-4)
    assert variances[0.01] == pytest.approx((4 * 0.01) ** 2, rel=1e-3)
    assert variances[1.0] == pytest.approx(0.1**2)
    assert error_variance(want, want, bound, 1) > 0.99  # a single element may have the largest error
    zeros = bound._replace(unit=np.zeros(1000))
    assert error_variance(want, want, zeros, 10**6) == pytest.approx(0.1**2), "sums of zeros show no error"


def test_the_bound_of_a_plain_product_has_no_term_for_scaling():
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
