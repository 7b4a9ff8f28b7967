"""Products of 32 bits in offsets into memory: clang-tidy finds them in a .cu with its templates instantiated.

offsets.yaml holds the query. A product that indexes shared memory, or that a precondition bounds, is in ACCEPTED.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernelmark.bench.emulator.build import CUDA, HERE
from kernelmark.bench.emulator.sweep import EmulatedCase, entries

QUERY = Path(__file__).with_name("offsets.yaml")
#: constinit forbids the initialisers of some shared variables in clang, which g++ accepts.
SHARED = "#undef __shared__\n#define __shared__ static thread_local\n"
DIAGNOSTIC = re.compile(r"^(/[^:\n]+):(\d+):(\d+): (?:warning: (.*) \[custom-offset\]|error: .*)$", re.MULTILINE)

#: What the query finds and what cannot overflow, by file and part of the line, with the reason.
ACCEPTED = {
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


@dataclass(frozen=True)
class Finding:
    """A product of 32 bits that becomes an offset, or an offset that is cut to 32 bits; `file` is below `cuda/`."""

    file: str
    line: int
    column: int
    message: str
    text: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}: offset: {self.message}: {self.text.strip()}"

    def accepted(self) -> Iterator[tuple[str, str]]:
        """Yield the entries of ACCEPTED that the finding begins in."""
        for file, part in ACCEPTED:
            spans = (match.span() for match in re.finditer(re.escape(part), self.text))
            if file == self.file and any(begin < self.column <= end for begin, end in spans):
                yield file, part


def clang_tidy() -> str | None:
    """Return the program, from this environment first, or None."""
    beside = Path(sys.executable).with_name("clang-tidy")
    return str(beside) if beside.exists() else shutil.which("clang-tidy")


def instances(cases: Iterable[EmulatedCase]) -> tuple[str, ...]:
    """Return the name expressions of one case for each tile of a kernel, and for each of the words on its axes."""
    chosen: dict[tuple[object, ...], EmulatedCase] = {}
    for case in cases:
        variant = [value for value in msgspec.structs.astuple(case.problem) if isinstance(value, str)]
        chosen.setdefault((case.kernel.id, *variant), case)
        chosen.setdefault((case.kernel.id, str(case.tile)), case)
    return entries(list(chosen.values()))


def findings(source: str, names: Iterable[str], cuda: Path = CUDA) -> list[Finding]:
    """Return what the query finds in a .cu below `cuda`, instantiated for these name expressions.

    Raises ValueError where the source does not compile: without its types, the query would find nothing.
    """
    table = "".join(f"    EMU_ENTRY({name}),\n" for name in names)
    unit = f'{SHARED}#include "{cuda / source}"\nconst emu::Entry table[] = {{\n{table}}};\n'
    flags = ["-std=c++20", f"-I{cuda}", f"-I{HERE / 'include'}", "-include", "emulator.h", "-ferror-limit=0"]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "unit.cpp")
        file.write_text(unit)
        command = [clang_tidy() or "clang-tidy", "--quiet", "--experimental-custom-checks", f"--config-file={QUERY}"]
        done = subprocess.run([*command, str(file), "--", *flags], capture_output=True, text=True)
    found = [_finding(match, cuda) for match in DIAGNOSTIC.finditer(done.stdout)]
    refused = next((line for line in done.stdout.splitlines() if ": error: " in line), None)
    if refused or done.returncode or "[clang-tidy-config]" in done.stdout:
        raise ValueError(f"{source}: clang-tidy cannot judge it: {refused or done.stdout + done.stderr}")
    return list(dict.fromkeys(found))


def _finding(match: re.Match[str], cuda: Path) -> Finding:
    path, line, column = Path(match[1]), int(match[2]), int(match[3])
    name = path.relative_to(cuda) if path.is_relative_to(cuda) else path
    return Finding(str(name), line, column, match[4], path.read_text().splitlines()[line - 1])


def unaccepted(found: Iterable[Finding]) -> list[Finding]:
    """Return the findings that no entry of ACCEPTED names."""
    return [finding for finding in found if not any(finding.accepted())]
