"""The only place that reads a clock: timed batches of calls, on the CPU and on a CUDA stream."""

import gc
import os
import random
import signal
import sys
import time as _time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import repeat
from statistics import median
from sys import getprofile, gettrace, setprofile, settrace
from threading import Timer
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from kernelmark.bench.measure.device import Clock
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.kernel import Launch

#: Seconds until another contender's idle threads stop spinning: 2^28 ticks unless IDLE (machine.py) is in effect.
SETTLE_S = 0.002 if "OPENBLAS_THREAD_TIMEOUT" in os.environ else 0.15
#: Seconds for which `awake_cpus` measures this process's CPU time.
AWAKE_S = 0.003
#: Python's clocks, bound before a plug-in could replace them.
time: Any = SimpleNamespace(perf_counter=_time.perf_counter, sleep=_time.sleep, process_time=_time.process_time)
_is_collecting, _collect, _do_not_collect = gc.isenabled, gc.enable, gc.disable
_block, _pending, _timer, _set = signal.pthread_sigmask, signal.sigpending, signal.getitimer, signal.setitimer
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
#: Signals that neither stop a process nor report a fault; a kernel could postpone work to their handlers.
_HELD = {signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, signal.SIGURG}
_HELD |= {*range(signal.SIGRTMIN, signal.SIGRTMAX + 1)}
#: The functions that trace and profile this thread before a plug-in is loaded.
_TRACE, _PROFILE = gettrace(), getprofile()
#: Python's monitoring (from 3.12 on), and the tool ids that no debugger or profiler uses before a plug-in is loaded.
_MONITORING: Any = getattr(sys, "monitoring", None)
_UNUSED = [tool for tool in range(6) if _MONITORING and _MONITORING.get_tool(tool) is None]


def now() -> float:
    """Return the seconds on the monotonic clock."""
    seconds: float = time.perf_counter()
    return seconds


def pause(seconds: float) -> None:
    """Sleep for `seconds`."""
    time.sleep(seconds)


def settle() -> None:
    """Wait until the previous contender's threads sleep, so that they do not compete with the next contender."""
    time.sleep(SETTLE_S)


def awake_cpus() -> float:
    """Return the number of CPUs that threads of this process keep busy while no call is made."""
    pause(2 * SETTLE_S)  # the rounds of libgomp's idle threads take twice as long on some CPUs
    used_s, began_s = time.process_time(), now()
    pause(AWAKE_S)
    return float(time.process_time() - used_s) / (now() - began_s)


