"""GEMM on tensor cores: tiles by size, copies by alignment, edges of tiles in every layout, and how exact 3xTF32 is."""

from typing import Any

import numpy as np
import pytest

from kernelmark.bench.emulator.build import CUDA as SOURCES
from kernelmark.bench.emulator.build import program
from kernelmark.bench.emulator.sweep import EmulatedCase, launches
from kernelmark.bench.emulator.worker import Buffer, run
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100, TYPICAL
from kernelmark.bench.tune.profile.counted import count
from support.emulated import host_compiler, wrong_in_emulator
from support.kernels import CUDA, LAYOUTS, REGISTRY
from support.kernels import cases as cases_of

PIPELINED = ("mma", "mma_tf32", "mma_3xtf32", "mma_f64")
Array = np.ndarray[Any, Any]


def kernel(name: str) -> CudaKernel:
    return CUDA[f"gemm/cuda.{name}"]


def storage(name: str) -> str:
    return str(kernel(name).domain["dtype"][0])


def cases(name: str, problem: str) -> list[EmulatedCase]:
    return cases_of(f"gemm/cuda.{name}", problem)


def product(name: str, a: Array, b: Array, tile: int = 0) -> Array:
    """C = A B of FP32 as the emulated kernel leaves it, without a report; a kernel of NT alone gets B transposed.

    tile: its place among those that the kernel prefers.
    """
    host_compiler()
    (m, k), n = a.shape, b.shape[1]
    along_k = "NN" not in kernel(name).domain["layout"]
    case = cases(name, f"gemm/m{m}n{n}k{k}/f32/{'NT' if along_k else 'NN'}")[tile]
    stored = np.ascontiguousarray(b.T) if along_k else b
    c = np.full(m * n, np.nan, np.float32)
    buffers = {"a": Buffer("in", a.ravel()), "b": Buffer("in", stored.ravel()), "c": Buffer("out", c)}
    planned = list(launches(case, buffers))
    worker = program(SOURCES / case.kernel.source, [launch.entry for launch in planned])
    (outcome,) = run(worker, buffers, planned, orders=("forward",))
    assert not outcome.reports
    left: Array = outcome.outputs["c"].reshape(m, n)
    return left


def uniform(rows: int, cols: int) -> Array:
    return np.random.default_rng(rows).uniform(-1.0, 1.0, (rows, cols)).astype(np.float32)


@pytest.mark.parametrize("name", PIPELINED)
def test_tiles_are_small_only_where_larger_ones_would_leave_half_of_a_device_idle(name: str) -> None:
    chosen = {
        size: kernel(name).tile_for(REGISTRY.problem(f"gemm/m{size}n{size}k64/{storage(name)}/NN"))
        for size in (1, 1000, 4096)
    }
    assert [tile and tile.BM for tile in chosen.values()] == [64, 64, 128]


@pytest.mark.parametrize("name", PIPELINED)
def test_founding_product_has_tiles_for_nearly_all_multiprocessors_of_an_h100(name: str) -> None:
    one = kernel(name)
    problem = REGISTRY.problem(f"gemm/m1024n2048k26752/{storage(name)}/NT")
    tile = one.tile_for(problem, H100)
    assert tile is not None
    assert (tile.BM, tile.BN) == (128, 128)
    assert one.plan(problem, tile, H100)[0].grid == (16, 8, 1)


@pytest.mark.parametrize("name", PIPELINED[:3])
@pytest.mark.parametrize(
    ("sizes", "nbytes"),
    [
        ("m64n64k64/{}/NT", 16),
        ("m63n61k64/{}/NT", 16),
        ("m64n64k64/{}/NT/ldc+1", 16),
        ("m64n64k63/{}/NT/lda+1/ldb+1", 16),
        ("m64n64k62/{}/NT", 4),
        ("m64n62k64/{}/NN", 4),
        ("m63n64k64/{}/TN/ldb+2", 0),
    ],
)
def test_copies_are_as_wide_as_leading_dimensions_of_a_and_b_allow(name: str, sizes: str, nbytes: int) -> None:
    dtype = storage(name)
    itemsize = 2 if dtype == "f16" else 4
    for case in cases(name, f"gemm/{sizes.format(dtype)}"):
        (entry, _), *_ = case.calls
        assert f", {max(nbytes // itemsize, 1)}, Op::" in entry


