"""The types that queries of the store return, and the decoding and checking of rows."""

import array
import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar

import msgspec
import numpy as np

from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.numbers import finite
from kernelmark.bench.plan.tuned import TunedTile, Tunes
from kernelmark.bench.record.columns import COLUMNS, HINTS, Result, ShortText

Dims = dict[str, Any]
#: The samples of a row, process by process.
Groups = Sequence[Sequence[float]]
Struct = TypeVar("Struct", bound=msgspec.Struct)
#: A run's id. Its characters are limited since it appears in file names and printed commands.
RunId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}\Z")]
#: Decodes dimensions, which the store holds as text. Raises ValueError.
dims_of = msgspec.json.Decoder(Dims).decode
#: The shortest and the longest time of a call, in seconds, that a store can hold. The longest is 30 years. The ratio of
#: any two times is finite.
SHORTEST_S, LONGEST_S = 1e-18, 1e9


class Layer(msgspec.Struct, frozen=True):
    """A problem that occurs `count` times in the `forward` or `backward` part of a network."""

    network: str
    problem: str
    part: str
    count: int


class Record(NamedTuple):
    """A row as plain values: columns, dimensions by name, and samples in seconds per call, if requested."""

    values: tuple[Any, ...]
    dims: Dims
    samples: "array.array[float]"


class CaseRow(NamedTuple):
    """The columns of a row that `compare` needs. medians: one for each process, in seconds."""

    case: ShortText
    kernel: ShortText
    problem: ShortText
    mode: ShortText
    threads: int
    isa: ShortText
    device_name: ShortText
    host: ShortText
    device_uuid: ShortText
    status: ShortText
    reason: ShortText
    time_s_median: float | None
    disturbed: ShortText
    medians: list[float]


class PointRow(NamedTuple):
    """The columns of a timed row and its run that `trend` needs. medians: one for each process, in seconds."""

    case: ShortText
    machine_id: ShortText
    device_name: ShortText
    run_id: RunId
    kernel: ShortText
    problem: ShortText
    versions: ShortText
    tunables: ShortText
    host: ShortText
    device_uuid: ShortText
    disturbed: ShortText
    time_s_median: float
    time_s_ci95_low: float | None
    time_s_ci95_high: float | None
    medians: list[float]


class KernelTotal(NamedTuple):
    """The totals of a kernel's rows in a run: their number by status, speedups and roofline."""

    kernel: str
    statuses: dict[str, int]
    speedup: float | None
    speedup_min: float | None
    speedup_max: float | None
    roofline_pct: float | None


class RunFacts(TypedDict):
    """All facts of a run in the store. planned: the number of cases of the complete run, if recorded."""

    run_id: RunId
    name: str
    planned: int | None
    started_at: str
    finished_at: str | None
    command: str
    git_commit: str
    suites: list[str]
    environment: dict[str, Any]
    plan: dict[str, Any]
    machine: dict[str, Any]


class RowCount(NamedTuple):
    """The number of a run's rows that share `status`, `device_name` and `disturbed`. timed: how many have a median."""

    status: str
    device_name: str
    disturbed: str
    timed: int
    rows: int


class RunMachine(NamedTuple):
    """A host, one of its devices, and the number of a run's rows that were measured there."""

    host: str
    device: str
    device_uuid: str
    rows: int


class JobBegun(NamedTuple):
    """The start of a job of a run, with the number of its rows. problems: ids of its problems, separated by commas."""

    started_at: str
    suite: str
    isa: str
    problems: str
    rows: int


class _StoredPlan(msgspec.Struct):
    """The fields of a plan that reports read; older and imported runs may lack them."""

    seed: int = 0
    mode: Mode = Mode.COLD
    processes: int = 1
    max_time_s: float | None = None
    rel_ci: float | None = None
    suites: list[str] = []
    plugins: list[str] = []
    tiles: list[TunedTile] = []
    tunes: Tunes | None = None


class _Environment(msgspec.Struct):
    versions: dict[str, Any] = {}
    blas: list[str] = []
    variables: dict[str, Any] = {}


class _Machine(msgspec.Struct):
    llc_bytes: float | None = None
    memory_bytes: float | None = None


_PARTS = {"plan": _StoredPlan, "environment": _Environment, "machine": _Machine}
RUN_COLUMNS = {name: f"[{name}]" for name in RunFacts.__annotations__} | {"machine": "machine.facts"}
_AS_JSON = ("suites", "environment", "plan", "machine")


