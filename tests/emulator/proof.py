"""Run kernels' cases with a changed source or header. A mutant survives if no case complains about it."""

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

#: Seconds of processor time that a case may take; most cases take milliseconds. A case that exceeds the first limit is
#: run again. The limit is then SLOWER times the present time of the kernel without the mistake, at least the second
#: limit, so that neither a slow case nor a busy machine is taken for an endless loop.
LIMITS_S, SLOWER = (3, 20), 10
#: The limit, in seconds, of a case without a mistake.
SOUND_S = 300
#: The mutants that survive, with the reason of each.
SURVIVORS = Path(__file__).parent / "survivors.md"


@dataclass(frozen=True)
class Fate:
    """The outcome of a mutant: the first complaint and the case that made it, or None if the mutant survived.

    compiles: False if the complaint is the compiler's.
    """

    file: str
    mutant: Mutant
    complaint: str | None = None
    case: EmulatedCase | None = None
    compiles: bool = True


def mention(file: str, mutant: Mutant) -> str:
    """Return the name by which survivors.md explains a survivor: `gemm/tiled.cu`: `i < k` -> `i < k + 1`."""
    return f"`{file}`: {mutant.change}"


def are_explained(file: str, mutants: Iterable[Mutant]) -> set[Mutant]:
    """Return the mutants explained in survivors.md, which must list a change once for each mutant with this change."""
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
    """Return, by name, the texts of a file below `cuda/` and of all headers there that it includes, also indirectly."""
    texts = with_includes(CUDA / file, CUDA)
    return {str(path.relative_to(CUDA)): text.decode() for path, text in texts.items()}


@cache
def headers_by_name() -> dict[str, list[str]]:
    """Return for each header, except PTX headers (the emulator replaces them), the kernels' sources that include it."""
    sources: dict[str, list[str]] = {}
    for source in sorted(kernels_by_source()):
        for header in sorted(included(source)):
            if header != source and not header.startswith("ptx"):
                sources.setdefault(header, []).append(source)
    return sources


def plan(file: str, short: bool = False) -> list[list[EmulatedCase]]:
    """Return groups of cases that use a source or header; a group has one kernel, storage type and layout.

    Groups are in the order in which they are compiled: kernels with the fewest cases first, and within a kernel, ragged
    cases first, since these find most mistakes. short: only the cases of the short run.
    """
    sources = headers_by_name()[file] if file.endswith(".cuh") else [file]
    kernels = [kernel.id for source in sources for kernel in kernels_by_source()[source]]
    groups = map(short_run, kernels) if short else ([*short_run(kernel), *paired_cases(kernel)] for kernel in kernels)
    return [group for cases_ in sorted(groups, key=len) for group in _by_variant(cases_)]


@cache
def swept(kernel: str) -> list[EmulatedCase]:
    """Return the cases of a kernel: the product of its axes, sizes, options and tiles.

    Choosing them takes a tenth of a second, so no module does this for every kernel when it is imported.
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
    """Return the first complaint of a case, or None. Raises HostCompileError."""
    short_s, long_s = LIMITS_S
    complaint = _complaint(case, names, folder, short_s)
    if complaint is None or "timeout: " not in complaint:
        return complaint
    program(CUDA / case.kernel.source, names)  # compiled first, so that compiling is not timed below
    began = time.monotonic()
    assert not list(complaints(case, names, limit_s=SOUND_S))
    return _complaint(case, names, folder, max(long_s, math.ceil(SLOWER * (time.monotonic() - began))))


def _complaint(case: EmulatedCase, names: tuple[str, ...], folder: Path, limit_s: int) -> str | None:
    try:
        return next(complaints(case, names, folder, limit_s), None)
    except TimeoutExpired as error:  # the worker did not even end itself
        return f"{case.id}: timeout: {error.timeout:g} s have passed"


#: The operations plus bytes of a problem that has several blocks with most tiles, and runs for a tenth of a second.
LITTLE = 200_000
#: Problems that `short_cases` does not choose, but without which the short run misses mutants that the sweep detects.
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
    """Choose cases of a kernel until each trait (see `_traits`) occurs in one of them."""
    return _covering(every, _traits)


@cache
def paired_cases(kernel: str) -> list[EmulatedCase]:
    """Choose cases of a kernel for the long run, until each pair (see `pairs`) occurs in them or in the short run."""
    return _covering(swept(kernel), pairs, short_run(kernel))


def _covering(every: Sequence[EmulatedCase], traits: Traits, known: Sequence[EmulatedCase] = ()) -> list[EmulatedCase]:
    """Choose cases until they and the known cases have all traits; each choice is the case with the most new traits."""
    ranked = sorted(every, key=_rank)
    seen = {trait for case in known for trait in traits(case)}
    added = [set(traits(case)) - seen for case in ranked]
    # A case's number of new traits can only fall, so the first case whose number has not fallen is the best.
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
    """Return a sort key: ragged, whole, then long problems; in each group, work up to LITTLE, most first, then more."""
    problem = case.problem
    work = problem.flop + problem.footprint_bytes
    return is_whole(problem) + 2 * is_long(problem), work > LITTLE, work if work > LITTLE else -work


Values = list[tuple[str, object]]


def _features(problem: Problem) -> tuple[Values, Values]:
    """Return the words of a problem's variant (storage type, layout, place), and its options that are not defaults."""
    fields = [(f, getattr(problem, f.name)) for f in msgspec.structs.fields(problem)]
    words = [(f.name, value) for f, value in fields if typing.get_origin(f.type) is typing.Literal]
    options = [(f.name, value) for f, value in fields if not f.required and value != f.default]
    return words, [option for option in options if option not in words]


