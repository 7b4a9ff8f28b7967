"""Runs a job: set up, draw, verify, time in turn, verify again. Takes data and gives data; shows nothing."""

import importlib
import secrets
from functools import lru_cache

import threadpoolctl

from bench.measure.board import Board
from bench.measure.contender import Contender
from bench.measure.devices import get_device
from bench.measure.draw import Draw
from bench.measure.launch_pycuda import take_stream
from bench.measure.machine import unavailable
from bench.measure.measurement import Measurement
from bench.measure.memory import refuse_what_does_not_fit
from bench.measure.operands import OperandSet
from bench.measure.stats import speedup
from bench.measure.timing import settle
from bench.measure.turns import interleave
from bench.measure.verify import References
from bench.plan.case import Job
from bench.plan.discovery import discover
from bench.plan.errors import Unsupported
from bench.plan.kernel import CudaKernel
from bench.plan.modes import Rotation
from bench.plan.operation import Problem
from bench.plan.registry import Registry


class Stock:
    """The operand sets of a job on each device that its contenders need, and the values that they hold."""

    def __init__(self, job: Job, problem: Problem, contenders: list[Contender]) -> None:
        self._problem = problem
        devices = {c.device.name: c.device for c in contenders}
        self.rotations = {
            name: job.mode.rotation(problem.footprint_bytes, device.llc_bytes) for name, device in devices.items()
        }
        self.sets: dict[str, list[OperandSet]] = {}
        _refuse_operands(problem, self.rotations)
        self.draw = Draw(problem, job.seed)
        for name, device in devices.items():
            try:
                self.sets[name] = [OperandSet(problem, device) for _ in range(self.rotations[name].sets)]
            except MemoryError as error:
                for contender in contenders:
                    if contender.device is device:
                        contender.fail(error)

    def redraw(self) -> References:
        """Fresh values in every set, and the references that belong to them."""
        self.draw.redraw()
        for sets in self.sets.values():
            for operands in sets:
                operands.load(self.draw)
        return References(self._problem, self.draw)

    def refresh(self, which: dict[str, int]) -> References:
        """A few fresh values, in one set of each device, which then holds what has changed in any; their references."""
        self.draw.refresh()
        for name, index in which.items():
            self.sets[name][index].load(self.draw)
        return References(self._problem, self.draw)

    def one_of_each(self) -> dict[str, int]:
        """The index of one set of each device, drawn at random."""
        return {name: int(self.draw.rng.integers(len(sets))) for name, sets in self.sets.items()}

    def of(self, contender: Contender) -> list[OperandSet]:
        """The sets on the contender's device."""
        return self.sets[contender.device.name]


def _refuse_operands(problem: Problem, rotations: dict[str, Rotation]) -> None:
    """Raise MemoryError for what the drawn values and the host's sets take, before the system has to kill."""
    sets = 1 + (rotations["cpu"].sets if "cpu" in rotations else 0)
    refuse_what_does_not_fit(problem.footprint_bytes * sets, "operands need")


def run_job(job: Job, board: Board | None = None) -> list[Measurement]:
    """Verify and time the contenders of a job, one row each, in the order of `job.kernels`.

    `board` notes which of them is being called. Raises UsageError for ids and plug-ins that do not exist, DeviceLost
    where a kernel has corrupted its device; never for any other kernel's sake.
    """
    registry = discover(job.plugins)
    (problem,) = map(registry.problem, job.problems)
    modules = frozenset(module for name in job.kernels for module in _host_modules(registry, name))
    with _pools(modules).limit(limits=job.threads):
        contenders = [_contender(registry, name, problem, job, board or Board()) for name in job.kernels]
        _measure(job, problem, contenders)
    devices, rows = {c.device.name: c.device for c in contenders}, [contender.report for contender in contenders]
    del contenders  # with their launches and operands: a device gives back only memory that nothing holds
    for device in devices.values():
        device.release()
    return _stamped(rows)


