"""A problem and its id say the same."""

from itertools import product

import pytest

DTYPES = ("f64", "f32", "f16", "bf16")
SIZES = (1, 31, 33, 127, 26752)


def gemms(problem_class):
    options = [
        {},
        {"beta": 1.0},
        {"alpha": -0.5, "beta": 0.25},
        {"batch": 8},
        {"lda_pad": 3},
        {"beta": 1.0, "batch": 8, "lda_pad": 3, "ldb_pad": 1, "ldc_pad": 7},
        {"alpha": 1e-30, "beta": 1e30},
    ]
    dtypes, layouts = (*DTYPES, "f16.f32", "bf16.f32", "e4m3.f32", "e4m3.bf16", "e5m2.f32"), ("NN", "NT", "TN", "TT")
    for m, dtype, layout, option in product(SIZES, dtypes, layouts, options):
        yield problem_class(m=m, n=m + 1, k=2 * m, dtype=dtype, layout=layout, **option)
    for m, layout, option in product(SIZES, layouts, ({}, {"batch": 8, "ldb_pad": 1})):
        yield problem_class(m=m, n=m + 1, k=min(2 * m, 2**17 - 1), dtype="s8.s32", layout=layout, **option)


def transposes(problem_class):
    for m, n, dtype, place in product(SIZES, SIZES, DTYPES, ("out", "in")):
        yield problem_class(m=m, n=n, dtype=dtype, place=place)


def copies(problem_class):
    for m, n, dtype in product(SIZES, SIZES, DTYPES):
        yield problem_class(m=m, n=n, dtype=dtype)


@pytest.mark.parametrize(
    ("op", "problems", "count"), [("gemm", gemms, 1300), ("transpose", transposes, 200), ("copy", copies, 100)]
)
def test_every_problem_is_found_again_by_its_id(registry, op, problems, count):
    made = list(problems(registry.operations[op]))
    assert [p.id for p in made if registry.problem(p.id) != p] == []
    assert len({p.id for p in made}) == len(made) == count


@pytest.mark.parametrize(
    "text",
    [
        "gemm/m1024n2048k26752/f32/NT",
        "gemm/m1024n2048k26752/f32/NT/beta1",
        "gemm/m64n64k64/f16.f32/TN/batch8",
        "gemm/m3n5k7/f64/TT/alpha-0.5/beta0.25/batch2/lda+3/ldb+1/ldc+2",
        "transpose/m1024n26752/f32/out",
        "transpose/m1024n26752/f32/in",
        "copy/m2048n26752/f32",
    ],
)
def test_ids_of_the_contract_are_their_problems_ids(registry, text):
    assert registry.problem(text).id == text


def test_defaults_are_left_out_of_an_id(registry):
    assert registry.problem("gemm/m2n3k4/f32/NN/alpha1/beta0/batch1/lda+0").id == "gemm/m2n3k4/f32/NN"


def test_an_id_says_what_its_parts_mean(registry):
    p = registry.problem("gemm/m2n3k4/f16.f32/NT/alpha2/beta1/batch5/lda+6/ldb+7/ldc+8")
    assert (p.op, p.m, p.n, p.k, p.dtype, p.layout) == ("gemm", 2, 3, 4, "f16.f32", "NT")
    assert (p.alpha, p.beta, p.batch, p.lda_pad, p.ldb_pad, p.ldc_pad) == (2, 1, 5, 6, 7, 8)


@pytest.mark.parametrize("beta", [0.1234567, 1 / 3])
def test_a_scalar_of_many_digits_survives_its_id(registry, beta):
    problem = registry.operations["gemm"](m=1, n=1, k=1, dtype="f32", beta=beta)
    assert registry.problem(problem.id) == problem


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("gem/m1n1k1/f32/NN", "'gem'", "fma, gemm, transfer, transpose"),
        ("", "''", "fma, gemm, transfer, transpose"),
        ("gemm/", "''", "m<int>n<int>k<int>"),
        ("gemm/m8n8/f32/NT", "'m8n8'", "m<int>n<int>k<int>"),
        ("gemm/m-8n8k8/f32/NT", "'m-8n8k8'", "m<int>n<int>k<int>"),
        ("gemm/m8n8k8x/f32/NT", "'m8n8k8x'", "m<int>n<int>k<int>"),
        ("gemm/m0n8k8/f32/NT", "m is 0", ">= 1"),
        ("gemm/m8n8k8/f31/NT", "'f31'", "f64, f32, f16, bf16"),
        ("gemm/m8n8k8/f32", "no layout", "NN, NT, TN, TT"),
        ("gemm/m8n8k8/f32/TX", "'TX'", "NN, NT, TN, TT"),
        ("gemm/m8n8k8/f32/NT/gamma1", "'gamma1'", "alphaX, betaX, batchN"),
        ("gemm/m8n8k8/f32/NT/betax", "'betax'", "number"),
        ("gemm/m8n8k8/f32/NT/betanan", "nan", "finite"),
        ("gemm/m8n8k8/f32/NT/alphainf", "inf", "finite"),
        ("gemm/m8n8k8/f32/NT/batch0", "batch is 0", ">= 1"),
        ("gemm/m8n8k8/f32/NT/batch1.5", "'batch1.5'", "number"),
        ("gemm/m8n8k8/f32/NT/lda+-3", "'lda+-3'", "whole number"),
        ("gemm/m08n8k8/f32/NT", "'m08n8k8'", "without leading zeros"),
        ("gemm/m٣n8k8/f32/NT", "'m٣n8k8'", "m<int>n<int>k<int>"),
        ("gemm/m8n8k8/f32/NT/batch02", "'batch02'", "without leading zeros"),
        ("gemm/m8n8k8/f32/NT/beta1_0", "'beta1_0'", "finite number"),
        ("gemm/m8n8k8/f32/NT/beta٣", "'beta٣'", "finite number"),
        ("gemm/m8n8k8/f32/NT/beta1e999", "beta is inf", "finite number"),
        ("conv/n1c4h9w9k4r3s3pad٣/f32/nchw/fprop", "'n1c4h9w9k4r3s3pad٣'", "[pad<int>]"),
        ("conv/n1c4h9w9k4r3s3/f32/nchw/fprop/dil02", "'02'", "without leading zeros"),
        ("conv/n1c4h9w9k4r3s3/f32/nchw/fprop/g02", "'g02'", "gN"),
        ("gemm/m8n8k8/f32/NT/lda3", "'lda3'", "lda+N"),
        ("transpose/m8n8/f32", "''", "/out or /in"),
        ("transpose/m8n8/f32/up", "'up'", "out, in"),
        ("transpose/m8n8/f32/out/in", "'out/in'", "/out or /in"),
        ("transpose/m8n8k8/f32/out", "'m8n8k8'", "m<int>n<int>"),
        ("copy/m8n8/f32/out", "'out'", "copy"),
        ("copy/m8n0/f32", "n is 0", ">= 1"),
        ("copy/m8n8/f16.f32", "'f16.f32'", "f64, f32, f16, bf16"),
    ],
)
def test_a_bad_id_is_one_line_with_subject_found_and_expected(registry, complaint, text, found, expected):
    line = complaint(lambda: registry.problem(text))
    assert line.startswith(f"{text}: ")
    assert found in line
    assert expected in line


def test_a_size_of_more_digits_than_python_reads_is_refused_in_one_line(registry, complaint):
    assert complaint(lambda: registry.problem(f"copy/m{'9' * 5000}n8/f32")).startswith("copy/m999")
