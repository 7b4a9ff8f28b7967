"""Occupancy follows NVIDIA's published limits: figures worked by hand, and NVIDIA's own calculator."""

import ctypes
import itertools
import subprocess
from pathlib import Path

import pytest

from kernelmark.bench.measure.compile import INSTALL, header_folders
from kernelmark.bench.measure.occupancy import occupancy, typical
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.limits import TYPICAL
from support.emulated import host_compiler
from support.tools import needed

# A multiprocessor has 65536 registers in four partitions of 16384. A warp takes ceil(32 r / 256) * 256 of them, a
# partition holds floor(16384 / that) warps. Warps, blocks and shared memory of a multiprocessor, by capability:
# 7.5: 32, 16, 64 KiB; 8.0: 64, 32, 164 KiB; 8.6: 48, 16, 100 KiB; 8.9: 48, 24, 100 KiB; 9.0 and 10.0: 64, 32, 228 KiB;
# 12.0: 48, 24, 100 KiB. A block's shared memory is rounded up to 256 bytes on 7.5, and to 128 after 1 KiB was added
# to it from 8.0 on (CUDA C++ Programming Guide, technical specifications per compute capability).
WORKED = [
    # 8 warps a block: 64 / 8 = 8. 1024 registers a warp: 16 a partition, 64 / 8 = 8.
    ("sm_90a", 256, 32, 0, 8, 8 * 8 / 64, "warps"),
    # 40 * 32 = 1280 registers a warp: 12 a partition, 48 warps, 48 / 8 = 6.
    ("sm_90a", 256, 40, 0, 6, 6 * 8 / 64, "registers"),
    # 65 * 32 = 2080, rounded to 2304: 7 a partition, 28 warps, 28 / 8 = 3.
    ("sm_90a", 256, 65, 0, 3, 3 * 8 / 64, "registers"),
    # 255 * 32 = 8160, rounded to 8192: 2 a partition, 8 warps, 8 / 4 = 2.
    ("sm_90a", 128, 255, 0, 2, 2 * 4 / 64, "registers"),
    # 2048 registers a warp: 8 a partition, 32 warps, one block of 32.
    ("sm_90a", 1024, 64, 0, 1, 32 / 64, "registers"),
    # 2304 registers a warp times 32 warps is 73728, more than a block may have.
    ("sm_90a", 1024, 65, 0, 0, 0.0, "does not fit"),
    # 227 KiB is the most that a block may have; with the reserved 1 KiB it fills the multiprocessor.
    ("sm_90a", 256, 32, 227 * 1024, 1, 8 / 64, "shared memory"),
    ("sm_90a", 256, 32, 227 * 1024 + 1, 0, 0.0, "does not fit"),
    # 16896 + 1024 = 17920, a multiple of 128: 233472 / 17920 = 13.03.
    ("sm_90a", 128, 26, 16896, 13, 13 * 4 / 64, "shared memory"),
    # 48 KiB and 1 KiB are 50176: 167936 / 50176 = 3.3.
    ("sm_80", 256, 32, 48 * 1024, 3, 3 * 8 / 64, "shared memory"),
    # 3 warps a block: 64 / 3 = 21. 21 * 32 = 672, rounded to 768: 21 a partition, 84 warps, 84 / 3 = 28.
    ("sm_80", 96, 21, 0, 21, 21 * 3 / 64, "warps"),
    # 2 warps a block: 48 / 2 = 24, but 16 blocks.
    ("sm_86", 64, 16, 0, 16, 16 * 2 / 48, "blocks"),
    # 8 warps a block: 48 / 8 = 6. 1024 registers a warp: 64 warps, 8.
    ("sm_86", 256, 32, 0, 6, 6 * 8 / 48, "warps"),
    # As on 8.6, but 24 blocks.
    ("sm_89", 64, 16, 0, 24, 24 * 2 / 48, "warps"),
    # 32 warps a block: one fills the multiprocessor, and 2048 registers a warp allow 32 warps.
    ("sm_75", 1024, 64, 0, 1, 32 / 32, "warps"),
    # 8448 is 33 * 256: 65536 / 8448 = 7.8.
    ("sm_75", 128, 16, 8448, 7, 7 * 4 / 32, "shared memory"),
    # 8449 is rounded to 8704: 65536 / 8704 = 7.5; 9217 to 9472: 6.9.
    ("sm_75", 128, 16, 8449, 7, 7 * 4 / 32, "shared memory"),
    ("sm_75", 128, 16, 9217, 6, 6 * 4 / 32, "shared memory"),
    # One warp a block: 64 warps, but 32 blocks.
    ("sm_100", 32, 16, 0, 32, 32 / 64, "blocks"),
    # 2048 registers a warp: 8 a partition, 32 warps, 32 / 8 = 4 where 48 / 8 = 6 would fit.
    ("sm_120", 256, 64, 0, 4, 4 * 8 / 48, "registers"),
]


@pytest.mark.parametrize(("arch", "threads", "registers", "shared", "blocks", "share", "limiter"), WORKED)
def test_occupancy_is_as_worked_from_the_published_limits(
    arch: str, threads: int, registers: int, shared: int, blocks: int, share: float, limiter: str
) -> None:
    found = occupancy(typical(arch), threads, registers, shared)
    assert (found.blocks_per_sm, found.occupancy, found.limiter) == (blocks, share, limiter)


def test_an_architecture_without_known_limits_is_named() -> None:
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
def calculator(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return cuda_occupancy.h, compiled into a library with one C function."""
    needed(None if header_folders() else f"needs CUDA's headers; {INSTALL}")
    folder: Path = tmp_path_factory.mktemp("occupancy")
    (folder / "calculator.cpp").write_text(CALCULATOR)
    library = folder / "calculator.so"
    include = [f"-I{path}" for path in header_folders()]
    command = [host_compiler(), "-shared", "-fPIC", "-w", *include, str(folder / "calculator.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("number", TYPICAL)
def test_nvidias_own_calculator_agrees(number: int, calculator: ctypes.CDLL) -> None:
    sm = TYPICAL[number]
    device = (sm.sm_threads, sm.sm_shared_bytes, sm.block_shared_bytes, sm.reserved_shared_bytes)
    shared = (0, 1, 1024, 8448, 16896, 40000, 65536, 99 * 1024, 163 * 1024, 227 * 1024, 228 * 1024)
    for threads, registers, nbytes in itertools.product(
        (1, 32, 33, 96, 256, 512, 1024), (16, 24, 33, 64, 97, 255, 256), shared
    ):
        expected = calculator.blocks(number, *device, threads, registers, nbytes)
        found = occupancy(sm, threads, registers, nbytes).blocks_per_sm
        assert found == expected, (threads, registers, nbytes)
