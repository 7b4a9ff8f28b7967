"""The ceilings of a run: measured by jobs of their own, close in time to the rows that refer to them."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.disturbance import low_ceiling
from kernelmark.bench.measure.measurement import Ceiling, Excess, Measurement, Need
from kernelmark.bench.measure.roofline import FAR, LINKS, SLACK, Bounds, ceiling, exceeded, needs, place
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
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
#: A ceiling this far below the run's best, or with an interval this wide, is a sign of other load: it is taken again.
LOW, WIDE = 0.9, 0.1


class Standing(NamedTuple):
    """The ceiling that bounds rows, if one holds, until it is stale.

    doubt: why the latest, taken twice, is disturbed; replaced: that one is not `found`.
    """

    found: Ceiling | None
    stale_at_s: float
    doubt: str = ""
    replaced: bool = False


Known = dict[Need, Standing]


class Ceilings:
    """What bounds the rows of a run. `keep` gets each ceiling that is measured, `doubt` why one cannot hold.

    `highest` returns the highest ceiling of a kind that this machine has ever reached. known: what runs that follow
    one another have in common.
    """

    def __init__(
        self,
        registry: Registry,
        execute: Execute,
        keep: Callable[[Ceiling], None],
        doubt: Callable[[Ceiling, str], None],
        highest: Callable[[Need], Ceiling | None],
        known: Known | None = None,
    ) -> None:
        self._registry, self._execute, self._keep, self._doubt, self._highest = registry, execute, keep, doubt, highest
        self._known: Known = {} if known is None else known
        self._best: dict[Need, Ceiling] = {}

    def apply(self, job: Job, rows: list[Measurement]) -> None:
        """Place the timed rows of a job, just measured, under their ceilings, and mistrust one that lies above.

        A ceiling that is stale is measured anew, and so is one that seems surpassed; rows are held
        against the best of the run, since load lowers a ceiling and never raises it. If it still is surpassed, by
        the baseline or by several kernels, then not they but the ceiling is wrong, and it bounds nothing; but a row at
        twice the highest ceiling ever is mistrusted in any case.
        """
        for name in job.problems:
            timed = [row for row in rows if row.problem == name and row.status == Status.OK and row.interval]
            self._hold(job, self._registry.problem(name), timed)

    def _hold(self, job: Job, problem: Problem, timed: list[Measurement]) -> None:
        for need in dict.fromkeys(need for row in timed for need in self._needs(job, problem, row)):
            known = self._known.get(need)
            if known is None or known.stale_at_s < now():
                self._measure(need, job)
            elif known.found and need not in self._best:  # an earlier run measured it
                self._keep(known.found)
                self._best[need] = known.found
                if known.doubt and not known.replaced:
                    self._doubt(known.found, known.doubt)
        for need in self._surpassed(job, problem, timed):
            self._measure(need, job)
        for row in timed:
            if excess := self._excess(job, problem, row, self._bounds(job, problem, row, self._highest), FAR):
                row.mistrust(excess.reason, excess)
        timed = [row for row in timed if row.status == Status.OK]
        for need, suspects in self._surpassed(job, problem, timed).items():
            row, excess = suspects[0]
            if len(suspects) > 1 or row.kernel == job.baseline_of(problem.id):
                self._known[need] = self._known[need]._replace(found=None)
                self._doubt(excess.ceiling, f"{row.kernel} on {problem.id}: {excess.reason}")
            else:
                row.mistrust(excess.reason, excess)
        for row in timed:
            if row.status == Status.OK:
                self._place(row, job, problem)

    def _place(self, row: Measurement, job: Job, problem: Problem) -> None:
        found = place(row, problem, self._bounds(job, problem, row, self._holding))
        row.roofline = found if found and found.roofline_pct <= 100 * SLACK else None
        for need in self._needs(job, problem, row):
            if row.roofline and row.roofline.bound_by == need.bounds and (doubt := self._known[need].doubt):
                row.note(low_ceiling(need.kind, doubt))

    def _surpassed(
        self, job: Job, problem: Problem, rows: list[Measurement]
    ) -> dict[Need, list[tuple[Measurement, Excess]]]:
        """The ceilings that rows lie above, each with those rows."""
        found: dict[Need, list[tuple[Measurement, Excess]]] = {}
        for row in rows:
            if excess := self._excess(job, problem, row, self._bounds(job, problem, row, self._strictest), SLACK):
                found.setdefault(excess.ceiling.need, []).append((row, excess))
        return found

    def _excess(self, job: Job, problem: Problem, row: Measurement, bounds: Bounds, slack: float) -> Excess | None:
        kernel = self._registry.kernels[row.kernel]
        if kernel.is_ours and problem.is_ceiling:
            return None  # it would be held against itself
        return exceeded(row, problem, bounds, get_device(kernel.device).llc_bytes, slack)

    def _holding(self, need: Need) -> Ceiling | None:
        known = self._known.get(need)
        return known and known.found

    def _strictest(self, need: Need) -> Ceiling | None:
        """Return the best ceiling of the run, if any holds now: a row above that cannot be put down to load."""
        return self._best.get(need) if self._holding(need) else None

    def _bounds(self, job: Job, problem: Problem, row: Measurement, of: Callable[[Need], Ceiling | None]) -> Bounds:
        known = {need.moves: of(need) for need in self._needs(job, problem, row)}
        return Bounds(known.get(False), known.get(True))

    def _needs(self, job: Job, problem: Problem, row: Measurement) -> Iterator[Need]:
        device = self._registry.kernels[row.kernel].device
        return needs(problem, device, row.threads, row.numerics, job.mode, get_device(device).llc_bytes)

    def _measure(self, need: Need, job: Job) -> None:
        """Measure a ceiling, twice if it looks disturbed; if both do, the last undisturbed one still bounds rows."""
        began_s = now()
        before = self._known.get(need) if need in self._best else None  # that this run has
        found, doubt = self._take(need, job), ""
        if found and self._looks_disturbed(found):
            both = filter(None, (found, self._take(need, job, AGAIN)))
            found = max(both, key=lambda taken: (not self._looks_disturbed(taken), taken.rate))
            doubt = self._looks_disturbed(found)
        if found and doubt:
            self._doubt(found, doubt)
        replaced = bool(found and doubt and before and before.found)
        if replaced and before:
            found = before.found
        ended_s = now()
        stale_at_s = ended_s + max(MAX_AGE_S, MAX_AGE_COSTS * (ended_s - began_s))
        self._known[need] = Standing(found, stale_at_s, doubt, replaced)

    def _take(self, need: Need, job: Job, times: int = 1) -> Ceiling | None:
        problem = self._registry.problem(need.problem)
        rows = self._execute(self._job(need, problem, job, times), WorkerKey(need.device, need.threads))
        found = ceiling(need, rows, problem, datetime.now(UTC).isoformat())
        if found:
            self._keep(found)
            best = self._best.get(need)
            self._best[need] = found if best is None or found.rate >= best.rate else best
        return found

    def _looks_disturbed(self, found: Ceiling) -> str:
        """Return why other load seems to have lowered a ceiling; nothing if it does not."""
        if found.rate < LOW * (best := self._best[found.need].rate):
            return f"{100 * (1 - found.rate / best):.0f} % below the best of this run"
        if found.high - found.low > WIDE * found.rate:
            return f"its interval is {100 * (found.high - found.low) / found.rate:.0f} % wide"
        if found.kind == "fp32":
            for need, known in self._known.items():
                same = (need.device, need.threads, need.kind) == (found.device, found.threads, "fp64")
                if same and known.found and known.found.rate > found.rate:
                    return "below that of fp64"
        return ""

    def _job(self, need: Need, problem: Problem, job: Job, times: int) -> Job:
        """Our own microbenchmarks alone: a user's plug-in does not set the measure that it is held against.

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
        return Job((need.problem,), kernels, Mode.HOT, (), job.seed, budget, need.threads)
