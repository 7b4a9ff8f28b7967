"""The operands of a job: sets of them in each place, the values they hold, and whether there is room for them."""

from collections.abc import Sequence

from kernelmark.bench.measure.contender import Contender
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.memory import refuse_what_does_not_fit
from kernelmark.bench.measure.operands import OperandSet, Place
from kernelmark.bench.measure.verify import References
from kernelmark.bench.plan.case import Job
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.operation import Problem


class Stock:
    """The operand sets of one problem in each place that its contenders need, and the values that they hold."""

    def __init__(self, job: Job, problem: Problem, contenders: Sequence[Contender]) -> None:
        self._problem, self._contenders = problem, contenders
        devices = {c.place: c.device for c in contenders}
        self.rotations = {
            place: job.mode.rotation(_cached_bytes(problem, place), device.llc_bytes)
            for place, device in devices.items()
        }
        self.sets: dict[Place, list[OperandSet]] = {}
        self.draw = Draw(problem, job.seed)
        for place, device in devices.items():
            count = self.rotations[place].sets
            try:
                self.sets[place] = [OperandSet(problem, device, place.memory, place.spread) for _ in range(count)]
            except (MemoryError, Unsupported) as error:
                for contender in contenders:
                    if contender.place == place:
                        contender.fail(error)

    @property
    def live(self) -> list[Contender]:
        """The contenders on the problem that nothing has gone against so far."""
        return [contender for contender in self._contenders if contender.live]

    def redraw(self) -> References:
        """Fresh values in every set, poison in its outputs and padding, and the references that belong to them."""
        self.draw.redraw()
        for sets in self.sets.values():
            for operands in sets:
                operands.load(self.draw)
                operands.poison()
        return References(self._problem, self.draw, self._contenders[0].called)

    def align(self, which: dict[Place, int]) -> None:
        """Let one set of each place hold what has changed in any."""
        for place, index in which.items():
            self.sets[place][index].load(self.draw)

    def refresh(self, which: dict[Place, int]) -> References:
        """A few fresh values in one set of each place, and the references that belong to them."""
        self.draw.refresh()
        self.align(which)
        return References(self._problem, self.draw, self._contenders[0].called)

    def one_of_each(self) -> dict[Place, int]:
        """The index of one set of each place, drawn at random."""
        return {place: int(self.draw.rng.integers(len(sets))) for place, sets in self.sets.items()}

    def of(self, contender: Contender) -> list[OperandSet]:
        """The sets in the contender's place."""
        return self.sets[contender.place]


def stocks(job: Job, contenders: Sequence[Contender]) -> list[Stock]:
    """The stock of each problem, in their order.

    Raises MemoryError for what all drawn values and the host's sets take, before the system has to kill.
    """
    own = {c.problem.id: [other for other in contenders if other.problem.id == c.problem.id] for c in contenders}
    refuse_what_does_not_fit(sum(_host_bytes(job, some) for some in own.values()), "operands need")
    return [Stock(job, some[0].problem, some) for some in own.values()]


def _cached_bytes(problem: Problem, place: Place) -> int:
    """Return the least that one cache has of a set of operands: each of several GPUs has its share."""
    gpus = max(len(operand.gpus) for operand in problem.operands()) if place.spread else 1
    return problem.footprint_bytes // gpus


def _host_bytes(job: Job, contenders: Sequence[Contender]) -> int:
    """What the drawn values and all sets of one problem take of the host's memory."""
    problem = contenders[0].problem
    held = {c.place: (c.device, c.device.stream is None) for c in contenders}
    return problem.footprint_bytes + sum(
        job.mode.rotation(problem.footprint_bytes, device.llc_bytes).sets
        * sum(operand.nbytes for operand in problem.operands() if operand.in_host or on_host)
        for device, on_host in held.values()
    )
