"""The ceilings of a run: measured by jobs of their own, close in time to the rows that refer to them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.disturbance import disturbances, low_ceiling, was_noisy
from kernelmark.bench.measure.measurement import Ceiling, Excess, Measurement, Need
from kernelmark.bench.measure.peak import nominal_peak
from kernelmark.bench.measure.roofline import (
    BESIDE,
    FAR,
    LINKS,
    SLACK,
    SLICE_S,
    Bounds,
    Judge,
    ceiling,
    certainty,
    exceeded,
    fastest,
    fastest_tenth,
    highest,
    judges,
    needs,
    place,
)
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Budget, Entrant, Job, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.run.pool import Execute

#: Clocks and neighbours drift: an older ceiling is measured again, unless that would take more than a twentieth of
#: the time: where caches are large, so are the copies that show the bandwidth of memory.
MAX_AGE_S, MAX_AGE_COSTS = 60.0, 20
#: Seconds for each kernel, and how many times that at a second look: the intervals of memory are wide by themselves.
BUDGET_S, AGAIN = 0.3, 4
#: An interval this wide, of the rate, is a sign of other load: the ceiling is taken again.
WIDE = 0.1
#: What a row has for `judged_by` where no ceiling can accuse it.
NO_JUDGE = "no ceiling to judge by"


#: Ends the doubt about a ceiling whose samples all have a part of other load, however long it is looked at.
_LONG = ", and a call took longer than a time slice"


class Standing(NamedTuple):
    """The ceiling that bounds rows, if one is valid, until it is measured again. doubt: why it may be too low."""

    found: Ceiling | None
    stale_at_s: float
    doubt: str = ""


Known = dict[Need, Standing]


class Ceilings:
    """The ceilings of a run's rows. `keep` gets each measured ceiling, `doubt` the reason why one is invalid.

    `earlier` returns the ceilings of a kind that this machine has reached before, each with the reason for doubt.
    known: shared by consecutive runs.
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
        self._own: set[Need] = set()

    def apply(self, job: Job, rows: list[Measurement]) -> None:
        """Place the timed rows of a job, just measured, under their ceilings, and mistrust one that lies above.

        A stale ceiling is measured again, and so is one that seems exceeded. Rows are compared with the highest that
        this machine has ever reached, since load lowers a ceiling and never raises it. If the baseline or several
        kernels still exceed it, then not they but the ceiling is wrong, and it bounds nothing; but a row at twice an
        undisturbed ceiling is mistrusted in any case.
        """
        for name in job.problems:
            timed = [row for row in rows if row.problem == name and row.status == Status.OK and row.interval]
            self._hold(job, self._registry.problem(name), timed)

    def _hold(self, job: Job, problem: Problem, timed: list[Measurement]) -> None:
        judges_of = {row.entrant: self._asked(job, problem, row) for row in timed}
        for need in dict.fromkeys(need for row in timed for need in self._needs(job, problem, row)):
            self._refresh(need, job)
        for need in dict.fromkeys(need for pairs in judges_of.values() for need, _ in pairs):
            if not self._holds(need):
                self._refresh(need, job)
        for need in self._surpassed(problem, timed, judges_of):
            self._measure(need, job)
        for row in timed:
            judges = [judge for need, times in judges_of[row.entrant] for judge in self._judges(need, times)]
            row.judged_by = "; ".join(map(str, judges)) or NO_JUDGE
            for steady in [self._undisturbed(need) for need, times in judges_of[row.entrant] if times < FAR]:
                if steady and (excess := exceeded(row, problem, Judge(steady, FAR))):
                    row.mistrust(excess.reason, excess)
                    break
        timed = [row for row in timed if row.status == Status.OK]
        for need, suspects in self._surpassed(problem, timed, judges_of).items():
            row, excess = suspects[0]
            if len(suspects) > 1 or row.kernel == job.baseline_of(problem.id):
                self._refute(need, f"{row.kernel} on {problem.id}: {excess.reason}")
            else:
                row.mistrust(excess.reason, excess)
        for row in timed:
            if row.status == Status.OK:
                self._place(row, job, problem)

    def _place(self, row: Measurement, job: Job, problem: Problem) -> None:
        known = {need.moves: self._known[need] for need in self._needs(job, problem, row)}
        bounds = Bounds(*(known[moves].found if moves in known else None for moves in (False, True)))
        placed = place(row, problem, bounds)
        row.roofline = placed if placed and placed.roofline_pct <= 100 * SLACK else None
        for at, doubt in [(standing.found, standing.doubt) for standing in known.values()]:
            if row.roofline and at and doubt and at.need.bounds == row.roofline.bound_by:
                row.note(low_ceiling(at.kind, doubt))

    def _surpassed(
        self, problem: Problem, rows: list[Measurement], judges: Mapping[Entrant, list[tuple[Need, float]]]
    ) -> dict[Need, list[tuple[Measurement, Excess]]]:
        """The ceilings that rows lie above, each with those rows."""
        excesses: dict[Need, list[tuple[Measurement, Excess]]] = {}
        for row in rows:
            for need, times in judges[row.entrant]:
                for judge in self._judges(need, times):
                    if excess := exceeded(row, problem, judge):
                        excesses.setdefault(need, []).append((row, excess))
        return excesses

    def _judges(self, need: Need, times: float) -> list[Judge]:
        """Return the limit above which a row is mistrusted: the highest undisturbed ceiling, else the nominal peak.

        Without either it is twice the highest that was measured beside other load, or nothing.
        """
        known, ever = self._known.get(need), self._ever.get(need)
        if known and known.doubt and not known.found:
            return []  # right kernels have surpassed it
        if steady := self._undisturbed(need) or nominal_peak(need):
            return [Judge(steady, times)]
        return [Judge(ever[0], FAR)] if ever and ever[1].startswith(BESIDE) else []

    def _undisturbed(self, need: Need) -> Ceiling | None:
        """Return the ceiling of this run, or an earlier one, that nothing disturbed, with the best sample ever."""
        known, ever = self._known.get(need), self._ever.get(need)
        if ever is None or ever[1]:
            return None
        own = known.found if known and known.found and not known.doubt else ever[0]
        return msgspec.structs.replace(own, best=ever[0].best)

    def _asked(self, job: Job, problem: Problem, row: Measurement) -> list[tuple[Need, float]]:
        """Return the needs whose ceilings can accuse a row; a microbenchmark would be held against itself.

        None can where operands are zeros, with which a right kernel need not compute.
        """
        kernel = self._registry.kernels[row.kernel]
        if (kernel.is_ours and problem.is_ceiling) or problem.distribution == "zeros":
            return []
        return [*judges(*self._facts(job, problem, row))]

    def _needs(self, job: Job, problem: Problem, row: Measurement) -> Iterator[Need]:
        return needs(*self._facts(job, problem, row))

    def _facts(self, job: Job, problem: Problem, row: Measurement) -> tuple[Problem, str, int, str, Mode, int]:
        device = self._registry.kernels[row.kernel].device
        return problem, device, row.threads, row.numerics, job.mode, get_device(device).llc_bytes

    def _holds(self, need: Need) -> bool:
        """Return whether the machine has reached a ceiling of this kind that nothing disturbed."""
        if need not in self._ever:
            self._ever[need] = highest(self._earlier(need))
        ever = self._ever[need]
        return ever is not None and not ever[1]

    def _refresh(self, need: Need, job: Job) -> None:
        """Measure a ceiling, unless it has just been; one of an earlier run becomes one of this run."""
        self._holds(need)
        known = self._known.get(need)
        if known is None or known.stale_at_s < now():
            if need not in self._own:
                self._known.pop(need, None)
            self._measure(need, job)
        elif known.found and need not in self._own:
            self._see(known.found, known.doubt)
            self._add(known.found, known.doubt)

    def _measure(self, need: Need, job: Job) -> None:
        """Measure a ceiling, twice if it looks disturbed and none holds; the highest that was undisturbed bounds rows.

        Load would disturb the second look as it did the first.

        A ceiling has one value in a run: another replaces it only where it is higher than noise explains.
        """
        began_s, known = now(), self._known.get(need)
        found, doubt = (known.found, known.doubt) if known else (None, "")
        for times in (1, AGAIN):
            taken = self._take(need, job, times)
            if taken is None:
                break
            rate = taken[0].rate
            if found and not doubt:
                if rate <= SLACK * found.rate:
                    break
                if not taken[1]:
                    self._doubt(found, f"a later one of this run is {100 * (rate / found.rate - 1):.0f} % higher")
            self._add(*taken)
            found, doubt = max([(found, doubt), taken], key=certainty) if found else taken
            if not doubt or doubt.startswith(BESIDE) or doubt.endswith(_LONG):
                break
        ended_s = now()
        stale_at_s = ended_s + max(MAX_AGE_S, MAX_AGE_COSTS * (ended_s - began_s))
        self._known[need] = Standing(found, stale_at_s, doubt)

    def _add(self, measured: Ceiling, doubt: str) -> None:
        """Record a ceiling of this run."""
        self._own.add(measured.need)
        self._keep(measured)
        if doubt:
            self._doubt(measured, doubt)

    def _see(self, measured: Ceiling, doubt: str) -> None:
        """Let the highest ceiling of a kind be at least this one."""
        before = self._ever.get(measured.need)
        self._ever[measured.need] = highest(filter(None, (before, (measured, doubt))))

    def _refute(self, need: Need, reason: str) -> None:
        """Let a ceiling bound nothing until it is measured again, since right kernels surpass it."""
        known = self._known[need]
        if known.found:
            self._doubt(known.found, reason)
        self._known[need] = known._replace(found=None, doubt=reason)

    def _take(self, need: Need, job: Job, times: int = 1) -> tuple[Ceiling, str] | None:
        """Return a ceiling as it is now, and why it may be too low."""
        problem = self._registry.problem(need.problem)
        rows = self._execute(self._job(need, problem, job, times), WorkerKey(need.device, need.threads))
        row = fastest(rows)
        if row is None:
            return None
        measured = ceiling(need, row, problem, datetime.now(UTC).isoformat())
        doubt = self._looks_disturbed(measured, row)
        self._see(measured, doubt)
        return measured, doubt

    def _looks_disturbed(self, measured: Ceiling, row: Measurement) -> str:
        """Return why other load seems to have lowered a ceiling; nothing if it does not."""
        cause = disturbances(row.disturbed)[0].cause if was_noisy(row.disturbed) else ""
        if cause and measured.device == "cpu" and fastest_tenth(row.samples).middle > SLICE_S:
            return cause + _LONG
        # Beside other load, a sample is as fast as it would be alone, or takes a time slice more.
        if (wide := measured.high - (measured.rate if cause else measured.low)) > WIDE * measured.rate:
            return f"its interval is {100 * wide / measured.rate:.0f} % wide"
        if measured.kind == "fp32":
            for need, known in self._known.items():
                same = (need.device, need.threads, need.kind) == (measured.device, measured.threads, "fp64")
                if same and known.found and known.found.rate > measured.rate:
                    return "below that of fp64"
        return cause and BESIDE + cause

    def _job(self, need: Need, problem: Problem, job: Job, times: int) -> Job:
        """Return the job of our own microbenchmarks; no plug-in may set the ceiling of its own rows.

        Of several threads, one that uses a single one is no measure; it would take as long as the others.
        """
        kernels = tuple(
            kernel.id
            for kernel in self._registry.kernels.values()
            if (kernel.op, kernel.device) == (problem.op, need.device)
            and kernel.outside(problem) is None
            and kernel.is_ours
            and (kernel.threaded or need.threads == 1)
            and (need.moves or need.kind == kernel.numerics_for(problem))
            and (need.kind != "link" or kernel.id in LINKS)
        )
        budget = Budget(times * min(BUDGET_S, job.budget.max_time_s))
        return Job((need.problem,), kernels, Mode.HOT, (), job.seed, budget, need.threads, ours=True)
