"""Expand suites into jobs: which kernels contend on which problems, in which mode and on how many threads."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import count, product
from typing import NamedTuple, Self

import msgspec

from kernelmark.bench.plan.kernel import PLUGIN_MODULE, Kernel, tiled
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.options import LAUNCHERS, MAX_TIME_S, REL_CI, SPREAD_S, TIMEOUT_S
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.sweep import Entry
from kernelmark.bench.plan.tuned import TunedTile, Tunes

#: A cache: for a kernel id and the globs of a suite, the kernels that these globs and the user's globs select.
Tiled = dict[tuple[str, tuple[str, ...]], list[Kernel]]


class Budget(msgspec.Struct, frozen=True):
    """The limits at which sampling stops: seconds per case, and width of the 95 % interval divided by the median."""

    max_time_s: float = MAX_TIME_S
    rel_ci: float = REL_CI


class Entrant(NamedTuple):
    """A contender of a job: the ids of a kernel and of a problem."""

    problem: str
    kernel: str


class Job(msgspec.Struct, frozen=True):
    """Kernels on one problem or on several variants of it, which a worker measures in turn in one process.

    Every kernel runs on every problem, except the pairs in `without`. baseline: the kernel that speedups are relative
    to. baselines: exceptions by problem id; "" for no baseline. absent: devices that the run does not use; kernels on
    these devices are `unsupported`. tiles: tiles that replace default tiles. entropy: the random bits from which an
    earlier run drew its values, one word for each process; "" to draw new bits. ours: the worker does not load kernels
    of installed packages.
    """

    problems: tuple[str, ...]
    kernels: tuple[str, ...]
    mode: Mode
    plugins: tuple[str, ...]
    seed: int
    budget: Budget
    threads: int
    baseline: str | None = None
    launcher: str = LAUNCHERS[0]
    timeout_s: float = TIMEOUT_S
    isa: str = ""
    without: tuple[Entrant, ...] = ()
    baselines: Mapping[str, str] = {}
    absent: tuple[str, ...] = ()
    tiles: tuple[TunedTile, ...] = ()
    entropy: str = ""
    ours: bool = False

    @property
    def entrants(self) -> tuple[Entrant, ...]:
        """Return the contenders, problem by problem, in the order of their rows."""
        return tuple(e for e in map(Entrant._make, product(self.problems, self.kernels)) if e not in self.without)

    def only(self, entrants: Collection[Entrant]) -> Self:
        """Return the job with only some of its contenders."""
        problems = tuple(name for name in self.problems if any(e.problem == name for e in entrants))
        kernels = tuple(name for name in self.kernels if any(e.kernel == name for e in entrants))
        without = tuple(e for e in map(Entrant._make, product(problems, kernels)) if e not in entrants)
        return msgspec.structs.replace(self, problems=problems, kernels=kernels, without=without)

    def apart(self) -> list[Self]:
        """Return a job for each of the problems."""
        return [self.only([e for e in self.entrants if e.problem == name]) for name in self.problems]

    def of_process(self, number: int) -> Self:
        """Return the job with the entropy of one process; processes are numbered from 1."""
        return msgspec.structs.replace(self, entropy=" ".join(self.entropy.split()[number - 1 : number]))

    def baseline_of(self, problem: str) -> str | None:
        """Return the kernel that speedups on a problem are relative to."""
        return self.baselines.get(problem, self.baseline) or None


class WorkerKey(msgspec.Struct, frozen=True):
    """A worker's settings. process: its number among the processes of a case, from 1. gpu: UUID of the worker's GPU."""

    device: str
    threads: int
    isa: str = ""
    process: int = 1
    gpu: str = ""


class Shard(msgspec.Struct, frozen=True):
    """One of `count` parts of a plan. index: from 1, or 0 for the merged run. cases: the total over all parts."""

    index: int
    count: int
    cases: int = 0

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


class Plan(msgspec.Struct, frozen=True):
    """The user's request for a run: devices present, globs over kernel ids, mode, thread counts, seed and limits.

    suites: as the user named them, files by absolute paths. isas: instruction sets, each measured in separate workers;
    "" is the libraries' choice. timeout_s: limit of one call. processes: the number of passes over the suites, each in
    new processes; passes begin at least spread_s apart. share_gpu: another run may use the GPU. tuned: the source of
    tuned tiles, "" for none. tiles: the tuned tiles. tunes: the task of a tuning run; None for a run of suites. shard:
    the part of the plan that is measured; None for all. executor: the file of the executor whose workers measure. gpus:
    the UUIDs of the GPUs that measure. reproduce: the run whose values are drawn again, "" for none. absent: missing
    devices that the run would use.
    """

    devices: tuple[str, ...]
    kernels: tuple[str, ...] = ()
    mode: Mode = Mode.COLD
    threads: tuple[int, ...] = (1,)
    plugins: tuple[str, ...] = ()
    seed: int = 0
    max_time_s: float | None = None
    rel_ci: float = REL_CI
    launcher: str = LAUNCHERS[0]
    ceilings: bool = True
    isas: tuple[str, ...] = ("",)
    timeout_s: float = TIMEOUT_S
    processes: int = 1
    spread_s: float = SPREAD_S
    suites: tuple[str, ...] = ()
    share_gpu: bool = False
    tuned: str = ""
    tiles: tuple[TunedTile, ...] = ()
    tunes: Tunes | None = None
    shard: Shard | None = None
    executor: str = ""
    gpus: tuple[str, ...] = ()
    reproduce: str = ""
    absent: tuple[str, ...] = ()


class PlannedJob(msgspec.Struct, frozen=True):
    """A job, and facts about its suite for its rows. place: the job's number in the whole plan, not in a shard."""

    job: Job
    key: WorkerKey
    suite: str
    count: int
    part: str = ""
    network: str = ""
    place: int = 0


