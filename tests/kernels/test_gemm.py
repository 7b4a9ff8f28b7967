"""GEMM's reference, tolerance, scales and epilogues: right results pass, wrong ones do not."""

import math
import re

import numpy as np
import pytest
from msgspec.structs import replace

from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.plan.dtypes import NUMERICS, numpy_dtype, operand_roundoff
from kernelmark.bench.plan.kernel import Scratch
from kernelmark.kernels.gemm import _reference
from kernelmark.kernels.gemm import problem as gemm
from support.kernels import LAYOUTS, REGISTRY, chosen, drawn, failures, referenced, refusal, set_up, verified


def _truth(problem, x):
    """C by its definition: each element of A and B times the scale of its block, if it has one."""
    a, b = (x[name].astype(float) for name in "ab")
    if "scale_a" in x:
        rows, columns, along_k = (np.arange(size) for size in (problem.m, problem.n, problem.k))
        a *= x["scale_a"][..., along_k[None] // 128, rows[:, None]]
        b *= x["scale_b"][..., columns[:, None] // 128, along_k[None] // 128]
    of_a, of_b = {"N": "...mk", "T": "...km"}[problem.op_a], {"N": "...kn", "T": "...nk"}[problem.op_b]
    c = problem.alpha * np.einsum(f"{of_a},{of_b}->...mn", a, b, order="C", optimize=True)
    return c + problem.beta * x["c"].astype(float) if problem.beta else c


PLAIN = ("", "/beta1", "/alpha-0.5/beta2", "/batch3", "/lda+3/ldb+1/ldc+2", "/beta1/batch2")
SCALED = ("/beta1", "/alpha-0.5/beta2/lda+3/ldb+1/ldc+2", "/beta1/batch2")


@pytest.mark.parametrize(
    "problem",
    [
        *(f"m31n33k17/f64/{layout}{options}" for layout in LAYOUTS for options in PLAIN),
        *(f"m131n264k300/e4m3.f32/NT{options}/scale-blocks" for options in SCALED),
    ],
)
def test_reference_is_the_definition(problem):
    parsed, x, reference = referenced(f"gemm/{problem}")
    truth = _truth(parsed, x)
    assert np.allclose(reference.values.reshape(truth.shape), truth, rtol=0, atol=1e-13)


@pytest.mark.parametrize("options", ["", "/beta1", "/alpha3", "/batch2"])
def test_sampled_check_accepts_the_truth(options, monkeypatch):
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    problem, x, reference = referenced(f"gemm/m131n97k203/f32/NT{options}")
    right = _truth(problem, x).astype(np.float32)
    assert problem.check({"c": right}, reference, "fp32").reason is None


@pytest.mark.parametrize(
    ("text", "numerics", "error"),
    [
        *(("m531n497k203/f32/NT", "fp32", error) for error in (0.01, 1.0, np.nan)),
        ("m531n497k203/s8.s32/NT", "exact", 1),
        *((f"{sizes}/f64/NN", "fp64", 1e-6) for sizes in ("m900n1100k1300", "m128n128k40000")),
    ],
)
def test_the_checksum_passes_a_right_product_and_finds_one_wrong_element(text, numerics, error, monkeypatch):
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    problem, x, reference = referenced(f"gemm/{text}")
    result = _truth(problem, x).astype(numpy_dtype(problem.operands()[2].dtype))
    assert problem.check({"c": result}, reference, numerics).reason is None
    others = [i for i in range(problem.m) if i not in reference.rows]
    row = min(others, key=lambda i: np.linalg.norm(x["a"][i].astype(np.float64)))  # the row with the least bound
    result[row, 5] += error
    assert f"checksum of c by row[{row}, " in problem.check({"c": result}, reference, numerics).reason


@pytest.mark.parametrize(
    ("dtype", "k"), [("f32", k) for k in (1, 31, 1024, 26752)] + [("f64", k) for k in (1, 86, 128, 300)]
)
def test_a_dropped_product_exceeds_the_tolerance_and_sequential_rounding_does_not(dtype, k):
    problem, x, reference = referenced(f"gemm/m64n64k{k}/{dtype}/NT")
    numerics = dtype.replace("f", "fp")
    sequential = np.zeros((64, 64), numpy_dtype(dtype))
    for p in reversed(range(k)):
        sequential += np.outer(x["a"][:, p], x["b"][:, p])
    assert problem.check({"c": sequential}, reference, numerics).reason is None
    dropped = sequential - np.outer(x["a"][:, 0], x["b"][:, 0])
    assert problem.check({"c": dropped}, reference, numerics).reason is not None


# The bits that truncation must keep to be as exact as rounding to the numerics.
@pytest.mark.parametrize(("numerics", "bits"), [("tf32", 10), ("bf16", 8)])
@pytest.mark.parametrize("k", [16, 1000])
def test_truncated_operands_pass_with_their_numerics_and_not_as_fp32(numerics, bits, k):
    problem, x, reference = referenced(f"gemm/m128n128k{k}/f32/NT")
    mask = np.uint32((0xFFFFFFFF << (23 - bits)) & 0xFFFFFFFF)
    a, b = ((x[name].copy().view(np.uint32) & mask).view(np.float32).astype(float) for name in "ab")
    result = (a @ b.T).astype(np.float32)
    assert problem.check({"c": result}, reference, numerics).reason is None
    assert problem.check({"c": result}, reference, "fp32").reason is not None


def _strassen(a, b, levels):
    """Winograd's variant, whose errors are larger than those of Strassen's own."""
    if not levels:
        return a @ b
    (a11, a12), (a21, a22), (b11, b12), (b21, b22) = (np.split(half, 2, 1) for x in (a, b) for half in np.split(x, 2))
    s, t = a21 + a22 - a11, b22 - (b12 - b11)
    pairs = ((a11, b11), (a12, b21), (a12 - s, b22), (a22, t - b21), (a21 + a22, b12 - b11), (s, t),
             (a11 - a21, b22 - b12))  # fmt: skip
    p1, p2, p3, p4, p5, p6, p7 = (_strassen(x, y, levels - 1) for x, y in pairs)
    u = p1 + p6
    return np.block([[p1 + p2, u + p5 + p3], [u + p7 - p4, u + p7 + p5]])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("size", "levels"), [(64, 1), (512, 4)])
def test_strassens_algorithm_with_all_levels_is_right_as_such(dtype, size, levels, monkeypatch):
    problem, x = drawn(f"gemm/m{size}n{size}k{size}/{dtype}/NN")
    x = {name: np.clip(values, -1, 1) for name, values in x.items()}
    assert problem.halvings == levels
    numerics, result = {"f32": "strassen", "f64": "strassen64"}[dtype], _strassen(x["a"], x["b"], levels)
    for macs in (0, 2**29):
        monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", macs)
        reference = problem.reference(x, np.random.default_rng(0))
        assert problem.check({"c": result}, reference, numerics).reason is None
        assert levels < 4 or problem.check({"c": result}, reference, dtype.replace("f", "fp")).reason
    coarse = x["a"].astype(np.float32).astype(np.float16) if dtype == "f32" else x["a"].astype(np.float32)
    assert problem.check({"c": coarse.astype(x["a"].dtype) @ x["b"]}, reference, numerics).reason


def test_a_large_value_that_strassens_algorithm_spreads_over_a_row_is_within_the_bound(monkeypatch):
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    problem = REGISTRY.problem("gemm/m512n512k64/f32/NN")
    draw, rng = Draw(problem, 10), np.random.default_rng(10)
    for _ in range(12):
        draw.redraw()
        x = draw.views("C")
        reference = problem.reference(x, rng)
        assert problem.check({"c": _strassen(x["a"], x["b"], 1)}, reference, "strassen").reason is None


@pytest.mark.parametrize(("times", "right"), [(1.6, True), (2.0, False)])
def test_two_edges_share_roundings_so_their_rms_may_vary_more_than_that_of_a_sample(times, right, monkeypatch):
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    problem, x, reference = referenced("gemm/m128n128k64/f32/NN")
    c, bound = _truth(problem, x), problem.tolerance("tf32")
    unit = reference.product.unit(np.arange(128), np.array([0, 127]))[0]
    c[:, [0, 127]] += times * bound.rms * unit * np.random.default_rng(1).choice([-1, 1], (128, 2))
    assert (problem.check({"c": c.astype(np.float32)}, reference, "tf32").reason is None) == right


@pytest.mark.parametrize("numerics", ["f16", "tf32"])
def test_sums_truncated_as_by_tensor_cores_pass_with_their_numerics_and_not_as_fp32(numerics):
    problem, x, reference = referenced("gemm/m48n48k26752/f16.f32/NT")
    a, b = (x[name].astype(np.float64) for name in "ab")
    sums = np.zeros((48, 48), np.float32)
    for p in range(0, 26752, 4):
        exact = sums + a[:, p : p + 4] @ b[:, p : p + 4].T
        nearest = exact.astype(np.float32)
        sums = np.where(abs(nearest) > abs(exact), np.nextafter(nearest, np.float32(0)), nearest)
    assert problem.check({"c": sums}, reference, numerics).reason is None
    assert problem.check({"c": sums}, reference, "fp32").reason is not None


@pytest.mark.parametrize(("storage", "numerics"), [("f16", "f16"), ("bf16", "bf16"), ("f16", "fp32")])
def test_operands_stored_no_more_precisely_than_the_arithmetic_are_not_rounded_again(storage, numerics):
    assert operand_roundoff(numerics, storage) == 0.0
    assert operand_roundoff("tf32", "f32") == 2.0**-10


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_storage_passes_when_rounded_once(dtype):
    problem, x, reference = referenced(f"gemm/m64n64k500/{dtype}/NN")
    rounded = _truth(problem, x).astype(numpy_dtype(dtype))
    assert problem.check({"c": rounded}, reference, "fp32").reason is None
    assert problem.check({"c": np.nextafter(rounded.astype(np.float32), 99) + 0.5}, reference, "fp32").reason


def test_tolerance_grows_with_reduction_length_and_roundoff():
    small, large = (REGISTRY.problem(f"gemm/m8n8k{k}/f32/NN") for k in (100, 10_000))
    for name in NUMERICS:
        if name != "exact":
            for near, far in zip(small.tolerance(name)[:2], large.tolerance(name)[:2], strict=True):
                assert near < far < 1e4 * near
    bounds = [small.tolerance(name) for name in ("fp64", "fp32", "3xtf32", "tf32", "bf16")]
    assert [b.rms for b in bounds] == sorted({b.rms for b in bounds})
    assert [b.largest for b in bounds] == sorted({b.largest for b in bounds})


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("k", [3, gemm.MOST_S8])
def test_integers_must_be_exact(k, whole, monkeypatch):
    if not whole:
        monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    problem, x = drawn(f"gemm/m131n65k{k}/s8.s32/NT/lda+1")
    x["a"][0], x["b"][0] = -128, -128  # c[0, 0] is the largest sum of k products, c[0, 1] the least
    x["b"][1] = 127
    reference = problem.reference(x, np.random.default_rng(0))
    right = (x["a"].astype(float) @ x["b"].astype(float).T).astype(np.int32)  # exact below 2^53
    assert (right[0, 0], right[0, 1]) == (2**14 * k, -128 * 127 * k)
    for numerics in ("exact", "bf16"):
        assert problem.check({"c": right}, reference, numerics).reason is None
        for place in ((0, 0), (0, 1), (70, 40)):
            wrong = right.copy()
            wrong[place] -= 1
            assert problem.check({"c": wrong}, reference, numerics).reason, place


def test_a_wrong_integer_is_reported_with_all_digits():
    problem, x = drawn(f"gemm/m1n1k{gemm.MOST_S8}/s8.s32/NT")
    x["a"][:], x["b"][:] = -128, -128
    reference = problem.reference(x, np.random.default_rng(0))
    outputs = {"c": np.full((1, 1), 2**31 - 2**14 - 1, np.int32)}
    assert problem.check(outputs, reference, "exact").reason == (
        "c[0, 0] is 2147467263, expected 2147467264 within 0 (1 of 1 elements wrong)"
    )
    outputs["c"][:] = -(2**31)
    assert "c[0, 0] was not written" in (problem.check(outputs, reference, "exact").reason or "")


def test_rows_of_groups_are_equal_or_follow_zipf():
    rows = [np.diff(drawn(f"gemm/m{m}n1k1/f32/NT/{groups}")[0].group_rows).tolist() for m, groups in (
        (8192, "groups8-skewed"), (8, "groups3-equal"), (3, "groups4-skewed"),
    )]  # fmt: skip
    assert rows == [[3014, 1507, 1004, 754, 603, 502, 431, 377], [2, 3, 3], [1, 1, 0, 1]]


@pytest.mark.parametrize("layout", ["NN", "NT"])
def test_groups_are_products_of_their_rows_with_their_own_b(layout):
    problem, x, reference = referenced(f"gemm/m31n33k17/f64/{layout}/beta2/groups4-skewed")
    b = x["b"].transpose(0, 2, 1) if layout == "NT" else x["b"]
    # Of 31 rows 12/25, 6/25, 4/25 and 3/25.
    of = np.repeat(np.arange(4), [14, 8, 5, 4])
    right = np.einsum("mk,mkn->mn", x["a"], b[of]) + 2 * x["c"]
    assert problem.check({"c": right}, reference, "fp64").reason is None
    right[15] += 1
    reason = problem.check({"c": right}, reference, "fp64").reason or ""
    assert reason.startswith("c[1, 0] is ")
    assert reason.endswith("; rows are counted from 14, where group 1 begins")


def test_scales_lie_as_cublaslt_reads_them_and_count_as_traffic():
    problem = REGISTRY.problem("gemm/m130n264k300/e4m3.bf16/NT/batch2/scale-blocks")
    scale_a, scale_b = problem.operands()[3:]
    assert (scale_a.name, scale_a.shape, scale_a.ld, scale_a.dtype) == ("scale_a", (2, 3, 130), 132, "f32")
    assert (scale_b.name, scale_b.shape, scale_b.ld, scale_b.dtype) == ("scale_b", (2, 3, 3), 4, "f32")
    plain = REGISTRY.problem("gemm/m130n264k300/e4m3.bf16/NT/batch2")
    assert problem.traffic_bytes - plain.traffic_bytes == 2 * 4 * (3 * 130 + 3 * 3)
    assert (problem.flop, REGISTRY.problem(problem.id)) == (plain.flop, problem)


def test_only_kernels_that_declare_scales_take_them():
    problem = REGISTRY.problem("gemm/m64n64k64/e4m3.f32/NT/scale-blocks")
    able = {k.id for k in REGISTRY.kernels.values() if k.op == "gemm" and k.refuses(problem) is None}
    assert able == {
        "gemm/cuda.wgmma_fp8_blocks",
        "gemm/cublaslt.heuristic",
        *(f"gemm/cublaslt.algo_{i}" for i in range(20)),
    }
    for name, of in (("wgmma_fp8", problem), ("wgmma_fp8_blocks", REGISTRY.problem("gemm/m64n64k64/e4m3.f32/NT"))):
        assert f"no {of.scale} path; it has" in REGISTRY.kernels[f"gemm/cuda.{name}"].refuses(of)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("words", ["", "/alpha-0.5/beta2/batch2", "/epi-update", "/epi-bias-relu", "/scale-blocks"])
def test_the_unit_of_errors_is_the_norm_of_the_terms_of_an_element(words, whole, monkeypatch):
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 2**29 if whole else 0)
    problem, x, reference = referenced(f"gemm/m131n133k140/{'e4m3.f32' if 'scale' in words else 'f32'}/NT{words}")
    square = {name: values.astype(float) ** 2 for name, values in x.items()}
    norm = _truth(replace(problem, alpha=problem.alpha**2, beta=0), square)
    if "update" in words:
        norm = norm * 2.0**-12 + (7 / 8 * x["v"] - x["c"] * 2.0**-17).astype(float) ** 2
    norm = np.sqrt(norm + (square["c"] if "update" in words else 4 * square["c"] if "beta" in words else 0))
    norm = np.hypot(norm, x.get("bias", 0)).reshape(-1, 131, 133) * (3 / math.sqrt(140))
    assert np.allclose(reference.unit, norm[:, reference.rows][:, :, reference.cols], rtol=1e-5)
    for i, (of_rows, of_columns) in enumerate(reference.sums):
        assert np.allclose(of_rows.squares[:, :2], norm[i] ** 2 @ of_rows.weights**2, rtol=1e-4)
        assert np.allclose(of_columns.squares[:, 2:], norm[i, [0, -1]].T ** 2, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "most"), [("f32/NT", 1), ("f32/NT", 16), ("f16/NN", 4), ("f32/NT/alpha0.125/epi-sigmoid", 30)]
)
def test_a_kernel_that_clips_its_operands_is_wrong(options, most):
    problem, x, reference = referenced(f"gemm/m64n64k64/{options}")
    clipped = {name: np.clip(values.astype(float), -most, most) for name, values in x.items()}
    for inputs, is_right in ((x, True), (clipped, False)):
        c = problem.reference(inputs, np.random.default_rng(0)).values[0].astype(reference.values.dtype)
        assert (problem.check({"c": c.astype(x["a"].dtype)}, reference, "fp32").reason is None) == is_right


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "sampled"])
def test_sums_of_14_bits_pass_with_scales_and_those_of_12_do_not(whole, monkeypatch):
    """Hopper adds 32 products to a sum at a time; these 33 numbers are first cut off `bits` bits below the largest."""
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 2**29 if whole else 0)
    problem, x, reference = referenced("gemm/m96n160k1024/e4m3.f32/NT/scale-blocks")
    for bits, passes in ((14, True), (12, False)):
        c = np.zeros((problem.m, problem.n), np.float32)
        for block in range(8):
            sums = np.zeros(c.shape)
            for k in range(128 * block, 128 * block + 128, 32):
                a, b = (x[name][:, k : k + 32].astype(np.float64) for name in "ab")
                products = np.concatenate([sums[None], (a[:, None] * b[None]).transpose(2, 0, 1)])
                unit = np.exp2(np.frexp(abs(products).max(axis=0))[1] - bits)
                sums = np.floor(products / unit).sum(axis=0) * unit
            scale = np.outer(x["scale_a"][block], np.repeat(x["scale_b"][:, block], 128)[: problem.n])
            c += scale.astype(np.float32) * sums.astype(np.float32)
        assert (problem.check({"c": c}, reference, "e4m3").reason is None) == passes, bits