def _traits(case: EmulatedCase) -> Iterator[tuple[object, ...]]:
    """Yield the variant, the tile, the last size, and pairs of an option and a word of the variant.

    Each non-default option counts once for each word of the variant, since each variant computes its own offsets.
    """
    problem = case.problem
    words, options = _features(problem)
    yield tuple(words)
    yield "tile", str(case.tile)
    if case.device != H100 and (getattr(case.tile, "CLUSTER", 1) == 1 or "f16" in problem.dtype or is_long(problem)):
        yield "rounds", case.id  # with clusters, only the fastest types' short sums
    yield "last size", "long" if is_long(problem) else getattr(problem, problem.sizes[-1])
    yield from ((name, word) for name, _ in options for word in words)


def pairs(case: EmulatedCase) -> Iterator[tuple[object, ...]]:
    """Yield each pair of these items: a word of the variant, the sizes, the tile, the device, a non-default option.

    Also yield each triple of a word, the sizes and the tile; and, for each axis of each launch, the number of blocks
    (one, two, or more) paired with each item except the sizes.
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
    """Return a case with the kernel's first tile that has the values in `tile`, modified by the values in `more`."""
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
    # The filter has more taps than a mask has bits.
    *(corner("conv/cuda.implicit", f"conv/n1c3h9w8k5r7s7pad3/f32/{layout}/{direction}")
      for layout in ("nchw", "nhwc") for direction in ("fprop", "dgrad")),
    corner("conv/cuda.implicit_mma", "conv/n1c8h9w8k16r7s7pad3/f16/nhwc/fprop"),
    corner("conv/cuda.implicit_mma", "conv/n1c8h9w8k16r7s7pad3/f16/nhwc/dgrad"),
    # Runs of columns so long that a warp moves them in parts: there are more runs than warps, and several parts.
    *(corner(f"transpose/cuda.{name}", f"transpose/{problem}/in", tile, multiprocessors=2)
      for name, tile in (("c2r", {"SCRATCH": 0}), ("c2r", {"SCRATCH": 1}), ("c2r_fused", {}))
      for problem in ("m20n516/f32", "m14n510/f16", "m510n14/f32", "m516n20/f64")),
    # Rings of stripes, several for each block; rows with and without whole vectors, in both directions.
    *(corner("transpose/cuda.c2r", f"transpose/{problem}/in", {"W": 8}, multiprocessors=1, more={"STAGES": stages})
      for problem, stages in (("m20n516/f32", 2), ("m517n22/f32", 2), ("m22n517/f64", 3), ("m516n20/f64", 3))),
    # The same rings, and rows that wait only for the rows before them.
    corner("transpose/cuda.c2r_fused", "transpose/m20n516/f32/in", {"W": 8}, 1, {"STAGES": 3, "ORDERED": 1}),
    corner("transpose/cuda.c2r_fused", "transpose/m519n21/f32/in", {"W": 8}, 1, {"STAGES": 2, "ORDERED": 1}),
    # Odd and even numbers of groups of tile pairs; the last groups lie partly beyond the edge.
    corner("transpose/cuda.tiled_inplace", "transpose/m270n270/f32/in", {"GROUP": 4}),
    corner("transpose/cuda.tiled_inplace", "transpose/m240n240/f16/in", {"GROUP": 4}),
    corner("transpose/cuda.vectorised_inplace", "transpose/m333n333/f32/in", {"GROUP": 4}),
    # Columns enough for the widest tile, and a k that is divided between two blocks.
    corner("gemm/cuda.splitk", "gemm/m33n200k523/f32/NT", {"BN": 256}),
    corner("gemm/cuda.streamk", "gemm/m33n200k523/f32/NT", {"BN": 256}),
    # Several slices of several columns, the last slice one element shorter than a multiple of the step.
    corner("gemm/cuda.skinny", "gemm/m7n270k255/f32/NT/alpha2/beta0.5/batch2/lda+1/ldb+2/ldc+3",
        {"WARPS": 2, "COLS": 16}),
    corner("gemm/cuda.skinny", "gemm/m13n72k264/f16/NN", {"WARPS": 2}),
    # A cluster computes several tiles in turn, in several steps over channels; it shares the plain or gathered operand.
    corner(WGMMA, "conv/n2c72h9w10k136r3s2pad1/f16/nhwc/fprop", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    corner(WGMMA, "conv/n2c136h9w10k128r2s3pad0x1/bf16/nhwc/dgrad", {"BN": 256, "CLUSTER": 2}, multiprocessors=2),
    corner(WGMMA, "conv/n18c136h9w3k72r2s1pad1x0stride2x1/f16/nhwc/wgrad", {"BN": 128, "CLUSTER": 2},
        multiprocessors=2),
    # wgmma with rows of A in registers: enough steps to use each set of registers twice, in both layouts.
    corner("gemm/cuda.wgmma_tf32_registers", "gemm/m72n136k104/f32/NN", {"BN": 64, "CLUSTER": 1}, multiprocessors=1),
    corner("gemm/cuda.wgmma_tf32_registers", "gemm/m264n136k104/f32/TT", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    # An odd number of steps; and the widest tile, whose results share buffers, with C being read.
    corner("gemm/cuda.wgmma_tf32_registers", "gemm/m16n24k136/f32/NN/beta0.5", {"BN": 256}, multiprocessors=2),
    # The problem has more accumulators than a block.
    corner("fma/cuda.ffma_fed", "fma/n33000k9/f32/fed"),
    # wgmma with columns transposed in shared memory: several tiles in turn, with and without a cluster.
    corner("gemm/cuda.wgmma_tf32_turned", "gemm/m520n136k104/f32/TN", {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    corner("gemm/cuda.wgmma_tf32_turned", "gemm/m264n72k136/f32/TN/beta0.5", {"BN": 64}, multiprocessors=1),
    # Scales of odd and even numbers of blocks along k, and of several blocks of columns; padded rows of scales.
    corner("gemm/cuda.wgmma_fp8_blocks", "gemm/m70n136k528/e4m3.f32/NT/batch2/scale-blocks", {"BN": 64, "CLUSTER": 1},
        multiprocessors=1),
    corner("gemm/cuda.wgmma_fp8_blocks", "gemm/m262n136k400/e4m3.bf16/NT/beta0.5/scale-blocks",
        {"BN": 128, "CLUSTER": 2}, multiprocessors=2),
    # A block whose filters and tiles are all in use.
    corner("conv/cuda.winograd4_fused", "conv/n3c2h15w15k64r3s3pad1/f32/nchw/fprop"),
    # The widest tile with results of 32 bits, whose parts outnumber their buffers.
    corner("gemm/cuda.wgmma_int8", "gemm/m264n264k144/s8.s32/NT", {"BN": 256, "CLUSTER": 2}, multiprocessors=2),
    # Three steps along k: two sets of promoted sums take turns.
    corner("gemm/cuda.wgmma_fp8", "gemm/m16n16k384/e4m3.f32/NT"),
    # Groups of several tiles, whose ends lie within tiles and within 64 rows; some groups have no rows.
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
    """A planted bug: in a file below `cuda/`, a text that occurs once is replaced. source: the .cu file to compile."""

    file: str
    was: str
    into: str
    source: str = ""

    @property
    def compiled(self) -> str:
        """Return the .cu file to compile: the file itself, or a file that includes it."""
        return self.source or self.file

    @property
    def id(self) -> str:
        return f"{self.file}: {self.was} -> {self.into}".replace(" ", "")

    def folder(self) -> Path:
        """Return a folder with the changed source and its headers. Raises ValueError unless the text occurs once."""
        texts = included(self.compiled)
        if texts[self.file].count(self.was) != 1:
            raise ValueError(f"{self.file}: {self.was!r} occurs {texts[self.file].count(self.was)} times, expected 1")
        return source_folder(texts | {self.file: texts[self.file].replace(self.was, self.into)})
