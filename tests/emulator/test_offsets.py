"""Offsets are computed in 64 bits: clang-tidy finds 32-bit products; runs with rows far apart find other overflows."""

import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from emulator.fixtures import first_short, outcomes_of
from emulator.proof import Overflow, emulated, kernels_by_source, swept
from kernelmark.bench.emulator.build import CUDA, HERE, source_folder
from kernelmark.bench.emulator.shapes import is_long, is_whole
from kernelmark.bench.emulator.sweep import EmulatedCase, complaints, entries
from kernelmark.bench.emulator.worker import Buffer, Launch
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.operation import Problem
from support.emulated import wrong_in_emulator

#: The leading dimension: row 4 begins beyond 2^32, and none of its first 2^9 multiples is near a multiple of 2^32.
LEADING = 2**30 + 3 * 2**21
QUERY = Path(__file__).with_name("offsets.yaml")
CLANG_TIDY = Path(sys.executable).with_name("clang-tidy")
#: Replaces `constinit`, with which clang, but not g++, rejects the initialisers of some shared variables.
SHARED = "#undef __shared__\n#define __shared__ static thread_local\n"
DIAGNOSTIC = re.compile(r"^(/[^:\n]+):(\d+):(\d+): (?:warning: (.*) \[custom-offset\]|error: .*)$", re.MULTILINE)

#: Findings of the query that cannot overflow, by file and part of the line, with the reason.
ACCEPTED = {
    ("emu/math.h", "int(__double_as_longlong(x))"): "the low word",
    ("emu/math.h", "unsigned(x >> 32)"): "the high word",
    ("emu/math.h", "__brev(unsigned(x)) <<"): "the low word",
    ("emu/math.h", "unsigned(a < b ? (long long)b - a : (long long)a - b)"): "a difference of integers",
    ("emu/sync.h", "int(emu::clock())"): "the low word, as of the device's clock",
    ("emu/sync.h", "unsigned(address)"): "an address in shared memory",
    ("aggregate/elements.cuh", "32 * (k - k % V) + lane_id() * V"): "an element of one block",
    ("aggregate/onebit.cuh", "BLOCK - unsigned(left)"): "fewer than a block",
    ("conv/depthwise.cu", "mine[tap]"): "shared memory",
    ("conv/depthwise.cu", "+ tap]"): "a tap of one filter",
    ("conv/depthwise.cu", "tile + lanes.planes * tile_rows * tile_cols"): "shared memory",
    ("conv/depthwise.cu", "weights[a * g.s + b]"): "shared memory",
    ("conv/depthwise.cu", "tile[lanes.at(i, j, tile_rows, tile_cols)]"): "shared memory",
    ("conv/depthwise.cu", "tile[lanes.at(i - i0, j - j0, tile_rows, tile_cols)]"): "shared memory",
    ("conv/direct_tiled.cu", "smem_x[c * places + at]"): "shared memory",
    ("conv/direct_tiled.cu", "smem_w[(c * taps + tap) * ROW + filter]"): "shared memory",
    ("conv/direct_tiled.cu", "smem_x + (BC * places + 3)"): "shared memory",
    ("conv/direct_tiled.cu", "smem_x + c * places + corner"): "shared memory",
    ("conv/direct_tiled.cu", "from[m * step]"): "shared memory",
    ("conv/fft_tiled.cu", "f * gridDim.y + blockIdx.y"): "one of frequencies x groups matrices",
    ("conv/fft_tiled.cu", "2 * tile)"): "a column of the block",
    ("conv/fft_tiled.cu", "blockIdx.z * gridDim.y + blockIdx.y"): "one of frequencies x groups matrices",
    ("conv/fft_tiled_fused.cu", "size_t(m * filter_m + c * filter_c)"): "one of filters x channels matrices",
    ("conv/geometry.cuh", "static_cast<unsigned>(packed)"): "the low word is the multiplier",
    ("conv/im2col.cu", "count + pixel"): "the pixels of all images",
    ("conv/im2col.cu", "tap) * ld + output]"): "a tap of one filter, a pixel of one image",
    ("conv/im2col.cu", "output) * ld + tap * g.depth() + deep]"): "a pixel of one image, below the leading dimension",
    ("conv/implicit_feed.cuh", "int(slopes.at(walk.pace))"): "images that a tile touches have less than 2^31 elements",
    ("conv/implicit_feed.cuh", "static_cast<long long>(first)"): "an image; the product divides",
    ("conv/implicit_feed.cuh", "unsigned(map.gathered_slopes().at(at))"): "see slopes.at(walk.pace)",
    ("conv/lowering.cuh", "high.origin * between_rows()"): "the padding of one image",
    ("conv/lowering.cuh", "wide.origin * between_pixels()"): "the padding of one row",
    ("conv/lowering.cuh", "y * output_width + x"): "a pixel of one image",
    ("conv/lowering_dgrad.cuh", "(this->image.high.first_tap * g.s + this->image.wide.first_tap)"): "a tap of a filter",
    ("conv/lowering_dgrad.cuh", "tap * dilation % stride"): "a phase of the stride",
    ("conv/lowering_dgrad.cuh", "period * dilation % stride"): "a phase of the stride",
    ("conv/lowering_dgrad.cuh", "period * dilation / stride"): "a distance between taps",
    ("conv/winograd4.cu", "size_t(filter / k * ldk + filter % k)"): "one of the filters, padded",
    ("conv/winograd4_fused.cu", "(nth / COLUMNS * F4::SIDE + pass * COLUMNS + nth % COLUMNS)"): "one of 36 frequencies",
    ("fft/small.cu", "i * T"): "an element of the tile",
    ("gemm/batched.cu", "size_t(2 * threadIdx.y)"): "shared memory",
    ("gemm/streamk.cu", "size_t(2 * blockIdx.x + (now.first == 0))"): "one of two tiles a block",
    ("gemm/streamk.cu", "size_t(2 * head + 1)"): "one of two tiles a block",
    ("gemm/streamk.cu", "size_t(2 * i)"): "one of two tiles a block",
    ("gemm/streamk.cu", "unsigned(from - at), to > from ? unsigned(to - from)"): "at most the steps of a tile",
    ("gemm/wgmma.cuh", "from_a + kk * A::ADVANCE"): "a descriptor of shared memory",
    ("gemm/wgmma.cuh", "from_b + kk * B::ADVANCE"): "a descriptor of shared memory",
    ("gemm/wgmma_3xtf32.cu", "b + i * Work::B::ADVANCE"): "a descriptor of shared memory",
    ("gemm/wgmma_rows.cuh", "from_b + i * B::ADVANCE"): "a descriptor of shared memory",
    ("roofline/wgmma.cu", "row * ROW_BYTES + s * sizeof(T)"): "shared memory",
    ("transpose/c2r_fused.cu", "stash + offset<Op::N>(second"): "a column of a row",
    ("transpose/c2r_ring.cuh", "ring + slot * rows * W"): "shared memory",
    ("transpose/c2r_runs.cuh", "run * b % SECTOR"): "a column of a row",
}


