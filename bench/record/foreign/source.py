"""The contents of an imported file: its rows, which are checked, and the machine that it records."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import msgspec

from kernelmark.bench.measure.measurement import WITHIN, ProcessPart
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.numbers import finite
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.columns import COLUMNS, KINDS, NOT_NEGATIVE, REQUIRED, SCHEMA, Result, sample_columns
from kernelmark.bench.record.records import LONGEST_S, SHORTEST_S

#: The relative error by which a mean may exceed the largest of its numbers, because of rounding.
ROUNDING = 1e-9
#: Returns the problem whose id is the text, or None.
FindProblem = Callable[[str], Problem | None]
_TIMES = ("time_s_median", "time_s_min", "time_s_mean")
#: Pairs of columns. The first column of a pair may exceed the second only by rounding.
_ORDERED = (
    ("time_s_min", "time_s_median"),
    ("time_s_min", "time_s_mean"),
    ("time_s_ci95_low", "time_s_ci95_high"),
    ("speedup_ci95_low", "speedup_ci95_high"),
)
_STATUSES = frozenset(Status)
#: `Columns` holds rows by column. `Wrong` describes an invalid value: the row's index, the column, the expected value.
Columns = Mapping[str, Sequence[Any]]
Wrong = tuple[int, str, str]


class RowRefused(UsageError):
    """A benchmark has a number that cannot be a time; other benchmarks of the file may be valid."""


class JsonNode:
    """A value in a file with its place, such as `benchmarks[3].stats.median`. Every method raises UsageError."""

    def __init__(self, value: Any, file: str, place: str = "") -> None:
        self.value, self._file, self._place = value, file, place

    def refuse(self, expected: str, kind: type[UsageError] = UsageError) -> NoReturn:
        """Raise an exception with one line about the value."""
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        raise kind(f"{self._file}: {self._place or 'the document'} is {shown}, expected {expected}")

    def get(self, *keys: str) -> "JsonNode | None":
        """Return the value under these nested keys, or None if one is absent or null."""
        node = self
        for key in keys:
            if not isinstance(node.value, dict):
                node.refuse("an object")
            if node.value.get(key) is None:
                return None
            node = JsonNode(node.value[key], self._file, f"{node._place}.{key}".lstrip("."))
        return node

    def need(self, *keys: str) -> "JsonNode":
        """Return the value under these nested keys. Raises UsageError if there is none."""
        if (node := self.get(*keys)) is None:
            what = ".".join(filter(None, (self._place, *keys)))
            raise UsageError(f"{self._file}: {what} is missing; every row needs it")
        return node

    def items(self, key: str) -> list["JsonNode"]:
        """Return the elements of the list under this key; none if the key is absent or its value is null."""
        node = self.get(key)
        if node is None:
            return []
        if not isinstance(node.value, list):
            node.refuse("a list")
        return [JsonNode(value, self._file, f"{node._place}[{i}]") for i, value in enumerate(node.value)]

    def text(self) -> str:
        """Return the value as a string."""
        if not isinstance(self.value, str):
            self.refuse("a string")
        return str(self.value)

    def number(self, above: float = -math.inf) -> float:
        """Return the value as a finite number above a bound; nvbench writes numbers as strings, which are converted."""
        try:
            if isinstance(self.value, bool):
                raise ValueError
            number = float(self.value)
        except (TypeError, ValueError, OverflowError):
            self.refuse("a number")
        if not (math.isfinite(number) and number > above):
            self.refuse("a finite number" if above == -math.inf else f"a finite number above {above:g}", RowRefused)
        return number

    def seconds(self) -> float:
        """Return the value as a time in seconds, from the shortest to the longest that the store accepts."""
        if not SHORTEST_S <= (seconds := self.number(above=0)) <= LONGEST_S:
            self.refuse(f"{SHORTEST_S:g} to {LONGEST_S:g} seconds", RowRefused)
        return seconds

    def refuse_above(self, most: "JsonNode | None") -> None:
        """Raise UsageError if this statistic exceeds `most`, the largest sample, by more than rounding."""
        if most is not None and self.number() > most.number() * (1 + ROUNDING):
            self.refuse(f"at most the largest sample, {most.number()!r}")

    def integer(self) -> int:
        """Return the value as a count: an integer from 0 to 2^63 - 1, the largest that the store can hold."""
        number = self.number()
        if not (number.is_integer() and 0 <= number < 2**63):
            self.refuse("an integer from 0 to 2^63 - 1")
        return int(number)


def text_under(node: JsonNode, *keys: str) -> str:
    """Return the string under these keys; empty if a key is absent or the value is null."""
    child = node.get(*keys)
    return "" if child is None else child.text()


class ForeignRow(NamedTuple):
    """A result that belongs to no run yet, its dimensions, and its samples in seconds per call, if the file has any."""

    result: Result
    dims: dict[str, Any]
    samples: Sequence[float] = ()

    @property
    def parts(self) -> list[ProcessPart]:
        """Return a list with the one process that took the samples, or an empty list without samples."""
        return [ProcessPart(len(self.samples), median_interval(self.samples).median)] if self.samples else []


class ForeignRun(NamedTuple):
    """The contents of a file for one run: its format, facts about machine, libraries and commit, and rows.

    refused: complaints about benchmarks that get no row.
    """

    kind: str
    machine: dict[str, Any]
    environment: dict[str, Any]
    git_commit: str
    rows: Sequence[ForeignRow]
    refused: Sequence[str] = ()


def foreign(op: str, problem: Problem | None, text: str, kernel: str, **columns: Any) -> Result:
    """Return the row of a kernel of another program, with the columns that follow from a kernelmark problem.

    text: the problem's name if `problem` is None. The column `threads` is 1, since the number of threads is unknown.
    """
    known: dict[str, Any] = {"op": op, "problem": text, "dtype": "", "layout": ""}
    if problem is not None:
        known = {"op": problem.op, "problem": problem.id, "dtype": problem.dtype}
        known["layout"] = getattr(problem, "layout", "")
    known |= {"run_id": "", "numerics": "", "threads": 1, "status": Status.OK, "reason": ""}
    return Result(**{**known, "kernel": f"{known['op']}/{kernel}", "provider": kernel.partition(".")[0], **columns})


def add_samples(result: Result, samples: Sequence[float]) -> None:
    """Add the columns computed from samples in seconds per call; the interval ignores variation between processes."""
    for name, value in sample_columns(samples, median_interval(samples)).items():
        setattr(result, name, finite(value))
    result.interval = WITHIN


def add_rates(result: Result, problem: Problem | None) -> None:
    """Add the rates of a kernelmark problem, computed from the median."""
    if problem is not None and result.time_s_median:
        result.gflop_per_s = problem.flop / result.time_s_median * 1e-9 if problem.flop else None
        result.gbyte_per_s = problem.traffic_bytes / result.time_s_median * 1e-9


def dimensions(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that are finite numbers or texts, by name; names of columns get the prefix `param_`.

    The store and Parquet hold integers of 64 bits; larger ones become texts.
    """
    result: dict[str, Any] = {}
    for name, value in named.items():
        # The store returns the names of all dimensions as one string, separated by commas.
        safe = name.replace(",", " ")
        if isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
            is_text = isinstance(value, bool) or (isinstance(value, int) and abs(value) >= 2**63)
            result[f"param_{safe}" if safe in COLUMNS else safe] = str(value) if is_text else value
    return result


