"""The emulator's counts agree with NVIDIA's rules, to the last sector and wavefront, and with published counters."""

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from emulator.fixtures import read, written
from kernelmark.bench.emulator.build import CUDA, compiler, program, source_folder
from kernelmark.bench.emulator.counters import FLAGS, cannot_count, with_multiply_adds
from kernelmark.bench.emulator.counts import Tallies, Widths, sample, tallies_of
from kernelmark.bench.emulator.worker import EmulatedTensorMap, Launch
from kernelmark.bench.measure.compile import Cubin, compile_cubin
from kernelmark.bench.tune.profile import sass
from kernelmark.bench.tune.profile.sass import access_widths, instructions, main_loop

GUIDE = "CUDA C++ Best Practices Guide, Coalesced Access to Global Memory: a transaction per 32-byte segment touched"
SIMPLE = "CUDA C++ Best Practices Guide, A Simple Access Pattern: four 32-byte transactions"
MISALIGNED = "CUDA C++ Best Practices Guide, A Sequential but Misaligned Access Pattern: five 32-byte segments"
STRIDED = "CUDA C++ Best Practices Guide, Strided Accesses: a stride of 2 uses half of what is loaded, and so on"
VECTORS = "CUDA C++ Programming Guide, Device Memory Accesses: words of 1 to 16 bytes, in 32-byte transactions"
STRUCTS = "CUDA C++ Best Practices Guide, Strided Accesses, of structures: the bytes between are loaded too"
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
TURNS = "CUDA C++ Programming Guide, SIMT Architecture: atomics of lanes on one word are performed one after another"
ARITHMETIC = "CUDA C++ Programming Guide, SIMT Architecture: a warp executes one common instruction at a time"


class Known(NamedTuple):
    """A kernel's body with known counts of one kind of access (such as `load global`) or one kind of instruction."""

    name: str
    body: str
    what: str
    cost: int
    least: int
    source: str


def _global(name: str, index: str, cost: int, least: int, source: str, kind: str = "float") -> Known:
    return Known(name, _copied("a", index, kind), "load global", cost, least, source)


def _shared(name: str, index: str, cost: int, least: int, source: str, kind: str = "float") -> Known:
    body = f"s[lane] = 1.0f; __syncthreads(); {_copied('s', index, kind)}"  # without the store, nvcc would load nothing
    return Known(name, body, "load shared", cost, least, source)


def _copied(array: str, index: str, kind: str) -> str:
    """Return a statement that copies one value, so that all of its bytes are used."""
    return f"reinterpret_cast<{kind} *>(out)[lane] = reinterpret_cast<const {kind} *>({array})[{index}];"


def _struct(members: str, alignment: str = "") -> str:
    return f"struct {alignment}S {{ {members} }}; {_copied('a', 'lane', 'S')}"


def _matrix(name: str, number: int, row_bytes: int, cost: int) -> Known:
    lane = f"lane % {8 * number}"
    body = f"unsigned r[{number}]; ptx::ldmatrix_x{number}(r, ptx::smem_address(s) + {lane} * {row_bytes}); "
    return Known(name, body + "out[lane] = float(r[0]);", "matrix shared", cost, number, MATRIX)