def cases_apart(name: str) -> list[EmulatedCase]:
    """Return a case for each layout and a case for each storage type of a kernel, with rows far apart.

    They are the sweep's problems with the most non-default options, with larger padding, and preferably the largest
    ragged sizes.
    """
    kernel = swept(name)[0].kernel
    problems = list(dict.fromkeys(case.problem for case in swept(name) if not is_long(case.problem)))
    sizes = sorted((p for p in problems if not is_whole(p)), key=lambda p: -_work(p))
    chosen: list[EmulatedCase] = []
    seen: set[str] = set()
    for problem in sorted(problems, key=lambda p: (-_changed_options(p), -_work(p))):
        for large in (*sizes[:1], problem):
            words = {problem.dtype, getattr(problem, "layout", "")}
            if words <= seen:
                break
            resized = msgspec.structs.replace(problem, **{name: getattr(large, name) for name in large.sizes})
            pads = {f"ld{operand.name}_pad": LEADING - operand.shape[-1] for operand in resized.operands()}
            pads = {name: pad for name, pad in pads.items() if name in resized.axes()}
            apart = msgspec.structs.replace(resized, **pads)
            if not kernel.refuses(apart) and (tile := kernel.tile_for(apart)) is not None:
                chosen.append(EmulatedCase(kernel, apart, tile))
                seen |= words
    return chosen


