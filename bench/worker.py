"""Runs a job: set up, draw, verify, time in turn, verify again. Takes data and gives data; shows nothing."""

import importlib
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
import threadpoolctl

from bench.measure.device import Device, available_bytes, get_device
from bench.measure.machine import unavailable, versions
from bench.measure.measurement import Measurement
from bench.measure.operands import Draw, Operands, OperandSet, Scratch, sets_for
from bench.measure.stats import median_interval, speedup
from bench.measure.timing import Clock, CpuClock, CudaClock, Series, call_overhead, interleave
from bench.measure.verify import References, verify
from bench.plan.case import Job
from bench.plan.discovery import discover
from bench.plan.errors import Unsupported
from bench.plan.operation import Problem, Verdict
from bench.plan.registry import CudaKernel, Kernel, Launch, Registry

#: The share of available memory that the operands of a job may take: beyond it a system kills rather than refuses.
MEMORY_SHARE = 0.8


class Contender:
    """A kernel on its way through a job, with what its set-up made."""

    def __init__(self, kernel: Kernel, problem: Problem, device: Device, job: Job) -> None:
        self.kernel, self.problem, self.device = kernel, problem, device
        self.launches: list[Launch] = []
        self.scratch = Scratch(device)
        self.series: Series | None = None
        self.report = Measurement(
            kernel=kernel.id,
            device_name=device.device_name,
            numerics=kernel.numerics_for(problem),
            threads=job.threads if kernel.threaded else 1,
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
        self._job = job

    @property
    def live(self) -> bool:
        """Whether nothing has gone against it so far."""
        return self.report.status == "ok"

    def fail(self, error: Exception) -> None:
        """Turn an exception of the kernel into a status and a reason."""
        text = str(error).split("\n")[0] or "no message"
        if isinstance(error, Unsupported):
            self.report.status, self.report.reason = "unsupported", text
        elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            self.report.status, self.report.reason = "oom", text
        else:
            self.report.status, self.report.reason = "failed", f"{type(error).__name__}: {text}"

    def set_up(self, sets: list[OperandSet]) -> None:
        """One launch for each set of operands, with shared scratch."""
        try:
            if reason := unavailable(self.kernel) or self.kernel.refuses(self.problem):
                raise Unsupported(reason)
            for operands in sets:
                self.scratch.rewind()
                x = Operands(operands, self.kernel.order, self.device, self.report.threads, self.scratch)
                self.launches.append(self._launch(x))
            self.report.scratch_bytes = self.scratch.nbytes
            if self.kernel.library_scratch:
                self.report.scratch_bytes += self.kernel.library_scratch(self.problem)
            self.report.versions = versions(self.kernel, self._launcher)
        except Exception as error:  # a kernel may raise anything, and must not harm the others
            self.fail(error)

    @property
    def _launcher(self) -> str | None:
        return self._job.launcher if isinstance(self.kernel, CudaKernel) else None

    def _launch(self, x: Operands) -> Launch:
        if isinstance(self.kernel, CudaKernel):
            from bench.measure.launch import cuda_launch

            tile = self.kernel.tile_for(self.problem)
            self.report.tunables = msgspec.json.encode(vars(tile)).decode() if tile and vars(tile) else ""
            return cuda_launch(self.kernel, self.problem, x, self._job.launcher)
        assert self.kernel.setup is not None
        return self.kernel.setup(self.problem, x)

    def judge(self, which: int, sets: list[OperandSet], draw: Draw, references: References) -> None:
        """Verify the launch on one set; a wrong kernel loses its samples."""
        try:
            verdict = verify(
                self.kernel,
                self.problem,
                self.launches[which],
                sets[which],
                draw,
                references,
                self.scratch,
                self.device,
            )
        except Exception as error:
            self.fail(error)
            return
        if verdict.reason:
            self.report.status, self.report.reason = "wrong", verdict.reason
        self._keep_worst(verdict)

    def _keep_worst(self, verdict: Verdict) -> None:
        known = self.report.max_error
        if verdict.max_error is not None and (known is None or verdict.max_error > known):
            self.report.max_error = verdict.max_error
        self.report.error_bound = verdict.error_bound

    def prepare(self, sets: list[OperandSet], draw: Draw, clock: Clock, rotation: int) -> None:
        """Warm up, ready for sampling."""
        cold = self._job.mode == "cold"
        self.series = Series(self.launches, sets, draw, self.device, clock, cold, evict=cold and rotation > len(sets))
        try:
            self.series.warm_up()
        except Exception as error:
            self.fail(error)


class _Bench:
    """The operand sets of a job, on each device that its contenders need."""

    def __init__(self, job: Job, problem: Problem, devices: dict[str, Device]) -> None:
        self.draw = Draw(problem, job.seed)
        self.devices = devices
        self.sets: dict[str, list[OperandSet]] = {}
        for name, device in devices.items():
            count = sets_for(problem, job.mode, device.llc_bytes) if job.timed else 1
            self.sets[name] = [OperandSet(problem, device) for _ in range(count)]

    def redraw(self, problem: Problem) -> References:
        """Fresh values in every set, and the references that belong to them."""
        self.draw.redraw()
        for sets in self.sets.values():
            for operands in sets:
                operands.load(self.draw)
        return References(problem, self.draw)


def run_job(job: Job) -> list[Measurement]:
    """Verify and time the contenders of a job, one row each, in the order of `job.kernels`.

    Never raises for a kernel's sake. Raises UsageError for ids and plug-ins that do not exist.
    """
    registry = discover(job.plugins)
    problem = registry.problem(job.problem)
    with _pools(frozenset(m for name in job.kernels for m in _host_modules(registry, name))).limit(limits=job.threads):
        contenders = [_contender(registry, name, problem, job) for name in job.kernels]
        live = [c for c in contenders if c.live]
        try:
            _measure(job, problem, live)
        except MemoryError as error:
            for contender in live:
                contender.fail(error)
    return [contender.report for contender in contenders]


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


def _contender(registry: Registry, name: str, problem: Problem, job: Job) -> Contender:
    kernel = registry.kernels[name]
    try:
        return Contender(kernel, problem, get_device(kernel.device), job)
    except Unsupported as error:
        contender = Contender(kernel, problem, get_device("cpu"), job)
        contender.report.device_name = ""
        contender.fail(error)
        return contender


def _measure(job: Job, problem: Problem, contenders: list[Contender]) -> None:
    devices = {c.kernel.device: c.device for c in contenders}
    _refuse_what_does_not_fit(job, problem, devices)
    bench = _Bench(job, problem, devices)
    bench.redraw(problem)
    for contender in contenders:
        contender.set_up(bench.sets[contender.kernel.device])
    # Drawn again after set-up: what was computed there from the values is stale now.
    _judge(contenders, bench, problem, first=True)
    if job.timed:
        _time(job, problem, contenders, bench)
        _judge(contenders, bench, problem, first=False)
        _conclude(job, contenders)


def _refuse_what_does_not_fit(job: Job, problem: Problem, devices: dict[str, Device]) -> None:
    """Raise MemoryError before the system has to kill."""
    cpu = devices.get("cpu")
    count = 1 + (sets_for(problem, job.mode, cpu.llc_bytes) if cpu and job.timed else 1 if cpu else 0)
    needed, available = count * problem.footprint_bytes, available_bytes()
    if available is not None and needed > MEMORY_SHARE * available:
        raise MemoryError(
            f"needs {needed / 1e9:.3g} GB of host memory for {count} sets of operands; "
            f"{available / 1e9:.3g} GB are available"
        )


def _judge(contenders: list[Contender], bench: _Bench, problem: Problem, first: bool) -> None:
    if not any(c.live for c in contenders):
        return
    references = bench.redraw(problem)
    for contender in contenders:
        if contender.live:
            sets = bench.sets[contender.kernel.device]
            contender.judge(0 if first else len(sets) - 1, sets, bench.draw, references)


def _time(job: Job, problem: Problem, contenders: list[Contender], bench: _Bench) -> None:
    """Sample the contenders in turn; one that raises is out, and the others go on."""
    for contender in contenders:
        if contender.live:
            rotation = 1 + -(-2 * contender.device.llc_bytes // problem.footprint_bytes)
            clock = _clock(contender)
            contender.report.call_overhead_s = _overhead(clock)
            contender.prepare(bench.sets[contender.kernel.device], bench.draw, clock, rotation)
    running = {c.kernel.id: c for c in contenders if c.live}
    series = {name: c.series for name, c in running.items() if c.series is not None}
    threaded = sum(c.report.threads > 1 for c in running.values())
    interleave(series, job.budget, job.baseline, threaded > 1, lambda name, error: running[name].fail(error))


def _clock(contender: Contender) -> Clock:
    if contender.kernel.device == "cpu":
        return CpuClock()
    return CudaClock(contender.device, hold=not contender.kernel.synchronises)


_cpu_overhead = lru_cache(lambda: call_overhead(CpuClock()))


def _overhead(clock: Clock) -> float:
    return _cpu_overhead() if isinstance(clock, CpuClock) else call_overhead(clock)


def _conclude(job: Job, contenders: list[Contender]) -> None:
    """Intervals of what stands after both verdicts, and ratios to the baseline if it stands too."""
    for contender in contenders:
        series = contender.series
        if not contender.live or series is None:
            continue
        report = contender.report
        report.samples, report.stopped_by = series.samples, series.stopped_by or "time"
        report.interval = median_interval(series.samples, series.alpha)
        report.state = contender.device.state()
        if isinstance(series.clock, CudaClock) and (reason := series.clock.hidden_work(series.samples, series.batch)):
            report.status, report.reason = "mistrusted", reason
    base = next((c for c in contenders if c.kernel.id == job.baseline and c.live and c.series), None)
    for contender in contenders:
        if base and base.series and contender is not base and contender.live and contender.series:
            contender.report.ratio = speedup(base.series.samples, contender.series.samples)
