"""Tiny kernels of one warp whose counts NVIDIA's documentation gives."""

from typing import NamedTuple

GUIDE = "CUDA C++ Best Practices Guide, Coalesced Access to Global Memory: as many 32-byte transactions as are touched"
SIMPLE = "CUDA C++ Best Practices Guide, A Simple Access Pattern: four 32-byte transactions"
MISALIGNED = "CUDA C++ Best Practices Guide, A Sequential but Misaligned Access Pattern: five 32-byte segments"
STRIDED = "CUDA C++ Best Practices Guide, Strided Accesses: a stride of 2 uses half of what is loaded, and so on"
VECTORS = "CUDA C++ Programming Guide, Device Memory Accesses: words of 1 to 16 bytes, in 32-byte transactions"
STRUCTS = "CUDA C++ Best Practices Guide, Strided Accesses, of structures: what lies between is loaded too"
BANKS = "CUDA C++ Programming Guide, Compute Capability 5.x, Shared Memory: 32 banks of 32-bit words, figure of strides"
IRREGULAR = "CUDA C++ Programming Guide, Compute Capability 5.x, Shared Memory: figure of irregular accesses"
BROADCAST = (
    "CUDA C++ Programming Guide, Compute Capability 5.x, Shared Memory: one word in several lanes is no conflict"
)
COLUMN = "CUDA C++ Best Practices Guide, Shared Memory in Matrix Multiplication (C=AAT): w-way conflicts, and w + 1"
WIDE = "CUDA C Programming Guide 4.2, F.4.3.2: 64-bit requests are split by half-warps, 128-bit by quarters"
PAIRS = "forums.developer.nvidia.com 77228, NVIDIA: lanes n, n^1 or n, n^2 with one address: 2 requests in place of 4"
MATRIX = "PTX ISA, ldmatrix: eight rows of 16 bytes a matrix, which 32 banks deliver at once if no two share one"
COPIES = "PTX ISA, cp.async: 4, 8 or 16 bytes a lane; CUDA C++ Best Practices Guide, Simple Access Pattern"
LANES = "CUDA C++ Programming Guide, SIMT Architecture: each path of a branch runs with the lanes that take it"
ARITHMETIC = "CUDA C++ Programming Guide, SIMT Architecture: a warp executes one common instruction at a time"


class Known(NamedTuple):
    """A kernel's body and what it counts: of accesses of a kind in a space, or `instructions` and lanes of a kind."""

    name: str
    body: str
    what: str
    cost: int
    least: int
    source: str


def _global(name: str, index: str, cost: int, least: int, source: str, kind: str = "float") -> Known:
    return Known(name, _copied("a", index, kind), "load global", cost, least, source)


def _shared(name: str, index: str, cost: int, least: int, source: str, kind: str = "float") -> Known:
    return Known(name, f"s[lane] = 1.0f; {_copied('s', index, kind)}", "load shared", cost, least, source)


def _copied(array: str, index: str, kind: str) -> str:
    """Return a copy of one value, which uses all of its bytes."""
    return f"reinterpret_cast<{kind} *>(out)[lane] = reinterpret_cast<const {kind} *>({array})[{index}];"


def _matrix(name: str, number: int, row_bytes: int, cost: int) -> Known:
    lane = f"lane % {8 * number}"
    body = f"unsigned r[{number}]; ptx::ldmatrix_x{number}(r, ptx::smem_address(s) + {lane} * {row_bytes}); "
    return Known(name, body + "out[lane] = float(r[0]);", "matrix shared", cost, number, MATRIX)


