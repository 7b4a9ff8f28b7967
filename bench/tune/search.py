"""Search the tiles of a kernel on a problem: evaluate all or some of them.

In a small space, all valid tiles are evaluated. In a large space, tiles are drawn at random or chosen by a strategy.
"""

import io
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.present import cuda_missing, module_missing, unavailable
from kernelmark.bench.plan.case import Budget, Job, Plan, PlannedJob, WorkerKey, case_of
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import Kernel
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.options import ALL, BUDGET, EXHAUSTIVE, GUIDED, RANDOM
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.space import Count, Space
from kernelmark.bench.plan.suites import Suite
from kernelmark.bench.plan.tiles import Tile, tile_text
from kernelmark.bench.plan.tuned import SearchSpace

#: The values of the tunables, in the order of the names.
Config = tuple[int, ...]
#: A function that returns the cost of each configuration: its time divided by the default's, or infinity if it fails.
Evaluate = Callable[[Sequence[Config]], Sequence[float]]

_MODULES = {"hybrid_vndx": "gen_hybrid_vndx"}
#: Values up to this many places above or below count as near. With one place, a single bad value would end the descent.
REACH = 2
#: The limit of a strategy's requests per evaluation in the budget, since some strategies repeat requests for ever.
VISITS = 20


class SearchWay(NamedTuple):
    """A search method, and the maximum number of tiles that it evaluates."""

    strategy: str
    budget: int

    def __str__(self) -> str:
        return self.strategy if self.strategy == EXHAUSTIVE else f"{self.strategy}, {self.budget}"


def choose(size: int, strategy: str | None, budget: int | None) -> SearchWay:
    """Return how to search a space of `size` tiles. Raises UsageError if Kernel Tuner is needed and missing."""
    if strategy == EXHAUSTIVE or size <= (budget or (BUDGET if strategy else ALL)):
        return SearchWay(EXHAUSTIVE, size)
    strategy = strategy or GUIDED[0]
    if strategy in GUIDED and (reason := module_missing("kernel_tuner")):
        instead = f"use --strategy {EXHAUSTIVE} (all {size} tiles) or --strategy {RANDOM}"
        raise UsageError(f"--strategy {strategy}: {reason}, or {instead}")
    return SearchWay(strategy, budget or BUDGET)


class SearchDomain(NamedTuple):
    """A space to search: the names of the tunables, the configurations, and a known good configuration."""

    names: Sequence[str]
    configs: Sequence[Config]
    default: Config

    def values(self, i: int) -> list[int]:
        return sorted({config[i] for config in self.configs})

    def near(self, config: Config) -> list[Config]:
        """Return the configurations in which one tunable differs by at most REACH values up or down."""
        there, neighbours = set(self.configs), []
        for i in range(len(self.names)):
            values = self.values(i)
            at = values.index(config[i])
            close = values[max(0, at - REACH) : at + REACH + 1]
            neighbours += [(*config[:i], value, *config[i + 1 :]) for value in close]
        return [other for other in neighbours if other in there and other != config]


def search(field: SearchDomain, evaluate: Evaluate, choice: SearchWay, seed: int = 0) -> None:
    """Evaluate the configurations that `choice` selects. The same seed and costs give the same sequence."""
    if choice.strategy == EXHAUSTIVE:
        evaluate(field.configs)
    elif choice.strategy == RANDOM:
        evaluate(random.Random(seed).sample(field.configs, choice.budget))
    else:
        with _isolated(seed):
            _guided(field, evaluate, choice)


def _guided(field: SearchDomain, evaluate: Evaluate, choice: SearchWay) -> None:
    """Descend from the default, then let a strategy of Kernel Tuner choose, which needs no compiler or GPU.

    The descent steps to the fastest configuration nearby, until none is faster or half the budget is spent.
    """
    from kernel_tuner.interface import Options
    from kernel_tuner.searchspace import Searchspace
    from kernel_tuner.util import StopCriterionReached

    params = {name: field.values(i) for i, name in enumerate(field.names)}
    cache = {str(i): dict(zip(field.names, config, strict=True)) for i, config in enumerate(field.configs)}
    space = Searchspace(None, None, None, from_cache={"tune_params": params, "cache": cache})
    runner = _Runner(field.names, evaluate, choice.budget)
    options = Options(
        objective=["cost"],
        objective_higher_is_better=[False],
        strategy_options=Options(max_fevals=choice.budget),
        budget=runner,
        verbose=False,
    )
    module = import_module(f"kernel_tuner.strategies.{_MODULES.get(choice.strategy, choice.strategy)}")
    here = field.default if field.default in field.configs else None
    while here is not None:
        around = [here, *field.near(here)]
        runner.run(around)
        best = min((config for config in around if config in runner.costs), key=runner.costs.__getitem__)
        here = best if best != here and runner.get_fraction_consumed() < 0.5 else None
    while not runner.is_done():  # some strategies end before the budget is spent
        visits = runner.visits
        with suppress(StopCriterionReached):
            module.tune(space, runner, options)
        if runner.visits == visits:
            break


