"""A claim and its verdict: on which side of the number each interval lies, and what is missing where there is none."""

from collections.abc import Iterable, Sequence

import msgspec

from kernelmark.bench.claims import aggregation, devices, findings, transfers, wording
from kernelmark.bench.claims.catalog import Claim, Experiment, claims, experiment
from kernelmark.bench.claims.evidence import Evidence, gather
from kernelmark.bench.claims.findings import Finding
from kernelmark.bench.claims.networks import seconds_a_batch
from kernelmark.bench.claims.prices import Prices, load_prices
from kernelmark.bench.claims.problems import entries, missing_here
from kernelmark.bench.claims.verdict import Found, judge, judged
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.store import Store

COMPARE = {**findings.COMPARE, **devices.COMPARE, **aggregation.COMPARE, **transfers.COMPARE}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with its verdict.

    said: a line an answer, where it holds and where not, or what is missing. notes: what else follows from the rows:
    problems without rows, seconds a batch of networks, the prices that were used. run_ids: the runs of the rows.
    """

    id: str
    words: str
    source: str
    applies: str
    experiment: str
    number: str
    expected: str
    verdict: str
    said: tuple[str, ...]
    notes: tuple[str, ...] = ()
    device_names: tuple[str, ...] = ()
    interval: str = ""
    run_ids: tuple[str, ...] = ()
    findings: tuple[Found, ...] = ()


def claims_rows(
    store: Store,
    run_ids: Sequence[str],
    registry: Registry | None = None,
    prices: Prices | None = None,
    only: Iterable[str] = (),
    here: bool = False,
) -> list[Answer]:
    """Return the claims (or those with these ids), each with its verdict from the rows of these runs, the latest last.

    here: the runs are this machine's, so that what is missing is what the machine lacks, and cold rows alone count.
    """
    known, paid, chosen = registry or discover(), prices or load_prices(None), claims(only)
    asked = {claim.experiment: experiment(claim) for claim in chosen}
    wanted = {layer.entry.problem.id for e in asked.values() for layer in entries(e, known)}
    rows = [r for run_id in run_ids for r in store.results_on(run_id, wanted)]
    found = {name: gather(store, known, e, rows, Mode.COLD if here else "") for name, e in asked.items()}
    return [answer(claim, asked[claim.experiment], found[claim.experiment], paid, here) for claim in chosen]


def answer(claim: Claim, asked: Experiment, evidence: Evidence, prices: Prices, here: bool) -> Answer:
    """Return the verdict on a claim from the rows of its experiment."""
    found = [] if claim.lacks else _find(claim, evidence, prices)
    numbers = tuple(judged(finding, claim.confirm) for finding in found)
    lacking = wording.coverage(claim.comparison, evidence)
    verdict = judge([number.answer for number in numbers], whole=not lacking)
    said = wording.told(numbers) if numbers else [_missing(claim, asked, evidence, prices, here)]
    rows = evidence.rows if numbers else []
    return Answer(
        id=claim.id,
        words=claim.words,
        source=claim.cited,
        applies=claim.applies,
        experiment=asked.title,
        number=claim.number,
        expected=str(claim.confirm),
        verdict=verdict,
        said=tuple(said),
        notes=(*lacking, *_notes(claim, evidence, prices), *wording.apart(numbers)) if numbers else (),
        device_names=tuple(dict.fromkeys(r.device_name for r in rows)),
        interval=", ".join(dict.fromkeys(r.interval for r in rows if r.interval)),
        run_ids=tuple(dict.fromkeys(r.run_id for r in rows)),
        findings=numbers,
    )


def _find(claim: Claim, evidence: Evidence, prices: Prices) -> list[Finding]:
    asked = claim.comparison
    rows = findings.rows_of(asked, evidence)
    if priced := devices.BY_PRICES.get(asked.kind):
        return list(priced(asked, evidence, rows, prices))
    return list(COMPARE[asked.kind](asked, evidence, rows))


def _notes(claim: Claim, evidence: Evidence, prices: Prices) -> tuple[str, ...]:
    if claim.comparison.kind == "batches":
        return tuple(seconds_a_batch(evidence))
    return prices.told(evidence.rows) if claim.comparison.kind in devices.BY_PRICES else ()


def _missing(claim: Claim, asked: Experiment, evidence: Evidence, prices: Prices, here: bool) -> str:
    """Return why no number was found: what the suite, the machine, the rows or the prices file lack."""
    if claim.lacks:
        return claim.lacks
    if here and (reason := missing_here(asked)):
        return reason
    if here and claim.threads > cpu_count():
        rows = findings.rows_of(claim.comparison, evidence)
        steps = findings.thread_steps(claim.comparison, evidence, rows)
        return wording.too_few_threads(claim, cpu_count(), steps)
    lacking = here and wording.coverage(claim.comparison, evidence)
    if not lacking and (failed := findings.failures_of(claim.comparison, evidence)):
        return wording.failures(failed)
    both = len({r.device for r in evidence.rows}) > 1
    if both and claim.comparison.kind in devices.BY_PRICES:
        return wording.unpriced(claim.comparison.kind, evidence.rows)
    return wording.no_rows(asked, bool(evidence.rows), here)
