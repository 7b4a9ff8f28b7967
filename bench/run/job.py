"""Run a job, given as plain data: set up kernels, draw operands, verify, time in turn, verify again; return rows."""

import importlib
import math
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from statistics import median

import numpy as np
import threadpoolctl

from kernelmark.bench.measure.board import IMPORT, Board
from kernelmark.bench.measure.compile import cuda_sources
from kernelmark.bench.measure.contender import Contender
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.disturbance import ran_beyond
from kernelmark.bench.measure.draw import Change, Draw
from kernelmark.bench.measure.launch_pycuda import take_stream
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.memory import refuse_what_does_not_fit
from kernelmark.bench.measure.operands import OperandSet, Place
from kernelmark.bench.measure.present import unavailable
from kernelmark.bench.measure.ratio import speedup
from kernelmark.bench.measure.sample import Called
from kernelmark.bench.measure.timing import now, settle
from kernelmark.bench.measure.turns import Turns
from kernelmark.bench.measure.verify import Checksums, References
from kernelmark.bench.plan.case import Entrant, Job
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import PLUGIN_MODULE, CudaKernel, Kernel
from kernelmark.bench.plan.operation import UNIFORM, Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.text import one_line
from kernelmark.bench.plan.tuned import preferring
from kernelmark.bench.run.progress import Glimpse

#: A function that is called with the first samples of a long job's contenders.
Show = Callable[[list[Glimpse]], None]
#: Seconds of sampling after which a job shows its samples, only once, since that wakes the parent during timing.
SHOW_S = 5.0
#: The fewest outputs of timed calls to judge, the share of the time limit for judging more, and the most outputs.
STANDING, STANDING_SHARE, MOST_STANDING = 2, 0.05, 16
#: A contender saves only as many outputs as fit into these bytes, but at least one.
KEPT_BYTES = 64 * 2**20