def _work(problem: Problem) -> int:
    return math.prod(getattr(problem, name) for name in problem.sizes)


def _changed_options(problem: Problem) -> int:
    fields = [field for field in msgspec.structs.fields(problem) if not field.required]
    return sum(getattr(problem, field.name) != field.default for field in fields)


@dataclass(frozen=True)
class Finding:
    """A product of 32 bits that is used as an offset, or an offset that is cut to 32 bits.

    file: a file below `cuda/`, or a header of the emulator.
    """

    file: str
    line: int
    column: int
    message: str
    text: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}: offset: {self.message}: {self.text.strip()}"

    @property
    def accepted(self) -> bool:
        parts = (re.finditer(re.escape(part), self.text) for file, part in ACCEPTED if file == self.file)
        return any(match.start() < self.column <= match.end() for matches in parts for match in matches)


def findings(source: str, names: Iterable[str], cuda: Path = CUDA) -> list[Finding]:
    """Instantiate the kernels `names` of a .cu file; return the clang-tidy query's findings that are not in ACCEPTED.

    Raises ValueError if the source does not compile: without its types, the query would find nothing.
    """
    table = "".join(f"    EMU_ENTRY({name}),\n" for name in names)
    unit = f'{SHARED}#include "{cuda / source}"\nconst emu::Entry table[] = {{\n{table}}};\n'
    flags = ["-std=c++20", f"-I{cuda}", f"-I{HERE / 'include'}", "-include", "emulator.h", "-ferror-limit=0"]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "unit.cpp")
        file.write_text(unit)
        command = [CLANG_TIDY, "--quiet", "--experimental-custom-checks", f"--config-file={QUERY}"]
        done = subprocess.run([*command, str(file), "--", *flags], capture_output=True, text=True)
    reported = [_finding(match, cuda) for match in DIAGNOSTIC.finditer(done.stdout)]
    refused = next((line for line in done.stdout.splitlines() if ": error: " in line), None)
    if refused or done.returncode or "[clang-tidy-config]" in done.stdout:
        raise ValueError(f"{source}: clang-tidy cannot judge it: {refused or done.stdout + done.stderr}")
    return [finding for finding in dict.fromkeys(reported) if not finding.accepted]


def _finding(match: re.Match[str], cuda: Path) -> Finding:
    path, line, column = Path(match[1]), int(match[2]), int(match[3])
    name = next((path.relative_to(root) for root in (cuda, HERE / "include") if path.is_relative_to(root)), path)
    return Finding(str(name), line, column, match[4], path.read_text().splitlines()[line - 1])