KNOWN = (
    _global("sequential", "lane", 4, 4, SIMPLE),
    _global("permuted", "lane ^ 5", 4, 4, SIMPLE),
    _global("misaligned_by_a_float", "lane + 1", 5, 4, MISALIGNED),
    _global("misaligned_by_a_segment", "lane + 8", 4, 4, MISALIGNED),
    _global("stride_2", "2 * lane", 8, 4, STRIDED),
    _global("stride_3", "3 * lane", 12, 4, STRUCTS),
    _global("stride_8", "8 * lane", 32, 4, STRIDED),
    _global("column", "32 * lane", 32, 4, STRIDED),
    _global("one_address", "7", 1, 1, GUIDE),
    _global("one_segment", "lane % 8", 1, 1, GUIDE),
    _global("two_rows", "lane / 16 * 1024 + lane % 16", 4, 4, GUIDE),
    _global("rows_of_five", "lane / 5 * 64 + lane % 5", 7, 4, GUIDE),
    _global("bytes", "lane", 1, 1, VECTORS, "unsigned char"),
    _global("halves", "lane", 2, 2, VECTORS, "unsigned short"),
    _global("halves_misaligned", "lane + 1", 3, 2, MISALIGNED, "unsigned short"),
    _global("doubles", "lane", 8, 8, VECTORS, "double"),
    _global("doubles_stride_2", "2 * lane", 16, 8, STRIDED, "double"),
    _global("float2s", "lane", 8, 8, VECTORS, "float2"),
    _global("float4s", "lane", 16, 16, VECTORS, "float4"),
    _global("float4s_column", "lane * 8", 32, 16, STRIDED, "float4"),
    Known("half_a_warp", "if (lane < 16) out[lane] = a[lane];", "load global", 2, 2, GUIDE),
    Known("stores", "out[lane] = 1.0f;", "store global", 4, 4, SIMPLE),
    Known("stores_in_a_column", "out[32 * lane] = 1.0f;", "store global", 32, 4, STRIDED),
    Known("stores_misaligned", "out[lane + 1] = 1.0f;", "store global", 5, 4, MISALIGNED),
    _shared("shared_sequential", "lane", 1, 1, BANKS),
    _shared("shared_stride_2", "2 * lane", 2, 1, BANKS),
    _shared("shared_stride_3", "3 * lane", 1, 1, BANKS),
    _shared("shared_stride_4", "4 * lane", 4, 1, BANKS),
    _shared("shared_stride_16", "16 * lane", 16, 1, BANKS),
    _shared("shared_column", "32 * lane", 32, 1, COLUMN),
    _shared("shared_padded_column", "33 * lane", 1, 1, COLUMN),
    _shared("shared_permutation", "lane ^ 21", 1, 1, IRREGULAR),
    _shared("shared_one_word_in_five_lanes", "(0x2d8 >> lane & 1) ? 5 : lane", 1, 1, IRREGULAR),
    _shared("shared_broadcast", "9", 1, 1, BROADCAST),
    _shared("shared_two_words_of_a_bank", "lane % 2 * 32", 2, 1, BROADCAST),
    _shared("shared_halves", "lane", 1, 1, BROADCAST, "unsigned short"),
    _shared("shared_doubles", "lane", 2, 2, WIDE, "double"),
    _shared("shared_doubles_stride_2", "2 * lane", 4, 2, WIDE, "double"),
    _shared("shared_doubles_in_pairs", "lane / 2", 1, 1, PAIRS, "double"),
    _shared("shared_doubles_broadcast", "3", 1, 1, PAIRS, "double"),
    _shared("shared_float4s", "lane", 4, 4, WIDE, "float4"),
    _shared("shared_float4s_column", "8 * lane", 32, 4, WIDE, "float4"),
    _shared("shared_float4s_padded_column", "9 * lane", 4, 4, WIDE, "float4"),
    _shared("shared_float4s_in_pairs", "lane / 2", 2, 2, PAIRS, "float4"),
    _shared("shared_float4s_in_pairs_apart", "lane / 4 * 2 + lane % 2", 2, 2, PAIRS, "float4"),
    _shared("shared_float4s_in_fours_apart", "lane % 4", 4, 2, PAIRS, "float4"),
    _shared("shared_float4s_broadcast", "3", 2, 2, PAIRS, "float4"),
    Known("shared_stores_in_a_column", "s[32 * lane] = 1.0f; out[lane] = s[lane];", "store shared", 32, 1, COLUMN),
    Known("shared_stores_padded", "s[33 * lane] = 1.0f; out[lane] = s[lane];", "store shared", 1, 1, COLUMN),
    Known("shared_float4_stores", "reinterpret_cast<float4 *>(s)[lane] = {}; out[lane] = s[lane];", "store shared",
          4, 4, WIDE),
    _matrix("ldmatrix_rows_adjoin", 4, 16, 4),
    _matrix("ldmatrix_rows_of_128_bytes", 4, 128, 32),
    _matrix("ldmatrix_rows_padded_to_144", 4, 144, 4),
    _matrix("ldmatrix_of_one_row", 4, 0, 4),
    _matrix("ldmatrix_two", 2, 16, 2),
    _matrix("ldmatrix_one", 1, 128, 8),
    Known("copies_of_4", "COPY(4, lane, lane)", "copy global", 4, 4, COPIES),
    Known("copies_of_16", "COPY(16, 4 * lane, 4 * lane)", "copy global", 16, 16, COPIES),
    Known("copies_to_a_row", "COPY(16, 4 * lane, 4 * lane)", "copy shared", 4, 4, WIDE),
    Known("copies_to_a_column", "COPY(4, 32 * lane, lane)", "copy shared", 32, 1, COLUMN),
    Known("copies_to_a_padded_column", "COPY(4, 33 * lane, lane)", "copy shared", 1, 1, COLUMN),
    Known("copies_that_read_nothing", "for (unsigned i = 0; i < blockDim.x / 16; ++i)"
          " { ptx::cp_async_ca<4>(ptx::smem_address(&s[lane]), &a[lane % 16], lane / 16 == i ? 4 : 0);"
          " ptx::cp_async_wait_all(); }", "copy global", 4, 4, LANES),
    Known("a_quarter_diverges", "if (lane < 8) out[lane] = 1.0f;", "store", 1, 8, LANES),
    Known("two_paths", "if (lane % 2) out[lane] = a[0]; else out[lane] = a[1] + a[2];", "load", 3, 48, LANES),
    Known("trips_differ", "for (unsigned i = 0; i < lane; ++i) out[lane + 32 * i] = 1.0f;", "store", 31, 496, LANES),
    Known("halves_meet_at_a_barrier",
          "for (unsigned i = 0; i < blockDim.x / 16; ++i) { if (lane / 16 == i) out[lane] = 1.0f; __syncthreads(); }",
          "store", 2, 32, LANES),
    Known("halves_meet_at_a_collective",
          "for (unsigned i = 0; i < blockDim.x / 16; ++i) { if (lane / 16 == i) out[lane] = 1.0f; __syncwarp(); }",
          "store", 2, 32, LANES),
    Known("multiply_adds", "float x = 0; for (int i = 0; i < 9; ++i) x += a[i] * a[i]; out[lane] = x;", "multiply-add",
          9, 288, ARITHMETIC),
    Known("barriers", "__syncthreads(); __syncthreads();", "barrier", 2, 64, ARITHMETIC),
    Known("shuffles", "out[lane] = __shfl_xor_sync(~0u, a[lane], 1);", "collective", 1, 32, ARITHMETIC),
)  # fmt: skip

_HEAD = """#include "ptx.cuh"
#define COPY(bytes, to, from) \\
  ptx::cp_async_ca<bytes>(ptx::smem_address(&s[to]), &a[from]); ptx::cp_async_wait_all();
"""


def source() -> str:
    """Return a .cu with all of the kernels."""
    kernels = (
        f"__global__ void {known.name}(const float *a, float *out) {{\n"
        f"  __shared__ __align__(128) float s[32 * 36];\n  const unsigned lane = threadIdx.x;\n  {known.body}\n}}\n"
        for known in KNOWN
    )
    return _HEAD + "".join(kernels)