def case_key(kernel: str, problem: str, mode: str, threads: int, isa: str = "") -> str:
    """Return the key that identifies a row within a run."""
    return f"{kernel} {problem} {mode} t{threads}" + (f" {isa}" if isa else "")


def case_of(job: Job, problem: str, kernel: Kernel) -> str:
    """Return the key of the row of a kernel on one of a job's problems."""
    return case_key(kernel.id, problem, job.mode, job.threads if kernel.threaded else 1, job.isa)


def jobs(suites: list[Suite], registry: Registry, plan: Plan) -> Iterator[PlannedJob]:
    """Yield the jobs of the suites, one comparison group at a time, expanding each group on demand."""
    known: Tiled = {}
    places = count()
    for suite in suites:
        for group in suite.groups():
            fields: dict[tuple[str, int], list[_Field]] = {}
            for entry in group:
                chosen = contenders(entry, registry, plan.devices, plan.kernels, known, plan.absent)
                for isa, threads, baseline, kernels in _variants(entry, chosen, plan, suite):
                    fields.setdefault((isa, threads), []).append(_Field(entry.problem.id, baseline, kernels))
            for (isa, threads), members in fields.items():
                job = _job(members, isa, threads, plan, group[0].max_time or suite.max_time)
                used = {kernel.device for field in members for kernel in field.kernels} - set(job.absent)
                first, key = group[0], WorkerKey("cuda" if "cuda" in used else "cpu", threads, isa)
                yield PlannedJob(job, key, suite.name, first.count, first.part, first.network, next(places))