@lru_cache
def resolution() -> float:
    """Return the smallest observed step of the clock, in seconds."""
    steps = []
    for _ in range(100):
        start = stop = now()
        while stop == start:
            stop = now()
        steps.append(stop - start)
    return min(steps)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Return a context that disables garbage collection and blocks signals, for calls that are timed or checked."""
    collecting, blocked = _is_collecting(), _block(signal.SIG_BLOCK, _HELD)
    _do_not_collect()
    try:
        with tidied():
            yield
    finally:
        if collecting:
            _collect()
        _block(signal.SIG_SETMASK, blocked)


@contextmanager
def tidied() -> Iterator[None]:
    """Return a context that removes hooks and timers set within it, so that no later contender is blamed for them."""
    stopped = [which for which in _TIMERS if not _timer(which)[0]]
    try:
        yield
    finally:
        unhook()
        for which in stopped:
            _set(which, 0.0)


def signals_due() -> bool:
    """Return whether a signal is pending, or an interval timer of this process will raise one."""
    return bool(_pending() & _HELD) or any(_timer(which)[0] for which in _TIMERS)


def unhook() -> bool:
    """Remove the trace, profile and monitoring functions that a plug-in has set; return whether there were any.

    Such functions would run between timed calls and could warm caches.
    """
    if is_hooked := (gettrace(), getprofile()) != (_TRACE, _PROFILE):
        settrace(_TRACE)
        setprofile(_PROFILE)
    monitoring = [tool for tool in _UNUSED if _MONITORING.get_tool(tool) or _MONITORING.get_events(tool)]
    for tool in monitoring:
        if _MONITORING.get_tool(tool) is None:  # a freed id, whose events still call functions up to Python 3.13
            _MONITORING.use_tool_id(tool, "kernelmark")
        _MONITORING.set_events(tool, 0)
        for event in filter(None, vars(_MONITORING.events).values()):  # even if set for single functions
            _MONITORING.register_callback(tool, event, None)
        _MONITORING.free_tool_id(tool)
    return is_hooked or bool(monitoring)


class CpuClock:
    """Wall-clock time of a batch on the calling thread."""

    max_batch = 10_000

    def __init__(self) -> None:
        self.resolution_s = resolution()
        #: Whether a signal was due after timed calls had returned; its handler could finish their work.
        self.left_signals = False
        #: Whether a timed call has set a trace, profile or monitoring function.
        self.traced = False

    def now(self) -> float:
        """Return the seconds on the monotonic clock."""
        return now()

    def time(self, calls: Sequence[Launch]) -> float:
        """Return the seconds per call."""
        clock = time.perf_counter
        with undisturbed():
            start: float = clock()
            for call in calls:
                call()
            stop: float = clock()
            self.left_signals |= signals_due()
            self.traced |= unhook()
        return (stop - start) / len(calls)

    def time_apart(self, calls: Sequence[Launch], between: Iterator[None] | None = None) -> float:
        """Return the seconds per call; an untimed step of `between` and a pause of 0 to 5 us precede each call."""
        clock, spent_s = time.perf_counter, 0.0
        pauses, between = [random.uniform(0, 5e-6) for _ in calls], between or repeat(None)
        with undisturbed():
            for call, pause_s in zip(calls, pauses, strict=True):
                next(between)
                start: float = clock()
                while clock() < start + pause_s:
                    pass
                start = clock()
                call()
                spent_s += clock() - start
        return spent_s / len(calls)


class Streamed(Protocol):
    """The part of a device that `CudaClock` needs."""

    stream: Any

    def synchronize(self) -> None: ...
    def strayed(self) -> str | None: ...
    def forget_persisting(self) -> None: ...


class CudaClock:
    """Times a batch on one stream by events; the stream waits until the whole batch is queued.

    The stream waits for a word in pinned memory, so that the time between the events excludes the host's launch cost. A
    call that synchronises the host would then wait for ever. So a watchdog releases the stream after `RELEASE_S`, and
    from then on the kernel is timed without holding the stream. Work on any other stream is refused, since its measured
    time would be almost zero.
    """

    #: The driver queues about a thousand launches before it blocks, and a batch of multi-launch kernels must fit.
    max_batch = 128
    #: Work on the device waits for neither signals nor Python.
    left_signals = traced = False
    #: The resolution of the time between two events, according to the CUDA runtime's reference.
    resolution_s = 0.5e-6
    RELEASE_S = 2.0
    #: The seconds by which an event time may exceed the host's time around it.
    JUMP_S = 0.1

    def __init__(self, device: Streamed, hold: bool) -> None:
        import cupy
        from cuda.bindings import driver

        self._device, self._driver, self._stream = device, driver, device.stream
        self._start, self._stop = cupy.cuda.Event(), cupy.cuda.Event()
        self._elapsed_ms: Callable[[Any, Any], float] = cupy.cuda.get_elapsed_time
        self._memory = cupy.cuda.alloc_pinned_memory(4)
        self._flag = np.frombuffer(self._memory, np.uint32, 1)
        self.holds_stream = hold
        #: Restores the operands of a batch that is timed again because the watchdog released the stream.
        self.restore: Callable[[], None] = lambda: None
        self.unseen_s: list[float] = []

    def now(self) -> float:
        """Return the seconds on the host's monotonic clock."""
        return now()

    def time(self, calls: Sequence[Launch]) -> float:
        """Return the seconds per call between two events; append seconds of work after the second to `unseen_s`.

        Raises RuntimeError if the device's clock has jumped, or if CuPy's current stream is not the stream of this
        CudaClock before or after the calls.
        """
        self._refuse_strayed()
        self._device.forget_persisting()
        self._device.synchronize()
        began = now()
        is_held = self.holds_stream and self._wait()
        watchdog = Timer(self.RELEASE_S, self._release_late) if is_held else None
        if watchdog:
            watchdog.start()
        try:
            self._start.record(self._stream)
            for call in calls:
                call()
            self._stop.record(self._stream)
        finally:
            released = now()
            self._flag[0] = 1
            if watchdog:
                watchdog.cancel()
        self._stop.synchronize()
        self._device.synchronize()
        ended = now()
        self._refuse_strayed()
        span, passed_s = self._elapsed_ms(self._start, self._stop) * 1e-3, ended - began
        if is_held and not self.holds_stream:  # the watchdog released the stream, so this time includes its two seconds
            self.restore()
            return self.time(calls)
        if not 0 <= span <= passed_s + self.JUMP_S:
            raise RuntimeError(f"the device's events span {span:.3g} s, but only {passed_s:.3g} s passed on the host")
        self.unseen_s.append(max(0.0, ended - released - span) if is_held else 0.0)
        return span / len(calls)

    def time_apart(self, calls: Sequence[Launch], between: Iterator[None] | None = None) -> float:
        """Time calls as `time` does, with a step of `between` and a pause of 0 to 5 us before each launch."""
        between = between or repeat(None)

        def after_a_pause(call: Launch) -> Launch:
            def launch() -> None:
                next(between, None)  # repeated calls have no step left
                until_s = now() + random.uniform(0, 5e-6)
                while now() < until_s:
                    pass
                call()

            return launch

        return self.time([after_a_pause(call) for call in calls])

    def _refuse_strayed(self) -> None:
        if reason := self._device.strayed():
            raise RuntimeError(reason)

    def _wait(self) -> bool:
        self._flag[0] = 0
        flags = self._driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        (status,) = self._driver.cuStreamWaitValue32(self._stream.ptr, self._memory.ptr, 1, flags)
        self.holds_stream = status == self._driver.CUresult.CUDA_SUCCESS
        return self.holds_stream

    def _release_late(self) -> None:
        self.holds_stream = False
        self._flag[0] = 1

    def hidden_work(self, samples: Sequence[float], batch: int) -> str | None:
        """Return a complaint if the device was typically busy long after a batch's last event, otherwise None."""
        if not self.unseen_s:
            return None
        unseen, span = median(self.unseen_s), median(samples) * batch
        if unseen > max(1e-3, 0.5 * span):
            return f"the device worked {unseen:.3g} s beyond the {span:.3g} s that the events span"
        return None


def captured(launch: Launch, stream: Any) -> Launch:
    """Record the launch as a CUDA graph and return a function that replays it without its driver calls.

    Raises Unsupported if CuPy cannot capture the launch, and CuPy's exception if a CUDA graph cannot contain it.
    """
    stream.begin_capture()
    try:
        launch()
    except NotImplementedError as error:
        raise Unsupported(f"cannot be captured: {error}") from None
    finally:
        graph = stream.end_capture()  # otherwise the stream would stay in capture mode and refuse every other use
    return partial(graph.launch, stream)


def call_overhead(clock: Clock, batch: int) -> float:
    """Return the seconds per empty call in a batch of `batch` calls; 200 are enough for the clock's resolution."""
    calls = [lambda: None] * min(batch, clock.max_batch)
    return min(clock.time(calls) for _ in range(5))
