"""The bounds of a kernel: the ceilings of its row, a CPU's nominal peak, and the blocks on a multiprocessor."""

import ctypes
import itertools
import subprocess

import pytest
from msgspec import structs

from kernelmark.bench.measure import affinity, nominal_peak
from kernelmark.bench.measure.compile import INSTALL, header_folders
from kernelmark.bench.measure.cpu import cpu_name
from kernelmark.bench.measure.measurement import Ceiling, Measurement, Need
from kernelmark.bench.measure.occupancy import occupancy, typical
from kernelmark.bench.measure.roofline import (
    COMPUTE,
    FAR,
    FED,
    SLACK,
    Judge,
    ceiling,
    exceeded,
    fastest,
    judges,
    level_bytes,
    needs,
    place,
)
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.limits import TYPICAL
from kernelmark.bench.plan.modes import Mode
from support.emulated import host_compiler
from support.processes import write_files
from support.tools import needed

MIB = 2**20
LLC = 8 * MIB
GEMM = "gemm/m100n100k100/f32/NN"  # 2e6 flop, 120 kB
COMPUTE_LIMIT = Ceiling("cpu", 1, "fp32", "fma/n1k1/f32", "fma/a.b", "d", 1e11, 0.9e11, 1.1e11, 1.2e11, "2026")
MEMORY_LIMIT = Ceiling("cpu", 1, "memory", "copy/m1n1/f32", "copy/a.b", "d", 1e10, 0.9e10, 1.1e10, 1.2e10, "2026")


def row(low, median, high, **values):
    fields = {"kernel": "gemm/a.b", "numerics": "fp32", "samples": [low, median, high], **values}
    return Measurement(**fields, interval=Interval(median, low, high))


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
def test_bandwidth_is_that_of_memory_when_cold_and_of_a_cache_of_the_operands_size_when_hot(footprint, mode, expected):
    assert level_bytes(footprint, mode, LLC) == expected


def test_a_row_needs_the_ceiling_of_its_arithmetic_and_of_its_memory(registry):
    compute, memory = needs(registry.problem(GEMM), "cpu", 2, "fp32", Mode.COLD, LLC)
    assert (compute.kind, compute.threads, compute.problem) == ("fp32", 2, "fma/n196608k512/f32")
    assert (memory.kind, memory.problem) == ("memory", "copy/m4096n1024/f32")
    assert registry.problem(memory.problem).footprint_bytes == 4 * LLC
    (need,) = needs(registry.problem("transpose/m9n9/f32/in"), "cpu", 1, "exact", Mode.COLD, LLC)  # only moves data
    assert need.kind == "memory"


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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_ceiling_of_arithmetic_is_measured_by_a_kernel_of_ours_with_that_numerics(registry, device):
    fed = {numerics: problem for (on, numerics), problem in FED.items() if on == device}
    for numerics, problem in (*COMPUTE[device].items(), *fed.items()):
        parsed = registry.problem(problem.format(lanes=1024))
        able = [k for k in registry.kernels.values() if k.op == parsed.op and k.device == device]
        able = [k for k in able if k.refuses(parsed) is None]
        assert any(k.numerics_for(parsed) == numerics and k.is_ours for k in able), (numerics, problem)


def test_a_ceiling_is_that_of_the_fastest_kernel_that_was_right(registry):
    problem = registry.problem("copy/m1000n1000/f32")  # 8e6 bytes
    (need,) = needs(registry.problem("transpose/m9n9/f32/in"), "cpu", 1, "exact", Mode.COLD, LLC)
    slow, fast = row(1.9e-3, 2e-3, 2.1e-3, kernel="copy/a.slow"), row(0.8e-3, 1e-3, 1.25e-3, kernel="copy/a.fast")
    wrong = Measurement(kernel="copy/a.wrong", status="wrong")
    best = ceiling(need, fastest([slow, wrong, fast]), problem, "2026")
    assert (best.kernel, best.rate, best.best) == ("copy/a.fast", pytest.approx(1e10), pytest.approx(1e10))
    assert (best.low, best.high) == (pytest.approx(6.4e9), pytest.approx(1e10))
    assert best.need == need
    assert fastest([wrong]) is None


