"""Kernels whose counters by Nsight Compute are published with their shape, written anew, and these counters.

Left out, since they are not counts of the kernel alone or come without its shape: wavefronts that include what other
requests cost (17,061,038 for the stores of task2, whose bytes a wavefront give 16,777,216), sectors of which a device
counted too few (268,427,291 of 268,435,456 for the row sums), and the LDS.128 of forums.developer.nvidia.com 359822 (4
and 32 wavefronts each, as `shared_float4s` and its column have).
"""

from collections.abc import Mapping
from typing import NamedTuple

COURSE = "github.com/eduardo4jesus/cuda-training-series 2cce63d, exercises/hw8"
SUMS = "github.com/eduardo4jesus/cuda-training-series 6269da9, exercises/hw4/Profile Output - RTX 3070"
PRODUCT = "forums.developer.nvidia.com/t/profiling-coalesced-memory-accesses-confusion/169185"

#: Nsight Compute's names of the counters, after l1tex__ or smsp__sass_average_ and without .sum, .ratio or .pct.
REQUESTS_LOADED, REQUESTS_STORED = (f"t_requests_pipe_lsu_mem_global_op_{does}" for does in ("ld", "st"))
SECTORS_LOADED, SECTORS_STORED = (f"t_sectors_pipe_lsu_mem_global_op_{does}" for does in ("ld", "st"))
SECTORS_A_LOAD = "average_t_sectors_per_request_pipe_lsu_mem_global_op_ld"
WAVEFRONTS_LOADED = "data_pipe_lsu_wavefronts_mem_shared_op_ld"
BYTES_A_WAVEFRONT = "data_bytes_per_wavefront_mem_shared"  # per cent of 128


class Published(NamedTuple):
    """A kernel's body, the block that runs, for how many equal ones it stands, and the counters that were published."""

    name: str
    body: str
    block: tuple[int, int]
    stands_for: int
    counters: Mapping[str, float]
    source: str


def _transposition(name: str, body: str, sectors: tuple[int, int], task: str, **shared: float) -> Published:
    """Return a transposition of 4096 x 4096 doubles by 128 x 128 blocks."""
    warps = 4096 * 4096 // 32
    counters = {REQUESTS_LOADED: warps, REQUESTS_STORED: warps}
    counters |= {SECTORS_LOADED: sectors[0], SECTORS_STORED: sectors[1]}
    names = {"loaded": WAVEFRONTS_LOADED, "used": BYTES_A_WAVEFRONT}
    counters |= {names[key]: value for key, value in shared.items()}
    return Published(name, f"const int n = 4096; {body}", (32, 32), 128 * 128, counters, f"{COURSE}/{task}.profile")


def _tile(name: str, width: int, put: str, take: str, task: str, **shared: float) -> Published:
    body = (
        f"__shared__ double tile[32][{width}]; tile{put} = a[y * n + x]; __syncthreads(); "
        f"out[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile{take};"
    )
    return _transposition(name, body, (4_194_304, 4_194_304), task, **shared)


def _sums(name: str, index: str, **counters: float) -> Published:
    """Return sums of 16384 x 16384 floats, a row or column a thread; 32 of the 16384 loads of one of 512 warps run."""
    body = (
        "const float *f = reinterpret_cast<const float *>(a); float sum = 0; "
        f"for (int i = 0; i < 32; ++i) sum += f[{index}]; reinterpret_cast<float *>(out)[x] = sum;"
    )
    return Published(name, body, (32, 1), 512 * 16384 // 32, {REQUESTS_LOADED: 8_388_608} | counters, SUMS)


def _product(name: str, term: str, sectors: float) -> Published:
    """Return a product of matrices of ints, an element a thread, by blocks of 32 x 16. Any size has the same ratios."""
    body = (
        "const int n = 512; const int *i = reinterpret_cast<const int *>(a), *j = i + 64 * n; int sum = 0; "
        f"for (int k = 0; k < 32; ++k) sum += {term}; reinterpret_cast<int *>(out)[y * n + x] = sum;"
    )
    return Published(name, body, (32, 16), 1, {SECTORS_A_LOAD: sectors}, PRODUCT)


ROW, COLUMN = "[threadIdx.y][threadIdx.x]", "[threadIdx.x][threadIdx.y]"
PUBLISHED = (
    _transposition("gathering", "out[y * n + x] = a[x * n + y];", (16_777_216, 4_194_304), "task1/task1"),
    _transposition("scattering", "out[x * n + y] = a[y * n + x];", (4_194_304, 16_777_216), "task1/task1b"),
    _tile("stored_by_columns", 32, COLUMN, ROW, "task2/task2", used=11.76),
    _tile("loaded_by_columns", 32, ROW, COLUMN, "task2/task2b", used=11.76),
    _tile("padded", 33, COLUMN, ROW, "task3/task3", used=100, loaded=1_048_576),
    _sums("row_sums", "x * 16384 + i"),
    _sums("column_sums", "i * 16384 + x", **{SECTORS_LOADED: 33_554_432}),
    _product("product", "i[y * n + k] * j[k * n + x]", 2.5),
    _product("product_of_rows", "i[y * n + k] * j[y * n + k]", 1),
    _product("product_of_columns", "i[k * n + x] * j[k * n + x]", 4),
)


def source() -> str:
    """Return a .cu with all of the kernels."""
    return "".join(
        f"__global__ void {each.name}(const double *a, double *out) {{\n"
        "  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
        f"  {each.body}\n}}\n"
        for each in PUBLISHED
    )