FUSED, TWO_STEP = "gemm/cuda.async_fused", "gemm/cuda.async_two_step"
EPILOGUES = ("bias-relu", "sigmoid", "update")
CPU = ("gemm/numpy.matmul", "gemm/numpy.two_step", "gemm/numpy.fused")


def _by_definition(problem, x):
    """Return C and V of one product, computed element by element with Python's numbers."""
    a = x["a"] if problem.op_a == "N" else x["a"].T
    b = x["b"] if problem.op_b == "N" else x["b"].T
    c, v = np.zeros((problem.m, problem.n)), np.zeros((problem.m, problem.n))
    for i, j in np.ndindex(c.shape):
        value = problem.alpha * math.fsum(float(p) * float(q) for p, q in zip(a[i], b[:, j], strict=True))
        value += problem.beta * float(x["c"][i, j]) if problem.beta else 0.0
        if problem.epilogue == "bias-relu":
            c[i, j] = max(0.0, value + float(x["bias"][j]))
        elif problem.epilogue == "sigmoid":
            c[i, j] = 0.5 + 0.5 * math.tanh(value / 2)
        else:
            weight = float(x["c"][i, j])
            v[i, j] = 7 / 8 * float(x["v"][i, j]) - (value + weight / 2048) / 64
            c[i, j] = weight + v[i, j]
    return c, v


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "words", ["epi-bias-relu", "alpha2/beta0.5/epi-bias-relu", "alpha-0.5/ldc+3/epi-sigmoid", "alpha2/epi-update"]
)
def test_reference_is_the_formula(layout, words):
    problem, x, reference = referenced(f"gemm/m7n9k5/f64/{layout}/{words}")
    c, v = _by_definition(problem, x)
    assert np.allclose(reference.values[0], c, rtol=0, atol=1e-14)
    assert [output.name for output in reference.beside] == (["v"] if "update" in words else [])
    assert all(np.allclose(output.values[0], v, rtol=0, atol=1e-14) for output in reference.beside)


