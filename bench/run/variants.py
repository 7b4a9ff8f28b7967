"""Compare rows with a variant of their problem: NT with NN, in place with out of place, FFT with direct convolution."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, get_args, get_origin

from kernelmark.bench.measure.disturbance import ran_beyond
from kernelmark.bench.measure.measurement import Measurement, VariantRatio
from kernelmark.bench.measure.ratio import speedup
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status


def set_against_variants(measurements: Sequence[Measurement], registry: Registry) -> None:
    """Set each row's ratio to a variant of its problem, from samples taken in turn, if the job has such a variant.

    A kernel is compared with its own time on the variant. If it has none (an in-place kernel has no time out of place),
    it is compared with the fastest kernel of its provider, or else of its device.
    """
    timed = [m for m in measurements if m.status == Status.OK and m.interval and not ran_beyond(m.disturbed)]
    problems = list(dict.fromkeys(m.problem for m in measurements))
    plainer = plainer_variants([registry.problem(name) for name in problems])
    for measured in timed:
        if other := _other(measured, timed, plainer.get(measured.problem), registry):
            by = "" if other.kernel == measured.kernel else f" by {other.kernel}"
            ratio = speedup(_processes(other), _processes(measured)) if other.job == measured.job else None
            measured.over_variant = VariantRatio(other.problem + by, ratio) if ratio else None


def plainer_variants(problems: Sequence[Problem]) -> dict[str, str]:
    """Return the variant that each problem is compared with, by id; the plainest problem has none.

    Variants differ in axes with named values. The plainest variant has the values that its operation declares first:
    NN, out of place, NCHW. A problem is compared with the plainer variant that differs in the fewest axes. In a tie, a
    variant with the same storage type is preferred, then the plainest.
    """
    plainer = {}
    for problem in problems:
        candidates = [other for other in problems if _named(other, problem) and _place(other) < _place(problem)]
        if candidates:
            plainer[problem.id] = min(candidates, key=lambda other: (*_distance(other, problem), _place(other))).id
    return plainer


def _differing(first: Problem, other: Problem) -> Iterator[str]:
    return (axis for axis in first.axes() if getattr(first, axis) != getattr(other, axis))


def _distance(first: Problem, other: Problem) -> tuple[int, bool]:
    differing = list(_differing(first, other))
    return len(differing), "dtype" in differing


def _named(first: Problem, other: Problem) -> bool:
    return first.op == other.op and all(get_origin(first.axes()[axis]) is Literal for axis in _differing(first, other))


def _place(problem: Problem) -> list[int]:
    """For each axis with named values, return the index of the problem's value in the operation's declaration."""
    axes = problem.axes().items()
    return [get_args(kind).index(getattr(problem, axis)) for axis, kind in axes if get_origin(kind) is Literal]


def _other(
    measured: Measurement, timed: Sequence[Measurement], variant: str | None, registry: Registry
) -> Measurement | None:
    """Return the row to compare with; for a convolution by FFT without a variant, the row of another algorithm."""
    kernel = registry.kernels[measured.kernel]
    fft = variant is None and measured.numerics == "fft"
    rows = [
        m
        for m in timed
        if (m.problem == measured.problem and m.numerics != "fft" if fft else m.problem == variant)
        and (other := registry.kernels[m.kernel]).device == kernel.device
        and other.order == kernel.order
    ]

    def nearness(m: Measurement) -> tuple[bool, bool, float]:
        assert m.interval is not None  # it is timed
        provider = registry.kernels[m.kernel].provider
        return m.kernel != measured.kernel, not fft and provider != kernel.provider, m.interval.median

    return min(rows, key=nearness, default=None)


def _processes(measured: Measurement) -> list[list[float]]:
    samples = iter(measured.samples)
    return [list(islice(samples, part.samples)) for part in measured.parts] or [measured.samples]