#: Adds eight numbers of shared memory in a loop that nvcc unrolls; nvcc joins loads of adjoining numbers.
_SUM = "s[lane] = a[lane]; __syncthreads(); float x = 0; for (int i = 0; i < 8; ++i) x += s[{}]; out[lane] = x;"
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
    Known("constant_float4s", "reinterpret_cast<float4 *>(out)[lane] = float4{1, 2, 3, 4};", "store global", 16, 16,
          VECTORS),
    Known("zero_float2s", "reinterpret_cast<float2 *>(out)[lane] = make_float2(0, 0);", "store global", 8, 8, VECTORS),
    Known("constant_uchar4s", "reinterpret_cast<uchar4 *>(out)[lane] = make_uchar4(1, 2, 3, 4);", "store global", 4, 4,
          VECTORS),
    Known("constant_double2s", "reinterpret_cast<double2 *>(out)[lane] = make_double2(1, 2);", "store global", 16, 16,
          VECTORS),
    Known("shared_constant_float4s",
          "reinterpret_cast<float4 *>(s)[lane] = make_float4(0, 1, 2, 3); out[lane] = s[lane];",
          "store shared", 4, 4, WIDE),
    Known("four_stores", "for (int i = 0; i < 4; ++i) out[4 * lane + i] = a[lane];", "store global", 64, 16, STRIDED),
    Known("structs_of_two_floats", _struct("float x, y;"), "load global", 16, 8, STRUCTS),
    Known("structs_of_three_floats", _struct("float x, y, z;"), "load global", 36, 12, STRUCTS),
    Known("structs_of_four_floats", _struct("float x, y, z, w;"), "store global", 64, 16, STRUCTS),
    Known("aligned_structs_of_eight_floats", _struct("float v[8];", "alignas(16) "), "load global", 64, 32, STRUCTS),
    Known("atomics_on_one_word", "atomicAdd(out, a[lane]);", "atomic global", 1, 1, GUIDE),
    Known("shared_atomics_on_four_words",
          "int *h = reinterpret_cast<int *>(s); h[lane] = 0; __syncthreads(); atomicAdd(&h[lane / 8], 1);"
          " __syncthreads(); out[lane] = float(h[lane]);", "atomic shared", 8, 1, TURNS),
    Known("barriers", "__syncthreads(); __syncthreads();", "barrier", 2, 64, ARITHMETIC),
    Known("shuffles", "out[lane] = __shfl_xor_sync(~0u, a[lane], 1);", "collective", 1, 32, ARITHMETIC),
    Known("shuffles_of_doubles", "double x = a[lane]; out[lane] = float(__shfl_xor_sync(~0u, x, 1));", "collective",
          2, 64, ARITHMETIC),
    Known("joined_shared_loads", _SUM.format("i"), "load shared", 4, 4, PAIRS),
    Known("joined_shared_rows", _SUM.format("8 * lane + i"), "load shared", 16, 8, WIDE),
    Known("padded_shared_columns", _SUM.format("lane + 32 * i"), "load shared", 8, 8, BANKS),
)  # fmt: skip

#: Kernels whose access widths only the machine code shows: g++ splits constants, and keeps structs whole.
CUT = {known.name for known in KNOWN if re.search("constant|zero|structs|joined", known.name)}
#: The names of counted instructions, by opcode of the machine code.
OPCODES = {"LDG": "load global", "STG": "store global", "LDS": "load shared", "STS": "store shared"}
OPCODES |= {"LDGSTS": "copy shared", "BAR": "barrier", "SHFL": "collective", "LDSM": "collective"}
OPCODES |= {"RED": "atomic global", "REDG": "atomic global", "ATOMS": "atomic shared"}

_HEAD = """#include "ptx.cuh"
#define COPY(bytes, to, from) \\
  ptx::cp_async_ca<bytes>(ptx::smem_address(&s[to]), &a[from]); ptx::cp_async_wait_all();
"""


def known_file() -> Path:
    kernels = (
        f"__global__ void {known.name}(const float *a, float *out) {{\n"
        f"  __shared__ __align__(128) float s[32 * 36];\n  const unsigned lane = threadIdx.x;\n  {known.body}\n}}\n"
        for known in KNOWN
    )
    return source_folder({"known.cu": _HEAD + "".join(kernels)}) / "known.cu"


COURSE = "github.com/eduardo4jesus/cuda-training-series 2cce63d, exercises/hw8"
SUMS = "github.com/eduardo4jesus/cuda-training-series 6269da9, exercises/hw4/Profile Output - RTX 3070"
PRODUCT = "forums.developer.nvidia.com/t/profiling-coalesced-memory-accesses-confusion/169185"

#: Nsight Compute's names of counters, without the prefixes l1tex__ and smsp__sass_average_ and .sum, .ratio or .pct.
REQUESTS_LOADED, REQUESTS_STORED = (f"t_requests_pipe_lsu_mem_global_op_{does}" for does in ("ld", "st"))
SECTORS_LOADED, SECTORS_STORED = (f"t_sectors_pipe_lsu_mem_global_op_{does}" for does in ("ld", "st"))
SECTORS_A_LOAD = "average_t_sectors_per_request_pipe_lsu_mem_global_op_ld"
WAVEFRONTS_LOADED = "data_pipe_lsu_wavefronts_mem_shared_op_ld"
BYTES_A_WAVEFRONT = "data_bytes_per_wavefront_mem_shared"  # per cent of 128