def test_each_product_of_a_batch_has_its_own_bias_and_velocity():
    for name, words in (("bias", "epi-bias-relu"), ("v", "epi-update")):
        _, x, whole = referenced(f"gemm/m3n4k5/f64/NT/batch2/{words}")
        single = REGISTRY.problem(f"gemm/m3n4k5/f64/NT/{words}")
        for i in range(2):
            c, v = _by_definition(single, {each: x[each][i] for each in ("a", "b", "c", name) if each in x})
            assert np.allclose(whole.values[i], c, rtol=0, atol=1e-14)
            assert all(np.allclose(output.values[i], v, rtol=0, atol=1e-14) for output in whole.beside)


@pytest.mark.parametrize(
    ("words", "operands", "nbytes"),
    [
        ("NT/epi-bias-relu", {"bias": ("in", (5,))}, 4 * (21 + 35 + 15 + 5)),
        ("NT/epi-sigmoid", {}, 4 * (21 + 35 + 15)),
        ("TN/ldc+2/epi-update", {"v": ("inout", (3, 5))}, 4 * (21 + 35 + 2 * 15 + 2 * 15)),
    ],
)
def test_an_epilogue_adds_its_operands_and_their_bytes_and_no_flop(words, operands, nbytes):
    problem = REGISTRY.problem(f"gemm/m3n5k7/f32/{words}")
    assert {o.name: (o.role, o.shape) for o in problem.operands()[3:]} == operands
    assert (problem.traffic_bytes, problem.flop) == (nbytes, 2 * 3 * 5 * 7)
    assert REGISTRY.problem(problem.id) == problem
    assert len({o.ld for o in problem.operands() if o.name in "cv"}) == 1


