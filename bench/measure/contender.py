"""A contender of a job: its set-up, verification, timing and report."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from statistics import quantiles
from typing import cast

import msgspec

from kernelmark.bench.measure.affinity import affinity, cpus_in
from kernelmark.bench.measure.audit import SPARED_RATIO, check_more, complaint, spared_when_renewed, stopped_sparing
from kernelmark.bench.measure.cpu import LLC_IF_UNKNOWN, known_llc_bytes
from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.device import Device, DeviceLost, Monitor
from kernelmark.bench.measure.disturbance import beyond, disturbance, more_threads
from kernelmark.bench.measure.draw import Change, Draw
from kernelmark.bench.measure.launch import cuda_launch, launched
from kernelmark.bench.measure.machine import versions
from kernelmark.bench.measure.measurement import WITHIN, Measurement, ProcessPart
from kernelmark.bench.measure.observers import OBSERVERS, Observer
from kernelmark.bench.measure.operands import Operands, OperandSet, Place, ScratchBuffers, place_of
from kernelmark.bench.measure.present import unavailable
from kernelmark.bench.measure.sample import Called, Series
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.measure.timing import CudaClock, call_overhead, captured, now, signals_due, tidied, undisturbed
from kernelmark.bench.measure.verify import Checksums, References, check, verify
from kernelmark.bench.plan.case import Job
from kernelmark.bench.plan.dtypes import numerics_missing
from kernelmark.bench.plan.errors import Unsupported, message, place
from kernelmark.bench.plan.kernel import CudaKernel, Kernel, Launch, Tile
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.numbers import finite
from kernelmark.bench.plan.operation import UNIFORM, Problem
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.verdict import Verdict

OF_A_TIMED_CALL = "the output of a timed call, after a few elements of its operands had changed: "


class Contender:
    """A kernel in a job, with its launches, its series of samples and its report."""

    def __init__(self, kernel: Kernel, problem: Problem, device: Device, job: Job, called: Called) -> None:
        self.kernel, self.problem, self.device = kernel, problem, device
        self.launches: list[Launch] = []
        self._moved: Launch | None = None
        self.scratch = ScratchBuffers(device, kernel.host_memory)
        self.series: Series | None = None
        self._observers: list[Observer] = []
        self._fresh_s, self._signals_due = 0.0, signals_due()
        self.report = Measurement(
            kernel=kernel.id,
            problem=problem.id,
            **{name: getattr(device, name) for name in ("device_name", "device_uuid", "llc_bytes")},
            numerics=kernel.numerics_for(problem),
            threads=job.threads if kernel.threaded else 1,
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
        self._job = job
        self.called = called

    @property
    def place(self) -> Place:
        """Return where the kernel's operands lie."""
        return place_of(self.kernel, self.problem, self.device)

    @property
    def live(self) -> bool:
        """Return whether the kernel has passed every check so far."""
        return self.report.status == Status.OK

    def fail(self, error: BaseException) -> None:
        """Turn the kernel's exception into a status and a reason. Raises DeviceLost if the device does not respond."""
        if broken := self.device.broken():
            raise DeviceLost(self.report.entrant, broken)
        text = message(error).split("\n")[0] or "no message"
        if isinstance(error, Unsupported):
            self.report.status, self.report.reason = Status.UNSUPPORTED, text
        elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            self.report.status, self.report.reason = Status.OOM, text
        else:
            file = getattr(sys.modules.get(self.kernel.module), "__file__", None)
            where = place(error, file) if file and not self.kernel.is_ours else ""
            self.report.status, self.report.reason = Status.FAILED, f"{type(error).__name__}: {text}{where}"

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Turn any exception in the context into the kernel's status, so that the other contenders continue."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self.fail(error)

    def set_up(self, sets: list[OperandSet], moved: OperandSet | None = None) -> None:
        """Set up a launch on each operand set, with shared scratch. moved: a set at other addresses, never timed."""
        with self._blamed(), self.called("set-up"), tidied():
            if reason := self._refusal():
                raise Unsupported(reason)
            self._moved = self._launch_on(moved) if moved else None
            start = now()
            self.launches = [self._launch_on(operands) for operands in sets]
            self.report.setup_s = now() - start
            self.report.executed_flop = self.kernel.executed_flop(self.problem, self._limits) or None
            self.report.scratch_bytes = self.scratch.nbytes
            self.report.wire_bytes = self.kernel.wire_bytes_for(self.problem)
            if self.kernel.library_scratch:
                self.report.scratch_bytes += self.kernel.library_scratch(self.problem)
            self.report.versions = versions(self.kernel, self.problem, self._launcher)

    def _launch_on(self, operands: OperandSet) -> Launch:
        self.scratch.rewind()
        x = Operands(operands, self.kernel.order, self.device, self.report.threads, self.scratch)
        launch = self._launch(x)
        if not callable(cast("object", launch)):  # a plug-in may return anything
            found = f"{self.kernel.id}: returned {type(launch).__name__}"
            raise TypeError(f"{found}, expected the function to be timed; write return lambda: ...")
        if settings := {**vars(x.tile or Tile()), **x.settings}:
            self.report.tunables = msgspec.json.encode(settings).decode()
        self._refuse_strayed()
        return launch

    def _refuse_strayed(self) -> None:
        """Raise RuntimeError if this contender has changed the current stream, so that no later contender is blamed."""
        if reason := self.device.strayed():
            raise RuntimeError(reason)

    def _refusal(self) -> str | None:
        """Return why the kernel cannot run here, in this mode or on this problem, or None.

        Whether a hand-written kernel refuses a problem depends on the device; the launcher checks that.
        """
        if reason := unavailable(self.kernel) or self._job.mode.refuses(self.kernel):
            return reason
        capability = present_limits().capability if self.kernel.device == "cuda" else 0
        if reason := numerics_missing(self.report.numerics, self.kernel.device, capability):
            return f"{self.kernel.id}: {reason}"
        return None if isinstance(self.kernel, CudaKernel) else self.kernel.refuses(self.problem)

    @property
    def _limits(self) -> DeviceLimits:
        return present_limits() if isinstance(self.kernel, CudaKernel) else H100

    @property
    def _launcher(self) -> str | None:
        return self._job.launcher if isinstance(self.kernel, CudaKernel) else None

    def _launch(self, x: Operands) -> Launch:
        if isinstance(self.kernel, CudaKernel):
            x.tile = self.kernel.tile_for(self.problem, self._limits)
            return cuda_launch(self.kernel, self.problem, x, self._job.launcher, x.tile)
        return self.kernel.launch(self.problem, x)

    def judge(
        self, which: int, sets: list[OperandSet], draw: Draw, references: References, moved: OperandSet | None = None
    ) -> None:
        """Verify the launch on operand set number `which`, or on the set `moved` if it is given."""
        launch, operands = self.launches[which], sets[which]
        if moved and self._moved is not None:
            launch, operands = self._moved, moved
        with self._blamed():
            verdict, self._fresh_s = verify(
                self.kernel, self.problem, launch, operands, draw, references, self.scratch, self.device, self.called
            )
            self._refuse_strayed()
            self._take(verdict)

    def audit_renewed(self) -> None:
        """Mistrust a kernel that recomputes only outputs affected by changed inputs. Run after all verification."""
        with self._blamed():
            if not (self.live and self.series) or self._fresh_s < SPARED_RATIO * quantiles(self.series.samples)[0]:
                return
            reason = spared_when_renewed(self.series)
            draw, operands, order = self.series.draw, self.series.sets[0], self.kernel.order
            with draw.holding(operands.change):
                references = References(self.problem, draw, self.called)
                wrong = check(self.kernel, self.problem, operands.outputs(order), references, self.called).reason
            if wrong:
                self._take(Verdict(reason=wrong))
            elif not reason:
                if self.problem.distribution != UNIFORM:  # such samples may have been faster
                    draw.redraw(self.problem.distribution)
                    for each in self.series.sets:
                        each.load(draw)
                reason = stopped_sparing(self.series, self.report.threads)
            if reason and self.live:
                self.mistrust(reason)

    def note_launched(self) -> None:
        """Record which GPU kernels a call launches, if all of them run on one GPU and none waits for the host."""
        if self.kernel.device == "cpu" or self.kernel.spread or Mode.GRAPH.refuses(self.kernel):
            return
        with self._blamed(), self.called("verification"), undisturbed():
            self.report.launched = launched(self.launches[0], self.device.stream)
            self._refuse_strayed()

    def _take(self, verdict: Verdict, of: str = "") -> None:
        """Record a verdict: the reason if the result is wrong, the error if it is the largest relative to its bound."""
        if verdict.reason:
            self.report.status, self.report.reason = Status.WRONG, of + verdict.reason
        self.report.compression_error = finite(verdict.compression_error) or self.report.compression_error
        error, bound, known = finite(verdict.max_error), finite(verdict.error_bound), self.report.max_error
        if bound is None or (error is not None and known and error * (self.report.error_bound or 0.0) <= known * bound):
            return
        self.report.max_error, self.report.error_bound = error, bound

    def prepare(
        self,
        sets: list[OperandSet],
        draw: Draw,
        evict: bool,
        monitor: Monitor,
        shared: Sequence[Change],
        checksums: Checksums,
        by_last_use: list[int],
    ) -> None:
        """Create the series and observers, and warm up. shared: the operand changes after which outputs are verified.

        by_last_use: the numbers of the sets, least recently used first; the contenders that use them share this list.
        """
        does = self._job.mode.does
        with self._blamed():
            if does.replays:  # captured after an ordinary call, so that the graph contains no loading or tuning
                with self.called("warm-up"):
                    self.launches = [captured(launch, self.device.stream) for launch in self.launches]
            # PyCUDA does not release the GIL when it launches, so the watchdog of a held stream could not run.
            clock = self.device.clock(hold=not self.kernel.synchronises and self._launcher != "pycuda")
            self.report.call_overhead_s = call_overhead(clock, 1 if sets[0].is_restored else 200)
            numerics = self.kernel.numerics_for(self.problem)
            check_output = partial(checksums.wrong, numerics=numerics) if checksums.possible else None
            checks = self.called, shared, check_output, checksums.took_s, by_last_use
            self.series = Series(self.launches, sets, draw, self.device, clock, does.from_memory, evict, *checks)
            if isinstance(clock, CudaClock):
                clock.restore = self.series.restore
            self._observers = [kind(self.series, monitor) for kind in OBSERVERS]
            for observer in self._observers:
                observer.before()
            self.series.warm_up(self.report.call_overhead_s, self._job.budget.max_time_s, monitor)
            for observer in self._observers:
                observer.after()

    def observe(self) -> None:
        """Add the observers' columns to the report; call this after sampling."""
        with self._blamed():
            for observer in self._observers if self.live else ():
                for column, value in observer.results(self._job.budget.max_time_s).items():
                    if column in Measurement.__struct_fields__:
                        setattr(self.report, column, value)
                    else:
                        self.report.state[column] = value

    def audit(self) -> None:
        """Mistrust a kernel that does less work on unchanged operands, or returns before its output is written."""
        with self._blamed():
            if not (self.live and self.series):
                return
            self.series.clock.left_signals &= not self._signals_due
            check_more(self.series)
            reason = complaint(self.series)
            if wrong := self.series.wrong or self.series.damage:
                self._take(Verdict(reason=wrong), OF_A_TIMED_CALL)
            elif reason:
                self.mistrust(reason)

    def mistrust(self, reason: str) -> None:
        """Mark the row as mistrusted, and keep its samples as evidence instead of as its time."""
        if self.series:
            self._keep_samples(self.series)
        self.report.mistrust(reason)

    def judge_snapshot(self, number: int, references: References) -> None:
        """Verify the saved output of a timed call against the reference for the operands of that call.

        This detects a kernel that does less work when it is timed, or returns an old result.
        """
        assert self.series is not None
        if (snapshot := self.series.snapshots.pop(number, None)) is None:
            return
        with self._blamed():
            outputs = self.series.sets[0].outputs(self.kernel.order, snapshot)
            verdict = check(self.kernel, self.problem, outputs, references, self.called)
            verdict = msgspec.structs.replace(verdict, reason=verdict.reason or self.series.damage)
            self._take(verdict, OF_A_TIMED_CALL)

    def conclude(self) -> None:
        """Add the samples and their interval to the report; call this after all outputs have been verified."""
        if not self.live or self.series is None:
            return
        self._keep_samples(self.series)
        if set(cpus_in(self.report.affinity)) - set(cpus_in(affinity())):
            self.report.note(beyond(self.report.affinity))
        if (used := self.report.threads_used or 0) > self.report.threads < len(cpus_in(affinity())):
            self.report.note(more_threads(used, self.report.threads))
        if self.device.name == "cpu" and self._job.mode.does.from_memory and known_llc_bytes() is None:
            assumed = f"{LLC_IF_UNKNOWN >> 20} MiB are assumed; see KERNELMARK_LLC_BYTES"
            self.report.note(f"the system does not report its last-level cache: {assumed}")
        clock = self.series.clock
        if isinstance(clock, CudaClock) and not clock.holds_stream:
            self.report.note("timed without holding the stream: the time may include the host's launch cost")
        if isinstance(clock, CudaClock) and (reason := clock.hidden_work(self.series.samples, self.series.batch)):
            self.report.mistrust(reason)

    def _keep_samples(self, series: Series) -> None:
        self.report.samples, self.report.stopped_by = series.samples, series.stopped_by or "time"
        self.report.interval = median_interval(series.samples, series.alpha)
        self.report.interval_scope = WITHIN
        self.report.parts = [ProcessPart(len(series.samples), self.report.interval.median)]
        self.report.repeated, self.report.disturbed = series.repeated, disturbance(series.windows)
