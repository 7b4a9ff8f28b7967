"""Measure the ceilings of a run, in separate jobs and close in time to the rows that they bound."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure import roofline
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.disturbance import disturbances, low_ceiling, was_noisy
from kernelmark.bench.measure.measurement import Ceiling, Excess, Measurement, Need
from kernelmark.bench.measure.nominal_peak import nominal_peak
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Budget, Entrant, Job, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.run.crashes import Execute

#: A ceiling is measured again after MAX_AGE_S or, if longer, MAX_AGE_COSTS times its measuring time, since clocks and
#: neighbours drift. So ceilings take at most a twentieth of the time, even if large caches need large copies.
MAX_AGE_S, MAX_AGE_COSTS = 60.0, 20
#: Seconds for each microbenchmark, and the factor by which a second try is longer, since intervals of bandwidth are
#: wide.
BUDGET_S, AGAIN = 0.3, 4
#: If a ceiling's interval is wider than this share of its rate, other load is suspected, and it is measured again.
WIDE = 0.1
#: The value of `judged_by` of a row that is compared with no ceiling.
NO_JUDGE = "no ceiling to judge by"
#: The doubt about a ceiling ends with these words if its calls were long, so that all samples include other load.
_LONG = ", and a call took longer than a time slice"


class Standing(NamedTuple):
    """The ceiling that bounds rows until `stale_at_s`, or None if none is valid. doubt: why it may be too low."""

    ceiling: Ceiling | None
    stale_at_s: float
    doubt: str = ""


Known = dict[Need, Standing]


class Ceilings:
    """The ceilings of a run's rows. keep: called with each measured ceiling. doubt: called with a ceiling and a reason.

    earlier: returns the ceilings of a kind that this machine has reached before, each with the reason to doubt it or
    "". known: the ceilings measured so far, if consecutive runs share them.
    """

    def __init__(
        self,
        registry: Registry,
        execute: Execute,
        keep: Callable[[Ceiling], None],
        doubt: Callable[[Ceiling, str], None],
        earlier: Callable[[Need], Iterable[tuple[Ceiling, str]]] = lambda need: (),
        known: Known | None = None,
    ) -> None:
        self._registry, self._execute, self._keep, self._doubt, self._earlier = registry, execute, keep, doubt, earlier
        self._known: Known = {} if known is None else known
        self._ever: dict[Need, tuple[Ceiling, str] | None] = {}
        self._recorded: set[Need] = set()

    def apply(self, job: Job, rows: list[Measurement]) -> None:
        """Add the roofline columns to the timed rows of a job that has just run, and mistrust rows above their ceiling.

        A ceiling that is stale or seems exceeded is measured again. Rows are compared with the highest ceiling that
        this machine has ever reached, since load only lowers a ceiling. If the baseline or several kernels still exceed
        that ceiling, it is considered wrong and bounds no row. A row above twice an undisturbed ceiling is
        always mistrusted.
        """
        for name in job.problems:
            timed = [row for row in rows if row.problem == name and row.status == Status.OK and row.interval]
            self._hold(job, self._registry.problem(name), timed)

    def _hold(self, job: Job, problem: Problem, timed: list[Measurement]) -> None:
        judges_of = {row.entrant: self._judges_of(job, problem, row) for row in timed}
        for need in dict.fromkeys(need for row in timed for need in roofline.needs(*self._facts(job, problem, row))):
            self._refresh(need, job)
        for need in dict.fromkeys(need for pairs in judges_of.values() for need, _ in pairs):
            if not self._holds(need):
                self._refresh(need, job)
        for need in self._surpassed(problem, timed, judges_of):
            self._measure(need, job)
        for row in timed:
            judges = [judge for need, times in judges_of[row.entrant] for judge in self._judges(need, times)]
            row.judged_by = "; ".join(map(str, judges)) or NO_JUDGE
            for steady in [self._undisturbed(need) for need, times in judges_of[row.entrant] if times < roofline.FAR]:
                if steady and (excess := roofline.exceeded(row, problem, roofline.Judge(steady, roofline.FAR))):
                    row.mistrust(excess.reason, excess)
                    break
        timed = [row for row in timed if row.status == Status.OK]
        for need, suspects in self._surpassed(problem, timed, judges_of).items():
            row, excess = suspects[0]
            if len(suspects) > 1 or row.kernel == job.baseline_of(problem.id):
                # Correct kernels have surpassed the ceiling, so it bounds nothing until it is measured again.
                known, doubt = self._known[need], f"{row.kernel} on {problem.id}: {excess.reason}"
                if known.ceiling:
                    self._doubt(known.ceiling, doubt)
                self._known[need] = known._replace(ceiling=None, doubt=doubt)
            else:
                row.mistrust(excess.reason, excess)
        for row in timed:
            if row.status == Status.OK:
                self._place(row, job, problem)

    def _place(self, row: Measurement, job: Job, problem: Problem) -> None:
        known = {need.moves: self._known[need] for need in roofline.needs(*self._facts(job, problem, row))}
        of_kinds = (known[moves].ceiling if moves in known else None for moves in (False, True))
        placed = roofline.place(row, problem, *of_kinds)
        row.roofline = placed if placed and placed.roofline_pct <= 100 * roofline.SLACK else None
        for at, doubt in [(standing.ceiling, standing.doubt) for standing in known.values()]:
            if row.roofline and at and doubt and at.need.bounds == row.roofline.bound_by:
                row.note(low_ceiling(at.kind, doubt))

    def _surpassed(
        self, problem: Problem, rows: list[Measurement], judges: Mapping[Entrant, list[tuple[Need, float]]]
    ) -> dict[Need, list[tuple[Measurement, Excess]]]:
        excesses: dict[Need, list[tuple[Measurement, Excess]]] = {}
        for row in rows:
            for need, times in judges[row.entrant]:
                for judge in self._judges(need, times):
                    if excess := roofline.exceeded(row, problem, judge):
                        excesses.setdefault(need, []).append((row, excess))
        return excesses

    def _judges(self, need: Need, times: float) -> list[roofline.Judge]:
        """Return the limit above which a row is mistrusted: the highest undisturbed ceiling, or else the nominal peak.

        If there is neither, the limit is twice the highest ceiling measured during other load, if any.
        """
        known, ever = self._known.get(need), self._ever.get(need)
        if known and known.doubt and not known.ceiling:
            return []  # refuted: correct kernels have surpassed it
        if steady := self._undisturbed(need) or nominal_peak(need):
            return [roofline.Judge(steady, times)]
        return [roofline.Judge(ever[0], roofline.FAR)] if ever and ever[1].startswith(roofline.BESIDE) else []

    def _undisturbed(self, need: Need) -> Ceiling | None:
        """Return an undisturbed ceiling of this or an earlier run, with the `best` rate of all runs, or None."""
        known, ever = self._known.get(need), self._ever.get(need)
        if ever is None or ever[1]:
            return None
        ceiling = known.ceiling if known and known.ceiling and not known.doubt else ever[0]
        return msgspec.structs.replace(ceiling, best=ever[0].best)

    def _judges_of(self, job: Job, problem: Problem, row: Measurement) -> list[tuple[Need, float]]:
        """Return the ceilings to check a row against, each with the factor by which the row may exceed it.

        Kernelmark's microbenchmarks, which set the ceilings, are checked only with factors of at least FAR. The list is
        empty if operands are zeros, since a correct kernel may then skip the arithmetic.
        """
        if problem.distribution == "zeros":
            return []
        sets_ceilings = self._registry.kernels[row.kernel].is_ours and problem.is_ceiling
        judges = roofline.judges(*self._facts(job, problem, row))
        return [(need, times) for need, times in judges if not sets_ceilings or times >= roofline.FAR]

    def _facts(self, job: Job, problem: Problem, row: Measurement) -> tuple[Problem, str, int, str, Mode, int]:
        device = self._registry.kernels[row.kernel].device
        return problem, device, row.threads, row.numerics, job.mode, row.llc_bytes or get_device(device).llc_bytes

    def _holds(self, need: Need) -> bool:
        """Return whether an undisturbed ceiling of this kind is known for this machine."""
        if need not in self._ever:
            self._ever[need] = roofline.highest(self._earlier(need))
        ever = self._ever[need]
        return ever is not None and not ever[1]

    def _refresh(self, need: Need, job: Job) -> None:
        """Measure a ceiling unless its value is recent; a recent one of an earlier run is recorded for this, too."""
        self._holds(need)
        known = self._known.get(need)
        if known is None or known.stale_at_s < now():
            if need not in self._recorded:
                self._known.pop(need, None)
            self._measure(need, job)
        elif known.ceiling and need not in self._recorded:
            self._see(known.ceiling, known.doubt)
            self._add(known.ceiling, known.doubt)

    def _measure(self, need: Need, job: Job) -> None:
        """Measure a ceiling, twice if it looks disturbed and no valid value is known; the highest valid value counts.

        If a valid value is known, there is no second try, since the same load would disturb it. A ceiling has one
        value in a run; a later measurement replaces it only if noise does not explain the difference.
        """
        began_s, known = now(), self._known.get(need)
        ceiling, doubt = (known.ceiling, known.doubt) if known else (None, "")
        for times in (1, AGAIN):
            taken = self._take(need, job, times)
            if taken is None:
                break
            rate = taken[0].rate
            if ceiling and not doubt:
                if rate <= roofline.SLACK * ceiling.rate:
                    break
                if not taken[1]:
                    self._doubt(ceiling, f"a later one of this run is {100 * (rate / ceiling.rate - 1):.0f} % higher")
            self._add(*taken)
            ceiling, doubt = max([(ceiling, doubt), taken], key=roofline.certainty) if ceiling else taken
            if not doubt or doubt.startswith(roofline.BESIDE) or doubt.endswith(_LONG):
                break
        ended_s = now()
        stale_at_s = ended_s + max(MAX_AGE_S, MAX_AGE_COSTS * (ended_s - began_s))
        self._known[need] = Standing(ceiling, stale_at_s, doubt)

    def _add(self, measured: Ceiling, doubt: str) -> None:
        self._recorded.add(measured.need)
        self._keep(measured)
        if doubt:
            self._doubt(measured, doubt)

    def _see(self, measured: Ceiling, doubt: str) -> None:
        before = self._ever.get(measured.need)
        self._ever[measured.need] = roofline.highest(filter(None, (before, (measured, doubt))))

    def _take(self, need: Need, job: Job, times: int) -> tuple[Ceiling, str] | None:
        """Measure a ceiling; return it and the doubt about it, or None if no microbenchmark has the status `ok`."""
        problem = self._registry.problem(need.problem)
        rows = self._execute(self._job(need, problem, job, times), WorkerKey(need.device, need.threads))
        row = roofline.fastest(rows)
        if row is None:
            return None
        measured = roofline.ceiling(need, row, problem, datetime.now(UTC).isoformat())
        doubt = self._looks_disturbed(measured, row)
        self._see(measured, doubt)
        return measured, doubt

    def _looks_disturbed(self, measured: Ceiling, row: Measurement) -> str:
        """Return why other load seems to have lowered a ceiling, or ""."""
        cause = disturbances(row.disturbed)[0].cause if was_noisy(row.disturbed) else ""
        tenth_s, _, _ = roofline.fastest_tenth(row.samples)
        if cause and measured.device == "cpu" and tenth_s > roofline.SLICE_S:
            return cause + _LONG
        # During other load a short sample is either undisturbed or takes a time slice longer.
        if (wide := measured.high - (measured.rate if cause else measured.low)) > WIDE * measured.rate:
            return f"its interval is {100 * wide / measured.rate:.0f} % wide"
        if measured.kind == "fp32":
            for need, known in self._known.items():
                same = (need.device, need.threads, need.kind) == (measured.device, measured.threads, "fp64")
                if same and known.ceiling and known.ceiling.rate > measured.rate:
                    return "below that of fp64"
        return cause and roofline.BESIDE + cause

    def _job(self, need: Need, problem: Problem, job: Job, times: int) -> Job:
        """Return a job with only kernelmark's microbenchmarks; a plug-in must not set the ceiling of its own rows.

        For several threads, microbenchmarks that use only one thread are left out.
        """
        kernels = tuple(
            kernel.id
            for kernel in self._registry.kernels.values()
            if (kernel.op, kernel.device) == (problem.op, need.device)
            and kernel.outside(problem) is None
            and kernel.is_ours
            and (kernel.threaded or need.threads == 1)
            and (need.moves or need.kind == kernel.numerics_for(problem))
            and (need.kind != "link" or kernel.id in roofline.LINKS)
        )
        budget = Budget(times * min(BUDGET_S, job.budget.max_time_s))
        return Job((need.problem,), kernels, Mode.HOT, (), job.seed, budget, need.threads, ours=True)