@pytest.mark.parametrize(
    ("sizes", "elements"),
    [("m63n61k64/f64/NT", 2), ("m64n64k63/f64/NT/lda+1/ldb+1", 2), ("m64n64k63/f64/NT", 1), ("m64n63k64/f64/TN", 1)],
)
def test_copies_of_fp64_are_of_two_elements_or_one(sizes: str, elements: int) -> None:
    for case in cases("mma_f64", f"gemm/{sizes}"):
        (entry, _), *_ = case.calls
        assert f", {elements}, Op::" in entry


@pytest.mark.parametrize(("capability", "rows"), [(80, 8), (89, 8), (90, 16), (100, 16)])
def test_fp64_is_multiplied_16_rows_at_once_from_hopper_on(capability: int, rows: int) -> None:
    problem, device = REGISTRY.problem("gemm/m64n64k64/f64/NN"), TYPICAL[capability]
    tile = kernel("mma_f64").tile_for(problem, device)
    assert tile is not None
    (call,) = kernel("mma_f64").plan(problem, tile, device)
    assert f"<Double<{rows}>," in call.entry


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fp64_is_right_where_8_rows_are_multiplied_at_once(layout: str) -> None:
    problem = REGISTRY.problem(f"gemm/m67n41k37/f64/{layout}/alpha2/beta0.5/batch2/ldb+1")
    every = [EmulatedCase(case.kernel, problem, case.tile, TYPICAL[80]) for case in cases("mma_f64", problem.id)]
    assert not wrong_in_emulator(every)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_panels_of_fp64_are_read_and_written_without_bank_conflicts(layout: str) -> None:
    host_compiler()
    problem = REGISTRY.problem(f"gemm/m256n256k64/f64/{layout}")
    for case in cases("mma_f64", problem.id):
        total = count(case.kernel, problem, case.tile, H100).total
        assert total.wavefronts == total.least_wavefronts > 0


def test_alpha_and_beta_of_fp64_are_passed_in_fp64() -> None:
    """2^-1074 is zero in FP32."""
    problem = REGISTRY.problem("gemm/m8n8k8/f64/NN/alpha0.1/beta5e-324")
    (call,) = kernel("mma_f64").plan(problem, next(kernel("mma_f64").tiles()), H100)
    assert [(type(x), float(x)) for x in call.args[6:8]] == [(np.float64, 0.1), (np.float64, 5e-324)]


def test_sums_of_16_bit_products_are_held_to_the_numerics_of_tensor_cores() -> None:
    for name in ("wmma", "mma"):
        for dtype in kernel(name).domain["dtype"]:
            problem = REGISTRY.problem(f"gemm/m1n1k1/{dtype}/NN")
            assert kernel(name).numerics_for(problem) == dtype.partition(".")[0]


@pytest.mark.parametrize(
    ("three", "one", "depths"),
    [
        ("mma_3xtf32", "mma_tf32", (8, 64, 613)),
        ("wgmma_3xtf32", "wgmma_tf32", (64, 616)),  # which drops more of a product, in place of rounding
    ],
)
def test_three_times_tf32_is_at_least_half_as_exact_as_fp32(three: str, one: str, depths: tuple[int, ...]) -> None:
    """Emulated tensor cores round their sums where real ones truncate them: this is the error of what is multiplied."""
    for k in depths:
        a, b = uniform(48, k), uniform(k, 40)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        fp32 = np.zeros_like(exact, np.float32)
        for i in range(k):
            fp32 += np.outer(a[:, i], b[i])
        every = ((three, 0), (three, -1), (one, 0))
        *errors, of_one = (np.abs(product(name, a, b, tile) - exact).mean() for name, tile in every)
        assert max(errors) <= 2 * np.abs(fp32 - exact).mean() < of_one


@pytest.mark.parametrize("name", ["mma_tf32", "mma_3xtf32"])
@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000])
def test_a_quiet_nan_reaches_its_row_of_c_and_no_other(name: str, bits: int) -> None:
    a, b = uniform(17, 9), uniform(9, 5)
    a.view(np.uint32)[3, 7] = bits
    assert np.isnan(product(name, a, b)).sum(axis=1).tolist() == [0] * 3 + [5] + [0] * 13


def test_devices_before_ampere_are_too_old() -> None:
    assert {kernel(name).min_arch for name in ("wmma", *PIPELINED)} == {80}
