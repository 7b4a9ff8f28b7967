"""Judge a claim: find missing hardware, compare each number's interval with the claim, and form the verdict."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Self

import msgspec

from kernelmark.bench.claims import aggregation, findings
from kernelmark.bench.claims.catalog import Claim, Confirm, Experiment, catalog, claims, experiment, experiment_named
from kernelmark.bench.claims.evidence import ExperimentRows, entries, gather
from kernelmark.bench.claims.findings import Question, failures_of
from kernelmark.bench.claims.prices import Prices, load_prices
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.contest import APART, BEYOND, TIE, Ratio
from kernelmark.bench.report.format import count, time
from kernelmark.bench.report.networks import PASSES, total

VERDICTS = ("confirmed", "refuted", "depends", "not measured", "not testable here")
CONFIRMED, REFUTED, DEPENDS, NOT_MEASURED, NOT_TESTABLE = VERDICTS
YES, NO, OPEN = ANSWERS = ("yes", "no", TIE)


class JudgedRatio(msgspec.Struct, frozen=True):
    """A number computed for a claim, with its interval. where: the problem. by: the kernels compared.

    answer: whether the number confirms the claim (one of ANSWERS). in_turn: whether one job measured the compared rows
    in turn. rows: the rows from which the number is computed.
    """

    where: str
    by: str
    answer: str
    ratio: float
    ci95_low: float | None
    ci95_high: float | None
    in_turn: bool
    rows: tuple[str, ...] = ()

    @property
    def interval(self) -> str:
        """Return the ratio with its interval: `1.6x [1.5, 1.7]`."""
        return str(Ratio(self.ratio, self.ci95_low, self.ci95_high))


def named(rows: Iterable[Result]) -> tuple[str, ...]:
    """Return `RUN gemm/scipy.sgemm gemm/m8n8k8/f32/NT cold t2` for each row: its run and its case."""
    return tuple(dict.fromkeys(f"{r.run_id} {r.case}" for r in rows))


def side(ratio: Ratio, confirm: Confirm) -> str:
    """Return `yes` if the whole interval confirms the claim, `no` if the whole interval refutes it, otherwise `tie`."""
    low, high = confirm.limits
    if ratio.low is None or ratio.high is None:
        return OPEN
    if low < ratio.low and ratio.high < high:
        return YES
    return NO if ratio.high < low or high < ratio.low else OPEN


class Hardware(NamedTuple):
    """The hardware of several machines: their names, the largest numbers of GPUs and threads, all instruction sets.

    None means not recorded. Older runs recorded the name of one GPU but not the number of GPUs.
    """

    names: str = ""
    gpus: int | None = None
    threads: int | None = None
    isas: tuple[str, ...] | None = None

    @classmethod
    def of(cls, machines: Iterable[Mapping[str, Any]]) -> Self:
        """Return the hardware of machines from their recorded facts. Imported runs have no facts."""
        known = [facts for facts in machines if "cpus_usable" in facts]
        if not known:
            return cls()
        names = [" with ".join(filter(None, (facts.get("cpu", "the machine"), facts.get("gpu")))) for facts in known]
        isas = [facts["isas"] for facts in known if "isas" in facts]
        return cls(
            names=" and ".join(dict.fromkeys(names)),
            gpus=max(facts.get("gpus", int("gpu" in facts)) for facts in known),
            threads=max(facts["cpus_usable"] for facts in known),
            isas=tuple(dict.fromkeys(chain(*isas))) if isas else None,
        )

    def lacks(self, claim: Claim, experiment: Experiment) -> str:
        """Return the hardware that a claim's experiment needs and these machines lack, or ""."""
        gpus = max(claim.gpus, int(experiment.device == "cuda"))
        if self.gpus is not None and self.gpus < gpus:
            return f"{'a GPU' if gpus == 1 else count(gpus, 'GPU')}; {self.names} has {self.gpus or 'none'}"
        if self.threads is not None and self.threads < claim.threads:
            return f"{claim.threads} threads; {self.names} has {self.threads}"
        isas = [isa for isa in experiment.isas if isa]
        if self.isas is not None and not set(isas) <= set(self.isas):
            return f"the instruction sets {' and '.join(isas)}; {self.names} has {' and '.join(self.isas) or 'none'}"
        return ""


