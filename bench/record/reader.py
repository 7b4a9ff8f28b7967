"""The reading half of the store: rows of a run one at a time, whatever their number."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from kernelmark.bench.measure.ceiling import Ceiling, Need
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.numbers import Finite
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.case_reader import CaseReader, with_dims
from kernelmark.bench.record.query import SELECTED, Dims, checked, dims_of, doubles, result_of, samples_of, struct_of
from kernelmark.bench.record.result import Result
from kernelmark.bench.record.run_reader import RunReader
from kernelmark.bench.record.table import TableReader
from kernelmark.bench.record.versions import VersionReader


class Layer(msgspec.Struct, frozen=True):
    """A problem that a network has `count` times in a part of it, `forward` or `backward`."""

    network: str
    problem: str
    part: str
    count: int


class Record(NamedTuple):
    """A row as plain values: of the columns, of the dimensions by name, and its samples in seconds a call."""

    values: tuple[Any, ...]
    dims: Dims
    samples: "array[float]"


class CaseRow(NamedTuple):
    """What `compare` needs to know of a row; medians: seconds, one a process."""

    case: str
    kernel: str
    problem: str
    mode: str
    threads: int
    isa: str
    device_name: str
    status: str
    reason: str
    time_s_median: float | None
    medians: list[float]


class KernelTotal(NamedTuple):
    """The rows of one kernel in a run: how many by status, and what its speedups and roofline come to."""

    kernel: str
    statuses: dict[str, int]
    speedup: float | None
    speedup_min: float | None
    speedup_max: float | None
    roofline_pct: float | None


_CEILING = ", ".join(Ceiling.__struct_fields__)
_Sum = Finite | None


class Reader(CaseReader, RunReader, TableReader, VersionReader):
    """Queries over an open store. Raises UsageError where the file cannot be read.

    identifies: what is exported of it names hosts and devices, which are hashed otherwise.
    """

    identifies = False

    def ceilings(self, run_id: str) -> list[tuple[Ceiling, str]]:
        """The ceilings of a run, in the order in which they were measured, each with why it does not hold (or "")."""
        query = f"SELECT {_CEILING}, doubt FROM ceiling WHERE run_id = :run_id ORDER BY measured_at, ceiling_id"
        return list(self._rows(query, _doubted, run_id=run_id))

    def highest_ceiling(self, run_id: str, need: Need) -> Ceiling | None:
        """The highest ceiling of this kind that any run on the run's machine has measured, whatever became of it."""
        query = f"""
            SELECT {_CEILING} FROM ceiling JOIN run USING (run_id)
            WHERE machine_id = (SELECT machine_id FROM run WHERE run_id = :run_id)
            AND device = :device AND threads = :threads AND kind = :kind AND problem = :problem
            ORDER BY best DESC LIMIT 1"""
        return next(self._rows(query, partial(struct_of, Ceiling), run_id=run_id, **need._asdict()), None)

    def layers(self, run_id: str) -> list[Layer]:
        """The layers of the networks of a run, in the order in which they were measured."""
        query = "SELECT network, problem, part, count FROM layer WHERE run_id = :run_id ORDER BY place, rowid"
        return list(self._rows(query, partial(struct_of, Layer), run_id=run_id))

    def records(self, run_id: str, samples: bool = False) -> Iterator[Record]:
        """The rows of a run as plain values; with their samples, if asked for."""
        blob = "sample_blob" if samples else "x''"
        query = f"SELECT {SELECTED}, dims, {blob} FROM result WHERE {{of_run}} ORDER BY result_id"
        return self._of_run(run_id, query, _record)

    def results(self, run_id: str) -> Iterator[tuple[Result, Dims]]:
        """The rows of a run with their dimensions, in the order in which they were recorded, one at a time."""
        query = f"SELECT {SELECTED}, dims FROM result WHERE {{of_run}} ORDER BY result_id"
        return self._of_run(run_id, query, with_dims)

    def layer_results(self, run_id: str) -> Iterator[Result]:
        """The rows of the problems that are layers of the run's networks."""
        layers = "SELECT problem FROM layer WHERE run_id = :run_id"
        query = f"SELECT {SELECTED} FROM result WHERE {{of_run}} AND problem IN ({layers}) ORDER BY result_id"
        return self._of_run(run_id, query, result_of)

    def groups(self, run_id: str, limit: int = -1, offset: int = 0) -> Iterator[list[Result]]:
        """The rows of a run by problem, mode and isa, whether they stand together or not; in order of appearance."""
        query = """
            WITH own AS (
                SELECT problem, mode, isa, min(result_id) AS appeared FROM result WHERE {of_run}
                GROUP BY problem, mode, isa ORDER BY appeared LIMIT :limit OFFSET :offset
            )
            SELECT appeared, result_id FROM result CROSS JOIN own USING (problem, mode, isa) WHERE {of_run}
            ORDER BY appeared, result_id
        """
        found = self._with_results(self._of_run(run_id, query, limit=limit, offset=offset))
        for _, rows in groupby(found, key=itemgetter(0)):
            yield [result for _, result in rows]

    def _with_results(self, keys: Iterator[tuple[int, int]]) -> Iterator[tuple[int, Result]]:
        """Yield the row of each (group, result_id); sorting those and not the rows takes little memory."""
        while chunk := list(islice(keys, 500)):
            ids = ", ".join(str(result_id) for _, result_id in chunk)
            query = f"SELECT result_id, {SELECTED} FROM result WHERE result_id IN ({ids})"
            by_id = dict(self._rows(query, _numbered))
            with self._guarded():
                found = [(group, by_id[result_id]) for group, result_id in chunk]
            yield from found

    def group_count(self, run_id: str) -> int:
        """Return how many lists `groups` has."""
        query = "SELECT count(*) FROM (SELECT DISTINCT problem, mode, isa FROM result WHERE {of_run})"
        ((count,),) = self._of_run(run_id, query)
        return int(count)

    def statuses(self, run_id: str) -> Counter[str]:
        """Return how many rows of a run have each status, in order of appearance."""
        query = "SELECT status, count(*) FROM result WHERE {of_run} GROUP BY status ORDER BY min(result_id)"
        return Counter(dict(self._of_run(run_id, query, _counted)))

    def recorded(self, run_id: str) -> set[str]:
        """Return the cases that the run has a row for."""
        return set(self._rows("SELECT [case] FROM result WHERE run_id = :run_id", _case, run_id=run_id))

    def kernel_totals(self, run_id: str) -> list[KernelTotal]:
        """Return what each kernel's rows come to, in order of appearance; speedup: the geometric mean."""
        self._db.create_function("log", 1, math.log, deterministic=True)
        query = """
            SELECT kernel, status, count(*), avg(log(speedup)) FILTER (WHERE speedup > 0), min(speedup), max(speedup),
                max(roofline_pct), min(result_id) AS appeared
            FROM result WHERE {of_run} GROUP BY kernel, status ORDER BY appeared
        """
        by_kernel: dict[str, list[tuple[Any, ...]]] = {}
        for found in self._of_run(run_id, query, _totals):
            by_kernel.setdefault(found[0], []).append(found)
        return [_total(kernel, found) for kernel, found in by_kernel.items()]

    def cases(self, run_id: str) -> Iterator[CaseRow]:
        """The rows of a run in the order of their cases."""
        names = ", ".join(f"[{name}]" for name in CaseRow._fields[:-1])
        query = f'SELECT {names}, part_blob FROM result WHERE run_id = :run_id ORDER BY "case"'
        return self._rows(query, _case_row, run_id=run_id)

    def dimensions(self, run_id: str) -> list[str]:
        """The names of all dimensions that occur in a run, in the order of their first appearance."""
        query = "SELECT DISTINCT op, (SELECT group_concat(key) FROM json_each(dims)) FROM result WHERE {of_run}"
        found = self._of_run(run_id, query, lambda values: (values[1] or "").split(","))
        return list(dict.fromkeys(name for names in found for name in names if name))

    def pending(self, run_id: str, job: int) -> list[list[Measurement]]:
        """Return what the processes asked so far have found of a job, by its place in the plan."""
        query = "SELECT measured FROM pending WHERE run_id = :run_id AND job = :job ORDER BY process"
        return list(self._rows(query, _measured, run_id=run_id, job=job))

    def pending_host(self, run_id: str) -> str:
        """Return the host of the processes whose rows are still to come, which are never of two; "" without any."""
        query = "SELECT measured FROM pending WHERE run_id = :run_id LIMIT 1"
        found: list[Measurement] = next(self._rows(query, _measured, run_id=run_id), [])
        return next((measured.host for measured in found if measured.host), "")


