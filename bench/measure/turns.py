"""Sample contenders in turn, and repeat windows that other load disturbed."""

from collections.abc import Callable, Collection, Mapping
from random import SystemRandom

import msgspec

from kernelmark.bench.measure.device import Monitor, Window
from kernelmark.bench.measure.monitor import OTHERS_CPUS
from kernelmark.bench.measure.sample import LEAST_SPAN_S, Mark, Series
from kernelmark.bench.measure.timing import awake_cpus, settle
from kernelmark.bench.plan.case import Budget

#: The minimum time between two readings of the machine's state: ten steps of the load's counters.
WINDOW_S = 0.1
#: Windows with a sample longer than this are repeated at most MAX_LONG_REPEATS times in a job.
LONG_SAMPLE_S = 0.5
MAX_LONG_REPEATS = 2
#: Threads left running are looked for after the first window, one window in AWAKE_EVERY, and the next after a find.
AWAKE_EVERY, _RANDOM = 8, SystemRandom()
LEFT = "threads that calls left running used {:#.2g} CPUs"
#: A baseline is sampled for at most this many time limits while other contenders continue. Without this bound, a
#: baseline that is twenty times as slow as a contender would be sampled for twenty times as long.
BASELINE_TIMES = 4


class Repeats:
    """Limits the total time of repeated windows to the time of the kept windows, or to `least_s` if that is longer."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self.kept_s = self._repeated_s = 0.0
        self._long = 0

    def allow(self, seconds: float, longest_s: float) -> bool:
        """Return whether a window of this many seconds may be repeated; if so, count it."""
        is_long = longest_s > LONG_SAMPLE_S
        if self._repeated_s + seconds > max(self._least_s, self.kept_s) or (is_long and self._long >= MAX_LONG_REPEATS):
            return False
        self._repeated_s += seconds
        self._long += is_long
        return True


class Turns:
    """Takes samples of kernels in turn, in alternating order (ABBA), until each kernel has enough.

    A baseline continues while other kernels do, so that each of their samples has a baseline sample in the same round.
    Once a baseline has used four times the time limit, every kernel with enough samples for an interval stops.
    pause: before each turn, wait untimed until the threads of the last kernel sleep. monitors: by device; they decide
    whether the samples since their last reading are kept.
    """

    def __init__(
        self,
        series: dict[str, Series],
        budget: Budget,
        baselines: Collection[str],
        pause: bool,
        on_error: Callable[[str, BaseException], None],
        monitors: Mapping[str, Monitor],
    ) -> None:
        self._series, self._budget, self._baselines, self._pause = series, budget, baselines, pause
        self._on_error, self._monitors = on_error, monitors
        self._active = list(series)
        self._repeats = Repeats(len(series) * min(LEAST_SPAN_S, budget.max_time_s))
        self._must_look = len(series) > 1  # a single kernel disturbs only itself

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """Take turns until every kernel has stopped, and call `look` after each window of samples."""
        for monitor in self._monitors.values():
            monitor.look()  # discard the readings from before sampling
        while self._active:
            marks = {name: self._series[name].mark() for name in self._active}
            seconds = self._take_window()
            self._close(marks, seconds)
            look()

    def _take_window(self) -> float:
        """Take pairs of rounds in opposite order (ABBA) until the window is full or time is up; return its seconds."""
        clock = self._series[self._active[0]].clock
        began = clock.now()
        while self._active:
            self._round(self._active)
            self._round(self._active[::-1])
            seconds = clock.now() - began
            running = [self._series[name] for name in self._active if self._running(name)]
            late = self._baseline_is_late()
            if seconds >= WINDOW_S or any(series.out_of_time(self._budget, late) for series in running):
                break
        return clock.now() - began

    def _round(self, order: list[str]) -> None:
        for name in order:
            series = self._series[name]
            began = series.clock.now()
            if self._pause and len(order) > 1:
                settle()
            try:
                series.sample()
                series.spent_s += series.clock.now() - began
            except (Exception, SystemExit) as error:
                self._on_error(name, error)
                self._active = [other for other in self._active if other != name]

    def _running(self, name: str) -> bool:
        return self._series[name].stopped_by is None

    def _baseline_is_late(self) -> bool:
        """Return whether a baseline has used all of its time, which is BASELINE_TIMES the limit of other kernels."""
        most = BASELINE_TIMES * self._budget.max_time_s
        return any(self._series[name].spent_s >= most for name in self._active if name in self._baselines)

    def _close(self, marks: dict[str, Mark], seconds: float) -> None:
        """Keep the window, or discard it to be repeated; then let contenders with enough samples stop."""
        windows = {device: monitor.look() for device, monitor in self._monitors.items()}
        if (left := self._left_running()) and (seen := windows.get("cpu")):  # calls on a GPU do not wait for the host
            windows["cpu"] = msgspec.structs.replace(seen, causes=seen.causes | left)
        taken = [(self._series[name], marks[name]) for name in self._active]
        longest_s = max((series.longest_s(mark) for series, mark in taken), default=0.0)
        disturbed = any(window.causes for window in windows.values())
        if disturbed and self._repeats.allow(seconds, longest_s):
            for series, mark in taken:
                series.set_aside(mark, seconds)
            return
        self._repeats.kept_s += seconds
        self._keep(windows)

    def _left_running(self) -> dict[str, float]:
        """Return {cause: busy CPUs} if threads of this process run between calls and disturb kernels, otherwise {}."""
        if not self._must_look and (len(self._series) == 1 or _RANDOM.randrange(AWAKE_EVERY)):
            return {}
        cpus = awake_cpus()
        self._must_look = cpus > OTHERS_CPUS
        return {LEFT: cpus} if self._must_look else {}

    def _keep(self, windows: dict[str, Window]) -> None:
        is_late = self._baseline_is_late()
        for name in self._active:
            series = self._series[name]
            if window := windows.get(series.device.name):
                series.windows.append(window)
            if self._running(name):
                series.decide(self._budget, is_late)
        running = [name for name in self._active if self._running(name)]
        self._active = [name for name in self._active if name in running or (name in self._baselines and running)]