def untestable(name: str, machine: Mapping[str, Any]) -> str:
    """Return why a machine with these facts cannot test any claim of an experiment, or "" if it can test some."""
    hardware, tested = Hardware.of([machine]), experiment_named(name)
    reasons = [claim.lacks or hardware.lacks(claim, tested) for claim in catalog().claim if claim.experiment == name]
    return reasons[0] if all(reasons) else ""


#: At most TOLD numbers are listed one by one. Of more numbers, only the range and at most NAMED names are listed.
TOLD, NAMED = 4, 8


def told(numbers: Sequence[JudgedRatio]) -> list[str]:
    """Return a line for each answer that occurs, with its numbers: `yes  13x13 (pyfftw.tiled): 1.6x [1.5, 1.7]`."""
    groups = [(answer, [n for n in numbers if n.answer == answer]) for answer in ANSWERS]
    return [f"{answer}  {_group(group, len(numbers))}" for answer, group in groups if group]


def _group(numbers: Sequence[JudgedRatio], of: int) -> str:
    if len(numbers) <= TOLD:
        return "; ".join(f"{n.where}{f' ({n.by})' if n.by else ''}: {n.interval}" for n in numbers)
    least, most = (pick(numbers, key=lambda n: n.ratio) for pick in (min, max))
    counted = f"{len(numbers)} of {of}, {least.interval} ({least.where}) to {most.interval} ({most.where})"
    more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
    return counted if len(numbers) == of else f"{counted}: {'; '.join(n.where for n in numbers[:NAMED])}{more}"


COMPARE = {**findings.COMPARE, **aggregation.COMPARE}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with its verdict.

    said: a line for each answer (yes, no, tie) that occurs, or the reason why there is no number. notes: problems
    without rows, seconds per batch of each network, prices used. rows: the run and case of each row used for the
    verdict, or of each failed row if the claim has no number. run_ids: the runs of these rows.
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
    """Return claims, each with its verdict from the rows of some runs. only: ids of claims; all claims if empty.

    run_ids: the runs, oldest first; the hardware of their machines determines which claims can be tested. here: the
    verdicts are for this machine, so use only cold rows, and this machine's hardware if there are no runs.
    """
    known, paid, chosen = registry or discover(), prices or load_prices(None), claims(only)
    tested = {claim.experiment: experiment(claim) for claim in chosen}
    wanted = {layer.entry.problem.id for e in tested.values() for layer in entries(e, known)}
    rows = [r for run_id in run_ids for r in store.results_on(run_id, wanted)]
    evidence = {name: gather(store, known, e, rows, Mode.COLD if here else "") for name, e in tested.items()}
    hardware = Hardware.of([store.run(run_id).machine for run_id in run_ids] or [machine()] * here)
    return [answer(claim, tested[claim.experiment], evidence[claim.experiment], paid, hardware) for claim in chosen]


def answer(claim: Claim, tested: Experiment, evidence: ExperimentRows, prices: Prices, hardware: Hardware) -> Answer:
    """Return the verdict on a claim from the rows of its experiment."""
    q = findings.question(claim.comparison, evidence, prices)
    ratios = [] if claim.lacks else list(COMPARE[q.contrast.kind](q))
    numbers = tuple(
        JudgedRatio(f.where, f.by, side(f.ratio, claim.confirm), *f.ratio[:4], rows=named(f.rows)) for f in ratios
    )
    problems = {name for name in evidence.problems if matches(name, claim.comparison.problems)}
    covered = problems & {r.problem for r in evidence.all}  # timed or failed
    lacking = [f"{len(covered)} of {len(problems)} problems have rows"] if len(covered) < len(problems) else []
    lacking += _unanswered(claim, evidence, {r.problem for finding in ratios for r in finding.rows})
    notes: tuple[str, ...] = ()
    if numbers:
        answers = set() if lacking else {number.answer for number in numbers}
        verdict = CONFIRMED if answers == {YES} else REFUTED if answers == {NO} else DEPENDS
        said = told(numbers)
        rows = [r for finding in ratios for r in finding.rows]
        apart = f"{APART}: {sum(not n.in_turn for n in numbers)} of {len(numbers)} numbers"
        how = [] if all(n.in_turn for n in numbers) else [f"{apart}, with intervals computed from those of both times"]
        by_price = prices.told(evidence.rows) if claim.comparison.kind in findings.BY_PRICES else ()
        seconds = _seconds_a_batch(evidence) if claim.comparison.kind == "batches" else ()
        notes = (*lacking, *by_price, *seconds, *how)
    else:
        verdict, reason = _missing(claim, tested, q, hardware)
        said, rows = [reason], failures_of(claim.comparison, evidence)
    return Answer(
        **{name: getattr(claim, name) for name in ("id", "words", "applies", "number")},
        source=claim.cited,
        experiment=tested.title,
        expected=str(claim.confirm),
        verdict=verdict,
        said=tuple(said),
        notes=notes,
        device_names=tuple(dict.fromkeys(r.device_name for r in rows)),
        interval=", ".join(dict.fromkeys(r.interval for r in rows if r.interval)),
        run_ids=tuple(dict.fromkeys(r.run_id for r in rows)),
        findings=numbers,
        rows=named(rows),
    )


