"""Compute a claim's numbers from the rows of its experiment, with an interval, for each problem that has rows.

A claim compares kernels, problems, threads, instruction sets, batches or two devices (by time, money or energy), or
a transfer between host and GPU with a training step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import msgspec

from kernelmark.bench.claims.catalog import Contrast
from kernelmark.bench.claims.evidence import ExperimentRows, batch_of
from kernelmark.bench.claims.prices import Prices
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import (
    Ratio,
    Setting,
    by_setting,
    comparable,
    faster,
    grouped,
    multithreaded,
    time_of,
)
from kernelmark.bench.report.format import count, short
from kernelmark.bench.report.networks import total

#: The kinds of claims that name kernels and have a number for each problem.
EACH = ("kernels", "linked", "verified")
#: Words of ids that labels leave out, since nearly all problems of claims have them.
UNSAID = ("f32", "nchw")


class ClaimRatio(NamedTuple):
    """A number of a claim, with the rows that it is computed from. where: the problem. by: the kernels compared.

    size: the key by which problems are ordered.
    """

    where: str
    ratio: Ratio
    rows: tuple[Result, ...]
    by: str = ""
    size: int = 0


class Question(NamedTuple):
    """A claim's comparison with its data: all rows of the experiment, the rows to compare, and device prices."""

    contrast: Contrast
    evidence: ExperimentRows
    rows: Sequence[Result]
    prices: Prices

    @property
    def settings(self) -> dict[Setting, list[Result]]:
        return by_setting(self.rows, multithreaded(self.evidence.all))

    def faster(self, row: Result, other: Result) -> Ratio:
        return faster(self.evidence.store, row, other)

    def label(self, problem: Problem | str) -> str:
        """Return the words that distinguish one problem of a claim from the next."""
        known = self.evidence.problems[problem] if isinstance(problem, str) else problem
        if not self.contrast.label:
            return "/".join(word for word in known.id.split("/")[1:] if word not in UNSAID)
        return self.contrast.label.format(**{axis: getattr(known, axis) for axis in known.axes()})


def question(contrast: Contrast, evidence: ExperimentRows, prices: Prices) -> Question:
    """Return a comparison with the rows of its problems and kernels."""
    rows = [r for r in evidence.rows if matches(r.problem, contrast.problems)]
    rows = [r for r in rows if matches(r.kernel, contrast.kernels) or r.kernel == contrast.against]
    return Question(contrast, evidence, rows, prices)


def failures_of(contrast: Contrast, evidence: ExperimentRows) -> list[Result]:
    """Return the failed rows of a comparison's problems and kernels."""
    sides = (*contrast.one, *contrast.other) if contrast.kind in EACH else ()
    rows = [r for r in evidence.failed if matches(r.problem, contrast.problems) and matches(r.kernel, contrast.kernels)]
    return [r for r in rows if matches(r.kernel, sides)]


def fastest(rows: Iterable[Result]) -> Result | None:
    """Return the row with the shortest time, or None without rows."""
    return min(rows, key=lambda r: r.time_s_median or 0.0, default=None)


def by_problem(rows: Iterable[Result]) -> dict[str, list[Result]]:
    """Return the rows of each problem, by its id."""
    return grouped(rows, lambda r: r.problem)


def against(row: Result, other: Result) -> str:
    """Name the kernels of two rows: `numpy.tnn against numpy.matmul`."""
    return f"{short(row.kernel)} against {short(other.kernel)}"


def kernels(q: Question) -> Iterator[ClaimRatio]:
    """Compare the fastest kernel of `one` with the fastest kernel of `other`, problem by problem."""
    settings = q.settings
    for setting, rows in settings.items():
        for problem, group in by_problem(rows).items():
            sides = ([r for r in group if matches(r.kernel, globs)] for globs in (q.contrast.one, q.contrast.other))
            row, other = map(fastest, sides)
            if row and other:
                where = q.label(problem) + f" ({setting.title})" * (len(settings) > 1)
                yield ClaimRatio(where, q.faster(row, other), (row, other), against(row, other))