class Stock:
    """The operands of one problem: drawn values, and sets of copies in each memory that a contender needs."""

    def __init__(self, job: Job, problem: Problem, contenders: Sequence[Contender]) -> None:
        self.problem, self._contenders = problem, contenders
        self.reference_s = 0.0
        #: The operand changes after which every contender is judged.
        self.shared: list[Change] = []
        self._checksums: dict[str, Checksums] = {}
        devices = {c.place: c.device for c in contenders}
        rotation = job.mode.rotation
        #: The number of caches that a set is spread over; with several GPUs, each has a share.
        caches = {at: max(len(each.gpus) for each in problem.operands()) if at.spread else 1 for at in devices}
        self.rotations = {
            at: rotation(problem.footprint_bytes // share, devices[at].llc_bytes, problem.touched_bytes // share)
            for at, share in caches.items()
        }
        self.sets: dict[Place, list[OperandSet]] = {}
        #: For each place, the numbers of its sets, the least recently used (by any contender) first.
        self.by_last_use = {at: [*range(rotated.sets)] for at, rotated in self.rotations.items()}
        #: For each place on the CPU, a moved set: in the first set's memory, with operands not aligned to cache lines.
        self.moved: dict[Place, OperandSet] = {}
        self.draw = Draw(problem, job.seed)
        for place, device in devices.items():
            count = self.rotations[place].sets
            try:
                self.sets[place] = [OperandSet(problem, device, place.memory, place.spread) for _ in range(count)]
                if device.stream is None and not place.memory:
                    self.moved[place] = self.sets[place][0].moved(self.draw.rng)
            except (MemoryError, Unsupported) as error:
                for contender in contenders:
                    if contender.place == place:
                        contender.fail(error)

    @property
    def live(self) -> list[Contender]:
        """Return the problem's contenders that have passed every check so far."""
        return [contender for contender in self._contenders if contender.live]

    def redraw(self, distribution: str = UNIFORM) -> References:
        """Draw new values for every set of operands, poison outputs and padding, and return new references."""
        self.draw.redraw(distribution)
        self._checksums.clear()
        for sets in self.sets.values():
            for operands in sets:
                operands.load(self.draw)
                operands.poison()
        return References(self.problem, self.draw, self._contenders[0].called)

    def checksums(self, order: str) -> Checksums:
        """Return whole-output checks for kernels with this storage order (`C` or `F`); valid until the next draw."""
        if order not in self._checksums:
            called = self._contenders[0].called
            self._checksums[order] = Checksums(self.problem, self.draw, order, called, self.reference_s)
        return self._checksums[order]

    def lay_out(self, moved: bool) -> None:
        """Load the drawn values into the unaligned sets if `moved`, else into the first sets; they share memory."""
        for place, shifted in self.moved.items():
            operands = shifted if moved else self.sets[place][0]
            operands.fence()
            operands.load(self.draw)
            operands.poison()

    def of(self, contender: Contender) -> list[OperandSet]:
        return self.sets[contender.place]


def run_job(job: Job, board: Board | None = None, show: Show = lambda glimpses: None) -> list[Measurement]:
    """Verify a job's contenders and time them in turn; return a row for each, in the order of `job.entrants`.

    Variants that do not fit into memory together are measured one problem after the other, with a note. A job without
    contenders only loads its plug-ins. board: records the call in progress; show: called with the contenders' samples
    so far. Raises UsageError for ids and plug-ins that do not exist, and DeviceLost if a kernel has corrupted its
    device; any other fault of a kernel is reported in its row.
    """
    board = board or Board()
    with board.calling(0, IMPORT):
        registry = discover(job.plugins, math.inf, job.ours)  # the parent limits the time
        kernels = [registry.kernels[name] for name in job.kernels]
        on_host = [kernel for kernel in kernels if kernel.device == "cpu" and unavailable(kernel) is None]
        pools = _pools(frozenset(module for kernel in on_host for module in kernel.modules))
    if not job.entrants:
        return []
    called = {entrant: partial(board.calling, number) for number, entrant in enumerate(job.entrants)}
    with pools.limit(limits=job.threads), np.errstate(all="ignore"):  # even if a plug-in has made NumPy raise on faults
        rows, crowded = _in_turn(job, registry, called, board, show)
        if crowded:
            rows = [row for part in job.apart() for row in _in_turn(part, registry, called, board, show)[0]]
    for row in rows:
        if crowded and row.interval:
            row.note(f"measured separately from its variants, since together they exceed the memory: {crowded}")
    return rows


def _in_turn(
    job: Job, registry: Registry, called: Mapping[Entrant, Called], board: Board, show: Show
) -> tuple[list[Measurement], str]:
    """Measure contenders in turn and return their rows. If variants do not fit into memory, time none; return why."""
    contenders = [_contender(registry, entrant, job, called[entrant]) for entrant in job.entrants]
    crowded = _measure(job, contenders, board, show)
    devices, rows = {c.device.name: c.device for c in contenders}, [contender.report for contender in contenders]
    del contenders  # and with them launches and operands, since a device releases only memory without references
    for device in devices.values():
        device.release()
    in_turn = secrets.token_hex(6)  # marks rows that were measured in turn
    for row in rows:
        row.job, row.reason = in_turn, one_line(row.reason)
    return rows, crowded


@lru_cache
def _pools(modules: frozenset[str]) -> threadpoolctl.ThreadpoolController:
    """Return the thread pools of these modules after importing them, since a pool loaded later would not be limited."""
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
            raise Unsupported(_absent(kernel))
        device = get_device(kernel.device)
        if job.launcher == "pycuda" and isinstance(kernel, CudaKernel):
            take_stream(device)
        contender = Contender(kernel, problem, device, job, called)
        contender.report.tuned = tuned
    except Unsupported as error:
        contender = Contender(kernel, problem, get_device("cpu"), job, called)
        contender.report.device_name, contender.report.device_uuid, contender.report.llc_bytes = "", "", None
        contender.fail(error)
    return contender


def _absent(kernel: Kernel) -> str:
    """Return why a kernel's device is not used; for a CUDA kernel also the commands that need no GPU."""
    if (reason := unavailable(kernel)) is None:
        return f"the kernel runs on {kernel.device}, which --device leaves out"
    if not isinstance(kernel, CudaKernel):
        return reason
    file = sys.modules[kernel.module].__file__ if kernel.module.startswith(PLUGIN_MODULE) else None
    plugin = f" --plugin {_from_here(file)}" if file else ""
    check = f"`kernelmark watch {_from_here(cuda_sources() / kernel.source)} PROBLEM --once{plugin}` checks it"
    tiles = f", `kernelmark tune {kernel.id} PROBLEM --static{plugin}` compares its tiles" * bool(kernel.tunables)
    return f"{reason}; without one {check}{tiles}"


def _from_here(path: str | Path) -> str:
    """Return a path relative to the current folder, for a command; an absolute one may contain the user's name."""
    return shlex.quote(os.path.relpath(path))


def _measure(job: Job, contenders: list[Contender], board: Board, show: Show) -> str:
    """Fill in the reports and return ""; or time nothing and return why variants do not fit into memory together."""
    live = [c for c in contenders if c.live]
    try:
        stocks = _stocks(job, live)
    except MemoryError as error:
        if len(job.problems) > 1:
            return str(error)
        for contender in live:
            contender.fail(error)
        return ""
    _set_up(job, stocks, board)
    for report in [contender.report for contender in contenders if len(job.problems) > 1]:
        if report.status == Status.OOM:
            return one_line(f"{report.kernel}: {report.reason}")
    if job.mode.does.times:
        _time(job, stocks, show)
        for stock in stocks:
            _judge_standing(stock)
            for contender in stock.live:
                contender.audit()
    for stock in stocks:
        if stock.moved and not job.mode.does.times:
            _judge(stock)  # also calls the launches that have not been called yet
        _judge(stock)
        for contender in stock.live:
            contender.audit_renewed()  # last, since it draws new values
    if job.mode.does.times:
        _conclude(job, live)
    return ""


def _set_up(job: Job, stocks: list[Stock], board: Board) -> None:
    """Set up the contenders, verify them, and draw the changes of operands between timed calls."""
    for stock in stocks:
        if stock.live:
            stock.redraw()
        for contender in stock.live:
            contender.set_up(stock.of(contender), stock.moved.get(contender.place))
    entropy = job.entropy or f"{secrets.randbits(128):032x}"  # unknown to every set-up
    board.entropy = entropy
    for stock in stocks:
        stock.draw.mix(int(entropy, 16))
        for contender in stock.live:
            contender.report.entropy = entropy
        # Drawn again after set-up, so that results computed there are stale.
        began_s = now()
        stock.reference_s = _judge(stock, moved=True)
        for contender in stock.live:
            contender.note_launched()
        if stock.live:
            count = _standing(job, stock, (now() - began_s) / len(stock.live))
            stock.shared = [stock.draw.change() for _ in range(count)]


def _time(job: Job, stocks: list[Stock], show: Show) -> None:
    """Sample the contenders in turn; a contender that raises is dropped.

    Variants that one kernel runs are sampled one after the other, so that little time passes between compared samples.
    """
    for stock in stocks:
        if stock.live and stock.problem.distribution != UNIFORM:
            stock.redraw(stock.problem.distribution)
    contenders = [(c, stock) for stock in stocks for c in stock.live]
    contenders.sort(key=lambda pair: job.kernels.index(pair[0].kernel.id))
    monitors = {c.device.name: c.device.monitor() for c, _ in contenders}
    threaded = sum(c.report.threads > 1 for c, _ in contenders)
    for contender, stock in contenders:
        if job.threads > 1:
            settle()
        place, monitor = contender.place, monitors[contender.device.name]
        evict, by_last_use = stock.rotations[place].evict, stock.by_last_use[place]
        checksums = stock.checksums(contender.kernel.order)
        contender.prepare(stock.of(contender), stock.draw, evict, monitor, stock.shared, checksums, by_last_use)
    running = {" ".join(c.report.entrant): c for c, _ in contenders if c.live}
    series = {name: c.series for name, c in running.items() if c.series is not None}
    baselines = {name for name, c in running.items() if c.kernel.id == job.baseline_of(c.problem.id)}
    began_s, shown = now(), False

    def look() -> None:
        """Show each contender's samples once, when the job has lasted SHOW_S seconds and samples have been kept."""
        nonlocal shown
        if shown or now() - began_s < SHOW_S:
            return
        sampled = [(c, c.series.samples) for c in running.values() if c.live and c.series]
        glimpses = [Glimpse(c.report.entrant, len(samples), median(samples)) for c, samples in sampled if samples]
        if glimpses:  # none if the first window was disturbed
            shown = True
            show(glimpses)

    Turns(series, job.budget, baselines, threaded > 1, lambda name, why: running[name].fail(why), monitors).run(look)
    for contender in running.values():
        if job.threads > 1:
            settle()
        contender.observe()


def _conclude(job: Job, contenders: list[Contender]) -> None:
    """Compute intervals for contenders that passed both checks, and ratios to the baselines that passed."""
    for contender in contenders:
        contender.conclude()
    live = {c.report.entrant: c.report for c in contenders if c.live}
    for (problem, kernel), report in live.items():
        name = job.baseline_of(problem)
        base = live.get(Entrant(problem, name)) if name and name != kernel else None
        if base and not ran_beyond(base.disturbed + report.disturbed):
            report.over_baseline = speedup([base.samples], [report.samples])


def _judge(stock: Stock, moved: bool = False) -> float:
    """Verify each contender on new values in one of its sets, since some kernels are right only the first time.

    moved: use sets that do not begin at a cache line, if there are any, since some kernels are wrong only on those.
    Returns the seconds that a reference took.
    """
    if not stock.live:
        return 0.0
    references = stock.redraw()
    which = {place: int(stock.draw.rng.integers(len(sets))) for place, sets in stock.sets.items()}
    if moved:
        stock.lay_out(moved=True)
    for contender in stock.live:
        operands = stock.moved.get(contender.place) if moved else None
        contender.judge(which[contender.place], stock.of(contender), stock.draw, references, operands)
    if moved:
        stock.lay_out(moved=False)
    return references.took_s


def _standing(job: Job, stock: Stock, judged_s: float) -> int:
    """Return how many outputs of timed calls to verify per contender. judged_s: time to verify one (0: unknown)."""
    affordable = int(STANDING_SHARE * job.budget.max_time_s / judged_s) if judged_s else MOST_STANDING
    return max(1, min(max(STANDING, affordable), MOST_STANDING, KEPT_BYTES // _output_bytes(stock.problem)))


def _output_bytes(problem: Problem) -> int:
    return sum(operand.nbytes for operand in problem.operands() if operand.role != "in")


def _judge_standing(stock: Stock) -> None:
    """Verify the saved outputs of timed calls, whose operands had a few changed elements."""
    for number, change in enumerate(stock.shared):
        if not stock.live:
            return
        with stock.draw.holding(change):
            references = References(stock.problem, stock.draw, stock.live[0].called)
            for contender in stock.live:
                contender.judge_snapshot(number, references)


def _stocks(job: Job, contenders: Sequence[Contender]) -> list[Stock]:
    """Return the stock of each problem, in the order of the contenders.

    Raises MemoryError if drawn values and sets on the host need too much memory, before the system kills the process.
    """
    by_problem = {c.problem.id: [other for other in contenders if other.problem.id == c.problem.id] for c in contenders}
    refuse_what_does_not_fit(sum(_host_bytes(job, some) for some in by_problem.values()), "operands need")
    return [Stock(job, some[0].problem, some) for some in by_problem.values()]


def _host_bytes(job: Job, contenders: Sequence[Contender]) -> int:
    """Return the bytes of host memory for one problem: its drawn values, operand sets and outputs to judge."""
    problem = contenders[0].problem
    places = {c.place: (c.device, c.device.stream is None) for c in contenders}
    outputs = _output_bytes(problem)
    judged_bytes = min(MOST_STANDING * outputs, max(KEPT_BYTES, outputs)) if job.mode.does.times else 0
    sets = sum(
        job.mode.rotation(problem.footprint_bytes, device.llc_bytes, problem.touched_bytes).sets
        * sum(operand.nbytes for operand in problem.operands() if operand.in_host or on_host)
        for device, on_host in places.values()
    )
    return problem.footprint_bytes + sets + judged_bytes * len(contenders)