def facts_of(values: tuple[Any, ...]) -> RunFacts:
    """Return the facts of a run, with None for NaN and infinity, which JSON lacks. Raises ValueError if damaged."""
    facts = dict(zip(RUN_COLUMNS, values, strict=True))
    for name in _AS_JSON:
        facts[name] = _decoded(facts[name])
    for name, kind in _PARTS.items():
        msgspec.convert(facts[name], kind)
    return msgspec.convert(facts, RunFacts)


def _decoded(text: str) -> Any:
    """Decode JSON. NaN and infinities become None and lone surrogates become `?`, since they could not be written."""
    decoded = json.loads(text, parse_constant=lambda word: None, parse_float=lambda text: finite(float(text)))
    return json.loads(json.dumps(decoded, ensure_ascii=False).encode(errors="replace")) if "\\ud" in text else decoded


def unlike(name: str, values: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the name of each nested value that differs, such as `machine.cpus`, with its value in each of `values`."""
    if all(isinstance(value, dict) for value in values):
        for key in sorted({key for value in values for key in value}):
            yield from unlike(f"{name}.{key}", [value.get(key) for value in values])
    elif any(value != values[0] for value in values):
        yield name, list(values)


def result_of(values: Sequence[Any]) -> Result:
    """Return the result whose columns, in order, have these values. Raises ValueError for an invalid one."""
    (values,) = checked([tuple(values)])
    return msgspec.convert(dict(zip(COLUMNS, values, strict=True)), Result)


def checked(rows: list[tuple[Any, ...]], names: tuple[str, ...] = COLUMNS) -> list[tuple[Any, ...]]:
    """Return the rows after a quick check of their first values, which are of columns `names`. Raises ValueError."""
    kind, named = _kinds(names)
    try:
        msgspec.convert(rows, list[kind])  # type: ignore[valid-type]  # made from the names
        return rows
    except msgspec.ValidationError:  # a number that is not finite counts as missing
        rows = [tuple(map(finite, values)) for values in rows]
        for values in rows:
            msgspec.convert(dict(zip(names, values, strict=False)), named)
        return rows


@lru_cache
def _kinds(names: tuple[str, ...]) -> tuple[type[msgspec.Struct], type[msgspec.Struct]]:
    """Return two types that check a row of these columns: of a list, and of a dict, whose errors name the column."""
    fields = [(name, HINTS[name]) for name in names]
    return msgspec.defstruct("Listed", fields, array_like=True), msgspec.defstruct("Named", fields)


def struct_of(kind: type[Struct], values: Sequence[Any]) -> Struct:
    """Return the struct whose fields, in order, have these values. Raises ValueError."""
    return msgspec.convert(dict(zip(kind.__struct_fields__, values, strict=True)), kind)


def doubles(blob: bytes) -> "array.array[float]":
    """Return the numbers in a stored blob. Raises ValueError."""
    return array.array("d", blob)


def samples_of(blob: bytes) -> "array.array[float]":
    """Return the stored samples, in seconds per call. Raises ValueError for an invalid time."""
    check_samples([blob])
    return doubles(blob)


def check_samples(blobs: Sequence[bytes]) -> None:
    """Check the samples of many rows at once, ten times as fast as one by one. Raises ValueError or TypeError."""
    if any(len(blob) % 8 for blob in blobs):
        raise ValueError("the samples end in the middle of a number")
    samples = np.frombuffer(b"".join(blobs))
    if not ((samples >= SHORTEST_S) & (samples <= LONGEST_S)).all():
        raise ValueError("a sample is not a valid time in seconds")


def with_dims(values: tuple[Any, ...]) -> tuple[Result, Dims]:
    """Return the result and the dimensions of a row; the dimensions are the last value. Raises ValueError."""
    *columns, dims = values
    return result_of(columns), dims_of(dims)


def groups_of(samples_blob: bytes, part_blob: bytes) -> Groups:
    """Return the samples of each process. Raises ValueError."""
    samples, counts = samples_of(samples_blob), doubles(part_blob)[::2]
    ends = [0, *accumulate(map(int, counts))]
    return [samples[start:end] for start, end in pairwise(ends)] if 0 < ends[-1] == len(samples) else [samples]


def parts_of(blob: bytes) -> list[ProcessPart]:
    """Return the processes that samples come from. Raises ValueError."""
    numbers = doubles(blob)
    return [ProcessPart(int(count), median) for count, median in zip(numbers[::2], numbers[1::2], strict=True)]
