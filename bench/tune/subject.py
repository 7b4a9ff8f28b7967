"""A kernel to be tuned on a problem, with its valid tiles: all, or a sample of a huge space."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.present import cuda_missing, unavailable
from kernelmark.bench.plan.case import Budget, Job, Plan, PlannedJob, WorkerKey, case_of
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import Kernel
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.space import Count, Space
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.tiles import Tile, tile_text
from kernelmark.bench.plan.tuned import SearchSpace
from kernelmark.bench.tune.search import Config, SearchDomain

#: The number of tiles drawn from a space that is too large to be listed.
SAMPLE = 2_000


def limits_here(kernel: Kernel) -> DeviceLimits:
    """Return the limits of the device to plan the kernel's tiles for; without a GPU, those of an H100."""
    return present_limits() if kernel.device == "cuda" and cuda_missing() is None else H100


class Subject(NamedTuple):
    """A kernel to be tuned on a problem, its possible tiles there, and the numbers of valid and invalid tiles."""

    kernel: Kernel
    problem: Problem
    tiles: SearchDomain
    counted: Count

    @property
    def space(self) -> SearchSpace:
        size, valid, _, exact = self.counted
        default = self.text(self.tiles.default)
        return SearchSpace(self.problem.id, size, valid, exact, len(self.tiles.configs), default)

    def tile(self, config: Config) -> Mapping[str, int]:
        return dict(zip(self.tiles.names, config, strict=True))

    def takes(self, config: Config) -> bool:
        return self.kernel.unfit(self.problem, Tile(**self.tile(config)), limits_here(self.kernel)) is None

    def text(self, config: Config) -> str:
        """Return a tile as text: `BM=64,BN=32`."""
        return tile_text(self.tile(config))

    def contender(self, config: Config) -> str:
        """Return the id of the kernel with this tile; the default tile is left out."""
        base = self.kernel.base_id
        return base if config == self.tiles.default else f"{base}@{self.text(config)}"

    def job(self, configs: Sequence[Config], plan: Plan) -> PlannedJob:
        """Return the job of the default and these tiles, measured in turn."""
        base = self.kernel.base_id
        job = Job(
            problems=(self.problem.id,),
            kernels=(base, *(self.contender(config) for config in configs)),
            mode=plan.mode,
            plugins=plan.plugins,
            seed=plan.seed,
            budget=Budget(plan.max_time_s or 0.0, plan.rel_ci),
            threads=plan.threads[0],
            baseline=base,
            launcher=plan.launcher,
            timeout_s=plan.timeout_s,
        )
        return PlannedJob(job, WorkerKey(self.kernel.device, job.threads), plan.suites[0], 1)

    def case(self, config: Config, plan: Plan) -> str:
        kernel = self.kernel.with_tile({} if config == self.tiles.default else self.tile(config))
        return case_of(self.job((), plan).job, self.problem.id, kernel)


def subjects_of(registry: Registry, kernel_id: str, suite: Suite, seed: int, static: bool = False) -> list[Subject]:
    """Return a subject for each problem of a suite that the kernel takes. Raises UsageError, as for an absent device.

    kernel_id: with an @, the values after it are fixed. static: nothing will be run.
    """
    kernel = _kernel(registry, kernel_id)
    if not static and kernel.device == "cuda" and (reason := cuda_missing()):
        raise UsageError(f"{kernel.id}: {reason}; --static ranks its tiles by what the compiler reports of them")
    if not static and (reason := unavailable(kernel)):
        raise UsageError(f"{kernel.id}: {reason}")
    problems = list({e.problem.id: e.problem for e in suite.entries() if e.problem.op == kernel.op}.values())
    able = [problem for problem in problems if kernel.outside(problem) is None] if len(problems) > 1 else problems
    if not able:
        raise UsageError(
            f"{suite.name}: has no problem of {kernel.base_id}; choose another suite, or give a problem's id"
        )
    return [_subject(kernel, problem, seed) for problem in able]


def _subject(kernel: Kernel, problem: Problem, seed: int) -> Subject:
    """Raise UsageError if the kernel has fewer than two tiles on the problem."""
    device = limits_here(kernel)
    plain = kernel.with_tile({})
    if reason := plain.refuses(problem, device):
        raise UsageError(f"{problem.id}: {reason}; choose another problem")
    space, default = Space(kernel, problem, device), plain.tile_for(problem, device)
    counted = space.count()
    drawn = space.valid() if counted.exact else space.sample(SAMPLE, seed)
    assert default is not None
    names = tuple(space.values)
    configs = [tuple(getattr(tile, name) for name in names) for tile in [default, *drawn]]
    tiles = SearchDomain(names, configs[1:], configs[0])
    if not tiles.configs:
        why = next(iter(counted.refused), "none was found")
        raise UsageError(f"{kernel.id} on {problem.id}: none of {counted.size} tiles is valid: {why}")
    if tiles.configs == [tiles.default]:
        raise UsageError(f"{kernel.id} on {problem.id}: the default is its only valid tile; there is nothing to tune")
    return Subject(kernel, problem, tiles, counted)


def _kernel(registry: Registry, kernel_id: str) -> Kernel:
    kernel = registry.named(kernel_id)
    if not kernel.tunables:
        others = [other.id for other in registry.kernels.values() if other.tunables and other.op == kernel.op]
        some = f"those of {kernel.op} that have some are {', '.join(others)}"
        raise UsageError(f"{kernel.id}: has no tunables; {some if others else f'no kernel of {kernel.op} has'}")
    return kernel