#: Overflows that clang-tidy finds.
STATIC = (
    Overflow("common.cuh", "size_t(row) * ld + col :", "row * ld + col :", "gemm/naive.cu"),
    Overflow("common.cuh", "size_t(col) * ld + row", "size_t(col * ld) + row", "gemm/naive.cu"),
    Overflow("common.cuh", "size_t offset(", "unsigned offset(", "gemm/naive.cu"),
    Overflow("gemm/mma.cuh", "c += blockIdx.z * stride_c", "c += int(blockIdx.z * stride_c)", "gemm/mma_tf32.cu"),
    Overflow("transpose/c2r.cuh", "product(size_t(x) * factor", "product(x * factor", "transpose/c2r.cu"),
    Overflow("transpose/c2r.cuh", "x[offset<Op::N>(i, col, cols)];", "x[i * cols + col];", "transpose/c2r.cu"),
    Overflow("transpose/c2r.cu", "scratch + size_t(blockIdx.x) * cols", "scratch + blockIdx.x * cols"),
    Overflow("conv/implicit.cu", "out += block.slice * elements", "out += int(block.slice * elements)"),
    Overflow("conv/implicit.cu", "size_t across[TN / V]", "unsigned across[TN / V]"),
    Overflow("conv/implicit_feed.cuh", "size_t(w) * map.plain_step()", "w * map.plain_step()", "conv/implicit.cu"),
    Overflow("conv/lowering.cuh", "static_cast<long long>(d.mid) * mid", "int(d.mid) * mid", "conv/implicit.cu"),
    Overflow("gemm/splitk.cu", "size_t(blockIdx.z) * slices * m", "blockIdx.z * slices * m"),
    Overflow("gemm/batched.cu", "b + product * stride_b", "b + product * unsigned(stride_b)"),
    Overflow("gemm/fragment.cuh", "size_t(row(i) - row(0)) * ldc", "(row(i) - row(0)) * ldc", "gemm/warptile.cu"),
    Overflow("conv/columns.cuh", "(size_t(first_slice + slice)", "((first_slice + slice)", "conv/im2col.cu"),
    Overflow("conv/geometry.cuh", "((size_t(a) * channels + b)", "((a * channels + b)", "conv/direct.cu"),
    Overflow("conv/im2col.cu", "const size_t pixels", "const unsigned pixels"),
    Overflow("conv/depthwise.cu", "size_t(filter) * taps", "filter * taps"),
    Overflow("conv/depthwise_wgrad.cuh", "size_t(blockIdx.z) * g.k", "blockIdx.z * g.k", "conv/depthwise.cu"),
    Overflow("conv/winograd.cuh", "size_t(channels) * height", "channels * height", "conv/winograd.cu"),
    Overflow("conv/fft_tiled_cut.cuh", "size_t(y) * cut.w", "y * cut.w", "conv/fft_tiled.cu"),
    Overflow("conv/fft_tiled.cu", "const size_t matrix = f", "const unsigned matrix = f"),
    Overflow("conv/sum.cuh", "const long long element", "const unsigned element", "conv/implicit.cu"),
    Overflow("fft/small.cu", "first = size_t(tile_number<Real, T>()) * T", "first = tile_number<Real, T>() * T"),
    Overflow("roofline/copy.cu", "round = size_t(gridDim.x) * THREADS", "round = gridDim.x * THREADS"),
    Overflow("roofline/copy.cu", "first = size_t(blockIdx.x) * THREADS", "first = blockIdx.x * THREADS"),
)

KERNEL = """__global__ void f(float *x, unsigned m, unsigned ld) {
  const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
%s
}"""
WRONG = (
    "x[row * ld] = 0;",
    "x[size_t(row * ld) + 1] = 0;",
    "*(x + row * ld) = 0;",
    "{ const unsigned at = row * ld + 1; x[at] = 0; }",
    "{ const size_t at = row * ld + 1; x[at] = 0; }",
    "{ const unsigned at = size_t(row) * ld; x[at] = 0; }",
    "{ const size_t at = blockIdx.x * 256 + threadIdx.x; x[at] = 0; }",
    "x[row * ld % m] = 0;",
)
RIGHT = (
    "x[size_t(row) * ld + row] = 0;",
    "{ __shared__ float s[64]; s[threadIdx.x * m] = 0; }",
    "x[blockIdx.x * 256] = 0;",
)


@cache
def _names_of(source: str) -> tuple[str, ...]:
    """Return the name expressions of kernels' cases: a case for each tile, and for each combination of axes' words."""
    chosen: dict[tuple[object, ...], EmulatedCase] = {}
    for case in (case for kernel in kernels_by_source()[source] for case in swept(kernel.id)):
        variant = [value for value in msgspec.structs.astuple(case.problem) if isinstance(value, str)]
        chosen.setdefault((case.kernel.id, *variant), case)
        chosen.setdefault((case.kernel.id, str(case.tile)), case)
    return entries(list(chosen.values()))


@pytest.mark.parametrize("source", first_short(sorted(kernels_by_source())))
def test_no_offset_of_a_kernel_is_a_product_of_32_bits(source: str) -> None:
    overflows = findings(source, _names_of(source))
    assert not overflows, "\n" + "\n".join(map(str, overflows))


def test_accepted_products_stand_in_their_files() -> None:
    for file, part in ACCEPTED:
        path = next(root / file for root in (CUDA, HERE / "include") if (root / file).is_file())
        assert part in path.read_text(), (file, part)


@pytest.mark.parametrize("planted", first_short(STATIC, lambda planted: planted.id))
def test_planted_overflow_is_found_in_its_file(planted: Overflow) -> None:
    overflows = findings(planted.compiled, _names_of(planted.compiled), planted.folder())
    assert planted.file in [finding.file for finding in overflows]