class _Runner:
    """A strategy's runner and budget: evaluates each configuration once, and ends a strategy with too many requests."""

    def __init__(self, names: Sequence[str], evaluate: Evaluate, evaluations: int) -> None:
        self.costs: dict[Config, float] = {}
        self.visits = 0
        self._names, self._evaluate, self._evaluations = names, evaluate, evaluations

    def add_strategy_time(self, _seconds: float) -> None:
        """Ignore the time that the strategy took."""

    def is_done(self) -> bool:
        return len(self.costs) >= self._evaluations or self.visits >= VISITS * self._evaluations

    def raise_exception_if_done(self) -> None:
        from kernel_tuner.util import StopCriterionReached

        if self.is_done():
            raise StopCriterionReached("the budget is spent")

    def get_fraction_consumed(self) -> float:
        return len(self.costs) / self._evaluations

    def run(self, configs: Sequence[Sequence[int]], _options: Any = None) -> list[dict[str, Any] | None]:
        """Return a result for each configuration, or None for one beyond the budget."""
        wanted = [tuple(config) for config in configs]
        left = self._evaluations - len(self.costs)
        new = list(dict.fromkeys(config for config in wanted if config not in self.costs))[:left]
        if new:
            self.costs.update(zip(new, self._evaluate(new), strict=True))
        self.visits += len(wanted)
        return [self._result(config) if config in self.costs else None for config in wanted]

    def _result(self, config: Config) -> dict[str, Any]:
        from kernel_tuner.util import RuntimeFailedConfig

        cost = self.costs[config]
        result = {"cost": cost} if np.isfinite(cost) else {"__error__": RuntimeFailedConfig()}
        return dict(zip(self._names, config, strict=True)) | result


@contextmanager
def _isolated(seed: int) -> Iterator[None]:
    """Seed the global random generators, from which strategies draw; restore them at the end, and suppress output."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


#: The number of tiles drawn from a space that is too large to be listed.
SAMPLE = 2_000


def limits_here(kernel: Kernel) -> DeviceLimits:
    """Return the limits of the device to plan the kernel's tiles for; without a GPU, the limits of an H100."""
    return present_limits() if kernel.device == "cuda" and cuda_missing() is None else H100


class Subject(NamedTuple):
    """A kernel to be tuned on a problem, its possible tiles, and the numbers of valid and invalid tiles."""

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
        return tile_text(self.tile(config))

    def contender(self, config: Config) -> str:
        """Return the kernel's id with this tile; for the default tile, the id alone."""
        base = self.kernel.base_id
        return base if config == self.tiles.default else f"{base}@{self.text(config)}"

    def job(self, configs: Sequence[Config], plan: Plan) -> PlannedJob:
        """Return the job that measures the default and these tiles in turn."""
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
    """Return a subject for each problem of a suite that the kernel takes.

    kernel_id: an id, in which an @ may fix tunables. static: tiles will only be compiled, so no device is needed.
    Raises UsageError if there is nothing to tune, or if the device is needed and absent.
    """
    kernel = registry.named(kernel_id)
    if not kernel.tunables:
        others = [other.id for other in registry.kernels.values() if other.tunables and other.op == kernel.op]
        some = f"the kernels of {kernel.op} that have tunables are {', '.join(others)}"
        raise UsageError(f"{kernel.id}: has no tunables; {some if others else f'no kernel of {kernel.op} has any'}")
    if not static and kernel.device == "cuda" and (reason := cuda_missing()):
        raise UsageError(f"{kernel.id}: {reason}; --static ranks its tiles by their machine code")
    if not static and (reason := unavailable(kernel)):
        raise UsageError(f"{kernel.id}: {reason}")
    problems = list({e.problem.id: e.problem for e in suite.entries() if e.problem.op == kernel.op}.values())
    able = [problem for problem in problems if kernel.outside(problem) is None] if len(problems) > 1 else problems
    if not able:
        remedy = "choose another suite, or give a problem's id"
        raise UsageError(f"{suite.name}: has no problem of {kernel.base_id}; {remedy}")
    return [_subject(kernel, problem, seed) for problem in able]


def _subject(kernel: Kernel, problem: Problem, seed: int) -> Subject:
    """Return the subject. Raises UsageError if the kernel has fewer than two valid tiles for the problem."""
    device = limits_here(kernel)
    plain = kernel.with_tile({})
    if reason := plain.refuses(problem, device):
        raise UsageError(f"{problem.id}: {reason}; choose another problem")
    space, default = Space(kernel, problem, device), plain.default_tile(problem, device)
    counted = space.count()
    drawn = space.valid() if counted.exact else space.sample(SAMPLE, seed)
    names = tuple(space.values)
    first, *configs = [tuple(getattr(tile, name) for name in names) for tile in [default, *drawn]]
    tiles = SearchDomain(names, configs, first)
    if not tiles.configs:
        why = next(iter(counted.refused), "none was found")
        raise UsageError(f"{kernel.id} on {problem.id}: none of {counted.size} tiles is valid: {why}")
    if tiles.configs == [tiles.default]:
        raise UsageError(f"{kernel.id} on {problem.id}: the default is its only valid tile; there is nothing to tune")
    return Subject(kernel, problem, tiles, counted)
