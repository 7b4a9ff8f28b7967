"""Verdicts in words: which problems answer yes, which no, and what is missing where none has an answer."""

from collections.abc import Iterable, Sequence

from kernelmark.bench.claims.catalog import Claim, Contrast, Experiment
from kernelmark.bench.claims.evidence import ExperimentRows
from kernelmark.bench.claims.findings import ClaimRatio
from kernelmark.bench.claims.verdict import ANSWERS, JudgedRatio
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.record.result import Result
from kernelmark.bench.report.contest import APART

#: How many numbers are listed one by one, and how many names of those that are not.
TOLD, NAMED = 4, 8


def told(numbers: Sequence[JudgedRatio]) -> list[str]:
    """Return a line for each answer: `yes  13x13 (pyfftw.tiled against cpu.im2col): 1.6x [1.5, 1.7]`."""
    groups = [(answer, [n for n in numbers if n.answer == answer]) for answer in ANSWERS]
    return [f"{answer}  {_group(group, len(numbers))}" for answer, group in groups if group]


def _group(numbers: Sequence[JudgedRatio], of: int) -> str:
    """Return the numbers one by one, or if many their range, and their names where others have another answer."""
    if len(numbers) <= TOLD:
        return "; ".join(f"{n.where}{f' ({n.by})' if n.by else ''}: {n.interval}" for n in numbers)
    least, most = (pick(numbers, key=lambda n: n.ratio) for pick in (min, max))
    found = f"{len(numbers)} of {of}, {least.interval} ({least.where}) to {most.interval} ({most.where})"
    return found if len(numbers) == of else f"{found}: {_names(numbers)}"


def _names(numbers: Sequence[JudgedRatio]) -> str:
    more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
    return "; ".join(n.where for n in numbers[:NAMED]) + more


def with_steps(reason: str, steps: Iterable[ClaimRatio]) -> str:
    """Return the reason that there are too few threads, and what those that there are gain."""
    shown = ", ".join(f"{finding.where}: {finding.ratio}" for finding in steps)
    return f"{reason}; over those: {shown}" if shown else reason


def failures(results: Sequence[Result]) -> str:
    """Return the rows that have no time, and why."""
    shown = "; ".join(f"{r.kernel} on {r.problem}: {r.status}: {r.reason}" for r in results[:2])
    return shown + (f"; and {len(results) - 2} more" if len(results) > 2 else "")


def unpriced(kind: str, results: Sequence[Result]) -> str:
    """Return for which devices a price is missing."""
    names = ", ".join(dict.fromkeys(r.device_name for r in results))
    price = "a price on other terms (otherwise_per_hour)" if kind == "other-price" else "a price"
    return f"{price}: the prices file has none for one of {names}"


def unmetered(names: Sequence[str]) -> str:
    """Return on which devices no energy was measured."""
    return f"energy: no sensor was read on {', '.join(names)}, and the prices file declares no watts"


def coverage(asked: Contrast, evidence: ExperimentRows) -> list[str]:
    """Return how many of a claim's problems have rows, where not all have; one that failed has one too."""
    problems = {layer.entry.problem.id for layer in evidence.layers if matches(layer.entry.problem.id, asked.problems)}
    found = problems & {r.problem for r in evidence.all}
    return [f"{len(found)} of {len(problems)} problems have rows"] if len(found) < len(problems) else []


def apart(numbers: Sequence[JudgedRatio]) -> list[str]:
    """Return how many numbers are of rows that may differ by what the machine did meanwhile."""
    count = sum(not n.in_turn for n in numbers)
    what = f"{APART}: {count} of {len(numbers)} numbers"
    return [f"{what}, which compare rows of two jobs and have the wider intervals of both"] if count else []


def no_rows(claim: Claim, asked: Experiment, some: bool) -> str:
    """Return which rows are missing and the command that measures them."""
    lack = f"{'some ' if some else ''}rows of the experiment {asked.id!r} ({asked.title})"
    where = " on a machine with a GPU" if asked.device == "cuda" else ""
    return f"{lack}; `kernelmark claims --only {claim.id}` measures them{where}"
