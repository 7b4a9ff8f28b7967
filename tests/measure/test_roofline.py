"""Ceilings: which a row needs, where it stands under them, and when it lies above."""

import pytest
from msgspec import structs

from kernelmark.bench.measure.measurement import Ceiling, Measurement
from kernelmark.bench.measure.roofline import COMPUTE, FED, Bounds, ceiling, exceeded, level_bytes, needs, place
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.modes import Mode

MIB = 2**20
LLC = 8 * MIB
GEMM = "gemm/m100n100k100/f32/NN"  # 2e6 flop, 120 kB
COMPUTE_LIMIT = Ceiling("cpu", 1, "fp32", "fma/n1k1/f32", "fma/a.b", "d", 1e11, 0.9e11, 1.1e11, 1.2e11, "2026")
MEMORY_LIMIT = Ceiling("cpu", 1, "memory", "copy/m1n1/f32", "copy/a.b", "d", 1e10, 0.9e10, 1.1e10, 1.2e10, "2026")


def row(low, median, high, **values):
    found = Interval(median, low, high)
    return Measurement(
        **{"kernel": "gemm/a.b", "numerics": "fp32", "samples": [low, median, high], **values}, interval=found
    )


@pytest.mark.parametrize(
    ("footprint", "mode", "expected"),
    [
        (100, Mode.COLD, 4 * LLC),
        (100, Mode.HOT, 64 * 1024),
        (300 * 1024, Mode.HOT, 256 * 1024),
        (MIB - 1, Mode.GRAPH, 256 * 1024),
        (MIB, Mode.HOT, MIB),
        (2 * LLC, Mode.HOT, 16 * MIB),
        (2 * LLC + 1, Mode.HOT, 4 * LLC),
        (100 * LLC, Mode.HOT, 4 * LLC),
    ],
)
def test_bandwidth_is_that_of_memory_when_cold_and_of_a_cache_as_large_as_the_operands_when_hot(
    footprint, mode, expected
):
    assert level_bytes(footprint, mode, LLC) == expected


def test_a_row_needs_the_ceiling_of_its_arithmetic_and_of_its_memory(registry):
    compute, memory = needs(registry.problem(GEMM), "cpu", 2, "fp32", Mode.COLD, LLC)
    assert (compute.kind, compute.threads, compute.problem) == ("fp32", 2, COMPUTE["cpu"]["fp32"])
    assert (memory.kind, memory.problem) == ("memory", "copy/m4096n1024/f32")
    assert registry.problem(memory.problem).footprint_bytes == 4 * LLC


@pytest.mark.parametrize(
    ("problem", "numerics", "bound"),
    [
        (GEMM, "fp32", FED["cuda", "fp32"]),
        (GEMM, "tf32", COMPUTE["cuda"]["tf32"]),
        ("conv/n1c8h8w8k8r3s3pad1/f32/nchw/fprop", "winograd", COMPUTE["cuda"]["fp32"]),
        ("fma/n64k64/f32", "fp32", COMPUTE["cuda"]["fp32"]),
        ("transfer/n1048576/f32/d2d/work1024", "fp32", COMPUTE["cuda"]["fp32"]),
    ],
)
def test_a_product_on_a_gpu_is_bounded_by_multiply_adds_that_are_fed(registry, problem, numerics, bound):
    compute, _ = needs(registry.problem(problem), "cuda", 1, numerics, Mode.COLD, LLC)
    assert compute.problem == bound


def test_what_only_moves_data_needs_no_ceiling_of_arithmetic(registry):
    (need,) = needs(registry.problem("transpose/m9n9/f32/in"), "cpu", 1, "exact", Mode.COLD, LLC)
    assert need.kind == "memory"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_ceiling_of_arithmetic_is_measured_by_a_kernel_of_ours_with_that_numerics(registry, device):
    fed = {numerics: problem for (on, numerics), problem in FED.items() if on == device}
    for numerics, problem in (*COMPUTE[device].items(), *fed.items()):
        parsed = registry.problem(problem)
        able = [k for k in registry.kernels.values() if k.op == parsed.op and k.device == device]
        able = [k for k in able if k.refuses(parsed) is None]
        assert any(k.numerics_for(parsed) == numerics and k.is_ours for k in able), (numerics, problem)


