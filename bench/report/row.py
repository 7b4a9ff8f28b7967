"""One row of a run, whole: its columns, and what accuses it where it is mistrusted."""

from collections.abc import Iterator
from statistics import median

from kernelmark.bench.measure.measurement import Evidence
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.result import row
from kernelmark.bench.report.layout import wrapped
from kernelmark.bench.report.terminal import width

#: Cases that a complaint lists.
_NAMED = 5


def row_page(store: Reader, run_id: str, text: str) -> Iterator[str]:
    """Yield the paragraphs that `show --row` prints of the one case that contains a text. Raises UsageError."""
    with store.snapshot():
        case = _find(store, run_id, text)
        result, dims = store.result(run_id, case)
        evidence = store.evidence(run_id, case)
    yield "\n".join(wrapped(case, width(), "", "    "))
    yield _aligned((name, value) for name, value in row(result, dims).items() if value not in (None, ""))
    if evidence:
        yield "The samples that accuse it, which the row does not keep:\n" + _aligned(_accusation(evidence))


def _find(store: Reader, run_id: str, text: str) -> str:
    found = store.find_cases(run_id, text, _NAMED + 1)
    if not found:
        raise UsageError(f"--row {text!r}: run {run_id} has no such case; `kernelmark export {run_id}` lists its rows")
    if len(found) > 1:
        named = ", ".join(map(repr, found[:_NAMED])) + (" and more" if len(found) > _NAMED else "")
        raise UsageError(f"--row {text!r}: expected one case of run {run_id}, found {named}; give more of the name")
    return found[0]


def _accusation(evidence: Evidence) -> Iterator[tuple[str, object]]:
    interval, excess = evidence.interval, evidence.excess
    yield "samples", len(evidence.samples)
    yield "time_s_median", interval.median if interval else median(evidence.samples)
    yield "time_s_min", min(evidence.samples)
    if interval:
        yield "time_s_ci95_low", interval.low
        yield "time_s_ci95_high", interval.high
    if excess:
        yield "declared", f"{excess.declared:,} {excess.ceiling.work_unit}"
        yield "over time_s_ci95_high", f"{excess.rate * 1e-9:.4g} {excess.ceiling.rate_unit}"
        yield "surpassed ceiling", f"{excess.limit}, measured {excess.ceiling.measured_at}"


def _aligned(pairs: Iterator[tuple[str, object]]) -> str:
    """Return a line for each name and value, a long value wrapped in its column."""
    found = list(pairs)
    longest = max(len(name) for name, _ in found)
    indent = " " * (longest + 2)
    lines = (wrapped(str(value), width(), f"{name:<{longest}}  ", indent) for name, value in found)
    return "\n".join(line for value in lines for line in value)
