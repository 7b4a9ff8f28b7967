"""Which problems an emulated kernel is swept through, from nothing but its operation's axes."""

import itertools
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from bench.plan.errors import UsageError
from bench.plan.operation import Problem
from bench.plan.registry import CudaKernel

#: Sizes along the first, second, third ... dimension, repeated as often as needed: one element; less than any tile;
#: just past a warp in each dimension in turn; whole tiles, for kernels without guards; and their ragged neighbour.
_SIZES = ((1,), (5, 3, 7), (33, 31, 17), (17, 34, 1), (64, 128, 32), (67, 37, 33), (33, 33, 33))
#: Only where the kernel has taken none of the whole tiles above: it wants a square, or larger tiles.
_LARGE = ((64, 64, 64), (128, 128, 32), (128, 256, 64), (256, 256, 64))
#: More for kernels that work in place, whose permutations follow from the sizes: vectors, common divisors, coprimes.
_IN_PLACE = ((1, 37), (37, 1), (12, 20), (63, 24), (31, 64), (25, 165), (6, 194), (194, 6))
#: Operations of more than three dimensions (convolution) would become too large with those.
_SMALL_SIZES = ((1,), (2, 3, 7, 5, 4, 3, 3), (1, 4, 9, 8, 8, 3, 3), (2, 16, 8, 8, 32, 1, 1))


def problems(kernel: CudaKernel, problem_class: type[Problem]) -> list[Problem]:
    """Problems that the kernel takes: each size in each variant of its axes, then options away from their defaults."""
    count = len(problem_class.sizes)
    sizes = [_repeat(pattern, count) for pattern in (_SIZES if count <= 3 else _SMALL_SIZES)]
    variants = list(_variants(kernel, problem_class))
    found = list(_all_taken(kernel, problem_class, sizes, variants))
    if count <= 3 and not any(is_whole(problem) for problem in found):
        large = [_repeat(pattern, count) for pattern in _LARGE]
        found += itertools.islice(_all_taken(kernel, problem_class, large, variants), len(variants))
    in_place = [variant for variant in variants if variant.get("place") == "in"]
    found += _all_taken(kernel, problem_class, list(_IN_PLACE), in_place)
    return found + list(_with_options(kernel, problem_class, found))


def _repeat(pattern: tuple[int, ...], count: int) -> tuple[int, ...]:
    return tuple(itertools.islice(itertools.cycle(pattern), count))


def is_whole(problem: Problem) -> bool:
    """Whether every size is a multiple of a warp, so that no guard has anything to keep out."""
    return all(getattr(problem, name) % 32 == 0 for name in problem.sizes)


def _variants(kernel: CudaKernel, problem_class: type[Problem]) -> Iterator[dict[str, str]]:
    """Every combination of the axes that take one of a few words: storage type, layout, place."""
    choices = {}
    for name, kind in problem_class.axes().items():
        if typing.get_origin(kind) is typing.Literal:
            choices[name] = kernel.domain.get(name, typing.get_args(kind))
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _all_taken(
    kernel: CudaKernel, problem_class: type[Problem], sizes: list[tuple[int, ...]], variants: list[dict[str, str]]
) -> Iterator[Problem]:
    for size, variant in itertools.product(sizes, variants):
        if problem := _taken(kernel, problem_class, size, variant):
            yield problem


def _taken(
    kernel: CudaKernel, problem_class: type[Problem], sizes: tuple[int, ...], values: dict[str, Any]
) -> Problem | None:
    try:
        problem = problem_class.make(dict(zip(problem_class.sizes, sizes, strict=True)) | values, kernel.id)
    except UsageError:
        return None
    return None if kernel.refuses(problem) else problem


def _with_options(kernel: CudaKernel, problem_class: type[Problem], taken: list[Problem]) -> Iterator[Problem]:
    """The second smallest and the largest problem of each variant with all options that the kernel takes."""
    options = {field.name: _unusual(field.default) for field in msgspec.structs.fields(problem_class)}
    for variant in _variants(kernel, problem_class):
        same = [p for p in taken if all(getattr(p, name) == value for name, value in variant.items())]
        if not same:
            continue
        ordered = sorted(same, key=lambda problem: problem.footprint_bytes)
        for problem in {ordered[min(1, len(ordered) - 1)], ordered[-1]}:
            changed = problem
            for name, value in options.items():
                changed = _changed(kernel, changed, name, value)
            if changed != problem:
                yield changed


def _unusual(default: Any) -> Any:
    """A value away from the default of an option that is a number; None where the field is no such option."""
    if isinstance(default, bool) or not isinstance(default, int | float):
        return None
    return default + 0.5 if isinstance(default, float) else default + 1


def _changed(kernel: CudaKernel, problem: Problem, name: str, value: Any) -> Problem:
    """The problem with that option, if there is one and the kernel takes it."""
    if value is None or name in problem.sizes:
        return problem
    try:
        changed = msgspec.structs.replace(problem, **{name: value})
    except ValueError:
        return problem
    return problem if kernel.refuses(changed) else changed