def test_weights_in_single_precision_are_updated_by_operands_of_16_bits():
    assert REGISTRY.problem("gemm/m3n5k7/bf16.f32/TN/epi-update").operands()[3].dtype == "f32"


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_only_kernels_that_declare_epilogues_take_them(epilogue):
    problem = REGISTRY.problem(f"gemm/m64n64k64/f32/{'TN' if epilogue == 'update' else 'NT'}/epi-{epilogue}")
    reasons = {kernel.id: kernel.outside(problem) for kernel in REGISTRY.kernels.values() if kernel.op == "gemm"}
    assert {name for name, reason in reasons.items() if not reason} == {*CPU, FUSED, TWO_STEP}
    assert all("path; it has" in reason for reason in reasons.values() if reason)


@pytest.mark.parametrize("options", ["f32/NT", "f64/TN/alpha-0.5", "f32/NN/ldc+3", "f32/TT/beta0.5"])
@pytest.mark.parametrize("sizes", ["m1n1k1", "m300n33k17"])
def test_kernels_of_the_cpu_are_right_or_refuse_with_a_reason(sizes, options):
    for epilogue in EPILOGUES[: 2 if "beta" in options else 3]:
        reasons = failures(f"gemm/{sizes}/{options}/epi-{epilogue}", *CPU)
        assert all(re.match("unsupported: .*(padding|beta 0.5 path)", reason) for reason in reasons.values()), reasons