def problems(q: Question) -> Iterator[ClaimRatio]:
    """Compare a kernel on one problem with the same or another kernel on another problem, pair by pair."""
    settings = q.settings
    for (setting, rows), pair in product(settings.items(), zip(q.contrast.one, q.contrast.other, strict=True)):
        ones = {r.kernel: r for r in rows if r.problem == pair[0]}
        for other in rows:
            row = ones.get(q.contrast.against or other.kernel)
            if other.problem == pair[1] and row and other.kernel != q.contrast.against:
                name = f"{q.label(row.problem)} " if q.contrast.label else ""
                where = name + short(other.kernel) + f" ({setting.title})" * (len(settings) > 1)
                yield ClaimRatio(where, q.faster(row, other).scaled(q.contrast.times), (row, other))


def verified(q: Question) -> Iterator[ClaimRatio]:
    """Yield, for each verified row, the error bound over the largest error, or 0 if the row's status is `wrong`."""
    for r in q.evidence.all:
        if matches(r.kernel, q.contrast.one) and r.status in (Status.OK, Status.WRONG) and r.error_bound:
            margin = r.error_bound / max(r.max_error or 0.0, r.error_bound * 1e-6) if r.status == Status.OK else 0.0
            yield ClaimRatio(q.label(r.problem), Ratio(margin, margin, margin), (r,))


def launched(q: Question) -> Iterator[ClaimRatio]:
    """Yield, for each problem, how many different sets of GPU kernels the library calls in `one` launched."""
    for problem, rows in by_problem(r for r in q.rows if matches(r.kernel, q.contrast.one)).items():
        named = [(r, names) for r in rows if (names := _names(r.launched))]
        if len(named) > 1:
            number = float(len({names for _, names in named}))
            by = ", ".join(short(r.kernel) for r, _ in named)
            yield ClaimRatio(q.label(problem), Ratio(number, number, number), tuple(r for r, _ in named), by)


def _names(launched: str) -> frozenset[str]:
    """Return the names of the GPU kernels in the column `launched`, without their grids and blocks."""
    return frozenset(name.strip() for part in launched.split(";") for name, grid, _ in [part.partition("<<<")] if grid)


def threads(q: Question) -> Iterator[ClaimRatio]:
    """Compare a kernel on the thread counts `one` with the same kernel on the thread counts `other`."""
    for group in grouped(q.rows, lambda r: (r.problem, r.kernel, r.mode, r.isa)).values():
        counts = {str(r.threads): r for r in group}
        for number, other in product(q.contrast.one, q.contrast.other):
            if number in counts and other in counts:
                yield _gain(q, counts[number], counts[other])


def thread_steps(q: Question) -> Iterator[ClaimRatio]:
    """Compare a kernel on each thread count with the same kernel on the next smaller thread count."""
    for group in grouped(q.rows, lambda r: (r.problem, r.kernel, r.mode, r.isa)).values():
        within = [r for r in group if r.threads <= (q.contrast.limit or r.threads)]
        for fewer, more in pairwise(sorted(within, key=lambda r: r.threads)):
            yield _gain(q, more, fewer)


def _gain(q: Question, row: Result, other: Result) -> ClaimRatio:
    where = f"{row.op} {q.label(row.problem)}, {row.threads} threads against {other.threads}"
    return ClaimRatio(where, q.faster(row, other), (row, other), short(row.kernel))


def isas(q: Question) -> Iterator[ClaimRatio]:
    """Compare a kernel under two instruction sets, `one` and `other`, separately for each thread count."""
    for gain in _isa_gains(q):
        yield gain._replace(where=f"{gain.where}, {count(gain.size, 'thread')}")


def _isa_gains(q: Question) -> Iterator[ClaimRatio]:
    """Yield the speedup of instruction set `one` over `other` at each thread count; `size` is the thread count."""
    rows = [r for r in q.rows if r.threads in (q.contrast.counts or (r.threads,))]
    for group in grouped(rows, lambda r: (r.problem, r.kernel, r.mode, r.threads)).values():
        by_isa = {r.isa: r for r in group}
        row, other = by_isa.get(q.contrast.one[0]), by_isa.get(q.contrast.other[0])
        if row and other:
            where = f"{row.op} {q.label(row.problem)}"
            yield ClaimRatio(where, q.faster(row, other), (row, other), size=row.threads)


