"""Ids of problems: bad ones are refused in one line, others are printed as they were read. The work of problems."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from kernelmark.bench.plan import verdict
from kernelmark.bench.plan.dtypes import numerics_missing, numpy_dtype
from kernelmark.bench.plan.verdict import Bound
from kernelmark.kernels.conv import _reference as conv_reference
from kernelmark.kernels.fma.problem import LONGEST
from kernelmark.kernels.gemm import _reference as gemm_reference
from support.kernels import REGISTRY, drawn

#: By operation: the rest of an id, and a part of the refusal.
REFUSED = {
    "aggregate": [
        ("w1n8/f32", "w is 1, expected `int` >= 2"),
        ("w2n0/f32", "n is 0, expected `int` >= 1"),
        ("w2n8/i32", "dtype is 'i32', expected one of f64, f32"),
        ("w2n8/f32/ef/update", "ends in 'ef/update', expected nothing, update, ef or update/ef"),
    ],
    "conv": [
        ("n1c4h3w9k4r5s3pad0x1/f32/nchw/fprop", "r is 5, expected at most the padded image's 3"),
        ("n1c4h9w3k4r3s5/f32/nchw/fprop", "s is 5, expected at most the padded image's 3"),
        ("n1c4h6w9k4r4s3/f32/nchw/fprop/dil2", "r is 4, which spans 7 when dilated by 2, expected at most"),
        ("n1c4h9w9k6r3s3/f32/nchw/fprop/g3", "groups is 3, expected a divisor of c = 4"),
        ("n1c6h9w9k4r3s3/f32/nchw/fprop/g3", "groups is 3, expected a divisor of k = 4"),
        ("n1c4h9w9k4r3s3pad-1/f32/nchw/fprop", "pad is '-1', expected integers >= 0"),
        ("n1c4h9w9k4r3s3pad007/f32/nchw/fprop", "pad is '007', expected integers >= 0, without leading zeros"),
        ("n1c4h9w9k4r3s3pad1x2x3/f32/nchw/fprop", "pad is '1x2x3', expected integers >= 0"),
        ("n1c4h9w9k4r3s3stride0/f32/nchw/fprop", "stride is '0', expected integers >= 1"),
        ("n1c4h9w9k4r3s3stride1-2/f32/nchw/fprop", "stride is '1-2', expected integers >= 1"),
        ("n1c4h9w9k4r3s3/f32/nchw/fprop/dil0", "dilation is '0', expected integers >= 1"),
        ("n1c4h9w9k4r3s3/f32/nchw/fprop/g0", "groups is 0, expected"),
        ("n1c4h9w0k4r3s3/f32/nchw/fprop", "w is 0, expected"),
        ("n1c4h9w9k4r3s3/f64/nchw/fprop", "dtype is 'f64', expected one of f32, f16, bf16"),
        ("n1c4h9w9k4r3s3/f32/nchw/backward", "direction is 'backward', expected one of fprop, dgrad, wgrad"),
        ("n1c4h9w9k4r3s3/f32/chwn/fprop", "layout is 'chwn', expected one of nchw, nhwc"),
        ("n1c4h9w9k4r3s3/f32/nchw", "has no layout and direction"),
        ("n1c4h9w9k4r3s3/f32/nchw/fprop/x2", "'x2' is not a part of a conv id; expected dilN or gN"),
        ("n1c4h9w9k4r3/f32/nchw/fprop", "sizes are 'n1c4h9w9k4r3', expected"),
    ],
    "fft": [
        ("b1h1w0/f32/c2c", "w is 0, expected `int` >= 1"),
        ("b1w8/f32/c2c", "sizes are 'b1w8', expected b<int>h<int>w<int>"),
        ("b1h1w8/f16/c2c", "dtype is 'f16', expected one of f64, f32"),
        ("b1h1w8/f32", "ends in '', expected r2c, c2r, c2c or c2c/inverse"),
        ("b1h1w8/f32/r2r", "kind is 'r2r', expected one of r2c, c2r, c2c"),
        ("b1h1w8/f32/r2c/inverse", "ends in 'r2c/inverse', expected r2c, c2r, c2c or c2c/inverse"),
        ("b1h1w8/f32/c2c/forward", "ends in 'c2c/forward', expected r2c, c2r, c2c or c2c/inverse"),
    ],
    "fma": [
        ("n7k9/f32/fma", "'fma'"),
        ("n7k9/f32/mma/mma", "'mma/mma'"),
        (f"n7k{LONGEST + 1}/f32", f"k is {LONGEST + 1}, expected at most {LONGEST}"),
    ],
    "gemm": [
        ("m2n2k131072/s8.s32/NT", "k is 131072, expected at most 131071 with s8.s32: longer sums may exceed 2^31 - 1"),
        ("m2n2k2/s8.s32/NT/alpha2", "alpha is 2.0, expected 1 with s8.s32"),
        ("m2n2k2/f32/NT/alpha1e38", "alpha is 1e+38, expected 0 or a magnitude from 1e-30 to 1e+30, or storage f64"),
        ("m2n2k2/f16/NT/beta-1e-45", "beta is -1e-45, expected 0 or a magnitude from 1e-30 to 2048, or storage f64"),
        ("m2n2k4096/f16/NT/alpha33", "alpha is 33, expected 0 or a magnitude from 1e-30 to 32, or storage f16.f32"),
        ("m2n2k2/f64/NT/alpha1e308", "alpha is 1e+308, expected 0 or a magnitude from 1e-100 to 1e+100"),
        ("m2n2k2/s8.s32/NT/beta1", "beta is 1.0, expected 0 with s8.s32"),
        ("m2n2k2/s8.s32/NT/epi-sigmoid", "epilogue is sigmoid, expected plain with s8.s32"),
        ("m3n5k7/f16/NT/scale-blocks", "the storage type is f16, expected e4m3.f32 or e4m3.bf16 with scale-blocks"),
        ("m3n5k7/e5m2.f32/NT/scale-blocks", "the storage type is e5m2.f32, expected e4m3.f32 or e4m3.bf16"),
        ("m3n5k7/e4m3.f32/TN/scale-blocks", "the layout is TN, expected NT with scale-blocks"),
        ("m3n5k7/e4m3.f32/NT/epi-sigmoid/scale-blocks", "the epilogue is sigmoid, expected plain with scale-blocks"),
        ("m3n5k7/e4m3.f32/NT/scale-rows", "scale is 'rows', expected one of none, blocks"),
        ("m3n5k7/e4m3.f32/NT/scale", "'scale' is not a part of a gemm id; expected alphaX"),
        ("m3n5k7/f32/TN/groups2-equal", "the layout is TN, expected NN or NT with groups2-equal"),
        ("m3n5k7/s8.s32/NN/groups2-equal", "the storage type is s8.s32, expected f64 or f32 or"),
        ("m3n5k7/f32/NT/batch2/groups2-equal", "batch is 2, expected 1 with groups2-equal"),
        ("m3n5k7/f32/NT/epi-sigmoid/groups2-skewed", "the epilogue is sigmoid, expected plain with groups2-skewed"),
        ("m3n5k7/f32/NT/groups2-none", "groups is 2, expected 1 unless the grouping is equal"),
        ("m3n5k7/f32/NT/groups2", "grouping is '', expected one of none, equal, skewed"),
        ("m3n5k7/f32/NT/groups02-equal", "'groups02-equal' needs a whole number without leading zeros"),
        ("m3n5k7/f32/NT/epi-gelu", "epilogue is 'gelu', expected one of plain, bias-relu, sigmoid, update"),
        ("m3n5k7/f32/NT/epi", "'epi' is not a part of a gemm id; expected alphaX"),
        ("m3n5k7/f32/TN/beta1/epi-update", "beta is 1, expected 0 with epi-update, which reads C itself"),
        ("m3n5k7/bf16/TN/epi-update", "C is stored as bf16, expected f64 or f32 for the weights"),
    ],
    "transfer": [
        ("n7/f32", "expected a direction"),
        ("n7/f32/h2h/work0", "expected a direction"),
        ("n7/f32/h2h/work64/node0", "expected a direction"),
        ("n7/f32/h2g", "direction is 'h2g', expected one of h2d, d2h"),
        ("n7/i8/h2h", "dtype is 'i8', expected one of f64, f32"),
        ("n7/f32/h2h/node1024", "node is 1024"),
        ("n7/f32/h2h/work4097", "work is 4097"),
        ("n0/f32/h2h", "n is 0"),
    ],
    "transpose": [(f"{batch}m5n7/f32/out", f"{batch}m5n7") for batch in ("b", "b08")],
}
IDS = [
    *(f"fma/{text}" for text in ("n7k9/f32", "n7k9/f64", "n7k9/f32/mma", "n7k9/f32/fed")),
    *("fma/n1k524288/bf16/mma", "fma/n98304k32768/f32"),
    *("transfer/n51200000/f32/h2d", "transfer/n7/f64/bidir", "transfer/n7/f16/d2d/work64"),
    *("transfer/n1/bf16/h2h/node0", "transfer/n9/f32/p2p/node12/work4096"),
    *("fft/b64h32w32/f32/r2c", "fft/b1h1w7/f64/c2r", "fft/b2h3w4/f32/c2c", "fft/b2h3w4/f32/c2c/inverse"),
    *("transpose/b8m64n3136/f32/out", "transpose/m64n3136/f32/out", "transpose/m1024n26752/f32/in"),
    *("gemm/m3n5k7/f64/TT/beta0.25/batch2/zeros", "transpose/b2m3n4/f16/in/normal", "copy/m3n4/bf16/ints"),
    *("fft/b2h3w4/f32/c2c/inverse/normal", "conv/n1c2h3w3k2r1s1/f32/nhwc/dgrad/g2/zeros"),
]
#: Nominal operations and compulsory traffic; None if another row has it.
COUNTED = [
    ("fft/b1h1w1/f32/c2c", 0, None),
    ("fft/b3h1w1024/f32/c2c", 3 * 5 * 1024 * 10, None),
    ("fft/b3h1w1024/f32/r2c", 3 * 5 * 1024 * 5, None),
    ("fft/b64h32w32/f32/c2r", 64 * 5 * 1024 * 5, None),
    ("fft/b1h3w1/f64/c2c/inverse", 24, None),
    *[(f"fft/b2h5w6/f32/{kind}", None, 4 * 2 * 5 * (6 + 2 * 4)) for kind in ("r2c", "c2r")],
    ("fft/b2h5w6/f64/c2c", None, 8 * 2 * 5 * 6 * 2 * 2),
    ("fma/n12k34/f64", 2 * 12 * 34, None),
    ("fma/n12k34/f16/mma", 2 * 12 * 34, None),
    ("transfer/n51200000/f32/h2d", None, 204_800_000),
    ("transfer/n10/f64/bidir", None, 160),
    ("transfer/n10/f64/bidir/work3", 120, None),
    ("transpose/b8m64n3136/f32/out", None, 2 * 4 * 8 * 64 * 3136),
    ("gemm/m1024n2048k26752/f32/NT", 2 * 1024 * 2048 * 26752, 4 * (1024 * 26752 + 2048 * 26752 + 1024 * 2048)),
    ("gemm/m8n8k8/f32/NN", None, 3 * 8 * 8 * 4),
    ("gemm/m8n8k8/f32/NN/beta1", None, 4 * 8 * 8 * 4),
    ("gemm/m8n8k8/f32/NN/alpha0", 0, 8 * 8 * 4),  # BLAS returns before it looks at A and B
    ("gemm/m8n8k8/f32/NN/alpha0/beta1", 0, 2 * 8 * 8 * 4),
    ("gemm/m2n5k7/f32/NT/groups128-equal", None, 4 * (2 * 7 + 2 * 5 * 7 + 2 * 5)),  # of 128 matrices B, two are read
    # VGG-16 conv3_2: 2 x 256 x 256 x 9 x 56^2; 256 x 56^2 twice and 256 x 256 x 9 elements of 4 bytes.
    ("conv/n1c256h56w56k256r3s3pad1/f32/nchw/fprop", 3_699_376_128, 8_781_824),
    ("conv/n1c256h56w56k256r3s3pad1/f32/nhwc/wgrad", 3_699_376_128, 8_781_824),
    # ResNet-50 conv1, 112 x 112 outputs; in half precision.
    ("conv/n1c3h224w224k64r7s7pad3stride2/f16/nhwc/fprop", 236_027_904, 1_925_504),
    # MobileNet, depthwise.
    ("conv/n1c32h112w112k32r3s3pad1/f32/nchw/dgrad/g32", 7_225_344, 3_212_416),
]


@pytest.mark.parametrize(
    ("text", "refusal"), [(f"{op}/{text}", refusal) for op, rows in REFUSED.items() for text, refusal in rows]
)
def test_a_bad_id_is_refused_in_one_line_that_names_it(text, refusal, complaint):
    line = complaint(lambda: REGISTRY.problem(text))
    assert line.startswith(text)
    assert refusal in line


@pytest.mark.parametrize("text", IDS)
def test_an_id_is_printed_as_it_was_read(text):
    assert REGISTRY.problem(text).id == text


@pytest.mark.parametrize(("text", "flop", "traffic"), COUNTED)
def test_operations_and_bytes_are_those_of_the_definition(text, flop, traffic):
    problem = REGISTRY.problem(text)
    assert flop in (None, problem.flop)
    assert traffic in (None, problem.traffic_bytes)


@pytest.mark.parametrize(
    ("text", "numerics", "least"),
    [
        ("gemm/m8n8k8/f32/NN", "fp32", 2 * 8**3),
        ("gemm/m128n200k300/f64/NN", "strassen64", 2 * 128 * 200 * 300 * 49 // 64),
        ("fft/b3h1w1024/f32/c2c", "fp32", 3 * 5 * 1024 * 10 // 4),
        ("fft/b3h1w1024/f64/c2c", "dft64", 3 * 2 * 1024**2),
        ("fft/b3h5w7/f32/r2c", "dft", 3 * 35 * (5 + 7) // 2),
        ("fft/b3h5w7/f32/c2c", "dft", 2 * 3 * 35 * (5 + 7)),
        ("fft/b3h1w2/f32/c2r", "dft", 3 * 4 // 2),
        ("conv/n2c3h8w8k5r3s3/f32/nchw/fprop", "fp32", 2 * 2 * 3 * 5 * 36 * 9),
        ("conv/n2c3h8w8k5r3s3/f32/nchw/dgrad", "winograd", 2 * 2 * 3 * 5 * 36 * 4),
        ("conv/n2c3h8w8k5r3s3/f32/nchw/wgrad", "winograd4", 2 * 2 * 3 * 5 * 36 * 9 // 4),
        ("conv/n2c3h8w8k5r3s3/f32/nchw/fprop", "fft", 3 * 2 * 3 * 5 * 36),
        ("conv/n2c3h8w8k5r1s1/f32/nchw/fprop", "fft", 2 * 2 * 3 * 5 * 64),
    ],
)
def test_the_least_operations_are_those_of_the_algorithm_named_by_the_numerics(text, numerics, least):
    assert REGISTRY.problem(text).least_flop(numerics) == least


@pytest.mark.parametrize("tail", ["", "pad2", "pad0-3x1stride2", "pad4stride3", "pad2x0stride1x3"])
@pytest.mark.parametrize("dilation", ["", "/dil2"])
def test_products_with_padding_need_not_be_executed(tail, dilation):
    p = REGISTRY.problem(f"conv/n1c1h7w9k1r3s2{tail}/f32/nchw/fprop{dilation}")
    rows, columns = (
        sum(0 <= out * stride + tap * dil - pad.before < size for out, tap in product(range(outs), range(taps)))
        for outs, taps, size, stride, dil, pad in (
            (p.p, p.r, p.h, p.stride_h, p.dilation_h, p.pad_h),
            (p.q, p.s, p.w, p.stride_w, p.dilation_w, p.pad_w),
        )
    )
    assert p.least_flop("fp32") == 2 * rows * columns <= p.flop


@pytest.mark.parametrize("kernel", ["conv/torch.conv2d", "conv/cuda.direct"])
def test_kernels_that_skip_padding_declare_fewer_operations(kernel):
    p = REGISTRY.problem("conv/n2c128h16w16k128r3s3pad18/f32/nhwc/fprop/dil18")  # eight of nine taps read only padding
    assert REGISTRY.kernels[kernel].executed_flop(p) == p.flop // 9


@pytest.mark.parametrize(
    ("numerics", "device", "capability", "missing"),
    [
        ("fp32", "cpu", 0, None),
        ("bf16", "cpu", 0, None),
        ("tf32", "cpu", 0, "declares tf32, which no CPU has"),
        ("e4m3", "cpu", 0, "declares e4m3, which no CPU has"),
        ("tf32", "cuda", 80, None),
        ("3xtf32", "cuda", 75, "declares 3xtf32, which needs a compute capability of 8.0; this GPU has 7.5"),
        ("e5m2", "cuda", 86, "declares e5m2, which needs a compute capability of 8.9; this GPU has 8.6"),
        ("tf32", "fake", 0, None),
    ],
)
def test_numerics_that_a_device_lacks_are_named(numerics, device, capability, missing):
    assert numerics_missing(numerics, device, capability) == missing


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "gemm/m31n33k17/f32/NN",
        "gemm/m31n33k17/f32/NT/batch3",
        "gemm/m31n33k17/f32/NN/groups4-skewed",
        "gemm/m31n33k17/f32/NN/batch2/epi-update",
        "conv/n2c6h9w7k4r3s3/f32/nchw/fprop",
        "conv/n2c6h9w7k4r1s1stride2/f32/nchw/dgrad/g2",
    ],
)
def test_the_rates_of_false_alarms_hold_for_all_comparisons_of_a_verdict_together(text, sampled, monkeypatch):
    """Each of N comparisons of a kind may raise false alarms at 1/N of the rate; the shares of a kind add up to one."""
    problem, x = drawn(text)
    whole = problem.reference(x, np.random.default_rng(0))
    outputs = (operand for operand in problem.operands() if operand.role != "in")
    right = {
        operand.name: np.reshape(each.values, operand.shape).astype(numpy_dtype(operand.dtype))
        for operand, each in zip(outputs, (whole, *getattr(whole, "beside", ())), strict=True)
    }
    shares = Counter()

    def compare(name, got, want, bound, dtype):
        if isinstance(bound, Bound):
            shares["edges" if name.startswith("first and last") else "rms"] += 1 / bound.comparisons
        return verdict.compare(name, got, want, bound, dtype)

    def sums_limit(variance, own_error, verdicts=1):
        shares["sums"] += 1 / verdicts
        return verdict.sums_limit(variance, own_error, verdicts)

    for reference in (gemm_reference, conv_reference):
        monkeypatch.setattr(reference, "compare", compare)
        monkeypatch.setattr(reference, "sums_limit", sums_limit)
        if sampled:
            monkeypatch.setattr(reference, "WHOLE_REFERENCE_MACS", 0)
    reference = problem.reference(x, np.random.default_rng(0))
    assert problem.check(right, reference, "fp32").reason is None
    kinds = {"rms", "sums"} | ({"edges"} if problem.op == "gemm" else set()) if sampled else {"rms"}
    assert shares == pytest.approx(dict.fromkeys(kinds, 1.0))


def test_the_rms_of_one_of_many_comparisons_may_be_a_little_larger():
    for count, most in ((32, 1.2), (1000, 1.04), (10**6, 1.01)):
        alone, among = (Bound(1.0, 0.1, "f32", comparisons=number).rms_limit(count) for number in (1, 100))
        assert alone < among < most * alone
