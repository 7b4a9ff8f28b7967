"""Run kernels' cases against a changed source or header; a mutant about which no case complains survives."""

import heapq
import math
import time
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from subprocess import TimeoutExpired

import msgspec

from emulator.mutation import Mutant
from kernelmark.bench.emulator.build import CUDA, HostCompileError, program, source_folder
from kernelmark.bench.emulator.shapes import is_long, is_whole
from kernelmark.bench.emulator.sweep import EmulatedCase, cases, complaints, entries
from kernelmark.bench.measure.compile import with_includes
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.tiles import Tile
from support.kernels import CUDA as KERNELS

#: Seconds of processor time that a case may take. Most take milliseconds. One that is over time is run again: it may
#: take so many times what the kernel without the mistake takes at that moment, and the longer limit at least, so that
#: neither a slow case nor a busy machine passes for an endless loop.
LIMITS_S, SLOWER = (3, 20), 10
#: What a case may take without a mistake.
SOUND_S = 300
#: The mutants that survive, with the reason of each.
SURVIVORS = Path(__file__).parent / "survivors.md"


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: the first complaint and the case that has it, or None where it survived.

    compiles: False where the complaint is the compiler's.
    """

    file: str
    mutant: Mutant
    complaint: str | None = None
    case: EmulatedCase | None = None
    compiles: bool = True


def mention(file: str, mutant: Mutant) -> str:
    """How the page names a survivor that it explains: `gemm/tiled.cu`: `i < k` -> `i < k + 1`."""
    return f"`{file}`: {mutant.change}"


def are_explained(file: str, mutants: Iterable[Mutant]) -> set[Mutant]:
    """Return the mutants that the page names as often as they occur, so that it is clear which ones it means."""
    page, names = SURVIVORS.read_text(), {mutant: mention(file, mutant) for mutant in mutants}
    count = Counter(names.values())
    return {mutant for mutant, name in names.items() if page.count(name) >= count[name]}


@cache
def kernels_by_source() -> dict[str, list[CudaKernel]]:
    by_source: dict[str, list[CudaKernel]] = {}
    for kernel in KERNELS.values():
        if not kernel.emulated:
            by_source.setdefault(kernel.source, []).append(kernel)
    return by_source


def emulated() -> list[str]:
    return [kernel.id for group in kernels_by_source().values() for kernel in group]


def included(file: str) -> dict[str, str]:
    """A source or a header below `cuda/` and the headers there that it includes, if only through another: the texts."""
    texts = with_includes(CUDA / file, CUDA)
    return {str(path.relative_to(CUDA)): text.decode() for path, text in texts.items()}


@cache
def headers_by_name() -> dict[str, list[str]]:
    """Return the sources of emulated kernels that include each header; asm kernels have twins and are left out."""
    sources: dict[str, list[str]] = {}
    for source in sorted(kernels_by_source()):
        for header in sorted(included(source)):
            if header != source and not header.startswith("ptx"):
                sources.setdefault(header, []).append(source)
    return sources


def plan(file: str, short: bool = False) -> list[list[EmulatedCase]]:
    """The cases that meet a source or a header, by kernel, storage type and layout, in which order they are compiled.

    The kernels with the fewest cases come first, and of each the ragged cases, which find most. short: only the cases
    of the short run.
    """
    sources = headers_by_name()[file] if file.endswith(".cuh") else [file]
    kernels = [kernel.id for source in sources for kernel in kernels_by_source()[source]]
    groups = map(short_run, kernels) if short else ([*short_run(kernel), *paired_cases(kernel)] for kernel in kernels)
    return [group for cases_ in sorted(groups, key=len) for group in _by_variant(cases_)]


@cache
def swept(kernel: str) -> list[EmulatedCase]:
    """Return the cases of a kernel: the product of its axes, sizes, options and tiles.

    They take a tenth of a second, so that no module asks for those of every kernel as it is imported.
    """
    return cases(discover(), KERNELS[kernel])


@cache
def short_run(kernel: str) -> list[EmulatedCase]:
    chosen = {case.id for case in short_cases(swept(kernel))}
    return [c for c in swept(kernel) if c.id in chosen or c.problem.id in ALSO.get(kernel, ())]


def _by_variant(cases_: list[EmulatedCase]) -> list[list[EmulatedCase]]:
    groups: dict[tuple[str, str], list[EmulatedCase]] = {}
    for case in sorted(cases_, key=lambda case: is_whole(case.problem)):
        groups.setdefault((case.problem.dtype, getattr(case.problem, "layout", "")), []).append(case)
    return list(groups.values())


def fate(file: str, mutant: Mutant, plans: Iterable[Sequence[EmulatedCase]]) -> Fate:
    """Compile the mutant in place of the file and run the cases until one complains; each group is one program."""
    for group in plans:
        source = group[0].kernel.source
        folder = source_folder(included(source) | {file: mutant.text})
        names = entries(list(group))
        for case in group:
            try:
                complaint = first_complaint(case, names, folder)
            except HostCompileError as error:
                return Fate(file, mutant, str(error).splitlines()[0], case, compiles=False)
            if complaint:
                return Fate(file, mutant, complaint, case)
    return Fate(file, mutant)


def first_complaint(case: EmulatedCase, names: tuple[str, ...], folder: Path) -> str | None:
    """Return what the case complains about first, or None. Raises HostCompileError."""
    short_s, long_s = LIMITS_S
    complaint = _complaint(case, names, folder, short_s)
    if complaint is None or "timeout: " not in complaint:
        return complaint
    program(CUDA / case.kernel.source, names)  # to compile is no part of what the case takes without a mistake
    began = time.monotonic()
    assert not list(complaints(case, names, limit_s=SOUND_S))
    return _complaint(case, names, folder, max(long_s, math.ceil(SLOWER * (time.monotonic() - began))))


def _complaint(case: EmulatedCase, names: tuple[str, ...], folder: Path, limit_s: int) -> str | None:
    try:
        return next(complaints(case, names, folder, limit_s), None)
    except TimeoutExpired as error:  # it could not even end itself
        return f"{case.id}: timeout: {error.timeout:g} s have passed"


#: Operations and bytes of a problem that has several blocks of most tiles and is done in a tenth of a second.
LITTLE = 200_000
#: Problems that the rule leaves out, and without which the short run misses mutants that the sweep detects.
ALSO = {
    "conv/cuda.depthwise": ("conv/n1c33h5w4k33r3s3pad1/f32/nchw/dgrad/g33",),
    "conv/cuda.im2col": ("conv/n1c5h11w13k7r5s3pad2x1stride3/f32/nhwc/fprop",),
    **dict.fromkeys(
        ("conv/cuda.winograd", "conv/cuda.winograd4", "conv/cuda.winograd4_fused"),
        (
            "conv/n2c5h8w8k5r3s3pad1/f32/nchw/fprop/g5",
            "conv/n2c5h8w8k5r3s3pad1/f32/nhwc/fprop/g5",
            "conv/n2c6h7w5k4r3s3pad0-1x1-0/f32/nchw/fprop/g2",
        ),
    ),
    "fft/cuda.small": ("fft/b8h8w8/f32/r2c", "fft/b8h8w8/f32/c2r"),
    "gemm/cuda.skinny": (
        "gemm/m9n264k8/f32/NN/alpha1.5/beta0.5/batch2/lda+1/ldb+1/ldc+1",
        "gemm/m3n1k1024/f32/NN",
        "gemm/m3n1k1024/f32/NN/alpha1.5/beta0.5/batch2/lda+1/ldb+1/ldc+1",
        "gemm/m3n1k1024/bf16/NN/alpha1.5/beta0.5/batch2/lda+1/ldb+1/ldc+1",
    ),
    "gemm/cuda.splitk": ("gemm/m64n128k32/f32/NT",),
}


Traits = Callable[[EmulatedCase], Iterator[tuple[object, ...]]]


def short_cases(every: Sequence[EmulatedCase]) -> list[EmulatedCase]:
    """Choose cases of a kernel until each trait is seen."""
    return _covering(every, _traits)


@cache
def paired_cases(kernel: str) -> list[EmulatedCase]:
    """Choose cases of a kernel for the long run until each pair of values that the short run lacks is seen."""
    return _covering(swept(kernel), pairs, short_run(kernel))


def _covering(every: Sequence[EmulatedCase], traits: Traits, known: Sequence[EmulatedCase] = ()) -> list[EmulatedCase]:
    """Choose cases until each trait that the known ones lack is seen: each time the one with the most new traits."""
    ranked = sorted(every, key=_rank)
    seen = {trait for case in known for trait in traits(case)}
    added = [set(traits(case)) - seen for case in ranked]
    # What a case adds only becomes less as others are chosen, so that the first that adds what it did is the best.
    best = [(-len(new), place) for place, new in enumerate(added)]
    heapq.heapify(best)
    chosen = []
    while best:
        count, place = heapq.heappop(best)
        new = added[place] - seen
        if len(new) < -count:
            heapq.heappush(best, (-len(new), place))
        elif new:
            chosen.append(ranked[place])
            seen |= new
    return chosen


def _rank(case: EmulatedCase) -> tuple[int, bool, float]:
    """Order ragged cases before others, and the largest of little work first."""
    problem = case.problem
    work = problem.flop + problem.footprint_bytes
    return is_whole(problem) + 2 * is_long(problem), work > LITTLE, work if work > LITTLE else -work


Values = list[tuple[str, object]]


def _features(problem: Problem) -> tuple[Values, Values]:
    """Return the words of a problem's variant (storage type, layout, place), and its options off their default."""
    fields = [(f, getattr(problem, f.name)) for f in msgspec.structs.fields(problem)]
    words = [(f.name, value) for f, value in fields if typing.get_origin(f.type) is typing.Literal]
    options = [(f.name, value) for f, value in fields if not f.required and value != f.default]
    return words, [option for option in options if option not in words]


