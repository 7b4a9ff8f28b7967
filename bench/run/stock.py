"""The operands of a job: sets of them on each device, the values they hold, and whether there is room for them."""

from collections.abc import Sequence

from bench.measure.contender import Contender
from bench.measure.draw import Draw
from bench.measure.memory import refuse_what_does_not_fit
from bench.measure.operands import OperandSet
from bench.measure.verify import References
from bench.plan.case import Job
from bench.plan.operation import Problem


class Stock:
    """The operand sets of one problem on each device that its contenders need, and the values that they hold."""

    def __init__(self, job: Job, problem: Problem, contenders: Sequence[Contender]) -> None:
        self._problem, self._contenders = problem, contenders
        devices = {c.device.name: c.device for c in contenders}
        self.rotations = {
            name: job.mode.rotation(problem.footprint_bytes, device.llc_bytes) for name, device in devices.items()
        }
        self.sets: dict[str, list[OperandSet]] = {}
        self.draw = Draw(problem, job.seed)
        for name, device in devices.items():
            try:
                self.sets[name] = [OperandSet(problem, device) for _ in range(self.rotations[name].sets)]
            except MemoryError as error:
                for contender in contenders:
                    if contender.device is device:
                        contender.fail(error)

    @property
    def live(self) -> list[Contender]:
        """The contenders on the problem that nothing has gone against so far."""
        return [contender for contender in self._contenders if contender.live]

    def redraw(self) -> References:
        """Fresh values in every set, and the references that belong to them."""
        self.draw.redraw()
        for sets in self.sets.values():
            for operands in sets:
                operands.load(self.draw)
        return References(self._problem, self.draw, self._contenders[0].called)

    def align(self, which: dict[str, int]) -> None:
        """Let one set of each device hold what has changed in any."""
        for name, index in which.items():
            self.sets[name][index].load(self.draw)

    def refresh(self, which: dict[str, int]) -> References:
        """A few fresh values in one set of each device, and the references that belong to them."""
        self.draw.refresh()
        self.align(which)
        return References(self._problem, self.draw, self._contenders[0].called)

    def one_of_each(self) -> dict[str, int]:
        """The index of one set of each device, drawn at random."""
        return {name: int(self.draw.rng.integers(len(sets))) for name, sets in self.sets.items()}

    def of(self, contender: Contender) -> list[OperandSet]:
        """The sets on the contender's device."""
        return self.sets[contender.device.name]


def stocks(job: Job, contenders: Sequence[Contender]) -> list[Stock]:
    """The stock of each problem, in their order.

    Raises MemoryError for what all drawn values and the host's sets take, before the system has to kill.
    """
    own = {c.problem.id: [other for other in contenders if other.problem.id == c.problem.id] for c in contenders}
    refuse_what_does_not_fit(sum(_host_bytes(job, some) for some in own.values()), "operands need")
    return [Stock(job, some[0].problem, some) for some in own.values()]


def _host_bytes(job: Job, contenders: Sequence[Contender]) -> int:
    """What the drawn values and the host's sets of one problem take."""
    footprint = contenders[0].problem.footprint_bytes
    host = next((c.device for c in contenders if c.device.name == "cpu"), None)
    return footprint * (1 + (job.mode.rotation(footprint, host.llc_bytes).sets if host else 0))