def test_load_on_most_samples_leaves_a_ceiling_what_it_is(registry):
    problem = registry.problem("fma/n98304k512/f32")
    (need, *_) = needs(registry.problem(GEMM), "cpu", 1, "fp32", Mode.COLD, LLC)
    quiet = [1e-3 + 1e-6 * i for i in range(30)]
    limit = ceiling(need, Measurement(kernel="fma/a.b", samples=[*quiet, *[4e-3] * 70]), problem, "2026")
    assert limit.rate == pytest.approx(problem.flop / 1.01e-3)
    assert limit.high - limit.low < 0.05 * limit.rate


def test_a_time_is_placed_under_the_nearer_ceiling(registry):
    problem = registry.problem(GEMM)  # at least 20 us by arithmetic, 12 us by memory
    placed = place(row(39e-6, 40e-6, 41e-6), problem, COMPUTE_LIMIT, MEMORY_LIMIT)
    assert (placed.roofline_pct, placed.bound_by) == (pytest.approx(50), "compute")
    assert (placed.ceiling_gflop_per_s, placed.ceiling_gbyte_per_s) == (100, 10)
    placed = place(row(39e-6, 40e-6, 41e-6), problem, None, MEMORY_LIMIT)
    assert (placed.roofline_pct, placed.bound_by) == (pytest.approx(30), "memory")
    assert place(row(39e-6, 40e-6, 41e-6), problem, None, None) is None


def test_a_row_is_set_against_what_its_algorithm_executes(registry):
    problem = registry.problem(GEMM)
    once = place(row(1e-4, 1e-4, 1e-4), problem, COMPUTE_LIMIT, None)
    thrice = place(row(1e-4, 1e-4, 1e-4, executed_flop=3 * problem.flop), problem, COMPUTE_LIMIT, None)
    assert thrice.roofline_pct == pytest.approx(3 * once.roofline_pct)


def test_only_a_time_whose_slow_end_beats_the_best_sample_by_two_per_cent_exceeds_a_ceiling(registry):
    problem, judge = registry.problem(GEMM), Judge(COMPUTE_LIMIT, SLACK)
    least = 2e6 / 1.2e11
    assert exceeded(row(0.5 * least, 0.6 * least, 0.99 * least), problem, judge) is None
    excess = exceeded(row(0.5 * least, 0.6 * least, 0.97 * least), problem, judge)
    assert excess.reason == "123.7 GFLOP/s exceed the ceiling, 100 GFLOP/s by fma/a.b on fma/n1k1/f32"


@pytest.mark.parametrize(
    ("problem", "mode", "judge"),
    [
        ("copy/m1024n4096/f32", Mode.COLD, ("copy/m4096n1024/f32", SLACK)),
        ("copy/m1023n4096/f32", Mode.COLD, ("copy/m256n1024/f32", FAR)),
        ("copy/m1023n4096/f32", Mode.HOT, ("copy/m256n1024/f32", FAR)),
        ("copy/m64n1024/f32", Mode.HOT, ("copy/m32n1024/f32", FAR)),
        ("copy/m8n1023/f32", Mode.HOT, None),
        # With alpha = 0, only C (1 MiB) is touched, not A and B.
        ("gemm/m512n512k32768/f32/NN/alpha0", Mode.COLD, ("copy/m256n1024/f32", FAR)),
        ("gemm/m512n512k32768/f32/NN/alpha0", Mode.HOT, ("copy/m128n1024/f32", FAR)),
        ("gemm/m512n512k32768/s8.s32/NN/lda+8", Mode.COLD, ("copy/m4096n1024/f32", SLACK)),
        ("gemm/m64n64k64/f32/NN/lda+999999/alpha0/ldc+999999", Mode.COLD, ("copy/m256n1024/f32", FAR)),
        ("gemm/m64n64k64/f32/NN/ldb+999999", Mode.COLD, ("copy/m256n1024/f32", FAR)),
        ("aggregate/w2n2000000/f32/ef", Mode.COLD, ("copy/m256n1024/f32", FAR)),
    ],
)
def test_bandwidth_accuses_operands_beyond_caches_and_others_at_twice_that_of_a_cache(registry, problem, mode, judge):
    every = judges(registry.problem(problem), "cpu", 2, "exact", mode, LLC)
    judging = [(need.problem, times) for need, times in every if need.moves]
    assert judging == ([judge] if judge else [])
    assert not judge or judge[1] == SLACK or [*judges(registry.problem(problem), "cuda", 1, "exact", mode, LLC)] == []