def test_a_ceiling_is_that_of_the_fastest_kernel_that_was_right(registry):
    problem = registry.problem("copy/m1000n1000/f32")  # 8e6 bytes
    (need,) = needs(registry.problem("transpose/m9n9/f32/in"), "cpu", 1, "exact", Mode.COLD, LLC)
    slow, fast = row(1.9e-3, 2e-3, 2.1e-3, kernel="copy/a.slow"), row(0.8e-3, 1e-3, 1.25e-3, kernel="copy/a.fast")
    wrong = Measurement(kernel="copy/a.wrong", status="wrong")
    found = ceiling(need, [slow, wrong, fast], problem, "2026")
    assert (found.kernel, found.rate, found.best) == ("copy/a.fast", pytest.approx(8e9), pytest.approx(1e10))
    assert (found.low, found.high) == (pytest.approx(6.4e9), pytest.approx(1e10))
    assert found.need == need
    assert ceiling(need, [wrong], problem, "2026") is None


def test_a_time_is_placed_under_the_nearer_ceiling(registry):
    problem = registry.problem(GEMM)  # at least 20 us by arithmetic, 12 us by memory
    found = place(row(39e-6, 40e-6, 41e-6), problem, Bounds(COMPUTE_LIMIT, MEMORY_LIMIT))
    assert (found.roofline_pct, found.bound_by) == (pytest.approx(50), "compute")
    assert (found.ceiling_gflop_per_s, found.ceiling_gbyte_per_s) == (100, 10)
    found = place(row(39e-6, 40e-6, 41e-6), problem, Bounds(None, MEMORY_LIMIT))
    assert (found.roofline_pct, found.bound_by) == (pytest.approx(30), "memory")
    assert place(row(39e-6, 40e-6, 41e-6), problem, Bounds(None, None)) is None


def test_a_row_is_set_against_what_its_algorithm_executes(registry):
    problem, bounds = registry.problem(GEMM), Bounds(COMPUTE_LIMIT, None)
    once = place(row(1e-4, 1e-4, 1e-4), problem, bounds)
    thrice = place(row(1e-4, 1e-4, 1e-4, executed_flop=3 * problem.flop), problem, bounds)
    assert thrice.roofline_pct == pytest.approx(3 * once.roofline_pct)


def test_only_a_time_whose_slow_end_beats_the_best_sample_by_two_per_cent_exceeds_a_ceiling(registry):
    problem, bounds = registry.problem(GEMM), Bounds(COMPUTE_LIMIT, None)
    least = 2e6 / 1.2e11
    assert exceeded(row(0.5 * least, 0.6 * least, 0.99 * least), problem, bounds, LLC) is None
    found = exceeded(row(0.5 * least, 0.6 * least, 0.97 * least), problem, bounds, LLC)
    assert found.reason == "123.7 GFLOP/s exceed the measured ceiling, 120 GFLOP/s by fma/a.b on fma/n1k1/f32"


@pytest.mark.parametrize(("rows", "beyond"), [(1023, False), (1024, True)])
def test_bandwidth_accuses_only_operands_that_no_cache_can_hold(registry, rows, beyond):
    problem = registry.problem(f"copy/m{rows}n4096/f32")
    times = [problem.traffic_bytes / 1.3e10] * 3
    assert bool(exceeded(row(*times), problem, Bounds(None, MEMORY_LIMIT), LLC)) == beyond


def test_what_the_clock_gained_since_the_ceiling_is_out_of_the_share_in_cycles(registry):
    problem = registry.problem(GEMM)
    at_2_ghz = structs.replace(COMPUTE_LIMIT, clock_mhz=2000.0)
    measured = row(39e-6, 40e-6, 41e-6, state={"clock_mhz": 2500.0})
    found = place(measured, problem, Bounds(at_2_ghz, MEMORY_LIMIT))
    assert (found.roofline_pct, found.roofline_pct_cycles) == (pytest.approx(50), pytest.approx(40))


@pytest.mark.parametrize(("ceiling_mhz", "row_mhz"), [(None, 2000.0), (2000.0, None)])
def test_without_both_clocks_there_is_no_share_in_cycles(registry, ceiling_mhz, row_mhz):
    limit = structs.replace(COMPUTE_LIMIT, clock_mhz=ceiling_mhz)
    state = {} if row_mhz is None else {"clock_mhz": row_mhz}
    found = place(row(39e-6, 40e-6, 41e-6, state=state), registry.problem(GEMM), Bounds(limit, MEMORY_LIMIT))
    assert found.roofline_pct_cycles is None


def test_what_memory_bounds_has_no_share_in_cycles(registry):
    problem = registry.problem("copy/m1000n1000/f32")
    limit = structs.replace(MEMORY_LIMIT, clock_mhz=2000.0)
    found = place(row(0.9e-3, 1e-3, 1.1e-3, state={"clock_mhz": 2000.0}), problem, Bounds(None, limit))
    assert (found.bound_by, found.roofline_pct_cycles) == ("memory", None)