class Published(NamedTuple):
    """A kernel's body and the published counters of a launch of `stands_for` equal blocks, of which only one is run."""

    name: str
    body: str
    block: tuple[int, int]
    stands_for: int
    counters: Mapping[str, float]
    source: str


def _transposition(name: str, body: str, sectors: tuple[int, int], task: str, **shared: float) -> Published:
    """Return a transposition of 4096 x 4096 doubles, with its published counters, in a grid of 128 x 128 blocks."""
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
    """Return row or column sums of 16384 x 16384 floats, one per thread. One of 512 warps runs, with 32 terms a sum."""
    body = (
        "const float *f = reinterpret_cast<const float *>(a); float sum = 0; "
        f"for (int i = 0; i < 32; ++i) sum += f[{index}]; reinterpret_cast<float *>(out)[x] = sum;"
    )
    return Published(name, body, (32, 1), 512 * 16384 // 32, {REQUESTS_LOADED: 8_388_608} | counters, SUMS)


def _product(name: str, term: str, sectors: float) -> Published:
    """Return a product of int matrices, an element per thread, by blocks of 32 x 16. Ratios are equal for all sizes."""
    body = (
        "const int n = 512; const int *i = reinterpret_cast<const int *>(a), *j = i + 64 * n; int sum = 0; "
        f"for (int k = 0; k < 32; ++k) sum += {term}; reinterpret_cast<int *>(out)[y * n + x] = sum;"
    )
    return Published(name, body, (32, 16), 1, {SECTORS_A_LOAD: sectors}, PRODUCT)


BY_ROW, BY_COLUMN = "[threadIdx.y][threadIdx.x]", "[threadIdx.x][threadIdx.y]"
PUBLISHED = (
    _transposition("gathering", "out[y * n + x] = a[x * n + y];", (16_777_216, 4_194_304), "task1/task1"),
    _transposition("scattering", "out[x * n + y] = a[y * n + x];", (4_194_304, 16_777_216), "task1/task1b"),
    _tile("stored_by_columns", 32, BY_COLUMN, BY_ROW, "task2/task2", used=11.76),
    _tile("loaded_by_columns", 32, BY_ROW, BY_COLUMN, "task2/task2b", used=11.76),
    _tile("padded", 33, BY_COLUMN, BY_ROW, "task3/task3", used=100, loaded=1_048_576),
    _sums("row_sums", "x * 16384 + i"),
    _sums("column_sums", "i * 16384 + x", **{SECTORS_LOADED: 33_554_432}),
    _product("product", "i[y * n + k] * j[k * n + x]", 2.5),
    _product("product_of_rows", "i[y * n + k] * j[y * n + k]", 1),
    _product("product_of_columns", "i[k * n + x] * j[k * n + x]", 4),
)


BYTES = 64 * 1024


@pytest.fixture(scope="module")
def worker() -> Path:
    return program(known_file(), [known.name for known in KNOWN], include=CUDA, counts=True)


def counts_of(worker: Path, name: str, threads: int = 32, widths: Widths | None = None) -> Tallies:
    buffers = {"a": read(np.zeros(BYTES // 4, np.float32)), "out": written(BYTES // 4)}
    return tallies_of(worker, buffers, Launch(name, 1, threads, ("a", "out")), widths)


@pytest.fixture(scope="module", params=["sm_90a", pytest.param("sm_80", marks=pytest.mark.long)])
def cubin(request: pytest.FixtureRequest, cuda_compiler: str) -> Cubin:
    return compile_cubin(str(known_file()), tuple(known.name for known in KNOWN), request.param, "known")


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_known_kernel_counts_as_its_machine_code_does(worker: Path, cubin: Cubin, known: Known) -> None:
    code = instructions(cubin.code, cubin.symbols[known.name])
    widths = access_widths([sass.counted(code)])
    tallies = counts_of(worker, known.name, widths=widths).sites.items()
    if not main_loop(code) and known.name != "two_paths":  # nvcc merges both paths
        done = (instruction for instruction in code if instruction.predicate != "@!PT")
        executed = Counter(OPCODES[instruction.name] for instruction in done if instruction.name in OPCODES)
        reached = Counter[str]()
        for site, tally in tallies:
            reached[f"{site.does} {site.space}".strip()] += tally.instructions
        assert {name: reached[name] for name in OPCODES.values()} == {name: executed[name] for name in OPCODES.values()}
    does, _, space = known.what.partition(" ")
    if space:
        those = [tally for site, tally in tallies if (site.does, site.space) == (does, space)]
        assert (sum(t.cost for t in those), sum(t.least for t in those)) == (known.cost, known.least), known.source
    plain = {(site.does, site.space, site.bytes) for site, _ in tallies if site.does in ("load", "store")}
    assert plain == {(*kind, width) for kind, those in widths.items() for width in those}


@pytest.mark.parametrize(
    "known", [k for k in KNOWN if k.name not in CUT], ids=lambda known: f"{known.name}: {known.what}"
)
def test_known_kernel_counts_what_the_documentation_gives(worker: Path, known: Known) -> None:
    if known.what == "multiply-add" and cannot_count():
        pytest.skip(str(cannot_count()))
    does, _, space = known.what.partition(" ")
    tallies = counts_of(worker, known.name).sites.items()
    those = [tally for site, tally in tallies if site.does == does and space in ("", site.space)]
    figures = [(t.cost, t.least) if space else (t.instructions, t.lanes) for t in those]
    assert [sum(column) for column in zip(*figures, strict=True)] == [known.cost, known.least], known.source


def test_enough_kernels_are_known() -> None:
    assert len(KNOWN) >= 40
    assert all(known.source for known in KNOWN)


@pytest.fixture(scope="module")
def profiled() -> Path:
    source = "".join(
        f"__global__ void {each.name}(const double *a, double *out) {{\n"
        "  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
        f"  {each.body}\n}}\n"
        for each in PUBLISHED
    )
    folder = source_folder({"published.cu": source})
    return program(folder / "published.cu", [each.name for each in PUBLISHED], include=CUDA, counts=True)


@pytest.mark.parametrize("each", PUBLISHED, ids=lambda each: each.name)
def test_kernel_counts_what_nsight_compute_has_counted_of_it_on_a_gpu(profiled: Path, each: Published) -> None:
    buffers = {"a": read(np.zeros(32 * 16384)), "out": written(32 * 4096, np.float64)}
    tallies = tallies_of(profiled, buffers, Launch(each.name, 1, each.block, ("a", "out"))).sites.items()

    def total(figure: str, does: str, space: str) -> int:
        return sum(getattr(tally, figure) for site, tally in tallies if (site.does, site.space) == (does, space))

    counted = {
        f"t_{name}_pipe_lsu_mem_global_op_{short}": total(figure, does, "global") * each.stands_for
        for name, figure in {"requests": "requests", "sectors": "cost"}.items()
        for short, does in {"ld": "load", "st": "store"}.items()
    }
    counted[SECTORS_A_LOAD] = total("cost", "load", "global") / total("requests", "load", "global")
    counted[WAVEFRONTS_LOADED] = total("cost", "load", "shared") * each.stands_for
    shared = [(site, tally) for site, tally in tallies if site.space == "shared"]
    moved = sum(tally.lanes * site.bytes for site, tally in shared)
    if shared:
        percent = 100 * moved / (128 * sum(tally.cost for _, tally in shared))
        counted[BYTES_A_WAVEFRONT] = round(percent, 2)
    assert {name: counted[name] for name in each.counters} == each.counters, each.source


@pytest.mark.parametrize("tuning", ["generic", "znver3"])
def test_sums_over_a_loop_are_fused_whatever_the_compiler_takes_to_be_fast(tuning: str) -> None:
    if reason := cannot_count():
        pytest.skip(reason)
    sum_over = (
        "float f(const float *a, int n) { float s = 0; for (int i = 0; i < n; ++i) s += a[i] * a[n - i]; return s; }"
    )
    command = [compiler(), "-O1", f"-mtune={tuning}", *FLAGS, "-x", "c++", "-S", "-", "-o", "-"]
    assembly = subprocess.run(command, input=sum_over, capture_output=True, text=True, check=True).stdout
    assert ".Lemu_multiply_add_0:" in with_multiply_adds(assembly)


def test_warps_are_counted_one_by_one(worker: Path) -> None:
    (site, tally), *_ = [(s, t) for s, t in counts_of(worker, "stores", 80).sites.items() if s.does == "store"]
    assert tally.instructions == 3, "the last warp has 16 lanes"
    assert (tally.lanes, tally.cost) == (80, 10)
    assert site.line > 0
    assert site.file.endswith("known.cu")


BOX = """#include "ptx_hopper.cuh"
__global__ void box(const __grid_constant__ TensorMap map, float *out, int column) {
  __shared__ __align__(128) float s[32 * 32];
  __shared__ unsigned long long arrived;
  const unsigned barrier = ptx::smem_address(&arrived);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(barrier, sizeof s);
    ptx::tma_load(ptx::smem_address(s), &map, column, 0, 0, barrier);
  }
  __syncthreads();
  ptx::mbarrier_wait(barrier, 0);
  out[threadIdx.x] = s[threadIdx.x];
}"""


@pytest.mark.parametrize(("column", "sectors"), [(0, 32 * 4), (4, 32 * 5), (48, 32 * 2)])
def test_box_of_the_tma_takes_the_sectors_of_its_rows(column: int, sectors: int) -> None:
    """Rows have 128 bytes: aligned, beginning in the middle of a sector, or half outside the tensor."""
    worker = program(source_folder({"box.cu": BOX}) / "box.cu", ["box"], counts=True)
    buffers = {"a": read(np.zeros(64 * 32, np.float32)), "out": written(32)}
    maps = EmulatedTensorMap("a", (64, 32, 1), (256, 256 * 32), (32, 32), 4)
    tallies = tallies_of(worker, buffers, Launch("box", 1, 32, (maps, "out", column))).sites
    boxes = {site.space: tally for site, tally in tallies.items() if site.does == "box"}
    assert boxes["global"].cost == sectors
    assert boxes["global"].instructions == 1
    assert boxes["shared"].cost == 32


REMOTE = """#include <cooperative_groups.h>
__global__ void remote(float *out, int stride) {
  __shared__ float s[32 * 32];
  auto cluster = cooperative_groups::this_cluster();
  s[threadIdx.x] = 1.0f;
  cluster.sync();
  out[blockIdx.x * 32 + threadIdx.x] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[stride * threadIdx.x];
  cluster.sync();
}"""


@pytest.mark.parametrize(("stride", "cost"), [(1, 2), (32, 64)])
def test_shared_memory_of_another_block_takes_the_wavefronts_that_ones_own_would(stride: int, cost: int) -> None:
    worker = program(source_folder({"remote.cu": REMOTE}) / "remote.cu", ["remote"], counts=True)
    launch = Launch("remote", 2, 32, ("out", stride), cluster=2)
    tallies = tallies_of(worker, {"out": written(64)}, launch).sites.items()
    (load,) = [tally for site, tally in tallies if (site.does, site.space) == ("load", "shared")]
    assert (load.cost, load.least) == (cost, 2)


@pytest.mark.parametrize("grid", [28, (40, 30), (6, 5, 4), (2, 1000), 10_007, (64, 1, 7)])
@pytest.mark.parametrize("cluster", [1, 2])
def test_sample_stands_for_every_block(grid: int | tuple[int, ...], cluster: int) -> None:
    launch = Launch("k", grid, 32, (), cluster=cluster)
    wide = int(np.prod(grid)) // cluster
    chosen = sample(launch)
    if not chosen:
        assert wide <= 27
        return
    assert sum(chosen.values()) == wide
    assert all(0 <= number < wide for number in chosen)
    assert {0, wide - 1} <= set(chosen)


def test_blocks_that_wait_for_each_other_are_all_run() -> None:
    assert not sample(Launch("k", 1000, 32, (), cooperative=True))