def _traits(case: EmulatedCase) -> Iterator[tuple[object, ...]]:
    """Yield the variant, the tile, the last size, and options with a word.

    Each option away from its default counts once for each word of the variant, since each has offsets of its own.
    """
    problem = case.problem
    words, options = _features(problem)
    yield tuple(words)
    yield "tile", str(case.tile)
    if case.device != H100 and (getattr(case.tile, "CLUSTER", 1) == 1 or "f16" in problem.dtype or is_long(problem)):
        yield "rounds", case.id  # of clusters that go round with short sums, those of the fastest product
    yield "last size", "long" if is_long(problem) else getattr(problem, problem.sizes[-1])
    yield from ((name, word) for name, _ in options for word in words)


def pairs(case: EmulatedCase) -> Iterator[tuple[object, ...]]:
    """Yield each two of these: a word of the variant, the sizes, the tile, the device, an option off its default.

    Each word also comes with both sizes and tile; and each of these but the sizes with the blocks of each launch along
    each axis, one, two or more.
    """
    words, options = _features(case.problem)
    sizes = tuple(getattr(case.problem, name) for name in case.problem.sizes)
    others = [*words, *options, ("tile", str(case.tile)), ("device", case.device.multiprocessors)]
    yield from combinations([("sizes", sizes), *others], 2)
    yield from ((word, sizes, str(case.tile)) for word in words)
    grids = ((call.grid,) if isinstance(call.grid, int) else call.grid for _, call in case.calls)
    blocks = [(launch, axis, min(count, 3)) for launch, grid in enumerate(grids) for axis, count in enumerate(grid)]
    yield from product(blocks, others)


