"""Scales of blocks: the problem, its truth, its tolerance, and which kernels take it."""

import numpy as np
import pytest

from kernelmark.kernels.gemm import _reference, _scales
from support.kernels import REGISTRY, drawn

BLOCKS = "gemm/m131n264k300/e4m3.f32/NT"


def truth(problem, x):
    """C by its definition: each element of A and B times the scale of its block."""
    a, b, c = (x[name].astype(np.float64) for name in ("a", "b", "c"))
    rows, columns, along_k = (np.arange(size) for size in (problem.m, problem.n, problem.k))
    scale_a, scale_b = (x[name].astype(np.float64) for name in ("scale_a", "scale_b"))
    a *= scale_a[..., along_k[None] // 128, rows[:, None]]
    b *= scale_b[..., columns[:, None] // 128, along_k[None] // 128]
    return problem.alpha * a @ b.swapaxes(-1, -2) + problem.beta * c


@pytest.mark.parametrize("options", ["/beta1", "/alpha-0.5/beta2/lda+3/ldb+1/ldc+2", "/beta1/batch2"])
def test_the_reference_is_the_definition(options):
    problem, x = drawn(f"{BLOCKS}{options}/scale-blocks")
    reference = problem.reference(x, np.random.default_rng(0))
    assert np.allclose(reference.values.reshape(x["c"].shape), truth(problem, x), rtol=0, atol=1e-13)


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


def test_errors_may_be_as_large_as_the_scales_of_the_element_that_has_the_largest():
    """The second of two blocks has half as many products, and counts half as much."""
    scale_a, scale_b = np.float32([[[0.5, 1.0], [0.25, 0.25]]]), np.float32([[[1.0, 0.5]]])
    assert _scales.factor(scale_a, scale_b, 192) == pytest.approx(np.sqrt((2 * 1.0**2 + (0.25 * 0.5) ** 2) / 3))
    problem = REGISTRY.problem("gemm/m8n8k4096/e4m3.f32/NT/scale-blocks")
    unscaled, scaled = problem.tolerance("e4m3"), problem.tolerance("e4m3", "c", 0.25)
    assert scaled[:2] == pytest.approx([limit / 4 for limit in unscaled[:2]], rel=0.05)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "sampled"])
def test_sums_of_14_bits_pass_with_scales_and_those_of_12_do_not(whole, monkeypatch):
    """As Hopper adds 32 products at a time: each, and the sum before, cut off that many bits below the largest."""
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 2**29 if whole else 0)
    problem, x = drawn("gemm/m96n160k1024/e4m3.f32/NT/scale-blocks")
    reference = problem.reference(x, np.random.default_rng(0))
    for bits, passes in ((14, True), (12, False)):
        found = np.zeros((problem.m, problem.n), np.float32)
        for block in range(8):
            sums = np.zeros(found.shape)
            for k in range(128 * block, 128 * block + 128, 32):
                a, b = (x[name][:, k : k + 32].astype(np.float64) for name in "ab")
                products = np.concatenate([sums[None], (a[:, None] * b[None]).transpose(2, 0, 1)])
                unit = np.exp2(np.frexp(abs(products).max(axis=0))[1] - bits)
                sums = np.floor(products / unit).sum(axis=0) * unit
            scale = np.outer(x["scale_a"][block], np.repeat(x["scale_b"][:, block], 128)[: problem.n])
            found += scale.astype(np.float32) * sums.astype(np.float32)
        assert (problem.check({"c": found}, reference, "e4m3").reason is None) == passes, bits
