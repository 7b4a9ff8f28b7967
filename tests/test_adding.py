"""The product of docs/adding-a-kernel.md is right for every layout, alpha, beta, batch and padding."""

from dataclasses import replace
from itertools import product

import pytest

from kernelmark.bench.emulator.build import missing_tool
from kernelmark.bench.emulator.sweep import EmulatedCase, complaints, entries
from kernelmark.bench.plan.discovery import discover
from support.pages import DOCS, save_files

LAYOUTS = ("NN", "NT", "TN", "TT")
OPTIONS = ("", "/beta1", "/alpha-0.5/beta2", "/batch3", "/lda+3/ldb+1/ldc+2", "/alpha2/beta-1/batch2/lda+1/ldb+5/ldc+3")


@pytest.fixture
def kernel(registry, tmp_path):
    if missing := missing_tool():
        pytest.skip(missing)
    save_files((DOCS / "adding-a-kernel.md").read_text(), tmp_path)
    return discover((str(tmp_path / "product.py"),)).kernels["gemm/cuda.product"]


def found(kernel, problems):
    cases = [EmulatedCase(kernel, problem, kernel.tile_for(problem)) for problem in problems]
    return [line for case in cases for line in complaints(case, entries(cases))]


def test_the_product_of_the_page_is_right_for_every_problem(kernel, registry):
    problems = [registry.problem(f"gemm/m9n35k5/f32/{layout}{more}") for layout, more in product(LAYOUTS, OPTIONS)]
    assert found(kernel, problems) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("offset<op_a>(row, i, lda)", "offset<op_a>(row, i, op_a == Op::N ? k : m)"),
        ("beta == 0.0f ? alpha * sum : alpha * sum + beta * *c", "alpha * sum + beta * *c"),
        ("b += blockIdx.z * stride_b", "b += blockIdx.z * k * n"),
    ],
)
def test_a_product_that_forgets_padding_beta_or_batch_is_found_out(kernel, registry, tmp_path, right, wrong):
    text = (tmp_path / "product.cu").read_text()
    assert right in text
    (tmp_path / "broken.cu").write_text(text.replace(right, wrong))
    broken = replace(kernel, source=str(tmp_path / "broken.cu"))
    assert found(broken, [registry.problem(f"gemm/m9n35k5/f32/NT{more}") for more in OPTIONS])


def test_a_product_of_more_blocks_than_a_grid_has_is_unsupported(kernel, registry):
    assert "blocks along y" in kernel.supports(registry.problem(f"gemm/m{65535 * 8 + 1}n1k1/f32/NN"))
    assert "batch" in kernel.supports(registry.problem("gemm/m1n1k1/f32/NN/batch65536"))