def _missing(claim: Claim, tested: Experiment, q: Question, hardware: Hardware) -> tuple[str, str]:
    evidence, kind = q.evidence, q.contrast.kind
    if reason := hardware.lacks(claim, tested):
        steps = findings.thread_steps(q) if claim.threads > 1 else ()
        gains = ", ".join(f"{step.where}: {step.ratio}" for step in steps)
        return NOT_TESTABLE, f"{reason}; gains measured here: {gains}" if gains else reason
    if claim.lacks:
        return NOT_MEASURED, claim.lacks
    if failed := failures_of(q.contrast, evidence):
        return NOT_MEASURED, _reasons(failed)
    if kind in findings.BY_PRICES and len({r.device for r in evidence.rows}) > 1:
        if kind != "energy":
            names = ", ".join(dict.fromkeys(r.device_name for r in evidence.rows))
            price = "a price on other terms (otherwise_per_hour)" if kind == "other-price" else "a price"
            return NOT_MEASURED, f"{price}: the prices file lacks it for at least one of {names}"
        lacking = dict.fromkeys(r.device_name for r in evidence.rows if not q.prices.watts(r))
        read = {r.device_name for r in evidence.rows if r.energy_j is not None or r.power_w is not None}
        if names := ", ".join(name for name in lacking if name not in read):
            return NOT_TESTABLE, f"energy: no sensor was read on {names}, and the prices file declares no watts"
    lack = f"{'some ' if evidence.rows else ''}rows of the experiment {tested.id!r} ({tested.title})"
    where = " on a machine with a GPU" if tested.device == "cuda" else ""
    return NOT_MEASURED, f"{lack}; `kernelmark claims --only {claim.id}` measures them{where}"


def _reasons(failed: Sequence[Result]) -> str:
    shown = "; ".join(f"{r.kernel} on {r.problem}: {_reason(r)}" for r in failed[:2])
    return shown + (f"; and {len(failed) - 2} more" if len(failed) > 2 else "")


def _reason(r: Result) -> str:
    return BEYOND if r.status == Status.OK else f"{r.status}: {r.reason}"


def _unanswered(claim: Claim, evidence: ExperimentRows, answered: Container[str]) -> list[str]:
    """Return a note on problems without a number because a kernel failed; `unsupported` is not a failure."""
    if claim.comparison.kind not in findings.EACH:
        return []
    failed = [r for r in failures_of(claim.comparison, evidence) if r.status != Status.UNSUPPORTED]
    failed = [r for r in failed if r.problem not in answered]
    return [f"no number for {count(len({r.problem for r in failed}), 'problem')}: {_reasons(failed)}"] if failed else []


def _seconds_a_batch(evidence: ExperimentRows) -> Iterator[str]:
    """Yield `EPYC: forward 41 ms [40 ms, 43 ms] at batch 1` for each device, pass and batch with rows of all layers."""
    parts = {layer.entry.part for layer in evidence.layers}
    for device in dict.fromkeys(r.device_name for r in evidence.rows):
        rows = findings.by_problem(r for r in evidence.rows if r.device_name == device)
        for title, wanted in PASSES.items():
            for batch in evidence.experiment.batches if parts.issuperset(wanted) else ():
                layers = (layer for layer in evidence.layers if layer.batch == batch and layer.entry.part in wanted)
                entries = [layer.entry for layer in layers]
                chosen = ((entry.count, findings.fastest(rows.get(entry.problem.id, ()))) for entry in entries)
                if seconds := total(chosen):
                    yield f"{device}: {title} {time(*seconds[:3])} at batch {batch}"