def _findings_in(*statements: str) -> list[Finding]:
    folder = source_folder({"kernel.cu": KERNEL % "\n".join(statements)})
    return findings("kernel.cu", ("f",), folder)


def test_products_of_32_bits_in_offsets_are_found_and_others_are_not() -> None:
    lines = [finding.text for finding in _findings_in(*WRONG, *RIGHT)]
    assert list(dict.fromkeys(lines)) == list(WRONG)


def test_source_that_clang_refuses_is_named() -> None:
    with pytest.raises(ValueError, match=r"kernel\.cu: clang-tidy cannot judge it: .*undeclared identifier 'nonsense'"):
        _findings_in("nonsense;")


#: Overflows that a run with rows far apart finds.
APART = (
    Overflow("panel_share.cuh", "size_t(Panel::ROWS) * ld", "Panel::ROWS * ld", "gemm/blocktile1d.cu"),
    Overflow("common.cuh", "size_t(row) * ld + col :", "row * ld + col :", "gemm/naive.cu"),
    Overflow("gemm/fragment.cuh", "size_t(row(i) - row(0)) * ldc", "(row(i) - row(0)) * ldc", "gemm/warptile.cu"),
    Overflow("gemm/mma.cuh", "c += blockIdx.z * stride_c", "c += int(blockIdx.z * stride_c)", "gemm/mma_tf32.cu"),
    Overflow("gemm/batched.cu", "b + product * stride_b", "b + unsigned(product * stride_b)"),
    Overflow("gemm/store.cuh", "product * Base::stride", "int(product * Base::stride)", "gemm/wgmma_persistent.cu"),
)

COPY = """
__global__ void f(const float *x, float *y, unsigned ld) {
  y[size_t(blockIdx.x) * ld + threadIdx.x] = x[%s * ld + threadIdx.x];
}"""


#: The cases of each kernel of an operation with padded rows.
GROUPS = [
    partial(cases_apart, name)
    for name in emulated()
    if any(axis.endswith("_pad") for axis in discover().operations[name.partition("/")[0]].axes())
]


@pytest.mark.parametrize("every", first_short(GROUPS, lambda group: group.args[0]))
def test_kernel_is_right_where_rows_lie_far_apart(every: partial[list[EmulatedCase]]) -> None:
    assert every()
    assert not wrong_in_emulator(every())


@pytest.mark.parametrize("planted", first_short(APART, lambda planted: planted.id))
def test_planted_overflow_is_found_where_rows_lie_far_apart(planted: Overflow) -> None:
    (kernel, *_) = kernels_by_source()[planted.compiled]
    cases, folder = cases_apart(kernel.id), planted.folder()
    assert any(list(complaints(case, entries(cases), folder)) for case in cases)


def _copy(row: str) -> tuple[list[str], np.ndarray]:
    """Copy six rows that are LEADING floats apart; return the kinds of reports, and the copy."""
    x = np.arange(6 * 32, dtype=np.float32)
    places = tuple(row * LEADING * 4 for row in range(6))
    buffers = {
        "x": Buffer("in", x, 32, LEADING - 32, places),
        "y": Buffer("out", np.full_like(x, np.nan), 32, LEADING - 32, places),
    }
    (outcome, *_) = outcomes_of(COPY % row, Launch("f", 6, 32, ("x", "y", LEADING)), buffers)
    return [report.kind for report in outcome.reports], outcome.outputs["y"]


def test_only_the_rows_of_a_large_buffer_exist() -> None:
    kinds, rows = _copy("size_t(blockIdx.x)")
    assert not kinds
    assert np.array_equal(rows, np.arange(6 * 32))
    assert _copy("blockIdx.x")[0] == ["crash"]


def test_row_that_is_not_written_is_reported() -> None:
    x = np.zeros(4, np.float32)
    buffers = {"x": Buffer("in", x), "y": Buffer("out", x, 2, LEADING - 2, (0, LEADING * 4))}
    (outcome, *_) = outcomes_of(COPY % "0", Launch("f", 1, 2, ("x", "y", LEADING)), buffers)
    assert [str(report) for report in outcome.reports] == [
        f"(no line): not-written: 8 bytes of y never written, the first at +{LEADING * 4}; "
        "block (0, 0, 0) thread (0, 0, 0), 1 time"
    ]