def isa_threads(q: Question) -> Iterator[ClaimRatio]:
    """Yield an instruction set's speedup with the fewest threads over its speedup with the most threads."""
    for gains in grouped(_isa_gains(q), lambda gain: (gain.rows[0].problem, gain.rows[0].kernel)).values():
        least, many = (pick(gains, key=lambda gain: gain.size) for pick in (min, max))
        if least.size < many.size:
            where = f"{least.where}, {least.size} against {many.size} threads"
            yield ClaimRatio(where, least.ratio.over(many.ratio), least.rows + many.rows)


def batch_steps(q: Question) -> Iterator[ClaimRatio]:
    """Yield each kernel's images per second at each batch over its images per second at the next smaller batch."""
    images = {name: batch_of(problem) for name, problem in q.evidence.problems.items()}
    each = ((setting, r) for setting, rows in q.settings.items() for r in rows)
    for batches in grouped(each, lambda pair: (pair[1].kernel, pair[0])).values():
        for smaller, larger in pairwise(sorted((r for _, r in batches), key=lambda r: images[r.problem])):
            few, many = images[smaller.problem], images[larger.problem]
            ratio = q.faster(larger, smaller).scaled(many / few)
            yield ClaimRatio(f"{few} to {many}", ratio, (larger, smaller), short(larger.kernel))


def batches(q: Question) -> Iterator[ClaimRatio]:
    """Yield, for each layer and kernel, the images per second at the largest over those at the smallest batch size."""
    by_id, seen = by_problem(q.rows), set()
    least, most = min(q.evidence.experiment.batches), max(q.evidence.experiment.batches)
    at = {(layer.base, layer.batch): layer.entry.problem.id for layer in q.evidence.layers}
    for base in dict.fromkeys(layer.base for layer in q.evidence.layers):
        large = {_who(r): r for r in by_id.get(at[base, most], [])}
        for small in by_id.get(at[base, least], []):
            if (r := large.get(_who(small))) and (key := (base, *_who(small))) not in seen:
                seen.add(key)
                ratio = q.faster(r, small).scaled(most / least)
                yield ClaimRatio(f"{base.op} {q.label(base)}", ratio, (r, small), short(r.kernel))


def _who(r: Result) -> tuple[Any, ...]:
    return r.kernel, r.device_name, r.threads, r.mode


#: The relative error of an energy sensor.
SENSOR = 0.05


class Pair(NamedTuple):
    """The fastest rows of two devices on one problem."""

    problem: Problem
    row: Result
    other: Result


def pairs(q: Question) -> Iterator[Pair]:
    """Yield the fastest row of each of the two devices, for each problem, mode and precision timed on both."""
    for group in grouped(q.rows, lambda r: (r.problem, r.mode, r.isa, comparable(r))).values():
        by_device = grouped(group, lambda r: r.device)
        row, other = (fastest(by_device.get(side[0], [])) for side in (q.contrast.one, q.contrast.other))
        if row and other:
            yield Pair(q.evidence.problems[row.problem], row, other)


def devices(q: Question) -> Iterator[ClaimRatio]:
    """Yield how many times faster device `one` is than device `other`."""
    for pair in pairs(q):
        yield _finding(q, pair, q.faster(pair.row, pair.other))


def _finding(q: Question, pair: Pair, ratio: Ratio) -> ClaimRatio:
    rows = pair.row, pair.other
    return ClaimRatio(q.label(pair.problem), ratio, rows, against(*rows), pair.problem.flop or 0)


def device_growth(q: Question) -> Iterator[ClaimRatio]:
    """Yield a device's advantage at each problem size over its advantage at the next smaller size."""
    for smaller, larger in pairwise(sorted(devices(q), key=lambda finding: finding.size)):
        where = f"{smaller.where} to {larger.where}"
        yield ClaimRatio(where, larger.ratio.over(smaller.ratio), larger.rows + smaller.rows)


def rates(q: Question) -> Iterator[ClaimRatio]:
    """Yield, for each operation, device `one`'s best rate on any problem over device `other`'s best rate."""
    best: dict[tuple[str, str], tuple[Ratio, Result]] = {}
    for r in q.rows:
        problem = q.evidence.problems[r.problem]
        work = problem.flop or problem.traffic_bytes
        key, rate = (r.op, r.device), Ratio(work, work, work).over(time_of(r))
        if key not in best or best[key][0].median < rate.median:
            best[key] = rate, r
    for op in dict.fromkeys(op for op, _ in best):
        peak, other = best.get((op, q.contrast.one[0])), best.get((op, q.contrast.other[0]))
        if peak and other:
            yield ClaimRatio(op, peak[0].over(other[0]), (peak[1], other[1]))