def _case(values: tuple[Any, ...]) -> str:
    return msgspec.convert(values[0], str)


def _doubted(values: tuple[Any, ...]) -> tuple[Ceiling, str]:
    *found, doubt = values
    return struct_of(Ceiling, found), msgspec.convert(doubt, str)


def _record(values: tuple[Any, ...]) -> Record:
    ((*columns, dims, samples),) = checked([values])
    return Record(tuple(columns), dims_of(dims), samples_of(samples))


def _numbered(values: tuple[Any, ...]) -> tuple[int, Result]:
    number, *columns = values
    return number, result_of(columns)


def _counted(values: tuple[Any, ...]) -> tuple[str, int]:
    return msgspec.convert(values, tuple[str, int])


def _totals(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sums of a kernel, which are numbers where its rows hold numbers."""
    return msgspec.convert(values, tuple[str, str, int, _Sum, _Sum, _Sum, _Sum, int])


def _case_row(values: tuple[Any, ...]) -> CaseRow:
    *columns, parts = values
    return msgspec.convert((*columns, doubles(parts)[1::2].tolist()), CaseRow)


def _measured(values: tuple[bytes]) -> list[Measurement]:
    return msgspec.msgpack.decode(*values, type=list[Measurement])


def _total(kernel: str, found: list[tuple[Any, ...]]) -> KernelTotal:
    """One kernel's rows, of which those that are `ok` alone have speedups."""
    _, _, _, mean, low, high, roofline, _ = next((f for f in found if f[1] == Status.OK), found[0])
    statuses = {status: count for _, status, count, *_ in found}
    return KernelTotal(kernel, statuses, None if mean is None else math.exp(mean), low, high, roofline)
