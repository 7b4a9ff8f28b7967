"""Comparisons that hold a transfer between host and GPU: against a training step, and added to the GPU's time."""

from collections.abc import Iterable, Iterator, Sequence

from kernelmark.bench.claims.catalog import Contrast
from kernelmark.bench.claims.devices import pairs
from kernelmark.bench.claims.evidence import ExperimentRows
from kernelmark.bench.claims.findings import ClaimRatio, Compare, against, fastest, label
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import time_of
from kernelmark.bench.report.networks import total


def with_transfers(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[ClaimRatio]:
    """Yield the time of one device over that of the other, to which its operands and its result are moved."""
    moved = {r.problem: [other for other in rows if other.problem == r.problem] for r in rows if r.op == "transfer"}
    for pair in pairs(asked, evidence, [r for r in rows if r.op != "transfer"]):
        operands = pair.problem.operands()
        sizes = {
            way: sum(o.elements for o in operands if o.role == role) for way, role in (("h2d", "in"), ("d2h", "out"))
        }
        names = (f"transfer/n{count}/{pair.problem.dtype}/{way}" for way, count in sizes.items())
        ways = [fastest(moved.get(name, [])) for name in names]
        moves = [r for r in ways if r]
        if len(moves) == len(ways) and (whole := total((1, r) for r in (pair.one, *moves))):
            ratio, by = time_of(pair.other).over(whole), against(pair.one, pair.other)
            rows_of_all = pair.one, *moves, pair.other
            yield ClaimRatio(label(asked, pair.problem), ratio, rows_of_all, by, pair.problem.flop)


def step_share(asked: Contrast, evidence: ExperimentRows, rows: Sequence[Result]) -> Iterator[ClaimRatio]:
    """Yield the fastest transfer of each size over a batch, forward and backward, of the fastest kernels."""
    layers = [layer.entry for layer in evidence.layers if layer.entry.part]
    chosen = [(entry.count, _fastest(rows, entry.problem.id)) for entry in layers]
    batch, layer_rows = total(chosen), tuple(r for _, r in chosen if r)
    for problem in dict.fromkeys(r.problem for r in rows if r.op == "transfer"):
        r = _fastest(rows, problem)
        if batch and r:
            ratio = time_of(r).over(batch)
            yield ClaimRatio(label(asked, evidence.problems[problem]), ratio, (r, *layer_rows), r.kernel)


def _fastest(rows: Iterable[Result], problem: str) -> Result | None:
    return fastest(r for r in rows if r.problem == problem)


COMPARE: dict[str, Compare] = {"with-transfers": with_transfers, "step-share": step_share}