def price(q: Question) -> Iterator[ClaimRatio]:
    """Yield how many times more work device `one` does for the same money than device `other`.

    For the kind `other-price`, the price of `other` is its `otherwise_per_hour`, such as the price without preemption.
    """
    for pair in pairs(q):
        price, other = q.prices.of(pair.row), q.prices.of(pair.other)
        paid = other and (other.otherwise_per_hour if q.contrast.kind == "other-price" else other.per_hour)
        if price and paid:
            yield _finding(q, pair, q.faster(pair.row, pair.other).scaled(paid / price.per_hour))


def energy(q: Question) -> Iterator[ClaimRatio]:
    """Yield how many times more work device `one` does for the same energy than device `other`."""
    for pair in pairs(q):
        joules, other = (_energy(r, q.prices) for r in (pair.row, pair.other))
        if joules and other:
            yield _finding(q, pair, other.over(joules))


def thread_price(q: Question) -> Iterator[ClaimRatio]:
    """Yield how many times more work `one` threads do than `other` threads for the same money; a thread is one vCPU."""
    for vcpus, other in product(q.contrast.one, q.contrast.other):
        paid = [q.prices.of_vcpus(int(count)) for count in (other, vcpus)]
        for ratio in threads(q._replace(contrast=msgspec.structs.replace(q.contrast, one=(vcpus,), other=(other,)))):
            if paid[0] and paid[1]:
                yield ratio._replace(ratio=ratio.ratio.scaled(paid[0].per_hour / paid[1].per_hour))


def _energy(r: Result, prices: Prices) -> Ratio | None:
    """Return the joules of a call: measured, or else the time multiplied by the declared watts, or None."""
    if joules := r.energy_j:
        return Ratio(joules, joules * (1 - SENSOR), joules * (1 + SENSOR))
    watts = prices.watts(r)
    return time_of(r).scaled(watts) if watts else None


def with_transfers(q: Question) -> Iterator[ClaimRatio]:
    """Yield device `other`'s time over the sum of device `one`'s time and its transfers of operands and result."""
    moved = by_problem(r for r in q.rows if r.op == "transfer")
    for pair in pairs(q._replace(rows=[r for r in q.rows if r.op != "transfer"])):
        moves = []
        for way, role in (("h2d", "in"), ("d2h", "out")):
            elements = sum(operand.elements for operand in pair.problem.operands() if operand.role == role)
            moves.append(fastest(moved.get(f"transfer/n{elements}/{pair.problem.dtype}/{way}", [])))
        if all(moves) and (whole := total((1, r) for r in (pair.row, *moves))):
            rows = pair.row, *filter(None, moves), pair.other
            ratio, by = time_of(pair.other).over(whole), against(pair.row, pair.other)
            yield ClaimRatio(q.label(pair.problem), ratio, rows, by, pair.problem.flop)


def step_share(q: Question) -> Iterator[ClaimRatio]:
    """Yield each transfer's shortest time over the time of one batch forward and backward, by the fastest kernels."""
    layers = [layer.entry for layer in q.evidence.layers if layer.entry.part]
    rows = by_problem(q.rows)
    chosen = [(entry.count, fastest(rows.get(entry.problem.id, ()))) for entry in layers]
    batch, layer_rows = total(chosen), tuple(r for _, r in chosen if r)
    for problem, members in rows.items():
        r = fastest(members)
        if batch and r and r.op == "transfer":
            yield ClaimRatio(q.label(problem), time_of(r).over(batch), (r, *layer_rows), r.kernel)


#: The functions that compare rows, by the `kind` in a claim's file.
COMPARE: Mapping[str, Callable[[Question], Iterator[ClaimRatio]]] = {
    compare.__name__.replace("_", "-"): compare
    for compare in (
        *(kernels, problems, verified, launched, threads, thread_steps, isas, isa_threads, batch_steps, batches),
        *(devices, device_growth, rates, price, energy, thread_price, with_transfers, step_share),
    )
} | {"other-price": price}
#: The kinds that need prices.
BY_PRICES = ("price", "energy", "thread-price", "other-price")
