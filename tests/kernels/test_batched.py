"""Small GEMM: products share blocks only where there are enough, and each has its panels in shared memory."""

import math

import pytest

from kernelmark.bench.plan.limits import H100
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, LAYOUTS, REGISTRY, cases, chosen, refusal

KERNEL = CUDA["gemm/cuda.batched"]
DEFAULT = next(KERNEL.tiles())
SIZES = (1, 3, 8, 17, 32, 33, 64, 100, 128)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("batch", [1, 2, 1000, 100_000])
@pytest.mark.parametrize("size", SIZES)
def test_every_element_of_every_product_has_a_thread_and_panels_fit(size: int, batch: int, dtype: str) -> None:
    problem = f"gemm/m{size}n{size}k{size}/{dtype}/NT" + (f"/batch{batch}" if batch > 1 else "")
    ((entry, call),) = chosen(KERNEL.id, problem).calls
    threads, products = call.block
    wide = int(entry.split(", ")[1])
    assert call.grid[0] * products >= batch > (call.grid[0] - 1) * products
    assert call.grid[1:] == (math.ceil(size / wide),) * 2
    assert threads * products <= 256
    assert call.shared_bytes <= 99 * 1024  # what every device from 8.0 on has


def test_products_share_blocks_only_once_there_is_one_for_each_multiprocessor() -> None:
    few, many = (REGISTRY.problem(f"gemm/m4n4k4/f32/NN/batch{batch}") for batch in (100, 10_000))
    assert KERNEL.plan(few, DEFAULT, H100)[0].block[1] == 1
    shared = KERNEL.plan(many, DEFAULT, H100)[0]
    assert shared.block[1] > 1
    assert shared.grid[0] >= DEFAULT.SMS


@pytest.mark.parametrize("sizes", ["m129n1k1", "m1n129k1", "m1n1k129"])
def test_more_than_128_is_refused(sizes: str) -> None:
    assert "expected at most 128" in refusal(KERNEL.id, f"gemm/{sizes}/f32/NN")


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", ["m6n5k7", "m100n70k9", "m9n128k128"])
def test_a_last_block_with_fewer_products_is_right(sizes: str, layout: str) -> None:
    problem = f"gemm/{sizes}/f32/{layout}/alpha2/beta0.5/batch7/lda+1/ldb+3/ldc+2"
    assert not wrong_in_emulator(cases(KERNEL.id, problem))
