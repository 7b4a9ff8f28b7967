"""A series on a clock that only launches and tests move, and stand-ins for a monitor and for `sys.monitoring`."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.device import Window
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.operands import OperandSet
from kernelmark.bench.measure.sample import Series
from kernelmark.bench.measure.timing import CpuClock
from kernelmark.bench.measure.verify import Checksums
from kernelmark.bench.plan.discovery import discover

Act = Callable[[OperandSet], object]


class FakeTime:
    """A clock that only launches and tests move, and reading it if `step` is set."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def perf_counter(self) -> float:
        self.now += self.step
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Rig:
    """A problem's sets, with launches that record which set they ran on and let time pass."""

    def __init__(self, fake: FakeTime, text: str, sets: int) -> None:
        self.problem = problem = discover().problem(text)
        self.device = Cpu()
        self.device.evict = Mock()  # type: ignore[method-assign]
        self.draw = Draw(problem, 0)
        self.draw.redraw()
        self.sets = [OperandSet(problem, self.device) for _ in range(sets)]
        for operands in self.sets:
            operands.load(self.draw)
        self.fake = fake
        self.log: list[str] = []

    def launch(self, which: int, name: str, seconds: float, act: Act | None) -> Callable[[], None]:
        def call() -> None:
            self.log.append(f"{name}{which}")
            if act:
                act(self.sets[which])
            self.fake.now += seconds

        return call

    def series(
        self,
        name: str = "k",
        seconds: float = 1e-3,
        cold: bool = False,
        evict: bool = False,
        launches: list[Callable[[], None]] | None = None,
        act: Act | None = None,
        shared: int = 0,
        sums: bool = False,
    ) -> Series:
        """A series of launches of one length, which act on their operands, or of these.

        shared: the number of changes that it is judged on. sums: whether every output is checked.
        """
        launches = launches or [self.launch(i, name, seconds, act) for i in range(len(self.sets))]
        changes = [self.draw.change() for _ in range(shared)]
        summed = partial(Checksums(self.problem, self.draw, "C", nullcontext).wrong, numerics="exact") if sums else None
        how = cold, evict, nullcontext, changes, summed
        return Series(launches, self.sets, self.draw, self.device, CpuClock(), *how)

    def warmed(self, *words: Any, samples: int = 0, **options: Any) -> Series:
        """A series that has been warmed up, which the log does not show, and from which samples have been taken."""
        series = self.series(*words, **options)
        series.warm_up(0.0)
        self.log.clear()
        for _ in range(samples):
            series.sample()
        return series


class Script:
    """A monitor that reports what the test sets: a cause or none for each window, or clocks, or joules."""

    def __init__(self, causes: Iterable[str] = (), clocks: Iterable[float] = (), joules: object = None) -> None:
        self._causes, self._clocks, self._joules = iter(causes), iter(clocks), joules
        self.looks = 0

    def look(self) -> Window:
        self.looks += 1
        cause = next(self._causes, "") if self.looks > 1 else ""  # the first look begins the sampling
        return Window(0.1, {"load": 0.5 if cause else 0.0}, {cause: 1.0} if cause else {})

    def clock_mhz(self) -> float | None:
        return next(self._clocks, None)

    def energy_j(self) -> float | None:
        return self._joules() if callable(self._joules) else None


class Monitoring:
    """A stand-in for `sys.monitoring`, which Python before 3.12 lacks: its tools, their functions and events."""

    events = SimpleNamespace(NO_EVENTS=0, PY_START=1, LINE=32)

    def __init__(self) -> None:
        self.tools: dict[int, str] = {}
        self.active: dict[int, int] = {}
        self.functions: dict[tuple[int, int], object] = {}
        self.get_tool, self.use_tool_id, self.free_tool_id = self.tools.get, self.tools.__setitem__, self.tools.pop

    def get_events(self, tool: int) -> int:
        return self.active.get(tool, 0)

    def set_events(self, tool: int, events: int) -> None:
        assert tool in self.tools
        self.active[tool] = events

    def register_callback(self, tool: int, event: int, function: object) -> object:
        before = self.functions.pop((tool, event), None)
        self.functions |= {(tool, event): function} if function else {}
        return before
