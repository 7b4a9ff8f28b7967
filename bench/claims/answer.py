"""A claim and its verdict: on which side of the number each interval lies, and what is missing where there is none."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kernelmark.bench.claims import aggregation, devices, findings, transfers, wording
from kernelmark.bench.claims.catalog import Claim, Experiment, claims, experiment
from kernelmark.bench.claims.evidence import ExperimentRows, gather
from kernelmark.bench.claims.findings import ClaimRatio, failures_of
from kernelmark.bench.claims.hardware import Hardware, without_sensor
from kernelmark.bench.claims.prices import Prices, load_prices
from kernelmark.bench.claims.problems import entries
from kernelmark.bench.claims.verdict import NOT_MEASURED, NOT_TESTABLE, JudgedRatio, judge, judged, named
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.format import time
from kernelmark.bench.report.networks import PASSES, total

COMPARE = {**findings.COMPARE, **devices.COMPARE, **aggregation.COMPARE, **transfers.COMPARE}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with its verdict.

    said: a line an answer, where it holds and where not, or what is missing. notes: what else follows from the rows:
    problems without rows, seconds a batch of networks, the prices that were used. rows: those that the verdict is
    formed from, or that have no time instead, by run and case; run_ids: their runs.
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
    findings: tuple[JudgedRatio, ...] = ()
    rows: tuple[str, ...] = ()


def claims_rows(
    store: Store,
    run_ids: Sequence[str],
    registry: Registry | None = None,
    prices: Prices | None = None,
    only: Iterable[str] = (),
    here: bool = False,
) -> list[Answer]:
    """Return the claims (or those with these ids), each with its verdict from the rows of these runs, the latest last.

    What hardware a claim lacks is judged by the machines of these runs. here: cold rows alone count, and without runs
    it is judged by this machine.
    """
    known, paid, chosen = registry or discover(), prices or load_prices(None), claims(only)
    asked = {claim.experiment: experiment(claim) for claim in chosen}
    wanted = {layer.entry.problem.id for e in asked.values() for layer in entries(e, known)}
    rows = [r for run_id in run_ids for r in store.results_on(run_id, wanted)]
    found = {name: gather(store, known, e, rows, Mode.COLD if here else "") for name, e in asked.items()}
    facts = [store.run(run_id).machine for run_id in run_ids] or [machine()] * here
    hardware = Hardware.of(facts)
    return [answer(claim, asked[claim.experiment], found[claim.experiment], paid, hardware) for claim in chosen]


def answer(claim: Claim, asked: Experiment, evidence: ExperimentRows, prices: Prices, hardware: Hardware) -> Answer:
    """Return the verdict on a claim from the rows of its experiment."""
    found = [] if claim.lacks else _find(claim, evidence, prices)
    numbers = tuple(judged(finding, claim.confirm) for finding in found)
    lacking = wording.coverage(claim.comparison, evidence)
    if numbers:
        verdict, said = judge([number.answer for number in numbers], whole=not lacking), wording.told(numbers)
        rows = [r for finding in found for r in finding.rows]
    else:
        verdict, reason = _missing(claim, asked, evidence, prices, hardware)
        said, rows = [reason], failures_of(claim.comparison, evidence)
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
        rows=named(rows),
    )


def _find(claim: Claim, evidence: ExperimentRows, prices: Prices) -> list[ClaimRatio]:
    asked = claim.comparison
    rows = findings.rows_of(asked, evidence)
    if priced := devices.BY_PRICES.get(asked.kind):
        return list(priced(asked, evidence, rows, prices))
    return list(COMPARE[asked.kind](asked, evidence, rows))


def _notes(claim: Claim, evidence: ExperimentRows, prices: Prices) -> tuple[str, ...]:
    if claim.comparison.kind == "batches":
        return tuple(_seconds_a_batch(evidence))
    return prices.told(evidence.rows) if claim.comparison.kind in devices.BY_PRICES else ()


def _missing(
    claim: Claim, asked: Experiment, evidence: ExperimentRows, prices: Prices, hardware: Hardware
) -> tuple[str, str]:
    """Return the verdict on a claim without a number, and what the machine, the rows or the prices file lack."""
    if reason := hardware.lacks(claim, asked):
        rows = findings.rows_of(claim.comparison, evidence)
        steps = findings.thread_steps(claim.comparison, evidence, rows) if claim.threads > 1 else ()
        return NOT_TESTABLE, wording.with_steps(reason, steps)
    if claim.lacks:
        return NOT_MEASURED, claim.lacks
    if failed := failures_of(claim.comparison, evidence):
        return NOT_MEASURED, wording.failures(failed)
    if claim.comparison.kind in devices.BY_PRICES and len({r.device for r in evidence.rows}) > 1:
        if claim.comparison.kind != "energy":
            return NOT_MEASURED, wording.unpriced(claim.comparison.kind, evidence.rows)
        if names := without_sensor([r for r in evidence.rows if not prices.watts(r)]):
            return NOT_TESTABLE, wording.unmetered(names)
    return NOT_MEASURED, wording.no_rows(claim, asked, bool(evidence.rows))


def _seconds_a_batch(evidence: ExperimentRows) -> Iterator[str]:
    """Yield `AMD EPYC: forward 41 ms [40 ms, 43 ms] at batch 1` for each device, pass and batch with all layers."""
    parts = {layer.entry.part for layer in evidence.layers}
    for device in dict.fromkeys(r.device_name for r in evidence.rows):
        rows = findings.by_problem(r for r in evidence.rows if r.device_name == device)
        for title, wanted in PASSES.items():
            for batch in evidence.experiment.batches if parts.issuperset(wanted) else ():
                own = [one.entry for one in evidence.layers if one.batch == batch and one.entry.part in wanted]
                if found := total((entry.count, findings.fastest(rows.get(entry.problem.id, ()))) for entry in own):
                    yield f"{device}: {title} {time(*found[:3])} at batch {batch}"
