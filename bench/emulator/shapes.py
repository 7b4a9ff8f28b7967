"""Choose the problems on which the emulator runs a kernel, by the axes of its operation."""

import functools
import itertools
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kernelmark.bench.plan.dtypes import DTYPES
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.operation import Problem

#: Sizes, with the options that belong to them.
Values = Mapping[str, Any]
#: The fewest sizes in a kernel's sweep, for each variant of its axes that it supports.
LEAST_SIZES = 8
#: Sizes along the first, second, third ... dimension; a pattern repeats if there are more dimensions. In order: one
#: element; less than any tile; just past a warp in each dimension in turn; whole tiles, for kernels without guards;
#: ragged tiles of about that size; rows of whole vectors in a ragged tile; more than one wide tile.
_SIZES = (
    *((1,), (5, 3, 7), (33, 31, 17), (17, 34, 1), (64, 128, 32), (67, 37, 33), (33, 33, 33)),
    *((40, 24, 56), (9, 264, 8)),
)
#: Less than a tile, more than a warp, and a length that kernels may split; this length grows until a ring of stages
#: wraps twice. Only a kernel's first and last variant are run on these sizes, since such a problem takes a second.
_LONG = (5, 37, 613)
#: The assumed bytes in a stage's row if no tunable gives its number of elements.
_STAGE_ROW = 128
#: Further sizes, used until there are LEAST_SIZES: squares, rows of whole vectors, and batches of powers of two in one
#: dimension or two, since some kernels support nothing else.
_MORE = (
    *((8,), (40,), (7,), (65,), (32,), (16, 24, 8), (72, 16, 24), (24, 72, 40), (2,), (96,)),
    *((3, 1, 1024), (5, 1, 256), (7, 1, 8), (33, 1, 16), (5, 16, 16), (35, 1, 32), (7, 8, 8), (9, 32, 32)),
)
#: Whole tiles for kernels that support none of the sizes above, because they need squares or larger tiles.
_LARGE = ((64, 64, 64), (128, 128, 32), (128, 256, 64), (256, 256, 64))
#: The fewest elements that fill whole units of 16 bytes in every storage type of at least two bytes.
_UNIT = 8


def problems(kernel: CudaKernel, problem_class: type[Problem]) -> list[Problem]:
    """Return the kernel's problems: every size in every variant (such as `f32/NT`), then non-default options."""
    variants, sizes = list(_variants(kernel, problem_class)), problem_class.emulated_sizes()
    taken = list(_all_taken(kernel, problem_class, sizes.first or _patterns(problem_class, _SIZES), variants))
    taken += _until_enough(kernel, problem_class, taken, variants, sizes.more or _patterns(problem_class, _MORE))
    if not sizes.more:
        taken += _long_problems(kernel, problem_class, [variants[0], variants[-1]])
        if not any(is_whole(problem) for problem in taken):
            large = _all_taken(kernel, problem_class, _patterns(problem_class, _LARGE), variants)
            taken += itertools.islice(large, len(variants))
    taken += [deep for variant in variants if (deep := _deep(kernel, problem_class, sizes.deep, _of(variant, taken)))]
    taken = list(dict.fromkeys([*taken, *_all_taken(kernel, problem_class, sizes.last, variants)]))
    return taken + list(_with_options(kernel, problem_class, taken))


