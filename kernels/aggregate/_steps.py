"""The data types of aggregation plans: steps on parts of arrays, and the buckets that gradients are cut into."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kernelmark import numpy_dtype
from kernelmark.kernels.aggregate.problem import AggregateProblem

#: Elements of a bucket: 25 MiB of FP32, as in PyTorch's DistributedDataParallel (Li and others, PyTorch Distributed,
#: VLDB 2020). A bucket passes through all phases before the next one begins. It is a multiple of every format's block.
BUCKET = 25 * 2**20 // 4
#: If the format has no blocks, stripes are multiples of this many elements, a cache line.
LINE = 16


class Part(NamedTuple):
    """The elements first:last of a row of an array, or of an array without rows."""

    name: str
    row: int | None
    first: int
    last: int


class Step(NamedTuple):
    """A call of `function` with arguments and a range start:stop, which may be cut at multiples of `grain`."""

    function: str
    arguments: tuple[Any, ...]
    start: int
    stop: int
    grain: int = LINE


class Room(NamedTuple):
    """A scratch array: its rows, the elements of a row, and their NumPy type."""

    rows: int
    length: int
    dtype: str


class Plan(NamedTuple):
    """The phases of an aggregation, each with steps that run concurrently, and the scratch arrays.

    Step i of a phase belongs to process i; threads share every step.
    """

    phases: list[list[Step]]
    rooms: Mapping[str, Room]


class Bucket(NamedTuple):
    """The elements first:last of a problem."""

    problem: AggregateProblem
    first: int
    last: int

    @property
    def length(self) -> int:
        """Return the number of elements."""
        return self.last - self.first

    def of(self, name: str, row: int | None = None) -> Part:
        """Return the bucket's part of a row of operand `name`, or of the operand itself if it has no rows."""
        return Part(name, row, self.first, self.last)

    def room(self, name: str, row: int) -> Part:
        """Return the part of a scratch array's row that the bucket uses: its first `length` elements."""
        return Part(name, row, 0, self.length)

    def of_all(self, name: str) -> tuple[Part, ...]:
        """Return the bucket's part of each worker's row of an operand."""
        return tuple(self.of(name, i) for i in range(self.problem.w))

    def stripes(self, grain: int = LINE) -> list[tuple[int, int]]:
        """Return the first and the end element of each owner's stripe; stripes are cut at multiples of `grain`."""
        w, grains = self.problem.w, -(-self.length // grain)
        edges = [min(self.length, grains * i // w * grain) for i in range(w + 1)]
        return [(edges[i], edges[i + 1]) for i in range(w)]

    def deliver(self, rows: tuple[Part, ...], start: int, stop: int, replicas: tuple[Part, ...] | None = None) -> Step:
        """Return the step that stores the sum of rows in s or, with /update, updates the weights and their replicas."""
        if self.problem.step == "sum":
            return Step("total_past", (self.of("s"), rows), start, stop)
        copies = self.of_all("replicas") if replicas is None else replicas
        return Step("step", (self.of("weights"), copies, rows, self.lr), start, stop)

    @property
    def lr(self) -> Any:
        """Return the learning rate in the type of the operands."""
        return numpy_dtype(self.problem.dtype).type(self.problem.lr)


def whole(problem: AggregateProblem) -> Bucket:
    """Return all elements as one bucket."""
    return Bucket(problem, 0, problem.n)


def buckets(problem: AggregateProblem) -> list[Bucket]:
    """Return the buckets of a problem."""
    return [Bucket(problem, first, min(problem.n, first + BUCKET)) for first in range(0, problem.n, BUCKET)]
