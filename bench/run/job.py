"""Runs a job: set up, draw, verify, time in turn, verify again. Takes data and gives data; shows nothing."""

import importlib
import math
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from statistics import median

import threadpoolctl

from kernelmark.bench.measure.board import IMPORT, Board
from kernelmark.bench.measure.contender import Contender
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.launch_pycuda import take_stream
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.present import unavailable
from kernelmark.bench.measure.series import Called
from kernelmark.bench.measure.stats import speedup
from kernelmark.bench.measure.timing import now, settle
from kernelmark.bench.measure.turns import interleave
from kernelmark.bench.plan.case import Entrant, Job
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.plan.tuned import preferring
from kernelmark.bench.run.judging import judge, judge_last, judge_standing
from kernelmark.bench.run.progress import Glimpse
from kernelmark.bench.run.stock import Stock, stocks

#: Called with what the contenders of a long job have so far.
Show = Callable[[list[Glimpse]], None]
#: Seconds of sampling after which a job shows what it has, once: each time wakes the parent beside what is timed.
SHOW_S = 5.0


def run_job(job: Job, board: Board | None = None, show: Show = lambda found: None) -> list[Measurement]:
    """Verify and time the contenders of a job in turn, one row each, in the order of `job.entrants`.

    Siblings that memory does not hold together are measured one problem after the other, and say so. A job without
    contenders loads its plug-ins. `board` notes what is being called; `show` gets what the contenders have while they
    are sampled. Raises UsageError for ids and plug-ins that do not exist, DeviceLost where a kernel has corrupted its
    device; never for any other kernel's sake.
    """
    board = board or Board()
    with board.calling(0, IMPORT):
        registry = discover(job.plugins, math.inf)  # the parent watches
        pools = _pools(frozenset(module for name in job.kernels for module in _host_modules(registry, name)))
    if not job.entrants:
        return []
    called = {entrant: partial(board.calling, number) for number, entrant in enumerate(job.entrants)}
    with pools.limit(limits=job.threads):
        rows, crowded = _in_turn(job, registry, called, show)
        if crowded:
            rows = [row for part in job.apart() for row in _in_turn(part, registry, called, show)[0]]
    for row in rows:
        if crowded and row.interval:
            row.note(f"measured apart from its siblings, since with them: {crowded}")
    return rows


def _in_turn(
    job: Job, registry: Registry, called: Mapping[Entrant, Called], show: Show
) -> tuple[list[Measurement], str]:
    """The rows of contenders that are measured together, and why siblings cannot be, if so: then nothing was timed."""
    contenders = [_contender(registry, entrant, job, called[entrant]) for entrant in job.entrants]
    crowded = _measure(job, contenders, show)
    devices, rows = {c.device.name: c.device for c in contenders}, [contender.report for contender in contenders]
    del contenders  # with their launches and operands: a device gives back only memory that nothing holds
    for device in devices.values():
        device.release()
    return _stamped(rows), crowded


def _stamped(rows: list[Measurement]) -> list[Measurement]:
    """Give the rows the id of this execution: they were measured in turn, and rows with another id were not."""
    job = secrets.token_hex(6)
    for row in rows:
        row.job, row.reason = job, one_line(row.reason)
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


def _contender(registry: Registry, entrant: Entrant, job: Job, called: Called) -> Contender:
    kernel, tuned = preferring(registry.kernels[entrant.kernel], entrant.problem, job.tiles)
    with called("operands"):
        problem = registry.problem(entrant.problem)
        problem.operands()
    try:
        if kernel.device in job.absent:
            raise Unsupported(unavailable(kernel) or f"it runs on {kernel.device}, which --device leaves out")
        device = get_device(kernel.device)
        if job.launcher == "pycuda" and isinstance(kernel, CudaKernel):
            take_stream(device)
        contender = Contender(kernel, problem, device, job, called)
        contender.report.tuned = tuned
    except Unsupported as error:
        contender = Contender(kernel, problem, get_device("cpu"), job, called)
        contender.report.device_name = contender.report.device_uuid = ""
        contender.fail(error)
    return contender