def _deep(
    kernel: CudaKernel, problem_class: type[Problem], sizes: Mapping[str, str], taken: list[Problem]
) -> Problem | None:
    """Return the cheapest problem whose sums go around the kernel's ring of pipeline stages; None if there is none."""
    for problem in sorted(taken, key=lambda problem: problem.flop):
        name = sizes.get(getattr(problem, "direction", ""), "")
        if name and getattr(problem, "groups", 1) == 1:
            values = msgspec.structs.asdict(problem)
            least = max(_depth(kernel), problem.emulated_sizes().long_from + 1)
            for depth in (least, -(-least // _UNIT) * _UNIT):
                if deep := _taken(kernel, problem_class, values | {name: depth}):
                    return deep
    return None


def _depth(kernel: CudaKernel) -> int:
    """Return the length of a sum that goes twice around the longest ring of pipeline stages, plus a partial step."""
    itemsize = min((DTYPES[dtype.partition(".")[0]].itemsize for dtype in kernel.domain.get("dtype", ())), default=4)
    steps = ((2 * getattr(t, "STAGES", 0), getattr(t, "BK", _STAGE_ROW // itemsize)) for t in kernel.tiles(H100))
    return max(count * depth + 5 for count, depth in steps)


def _long_problems(kernel: CudaKernel, problem_class: type[Problem], variants: list[dict[str, Any]]) -> list[Problem]:
    """Return the long problems that the kernel accepts; if none, long problems with sizes that are multiples of 16."""
    long = (*_LONG[:-1], max(_LONG[-1], _depth(kernel)))
    for sizes in (long, tuple(-(-size // 16) * 16 for size in long)):
        if taken := list(_all_taken(kernel, problem_class, _patterns(problem_class, (sizes,)), variants)):
            return taken
    return []


def _patterns(problem_class: type[Problem], patterns: Sequence[tuple[int, ...]]) -> list[Values]:
    sizes = (zip(problem_class.sizes, itertools.cycle(pattern), strict=False) for pattern in patterns)
    return [dict(size) for size in dict.fromkeys(map(tuple, sizes))]


def sizes_by_variant(kernel: CudaKernel, problem_class: type[Problem]) -> dict[str, set[tuple[int, ...]]]:
    """Return the distinct sizes of the kernel's problems for each variant of the axes, such as `f32/NT`."""
    taken = problems(kernel, problem_class)
    return {
        "/".join(map(str, variant.values())): {_sizes(problem) for problem in _of(variant, taken)}
        for variant in _variants(kernel, problem_class)
    }


def _sizes(problem: Problem) -> tuple[int, ...]:
    return tuple(getattr(problem, name) for name in problem.sizes)


def _of(variant: dict[str, Any], all_problems: list[Problem]) -> list[Problem]:
    return [p for p in all_problems if all(getattr(p, name) == value for name, value in variant.items())]


def _until_enough(
    kernel: CudaKernel,
    problem_class: type[Problem],
    all_problems: list[Problem],
    variants: list[dict[str, Any]],
    more: Sequence[Values],
) -> Iterator[Problem]:
    """Yield accepted problems with sizes from `more` for each variant that has fewer than LEAST_SIZES sizes."""
    for variant in variants:
        known = {_sizes(problem) for problem in _of(variant, all_problems)}
        fresh = [values for values in more if tuple(values[name] for name in problem_class.sizes) not in known]
        taken = _all_taken(kernel, problem_class, fresh, [variant])
        yield from itertools.islice(taken, max(0, LEAST_SIZES - len(known)))


def is_long(problem: Problem) -> bool:
    """Return whether one size is so much larger than a tile that it may be split."""
    return any(getattr(problem, name) > problem.emulated_sizes().long_from for name in problem.sizes)


def is_whole(problem: Problem) -> bool:
    """Return whether every size is a multiple of the warp size, so that no bounds check has an effect."""
    return all(getattr(problem, name) % 32 == 0 for name in problem.sizes)


def has_whole_rows(problem: Problem) -> bool:
    """Return whether every row consists of whole vectors, so that a kernel may move a vector at a time."""
    return all(length % _UNIT == 0 for length in problem.row_lengths)


def _variants(kernel: CudaKernel, problem_class: type[Problem]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values of the axes that have few values: storage type, layout, place.

    An option whose default the kernel refuses is also varied, over the first two values that the kernel declares.
    """
    choices: dict[str, Sequence[Any]] = {}
    for field in msgspec.structs.fields(problem_class):
        if field.name == "distribution":  # only for timed calls: emulated operands are drawn as usual
            continue
        if typing.get_origin(field.type) is typing.Literal:
            choices[field.name] = kernel.domain.get(field.name, typing.get_args(field.type))
        elif not field.required and field.default not in kernel.domain.get(field.name, (field.default,)):
            choices[field.name] = kernel.domain[field.name][:2]
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _all_taken(
    kernel: CudaKernel, problem_class: type[Problem], sizes: Sequence[Values], variants: list[dict[str, Any]]
) -> Iterator[Problem]:
    for values, variant in itertools.product(sizes, variants):
        if all(values.get(name, word) == word for name, word in variant.items()) and (
            problem := _taken(kernel, problem_class, {**values, **variant})
        ):
            yield problem


def _taken(kernel: CudaKernel, problem_class: type[Problem], values: Values) -> Problem | None:
    """Return the problem with these values, with rows padded if the kernel needs that; None if the kernel refuses."""
    try:
        problem = problem_class.make(values, kernel.id)
    except UsageError:
        return None
    return next((p for p in (problem, _with_whole_rows(problem)) if not kernel.refuses(p)), None)


def _with_whole_rows(problem: Problem) -> Problem:
    """Return the problem with leading dimensions that are multiples of 16 bytes, where it has options for them."""
    units = {operand.name: max(_UNIT, 16 // DTYPES[operand.dtype].itemsize) for operand in problem.operands()}
    pads = {f"ld{operand.name}_pad": -operand.shape[-1] % units[operand.name] for operand in problem.operands()}
    return msgspec.structs.replace(problem, **{name: pad for name, pad in pads.items() if name in problem.axes()})


def _with_options(kernel: CudaKernel, problem_class: type[Problem], taken: list[Problem]) -> Iterator[Problem]:
    """Yield the second smallest, the largest and the long problems of each variant, with all options changed."""
    names = [field.name for field in msgspec.structs.fields(problem_class) if field.name not in problem_class.sizes]
    for variant in _variants(kernel, problem_class):
        same = _of(variant, taken)
        if not same:
            continue
        ordered = sorted(same, key=lambda problem: problem.footprint_bytes)
        long = [problem for problem in ordered if is_long(problem)]
        for problem in dict.fromkeys((ordered[min(1, len(ordered) - 1)], ordered[-1], *long)):
            changed = functools.reduce(functools.partial(_changed, kernel), names, problem)
            if changed != problem:
                yield changed


def _changed(kernel: CudaKernel, problem: Problem, name: str) -> Problem:
    """Return the problem with another value of an option, if the option is a number and the kernel takes that value."""
    value = getattr(problem, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return problem
    for other in (value + 0.5,) if isinstance(value, float) else (value + 1, value + _UNIT):
        try:
            changed = msgspec.structs.replace(problem, **{name: other})
        except ValueError:
            continue
        if not kernel.refuses(changed):
            return changed
    return problem
