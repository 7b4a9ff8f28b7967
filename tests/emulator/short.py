"""Which cases of the sweep the short run of the tests keeps: few that show each trait that a case of a kernel has."""

import typing
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec

from emulator.proof import all_cases
from kernelmark.bench.emulator.shapes import is_long, is_whole
from kernelmark.bench.emulator.sweep import EmulatedCase

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


def short_cases(every: Sequence[EmulatedCase]) -> list[EmulatedCase]:
    """Choose cases of a kernel until each trait is seen, each time the case with the most traits that are new."""
    traits = [(case, set(_traits(case))) for case in sorted(every, key=_rank)]
    left = set().union(*(own for _, own in traits))
    chosen = []
    while left:
        case, own = max(traits, key=lambda item: len(item[1] & left))
        chosen.append(case)
        left -= own
    return chosen


def _rank(case: EmulatedCase) -> tuple[int, bool, float]:
    """Order ragged cases before others, and the largest of little work first."""
    problem = case.problem
    work = problem.flop + problem.footprint_bytes
    return is_whole(problem) + 2 * is_long(problem), work > LITTLE, work if work > LITTLE else -work


def _traits(case: EmulatedCase) -> Iterator[tuple[object, ...]]:
    """Yield the variant (storage type, layout, direction, place), the tile, the last size, and options with a word.

    Each option away from its default counts once for each word of the variant, since each has offsets of its own.
    """
    problem = case.problem
    fields = msgspec.structs.fields(problem)
    words = [(f.name, getattr(problem, f.name)) for f in fields if typing.get_origin(f.type) is typing.Literal]
    yield tuple(words)
    yield "tile", str(case.tile)
    yield "last size", "long" if is_long(problem) else getattr(problem, problem.sizes[-1])
    for field in fields:
        value = getattr(problem, field.name)
        if not field.required and value != field.default and (field.name, value) not in words:
            yield from ((field.name, word) for word in words)


@cache
def kept() -> set[tuple[str, str]]:
    """Return kernel and id of each case that the short run keeps."""
    found = {(kernel, case.id) for kernel, every in all_cases().items() for case in short_cases(every)}
    for kernel, problems in ALSO.items():
        found |= {(kernel, case.id) for case in all_cases()[kernel] if case.problem.id in problems}
    return found


def is_kept(case: EmulatedCase) -> bool:
    """Return whether the short run keeps the case."""
    return (case.kernel.id, case.id) in kept()