def _measure(job: Job, contenders: list[Contender], show: Show) -> str:
    """Fill in the reports. Returns why siblings cannot be measured together, if so: then nothing is timed."""
    live = [c for c in contenders if c.live]
    try:
        found = stocks(job, live)
    except MemoryError as error:
        if len(job.problems) > 1:
            return str(error)
        for contender in live:
            contender.fail(error)
        return ""
    for stock in found:
        _set_up(stock)
        # Drawn again after set-up: what was computed there from the values is stale now.
        judge(stock)
        for contender in stock.live:
            contender.note_launched()
    if crowded := _crowded(job, contenders):
        return crowded
    if job.mode.does.times:
        _time(job, found, show)
        for stock in found:
            judge_standing(stock)
            for contender in stock.live:
                contender.audit()
    for stock in found:
        judge_last(stock)
    if job.mode.does.times:
        _conclude(job, live)
    return ""


def _set_up(stock: Stock) -> None:
    if stock.live:
        stock.redraw()
    for contender in stock.live:
        contender.set_up(stock.of(contender))


def _crowded(job: Job, contenders: list[Contender]) -> str:
    """Return why the siblings of a group are too many for the memory: one that has none left may have enough alone."""
    reports = [c.report for c in contenders if len(job.problems) > 1]
    return next((one_line(f"{r.kernel}: {r.reason}") for r in reports if r.status == Status.OOM), "")


def _time(job: Job, found: list[Stock], show: Show) -> None:
    """Sample the contenders in turn; one that raises is out, and the others go on.

    A kernel's siblings stand next to one another, so that least time lies between what is compared.
    """
    contenders = [(c, stock) for stock in found for c in stock.live]
    contenders.sort(key=lambda pair: job.kernels.index(pair[0].kernel.id))
    monitors = {c.device.name: c.device.monitor() for c, _ in contenders}
    threaded = sum(c.report.threads > 1 for c, _ in contenders)
    for contender, stock in contenders:
        if threaded:
            settle()
        evict = stock.rotations[contender.place].evict
        contender.prepare(stock.of(contender), stock.draw, evict, monitors[contender.device.name])
    running = {" ".join(c.report.entrant): c for c, _ in contenders if c.live}
    series = {name: c.series for name, c in running.items() if c.series is not None}
    baselines = {name for name, c in running.items() if c.kernel.id == job.baseline_of(c.problem.id)}
    looks = _Looks(running, show)
    interleave(series, job.budget, baselines, threaded > 1, looks.fail, monitors, looks.look)
    for contender in running.values():
        contender.meter(monitors[contender.device.name])


class _Looks:
    """The contenders that are being sampled, and what is shown of them."""

    def __init__(self, running: Mapping[str, Contender], show: Show) -> None:
        self._running, self._show, self._began_s, self._shown = running, show, now(), False

    def fail(self, name: str, error: BaseException) -> None:
        self._running[name].fail(error)

    def look(self) -> None:
        """Show what each has, once the job has lasted for long and something has been kept."""
        if self._shown or now() - self._began_s < SHOW_S:
            return
        found = [(c, c.series.samples) for c in self._running.values() if c.live and c.series]
        glimpses = [Glimpse(c.report.entrant, len(samples), median(samples)) for c, samples in found if samples]
        if glimpses:  # a first window that was disturbed leaves none
            self._shown = True
            self._show(glimpses)


def _conclude(job: Job, contenders: list[Contender]) -> None:
    """Intervals of what stands after both verdicts, and ratios to the baseline of each problem if it stands too."""
    for contender in contenders:
        contender.conclude()
    live = {c.report.entrant: c.report for c in contenders if c.live}
    for (problem, kernel), report in live.items():
        name = job.baseline_of(problem)
        base = live.get(Entrant(problem, name)) if name and name != kernel else None
        if base:
            report.ratio = speedup([base.samples], [report.samples])
