"""Series with a fake clock, which only launches and tests move; fakes of a monitor and of `sys.monitoring`."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.device import Window
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.operands import OperandSet
from kernelmark.bench.measure.sample import Series
from kernelmark.bench.measure.timing import CpuClock
from kernelmark.bench.measure.verify import Checksums
from kernelmark.bench.plan.discovery import discover


class FakeTime:
    """A clock that moves only in launches, by tests and, if `step` is set, when it is read."""

    def __init__(self):
        self.now = self.step = 0.0

    def perf_counter(self):
        self.now += self.step
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def process_time(self):
        return 0.0


class Rig:
    """A problem's operand sets, and launches that take time and record their set (`log`) and values of `a` (`met`)."""

    def __init__(self, fake, text, sets):
        self.problem = problem = discover().problem(text)
        self.device = Cpu()
        self.device.evict = Mock()
        self.draw = Draw(problem, 0)
        self.draw.redraw()
        self.sets = [OperandSet(problem, self.device) for _ in range(sets)]
        for operands in self.sets:
            operands.load(self.draw)
        self.fake = fake
        self.log, self.met = [], []

    def launch(self, which, name, seconds, act):
        def call():
            self.log.append(f"{name}{which}")
            self.met.append(self.sets[which].flat["a"].copy())
            if act:
                act(self.sets[which])
            self.fake.now += seconds

        return call

    def series(
        self, name="k", seconds=1e-3, cold=False, evict=False, launches=None, act=None, shared=0, sums=False, **options
    ):
        """Return a series of `launches`, or of launches that take `seconds` and call `act` on their operands.

        shared: the number of operand changes after which outputs are checked. sums: whether every output is checked.
        """
        launches = launches or [self.launch(i, name, seconds, act) for i in range(len(self.sets))]
        changes = [self.draw.change() for _ in range(shared)]
        summed = partial(Checksums(self.problem, self.draw, "C", nullcontext).wrong, numerics="exact") if sums else None
        how = cold, evict, nullcontext, changes, summed
        return Series(launches, self.sets, self.draw, self.device, CpuClock(), *how, **options)

    def warmed(self, *words, samples=0, **options):
        """Return a series that is warmed up, without a trace in the log, and has taken this many samples."""
        series = self.series(*words, **options)
        series.warm_up(0.0)
        self.log.clear()
        self.met.clear()
        for _ in range(samples):
            series.sample()
        return series


class Script:
    """A fake monitor: it reports the given causes (one per window, or ""), clock rates and joules."""

    def __init__(self, causes=(), clocks=(), joules=None):
        self._causes, self._clocks, self._joules = iter(causes), iter(clocks), joules
        self.looks = 0

    def look(self):
        self.looks += 1
        cause = next(self._causes, "") if self.looks > 1 else ""  # the first reading precedes sampling
        return Window(0.1, {"load": 0.5 if cause else 0.0}, {cause: 1.0} if cause else {})

    def clock_mhz(self):
        return next(self._clocks, None)

    def energy_j(self):
        return self._joules() if callable(self._joules) else None


class Monitoring:
    """A fake of `sys.monitoring`, which Python lacks before 3.12: tools, their functions and their events."""

    events = SimpleNamespace(NO_EVENTS=0, PY_START=1, LINE=32)

    def __init__(self):
        self.tools = {}
        self.active = {}
        self.functions = {}
        self.get_tool, self.use_tool_id, self.free_tool_id = self.tools.get, self.tools.__setitem__, self.tools.pop

    def get_events(self, tool):
        return self.active.get(tool, 0)

    def set_events(self, tool, events):
        assert tool in self.tools
        self.active[tool] = events

    def register_callback(self, tool, event, function):
        before = self.functions.pop((tool, event), None)
        self.functions |= {(tool, event): function} if function else {}
        return before