def _stamped(rows: list[Measurement]) -> list[Measurement]:
    """Give the rows the id of this execution: they were measured in turn, and rows with another id were not."""
    job = secrets.token_hex(6)
    for row in rows:
        row.job = job
    return rows


def _host_modules(registry: Registry, name: str) -> tuple[str, ...]:
    kernel = registry.kernels[name]
    return kernel.modules if kernel.device == "cpu" and unavailable(kernel) is None else ()


@lru_cache
def _pools(modules: frozenset[str]) -> threadpoolctl.ThreadpoolController:
    """The thread pools of these modules, which are imported first: a pool loaded later would escape the limit."""
    for module in modules:
        importlib.import_module(module)
        if module == "scipy":
            importlib.import_module("scipy.linalg.blas")
    return threadpoolctl.ThreadpoolController()


def _contender(registry: Registry, name: str, problem: Problem, job: Job, board: Board) -> Contender:
    kernel = registry.kernels[name]
    try:
        device = get_device(kernel.device)
        if job.launcher == "pycuda" and isinstance(kernel, CudaKernel):
            take_stream(device)
        return Contender(kernel, problem, device, job, board)
    except Unsupported as error:
        contender = Contender(kernel, problem, get_device("cpu"), job, board)
        contender.report.device_name = ""
        contender.fail(error)
        return contender


def _measure(job: Job, problem: Problem, contenders: list[Contender]) -> None:
    live = [c for c in contenders if c.live]
    if not live:
        return
    try:
        stock = Stock(job, problem, live)
    except MemoryError as error:
        for contender in live:
            contender.fail(error)
    live = [c for c in live if c.live]
    if not live:
        return
    stock.redraw()
    for contender in live:
        contender.set_up(stock.of(contender))
    # Drawn again after set-up: what was computed there from the values is stale now.
    _judge(live, stock)
    if job.mode.does.times:
        _time(job, live, stock)
        _judge_standing(live, stock)
        for contender in live:
            contender.audit()
    _judge(live, stock)
    if job.mode.does.times:
        _conclude(job, live)


def _judge(contenders: list[Contender], stock: Stock) -> None:
    """Verify each contender on fresh values, on one of its sets: some kernels are right the first time alone."""
    if not any(c.live for c in contenders):
        return
    references, which = stock.redraw(), stock.one_of_each()
    for contender in contenders:
        if contender.live:
            contender.judge(which[contender.device.name], stock.of(contender), stock.draw, references)


def _judge_standing(contenders: list[Contender], stock: Stock) -> None:
    """Verify what a timed call leaves in one of the sets, all of whose inputs are made those of the draw."""
    live, which = [c for c in contenders if c.live], stock.one_of_each()
    if not live:
        return
    references = stock.refresh(which)
    for contender in live:
        contender.judge_standing(which[contender.device.name], stock.of(contender), stock.draw, references)


def _time(job: Job, contenders: list[Contender], stock: Stock) -> None:
    """Sample the contenders in turn; one that raises is out, and the others go on."""
    monitors = {c.device.name: c.device.monitor() for c in contenders}
    threaded = sum(c.report.threads > 1 for c in contenders)
    for contender in contenders:
        if contender.live:
            if threaded:
                settle()
            evict = stock.rotations[contender.device.name].evict
            contender.prepare(stock.of(contender), stock.draw, evict, monitors[contender.device.name])
    running = {c.kernel.id: c for c in contenders if c.live}
    series = {name: c.series for name, c in running.items() if c.series is not None}
    interleave(series, job.budget, job.baseline, threaded > 1, lambda name, error: running[name].fail(error), monitors)
    for contender in running.values():
        contender.meter(monitors[contender.device.name])


def _conclude(job: Job, contenders: list[Contender]) -> None:
    """Intervals of what stands after both verdicts, and ratios to the baseline if it stands too."""
    for contender in contenders:
        contender.conclude()
    base = next((c for c in contenders if c.kernel.id == job.baseline and c.live), None)
    for contender in contenders:
        if base and contender is not base and contender.live:
            contender.report.ratio = speedup([base.report.samples], [contender.report.samples])