def corner(
    kernel: str,
    problem: str,
    tile: Mapping[str, int] = {},
    multiprocessors: int = H100.multiprocessors,
    more: Mapping[str, int] = {},
) -> EmulatedCase:
    """Return the case with the first tile of the kernel that has these values, and more that no preferred tile has."""
    declared, device = KERNELS[kernel], replace(H100, multiprocessors=multiprocessors)
    tiles = (preferred for preferred in declared.tiles(device) if tile.items() <= vars(preferred).items())
    return EmulatedCase(declared, discover().problem(problem), Tile(**{**vars(next(tiles)), **more}), device)


WGMMA = "conv/cuda.implicit_wgmma"
CORNERS = (
    # A persistent grid of one cluster, whose blocks take one tile after another.
    corner("gemm/cuda.wgmma_persistent", "gemm/m264n136k8/f16/NT", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    corner("gemm/cuda.wgmma_tf32", "gemm/m136n72k8/f32/NT", {"BN": 64, "CLUSTER": 1}, multiprocessors=1),
    # More than eight rows of tiles: the order has a second band.
    corner("gemm/cuda.mma", "gemm/m577n65k8/f16/NN", {"BM": 64}),
    # More taps than a mask has bits.
    *(corner("conv/cuda.implicit", f"conv/n1c3h9w8k5r7s7pad3/f32/{layout}/{direction}")
      for layout in ("nchw", "nhwc") for direction in ("fprop", "dgrad")),
    corner("conv/cuda.implicit_mma", "conv/n1c8h9w8k16r7s7pad3/f16/nhwc/fprop"),
    corner("conv/cuda.implicit_mma", "conv/n1c8h9w8k16r7s7pad3/f16/nhwc/dgrad"),
    # Runs of columns so long that a warp moves parts of them: more runs than warps, more parts than one, in waves.
    *(corner(f"transpose/cuda.{name}", f"transpose/{problem}/in", tile, multiprocessors=2)
      for name, tile in (("c2r", {"SCRATCH": 0}), ("c2r", {"SCRATCH": 1}), ("c2r_fused", {}))
      for problem in ("m20n516/f32", "m14n510/f16", "m510n14/f32", "m516n20/f64")),
    # Rings of stripes, of which each block has several; rows of whole vectors and others, in both directions.
    *(corner("transpose/cuda.c2r", f"transpose/{problem}/in", {"W": 8}, multiprocessors=1, more={"STAGES": stages})
      for problem, stages in (("m20n516/f32", 2), ("m517n22/f32", 2), ("m22n517/f64", 3), ("m516n20/f64", 3))),
    # The same, and rows that wait for those before them alone.
    corner("transpose/cuda.c2r_fused", "transpose/m20n516/f32/in", {"W": 8}, 1, {"STAGES": 3, "ORDERED": 1}),
    corner("transpose/cuda.c2r_fused", "transpose/m519n21/f32/in", {"W": 8}, 1, {"STAGES": 2, "ORDERED": 1}),
    # Groups of pairs of tiles, an odd and an even number of them, the last ones partly past the edge.
    corner("transpose/cuda.tiled_inplace", "transpose/m270n270/f32/in", {"GROUP": 4}),
    corner("transpose/cuda.tiled_inplace", "transpose/m240n240/f16/in", {"GROUP": 4}),
    corner("transpose/cuda.vectorised_inplace", "transpose/m333n333/f32/in", {"GROUP": 4}),
    # Columns enough for the widest tile, and a k that is divided between two blocks.
    corner("gemm/cuda.splitk", "gemm/m33n200k523/f32/NT", {"BN": 256}),
    corner("gemm/cuda.streamk", "gemm/m33n200k523/f32/NT", {"BN": 256}),
    # Several slices of several columns, the last of them an element short of whole steps.
    corner("gemm/cuda.skinny", "gemm/m7n270k255/f32/NT/alpha2/beta0.5/batch2/lda+1/ldb+2/ldc+3",
        {"WARPS": 2, "COLS": 16}),
    corner("gemm/cuda.skinny", "gemm/m13n72k264/f16/NN", {"WARPS": 2}),
    # Tiles of several channels' steps in turn by a cluster that shares the plain operand, or the gathered one.
    corner(WGMMA, "conv/n2c72h9w10k136r3s2pad1/f16/nhwc/fprop", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    corner(WGMMA, "conv/n2c136h9w10k128r2s3pad0x1/bf16/nhwc/dgrad", {"BN": 256, "CLUSTER": 2}, multiprocessors=2),
    corner(WGMMA, "conv/n18c136h9w3k72r2s1pad1x0stride2x1/f16/nhwc/wgrad", {"BN": 128, "CLUSTER": 2},
        multiprocessors=2),
    # wgmma with rows in registers: steps enough to use each set of them twice, in both layouts.
    corner("gemm/cuda.wgmma_tf32_registers", "gemm/m72n136k104/f32/NN", {"BN": 64, "CLUSTER": 1}, multiprocessors=1),
    corner("gemm/cuda.wgmma_tf32_registers", "gemm/m264n136k104/f32/TT", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    # An odd number of them; and the widest tile, whose results take turns in the buffers, where C is read.
    corner("gemm/cuda.wgmma_tf32_registers", "gemm/m16n24k136/f32/NN/beta0.5", {"BN": 256}, multiprocessors=2),
    # More accumulators than a block has.
    corner("fma/cuda.ffma_fed", "fma/n33000k9/f32/fed"),
    # wgmma with columns turned in shared memory: several tiles in turn, shared by a cluster and not.
    corner("gemm/cuda.wgmma_tf32_turned", "gemm/m520n136k104/f32/TN", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    corner("gemm/cuda.wgmma_tf32_turned", "gemm/m264n72k136/f32/TN/beta0.5", {"BN": 64}, multiprocessors=1),
    # Scales of several blocks of k, an odd and an even number of them, and of columns; padded rows of scales.
    corner("gemm/cuda.wgmma_fp8_blocks", "gemm/m70n136k528/e4m3.f32/NT/batch2/scale-blocks", {"BN": 64, "CLUSTER": 1},
        multiprocessors=1),
    corner("gemm/cuda.wgmma_fp8_blocks", "gemm/m262n136k400/e4m3.bf16/NT/beta0.5/scale-blocks",
        {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    # A block without an empty filter or tile.
    corner("conv/cuda.winograd4_fused", "conv/n3c2h15w15k64r3s3pad1/f32/nchw/fprop"),
    # The widest tile with results of 32 bits, which have fewer buffers than parts.
    corner("gemm/cuda.wgmma_int8", "gemm/m264n264k144/s8.s32/NT", {"BN": 256, "CLUSTER": 2}, multiprocessors=2),
    # Three steps along k, of which the promoted sums of two are in turn.
    corner("gemm/cuda.wgmma_fp8", "gemm/m16n16k384/e4m3.f32/NT"),
    # Groups whose ends lie within tiles and within 64 rows, of several tiles, and some without rows.
    corner("gemm/cuda.wgmma_grouped", "gemm/m700n136k72/bf16/NT/groups5-skewed", {"BN": 128, "CLUSTER": 2},
        multiprocessors=2),
    corner("gemm/cuda.wgmma_grouped", "gemm/m200n72k40/f16.f32/NN/beta0.5/groups9-equal", {"BN": 64},
        multiprocessors=1),
    corner("gemm/cuda.wgmma_grouped", "gemm/m254n72k40/bf16/NT/beta0.5/groups2-equal", {"BN": 64}, multiprocessors=1),
    corner("gemm/cuda.wgmma_grouped", "gemm/m7n264k16/bf16/NT/groups20-skewed", {"BN": 256}),
)  # fmt: skip


def corners(file: str) -> Iterator[EmulatedCase]:
    yield from (case for case in CORNERS if file in included(case.kernel.source))


@dataclass(frozen=True)
class Overflow:
    """A part of a file below `cuda/` that occurs once, what stands in its place, and a source that compiles it."""

    file: str
    was: str
    into: str
    source: str = ""

    @property
    def compiled(self) -> str:
        """Return the .cu that is compiled: the file itself, or the one that includes it."""
        return self.source or self.file

    @property
    def id(self) -> str:
        return f"{self.file}: {self.was} -> {self.into}".replace(" ", "")

    def folder(self) -> Path:
        """Return a folder with the changed source and its headers. Raises ValueError where the part is not there."""
        texts = included(self.compiled)
        if texts[self.file].count(self.was) != 1:
            raise ValueError(f"{self.file}: {self.was!r} occurs {texts[self.file].count(self.was)} times, expected 1")
        return source_folder(texts | {self.file: texts[self.file].replace(self.was, self.into)})