def first_problem(texts: Iterable[str], find: FindProblem) -> Problem | None:
    """Return the problem of the first text that is a problem's id, or None."""
    return next((problem for text in texts if (problem := find(text)) is not None), None)


def own_result(node: JsonNode) -> Result:
    """Return the row under a node. Columns that an older file lacks keep their defaults. Raises UsageError."""
    read: dict[type, Callable[[JsonNode], Any]] = {str: JsonNode.text, int: JsonNode.integer, float: JsonNode.number}
    values = {name: read[KINDS[name]](child) for name in COLUMNS if (child := node.get(name)) is not None}
    for name in REQUIRED:
        node.need(name)
    result = Result(**{**values, "run_id": ""})
    refuse_unsound(result, node)
    return result


def unsound(columns: Columns) -> Wrong | None:
    """Return the first invalid value, as the row's index, the column and the expected value, or None."""
    invalid = [
        *_first(columns, "schema", lambda value: value != SCHEMA, f"{SCHEMA}, which this kernelmark reads"),
        *_first(columns, "status", lambda value: value not in _STATUSES, f"one of {', '.join(Status)}"),
        *_first(columns, "threads", lambda value: value < 1, "a count from 1"),
        *_impossible(columns),
    ]
    return min(invalid, key=lambda wrong: wrong[0], default=None)


def refuse_unsound(result: Result, node: JsonNode) -> None:
    """Raise UsageError, naming the value's place under `node`, if the row has an invalid value."""
    values = msgspec.structs.asdict(result)
    if complaint := unsound({name: (value,) for name, value in values.items()}):
        _, name, expected = complaint
        JsonNode(values, node._file, node._place).need(name).refuse(expected)


def _impossible(columns: Columns) -> Iterator[Wrong]:
    for name in _TIMES:
        yield from _first(columns, name, lambda value: value <= 0, "seconds above 0")
        pairs = enumerate(zip(columns.get(name, ()), columns.get("status", ()), strict=False))
        failed = ((at, status) for at, (value, status) in pairs if value is not None and status != Status.OK)
        yield from islice(((at, name, f"no time in a row that is {status!r}") for at, status in failed), 1)
    for name in NOT_NEGATIVE:
        yield from _first(columns, name, lambda value: value < 0, "0 or more")
    for low, high in _ORDERED:
        ends = enumerate(zip(columns.get(low, ()), columns.get(high, ()), strict=False))
        known = ((at, least, most) for at, (least, most) in ends if least is not None and most is not None)
        above = ((at, most) for at, least, most in known if least > most * (1 + ROUNDING))
        yield from islice(((at, low, f"at most {high}, {most!r}") for at, most in above), 1)


def _first(columns: Columns, name: str, wrong: Callable[[Any], bool], expected: str) -> Iterator[Wrong]:
    values = enumerate(columns.get(name, ()))
    yield from islice(((at, name, expected) for at, value in values if value is not None and wrong(value)), 1)
