"""Ratios between the variants of a problem, from rows: NT over NN, in place over out of place, FFT over direct."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from statistics import geometric_mean
from typing import NamedTuple

from kernelmark.bench.plan.operation import OTHER_DISTRIBUTIONS, UNIFORM
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import Ratio, Setting, by_setting, why_unranked
from kernelmark.bench.report.format import count, factor, short

_OPEN = "no measurable difference"


class VariantPair(NamedTuple):
    """A row and its ratio to a variant. names: the differing parts of both ids, the row's first: `NT`, `NN`.

    problem: the id without these parts. by: the kernel that computed the variant, if it is not the row's kernel.
    """

    row: Result
    ratio: Ratio
    names: tuple[str, str]
    problem: str
    by: str = ""

    @property
    def title(self) -> str:
        return " vs ".join(self.names)


def ratio_of(r: Result) -> Ratio | None:
    """Return the ratio of a row to its variant, as computed at the end of the job; None without a variant."""
    return None if r.ratio is None else Ratio(r.ratio, r.ratio_ci95_low, r.ratio_ci95_high)


def variant_pairs(rows: Iterable[Result]) -> list[VariantPair]:
    """Return the rows that are compared with a variant of their problem, in order."""
    return [_pair(r, ratio) for r in rows if (ratio := ratio_of(r))]


def _pair(r: Result, ratio: Ratio) -> VariantPair:
    other, _, kernel = r.against.partition(" by ")
    if other == r.problem:
        return VariantPair(r, ratio, ("FFT", "direct"), r.problem, kernel)
    return VariantPair(r, ratio, *variant_names(r.problem, other), kernel)


def variant_names(problem: str, other: str) -> tuple[tuple[str, str], str]:
    """Return how the ids of two variants differ, `NT` and `NN`, and the part that they share."""
    ours, theirs = problem.split("/"), other.split("/")
    if ours[-1] in OTHER_DISTRIBUTIONS and len(ours) == len(theirs) + 1:
        theirs.append(UNIFORM)
    if len(ours) != len(theirs):
        return (short(problem), short(other)), ours[0]
    differing = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    name, other_name = ("/".join(parts[i] for i in differing) for parts in (ours, theirs))
    return (name, other_name), "/".join(part for i, part in enumerate(ours) if i not in differing)


def held_first(first: Result, second: Result) -> tuple[Result, Result]:
    """Return `first, second` if `first` was compared with the problem of `second`, otherwise `second, first`."""
    is_compared = first.against.partition(" by ")[0] == second.problem
    return (first, second) if is_compared else (second, first)


def no_difference(ratio: Ratio) -> str:
    """Return `no measurable difference (1.01x [0.93, 1.12])` for a ratio whose interval includes 1 or has no ends."""
    return f"{_OPEN} ({ratio})"


def variant_lines(rows: Iterable[Result], threaded: Collection[str] | None = None) -> list[str]:
    """Return a line for each kind of variant in a setting: `NT vs NN: slower, 0.81x [0.79, 0.83], numpy.matmul on ...`.

    The ratio is measured with the fastest kernel that has times on both variants. Without such a kernel, the fastest
    kernels on the two variants are compared. For several problems, the line has the numbers of slower and faster
    problems, and the geometric mean of the ratios. threaded: as in `by_setting`.
    """
    kinds: dict[tuple[str, str, Setting], dict[str, VariantPair]] = defaultdict(dict)
    pairs = {id(pair.row): pair for pair in variant_pairs(r for r in rows if not why_unranked(r))}
    for setting, alike in by_setting([pair.row for pair in pairs.values()], threaded).items():
        for pair in (pairs[id(r)] for r in alike):
            best = kinds[pair.row.op, pair.title, setting].setdefault(pair.problem, pair)
            least = min(best, pair, key=lambda each: (each.by != "", each.row.time_s_median or 0.0))
            kinds[pair.row.op, pair.title, setting][pair.problem] = least
    times = Counter((op, title) for op, title, _ in kinds)
    return [
        _line(title, list(best.values())) + f"; {setting.title}" * (times[op, title] > 1)
        for (op, title, setting), best in kinds.items()
    ]


def _line(title: str, pairs: Sequence[VariantPair]) -> str:
    if len(pairs) == 1:
        (pair,) = pairs
        by = f" against {short(pair.by)}" if pair.by else ""
        verdict = f"{pair.ratio.side}, {pair.ratio}" if pair.ratio.certain else no_difference(pair.ratio)
        return f"{title}: {verdict}, {short(pair.row.kernel)}{by} on {pair.problem}"
    sides = [pair.ratio.side if pair.ratio.certain else _OPEN for pair in pairs]
    told = ", ".join(f"{side} on {sides.count(side)}" for side in ("slower", "faster", _OPEN)
                     if side in sides)  # fmt: skip
    mean = geometric_mean(pair.ratio.median for pair in pairs)
    ends = [factor(pick(pair.ratio.median for pair in pairs)) for pick in (min, max)]
    return f"{title}, {count(len(pairs), 'problem')}: {told}; {factor(mean)} on average, {ends[0]} to {ends[1]}"