@pytest.mark.parametrize(
    ("problem", "ceiling_mhz", "row_mhz", "pct"),
    [
        (GEMM, 2000.0, 2500.0, pytest.approx(40)),
        (GEMM, None, 2000.0, None),
        (GEMM, 2000.0, None, None),
        ("copy/m1000n1000/f32", 2000.0, 2000.0, None),  # bound by memory
    ],
)
def test_a_changed_clock_is_out_of_the_share_in_cycles_if_both_are_known(registry, problem, ceiling_mhz, row_mhz, pct):
    limits = [structs.replace(limit, clock_mhz=ceiling_mhz) for limit in (COMPUTE_LIMIT, MEMORY_LIMIT)]
    state = {} if row_mhz is None else {"clock_mhz": row_mhz}
    placed = place(row(39e-6, 40e-6, 41e-6, state=state), registry.problem(problem), *limits)
    assert (placed.bound_by, placed.roofline_pct_cycles) == ("compute" if problem == GEMM else "memory", pct)


NEED = Need("cpu", 2, "fp32", "fma/n196608k512/f32")
EMERALD = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 207\n"
ZEN_2 = "vendor_id : AuthenticAMD\ncpu family : 23\nmodel : 49\n"
NEOVERSE = "CPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd0c\n"


@pytest.fixture
def peak_of(tmp_path, monkeypatch):
    """Return a function: the nominal peak in GFLOP/s on a system with these facts, or None."""

    def of(cpuinfo, need=NEED, mhz=2000, driver="intel_pstate"):
        (tmp_path / "cpuinfo").write_text(cpuinfo)
        write_files(tmp_path / "cpu0/cpufreq", {"scaling_driver": driver, "cpuinfo_max_freq": 1000 * mhz})
        ceiling = nominal_peak.nominal_peak.__wrapped__(need)
        return ceiling and ceiling.rate * 1e-9

    cpu_name()  # cached, so that it stays this CPU's name
    monkeypatch.setattr(affinity, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(nominal_peak, "CPUS", tmp_path)
    return of


@pytest.mark.parametrize(
    ("cpuinfo", "flop_per_cycle"), [(EMERALD, 2 * 2 * 16), (ZEN_2, 2 * 2 * 8), (NEOVERSE, 2 * 2 * 4), ("", None)]
)
def test_the_peak_is_clock_times_units_times_lanes_of_each_thread(peak_of, cpuinfo, flop_per_cycle):
    assert peak_of(cpuinfo) == (flop_per_cycle and pytest.approx(2 * 2 * flop_per_cycle))
    assert peak_of(cpuinfo, NEED._replace(kind="fp64")) == (flop_per_cycle and pytest.approx(2 * flop_per_cycle))
    assert peak_of(cpuinfo, NEED._replace(kind="memory")) is None


def test_there_is_no_peak_where_the_highest_clock_is_unknown_or_without_its_boost(peak_of, tmp_path):
    assert peak_of(EMERALD, driver="acpi-cpufreq") is None
    (tmp_path / "cpu0/cpufreq/cpuinfo_max_freq").unlink()
    assert nominal_peak.nominal_peak.__wrapped__(NEED) is None


# A multiprocessor has 65536 registers in four partitions of 16384. With r registers per thread, a warp takes
# w = ceil(32 r / 256) * 256 registers, and a partition holds floor(16384 / w) warps. Capability 9.0 has 64 warps and
# 228 KiB of shared memory, of which a block takes 1 KiB more than it requests; 8.6 has 48 warps and 16 blocks (CUDA
# C++ Programming Guide, technical specifications). Another test compares more kernels with NVIDIA's calculator.
WORKED = [
    # 8 warps per block: 64 / 8 = 8 blocks. 1024 registers per warp: 16 warps per partition, 64 / 8 = 8 blocks.
    ("sm_90a", 256, 32, 0, 8, 8 * 8 / 64, "warps"),
    # 65 * 32 = 2080 registers, rounded up to 2304: 7 warps per partition, 28 warps, floor(28 / 8) = 3 blocks.
    ("sm_90a", 256, 65, 0, 3, 3 * 8 / 64, "registers"),
    # 2304 registers per warp times 32 warps are 73728 registers, more than a block may have.
    ("sm_90a", 1024, 65, 0, 0, 0.0, "does not fit"),
    # 227 KiB is the most that a block may have; with the reserved 1 KiB it fills the multiprocessor.
    ("sm_90a", 256, 32, 227 * 1024, 1, 8 / 64, "shared memory"),
    ("sm_90a", 256, 32, 227 * 1024 + 1, 0, 0.0, "does not fit"),
    # 2 warps per block: the warps allow 48 / 2 = 24 blocks, but at most 16 blocks are resident.
    ("sm_86", 64, 16, 0, 16, 16 * 2 / 48, "blocks"),
]


@pytest.mark.parametrize(("arch", "threads", "registers", "shared", "blocks", "share", "limiter"), WORKED)
def test_occupancy_is_as_worked_from_the_published_limits(arch, threads, registers, shared, blocks, share, limiter):
    occupied = occupancy(typical(arch), threads, registers, shared)
    assert (occupied.blocks_per_sm, occupied.occupancy, occupied.limiter) == (blocks, share, limiter)


def test_an_architecture_without_known_limits_is_named():
    with pytest.raises(UsageError, match=r"'sm_70'.*sm_75.*sm_120"):
        typical("sm_70")


CALCULATOR = """
#include <climits>
#include <cstddef>
#include <cstring>
#include <cuda_occupancy.h>
extern "C" int blocks(int capability, int threads_sm, int shared_sm, int shared_block, int reserved, int threads,
                      int registers, int shared) {
  cudaOccDeviceProp device;
  std::memset(static_cast<void *>(&device), 0, sizeof device);
  device.computeMajor = capability / 10, device.computeMinor = capability % 10;
  device.maxThreadsPerBlock = 1024, device.maxThreadsPerMultiprocessor = threads_sm;
  device.regsPerBlock = device.regsPerMultiprocessor = 65536, device.warpSize = 32, device.numSms = 1;
  device.sharedMemPerBlock = 48 * 1024, device.sharedMemPerMultiprocessor = shared_sm;
  device.sharedMemPerBlockOptin = shared_block, device.reservedSharedMemPerBlock = reserved;
  cudaOccFuncAttributes kernel;
  std::memset(static_cast<void *>(&kernel), 0, sizeof kernel);
  kernel.maxThreadsPerBlock = INT_MAX, kernel.numRegs = registers, kernel.numBlockBarriers = 1;
  kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN, kernel.maxDynamicSharedSizeBytes = shared_block;
  cudaOccDeviceState state;
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  cudaOccResult result;
  return cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared)
             ? -1 : result.activeBlocksPerMultiprocessor;
}
"""


@pytest.fixture(scope="module")
def calculator(tmp_path_factory):
    needed(None if header_folders() else f"needs CUDA's headers; {INSTALL}")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "calculator.cpp").write_text(CALCULATOR)
    library = folder / "calculator.so"
    include = [f"-I{path}" for path in header_folders()]
    command = [host_compiler(), "-shared", "-fPIC", "-w", *include, str(folder / "calculator.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("number", TYPICAL)
def test_nvidias_own_calculator_agrees(number, calculator):
    sm = TYPICAL[number]
    device = (sm.sm_threads, sm.sm_shared_bytes, sm.block_shared_bytes, sm.reserved_shared_bytes)
    shared = (0, 1, 1024, 8448, 8449, 9217, 16896, 40000, *(1024 * kib for kib in (48, 64, 99, 163, 227, 228)))
    for threads, registers, nbytes in itertools.product(
        (1, 32, 33, 64, 96, 128, 256, 512, 1024), (16, 21, 24, 26, 32, 33, 40, 64, 65, 97, 255, 256), shared
    ):
        expected = calculator.blocks(number, *device, threads, registers, nbytes)
        blocks = occupancy(sm, threads, registers, nbytes).blocks_per_sm
        assert blocks == expected, (threads, registers, nbytes)