def contenders(
    entry: Entry,
    registry: Registry,
    devices: tuple[str, ...],
    globs: tuple[str, ...] = (),
    known: Tiled | None = None,
    absent: tuple[str, ...] = (),
) -> list[Kernel]:
    """Return the kernels that devices, suite and the user's globs select, and whose domain contains the problem.

    A kernel that is named in full is returned even if its device or domain excludes it; its row is then `unsupported`.
    A kernel of a plug-in is returned even if its device is absent. A kernel with `on_request` is returned only if a
    glob selects it. known: a cache of results for the same globs; new results are added to it.
    """
    known = {} if known is None else known
    named = {glob.partition("@")[0] for glob in globs}
    of_operation = (kernel for kernel in registry.kernels.values() if kernel.op == entry.problem.op)
    full_ids = [glob.partition("@")[0] for glob in (*entry.kernels, *globs)]

    def is_able(k: Kernel) -> bool:
        runs = k.device in devices or (k.device in absent and k.module.startswith(PLUGIN_MODULE))
        return k.base_id in named or (runs and k.outside(entry.problem) is None)

    entered = []
    for kernel in filter(is_able, of_operation):
        if kernel.on_request and not any(fnmatchcase(kernel.base_id, glob) for glob in full_ids):
            continue
        key = kernel.id, entry.kernels
        if key not in known:
            known[key] = [chosen for listed in tiled(kernel, entry.kernels) for chosen in tiled(listed, globs)]
        entered += known[key]
    return entered


def case_count(planned_jobs: Iterable[PlannedJob], registry: Registry) -> int:
    """Count the rows that jobs will have; a case that occurs in several sweeps counts once."""
    entrants = ((planned.job, *entrant) for planned in planned_jobs for entrant in planned.job.entrants)
    return len({hash(case_of(job, problem, registry.kernels[kernel])) for job, problem, kernel in entrants})


class _Field(NamedTuple):
    """The contenders on one problem of a job."""

    problem: str
    baseline: str | None
    kernels: list[Kernel]

    def takes(self, tile: TunedTile, threads: int) -> bool:
        """Return whether a contender uses a tuned tile. A baseline never uses one, since all speedups would change."""
        named = [kernel for kernel in self.kernels if kernel.id == tile.kernel != self.baseline]
        return self.problem == tile.problem and any(tile.threads == threads or not kernel.threaded for kernel in named)


def _job(fields: Sequence[_Field], isa: str, threads: int, plan: Plan, max_time: float | None) -> Job:
    baseline = fields[0].baseline
    job = Job(
        problems=tuple(dict.fromkeys(field.problem for field in fields)),
        kernels=tuple(dict.fromkeys(kernel.id for field in fields for kernel in field.kernels)),
        mode=plan.mode,
        plugins=plan.plugins,
        seed=plan.seed,
        budget=Budget(plan.max_time_s or max_time or MAX_TIME_S, plan.rel_ci),
        threads=threads,
        baseline=baseline,
        launcher=plan.launcher,
        timeout_s=plan.timeout_s,
        isa=isa,
        baselines={field.problem: field.baseline or "" for field in fields if field.baseline != baseline},
        absent=tuple(sorted({k.device for field in fields for k in field.kernels} - set(plan.devices))),
        tiles=tuple(tile for tile in plan.tiles if any(field.takes(tile, threads) for field in fields)),
    )
    if len(fields) == 1:
        return job
    return job.only({Entrant(field.problem, kernel.id) for field in fields for kernel in field.kernels})


def _variants(
    entry: Entry, chosen: list[Kernel], plan: Plan, suite: Suite
) -> Iterator[tuple[str, int, str | None, list[Kernel]]]:
    """Yield instruction set, thread count, baseline and kernels of each job; GPU kernels have no instruction set.

    Kernels that are not threaded run only at the first thread count. A baseline that is not threaded is measured at
    each count, so that all kernels have a speedup, but only its first row is kept.
    """
    problem = entry.problem
    names = [suite.baseline[problem.op]] if problem.op in suite.baseline else problem.baselines
    for isa in plan.isas:
        able = [kernel for kernel in chosen if not isa or kernel.device != "cuda"]
        contending = {kernel.id for kernel in able}
        baseline = next((name for name in names if name in contending), None)
        for i, threads in enumerate(plan.threads):
            kernels = [kernel for kernel in able if kernel.threaded or i == 0]
            if kernels:
                missing = [kernel for kernel in able if kernel.id == baseline and kernel not in kernels]
                yield isa, threads, baseline, missing + kernels