def test_the_baseline_takes_batches():
    for epilogue in EPILOGUES:
        assert not failures(f"gemm/m5n7k3/f32/NN/alpha2/batch3/ldc+1/epi-{epilogue}", CPU[0])


def test_a_fused_update_has_no_scratch_for_the_whole_gradient():
    scratch = {row.kernel: row.scratch_bytes for row in verified("gemm/m1000n9k3/f32/TN/epi-update", *CPU)}
    assert scratch["gemm/numpy.fused"] == 2 * 2 * 128 * 9 * 4  # two buffers of 128 rows for each of two threads
    assert scratch["gemm/numpy.two_step"] == 2 * 1000 * 9 * 4


def test_activations_of_large_problems_are_compared_element_by_element(monkeypatch):
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    problem, _, reference = referenced("gemm/m131n97k20/f32/NT/alpha0.25/epi-sigmoid")
    right = reference.values[0].astype(np.float32)
    assert problem.check({"c": right}, reference, "fp32").reason is None
    right[77, 55] += 1e-3
    assert problem.check({"c": right}, reference, "fp32").reason.startswith("c[77, 55] is ")


@pytest.mark.parametrize("output", ["c", "v"])
@pytest.mark.parametrize("error", [1e-3, np.nan])
def test_an_update_of_many_weights_is_sampled_and_a_wrong_one_is_named(output, error, monkeypatch):
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    problem, x, reference = referenced("gemm/m531n497k20/f32/NT/epi-update")
    v = 7 / 8 * x["v"] - (x["a"].astype(float) @ x["b"].T.astype(float) + x["c"] / 2048) / 64
    outputs = {"c": (x["c"] + v).astype(np.float32), "v": v.astype(np.float32)}
    assert problem.check(outputs, reference, "fp32").reason is None
    row = next(i for i in range(531) if i not in reference.rows and i not in reference.beside[0].rows)
    outputs[output][row, 5] += error
    assert f"checksum of {output} by row[{row}, " in problem.check(outputs, reference, "fp32").reason


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_two_steps_have_the_tiles_of_the_fused_kernel_and_scratch_for_all_sums(epilogue):
    layout = "TN" if epilogue == "update" else "NT"
    problem = f"gemm/m132n72k40/f32/{layout}/batch3/epi-{epilogue}"
    ((_, call),), (first, second) = chosen(FUSED, problem).calls, chosen(TWO_STEP, problem).calls
    assert (call.grid, call.block, call.shared_bytes) == (first[1].grid, first[1].block, first[1].shared_bytes)
    (sums,) = {arg for arg in first[1].args if isinstance(arg, Scratch)}
    assert sums.nbytes == 3 * 132 * 72 * 4
    assert second[1].grid == (math.ceil(72 / 128), math.ceil(132 / 8), 3)
    assert second[0].startswith("sgemm_epilogue<")
    assert second[0].endswith(", 4>")


def test_layouts_that_no_layer_has_are_refused():
    taken = {(e, ops) for e in EPILOGUES for ops in LAYOUTS if not refusal(FUSED, f"gemm/m8n8k8/f32/{ops}/epi-{e}")}
    assert taken == {*((e, ops) for e in EPILOGUES[:2] for ops in ("NN", "NT")), ("update", "TN")}


def test_a_launch_restores_the_threads_of_blas():
    import scipy.linalg.blas  # noqa: F401
    import threadpoolctl

    def threads():
        return [lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]

    launch, *_ = set_up("gemm/m30n20k10/f32/NN/epi-sigmoid", "gemm/numpy.fused", 3)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        launch()
        assert set(threads()) == {2}
