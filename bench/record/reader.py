"""Queries that read the store and check its rows. Most yield one row at a time, so a run need not fit in memory."""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from heapq import nsmallest
from itertools import combinations, groupby, islice
from operator import itemgetter
from typing import Any

import msgspec

from kernelmark.bench.measure.host import Host
from kernelmark.bench.measure.measurement import Ceiling, Evidence, Measurement, Need, ProcessPart
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.numbers import Entropy, Finite, finite
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record import records as stored
from kernelmark.bench.record.columns import COLUMNS, Result
from kernelmark.bench.record.query import OF_RUN, Queries, Read
from kernelmark.bench.record.table import CHUNK, Builder, Table
from kernelmark.bench.record.versions import LaunchResources, StoredVersion, kept_of

_RUNS = f"SELECT {', '.join(stored.RUN_COLUMNS.values())} FROM run JOIN machine USING (machine_id)"
_CEILING = ", ".join(Ceiling.__struct_fields__)
_Sum = Finite | None


def _selected(names: Sequence[str]) -> str:
    """Return columns for a SELECT, in brackets, since SQLite takes a quoted name of a missing column for a text."""
    return ", ".join(f"[{name}]" for name in names)


_SELECTED = _selected(COLUMNS)


def _only(kind: Any) -> Read:
    return lambda values: msgspec.convert(values[0], kind)


def _json(kind: Any) -> Read:
    return lambda values: msgspec.json.decode(values[0], type=kind)


def _all(kind: Any) -> Read:
    return partial(msgspec.convert, type=kind)


class Reader(Queries):
    """Queries for the contents of a store. identifies: whether exports show real names of hosts and devices."""

    identifies = False

    # Runs. These queries count all rows and ignore the selection.

    def run_ids(self) -> list[str]:
        """Return the ids of all runs, the latest last."""
        return list(self._rows("SELECT run_id FROM run ORDER BY rowid", _only(stored.RunId)))

    def runs(self, run_id: str | None = None) -> list[stored.RunFacts]:
        """Return the runs of the store, the latest last, or only the run with this id."""
        query = f"{_RUNS} WHERE :run_id IS NULL OR run_id = :run_id ORDER BY run.rowid"
        return list(self._rows(query, stored.facts_of, run_id=run_id))

    def tallies(self, run_id: str | None = None) -> dict[str, list[stored.RowCount]]:
        """Return the row counts of each run that has rows, or only of the run with this id."""
        columns = "run_id, status, device_name, disturbed"
        query = f"SELECT {columns}, count(time_s_median), count(*) FROM main.result WHERE {{}} GROUP BY {columns}"
        read = _all(tuple[str, str, str, str, int, int])
        every = self._rows(query.format("TRUE"), read)
        tallies: dict[str, list[stored.RowCount]] = {}
        for run, *counted in every if run_id is None else self._of_run(run_id, query.format(OF_RUN), read):
            tallies.setdefault(run, []).append(stored.RowCount(*counted))
        return tallies

    def machines(self, run_id: str) -> list[stored.RunMachine]:
        """Return the hosts and device names on which the rows of a run were measured."""
        names = "host, device_name, device_uuid"
        query = f"SELECT {names}, count(*) FROM main.result WHERE run_id = :run_id GROUP BY {names} ORDER BY {names}"
        return list(self._rows(query, _all(stored.RunMachine), run_id=run_id))

    def hosts(self, run_id: str) -> list[Host]:
        """Return the hosts that a run recorded, in the order recorded; none for a run without an executor."""
        query = "SELECT facts FROM host WHERE run_id = :run_id ORDER BY rowid"
        return list(self._rows(query, _json(Host), run_id=run_id))

    def jobs_begun(self, run_id: str) -> list[stored.JobBegun]:
        """Return a run's jobs in the order in which they began, without rows of crashed workers, which name no job."""
        query = """
            SELECT min(started_at), suite, isa, group_concat(DISTINCT problem), count(*)
            FROM main.result WHERE run_id = :run_id AND job != '' GROUP BY job ORDER BY 1"""
        return list(self._rows(query, _all(stored.JobBegun), run_id=run_id))

    def find_run(self, run_id: str | None) -> stored.RunFacts:
        """Return the run with this id or name, or the only run whose id or name begins with it; for None, the latest.

        Raises UsageError if there is no such run, or more than one.
        """
        if run_id is None:
            runs: list[stored.RunFacts] = list(self._rows(f"{_RUNS} ORDER BY run.rowid DESC LIMIT 1", stored.facts_of))
        else:
            begins = "substr(run_id, 1, length(:text)) = :text OR substr(name, 1, length(:text)) = :text"
            query = f"{_RUNS} WHERE :text != '' AND ({begins}) ORDER BY :text IN (run_id, name) DESC LIMIT 2"
            runs = list(self._rows(query, stored.facts_of, text=run_id))
            runs = runs[:1] if runs and run_id in (runs[0]["run_id"], runs[0]["name"]) else runs
        if len(runs) == 1:
            return runs[0]
        if run_id is None:
            raise UsageError(f"{self.path}: contains no run yet; `kernelmark run SUITE` makes one")
        latest = ", ".join(self.run_ids()[:-4:-1]) or "none"
        what = "is not a run of" if not runs else "is the beginning of more than one run of"
        raise UsageError(f"run {run_id!r}: {what} {self.path}; the latest are {latest}")

    # All rows of a run.

    def table(self, run_id: str, names: tuple[str, ...] = COLUMNS) -> Table:
        """Return a run's rows in their order, with only these columns. Raises UsageError for values of wrong types."""
        with self._guarded():
            constants = self._constants(run_id, names)
            builder = Builder(names, constants)
            for columns in self._chunks(run_id, tuple(name for name in names if name not in constants)):
                builder.add(columns)
            return builder.table()

    def _constants(self, run_id: str, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the columns that have one value in all rows, with this value.

        These are about half of the columns. Comparing their values in SQL is faster than reading them.
        """
        if not (ends := [*self._in_order(run_id, _selected(names), among="result_id IN (:first, :last)")]):
            return {}
        pairs = zip(names, ends[0], ends[-1], strict=True)
        if not (alike := {name: first for name, first, last in pairs if first == last}):
            return {}
        stored.checked([tuple(alike.values())], tuple(alike))
        changes = ", ".join(f"total([{name}] IS NOT :of_{name})" for name in alike)
        values = {f"of_{name}": value for name, value in alike.items()}
        (rows,) = self._of_run(run_id, f"SELECT {changes} FROM result WHERE {OF_RUN}", **values)
        return {name: finite(value) for (name, value), changed in zip(alike.items(), rows, strict=True) if not changed}

    def columns(self, run_id: str) -> Iterator[tuple[list[Sequence[Any]], list[stored.Dims]]]:
        """Yield the rows of a run in chunks, as columns and dimensions. Raises UsageError as `table` does."""
        for *columns, texts in self._chunks(run_id, COLUMNS):
            with self._guarded():
                dims = [*map(stored.dims_of, texts)]
            yield columns, dims

    def _chunks(self, run_id: str, names: tuple[str, ...]) -> Iterator[Iterable[Sequence[Any]]]:
        rows = self._in_order(run_id, _selected((*names, "dims")))
        with self._guarded():
            while chunk := list(islice(rows, CHUNK)):
                yield zip(*stored.checked(chunk, names), strict=True)

    def sample_blobs(self, run_id: str) -> Iterator[bytes]:
        """Yield the samples of each row as bytes of doubles, in the order of `table`; b"" for a row without a time."""
        rows = self._in_order(run_id, "CASE WHEN time_s_median > 0 THEN sample_blob ELSE x'' END")
        while chunk := [blob for (blob,) in islice(rows, CHUNK)]:
            with self._guarded():
                stored.check_samples(chunk)
            yield from chunk

    def records(self, run_id: str, samples: bool = False) -> Iterator[stored.Record]:
        """Yield the rows of a run as plain values. samples: include the samples."""
        blob = "sample_blob" if samples else "x''"
        return self._in_order(run_id, f"{_SELECTED}, dims, {blob}", _record)

    def results(self, run_id: str) -> Iterator[tuple[Result, stored.Dims]]:
        """Yield the rows of a run with their dimensions, in the order in which they were recorded."""
        return self._in_order(run_id, f"{_SELECTED}, dims", stored.with_dims)

    def results_on(self, run_id: str, problems: Iterable[str]) -> Iterator[Result]:
        """Yield a run's rows on these problems, in the order in which they were recorded."""
        wanted = msgspec.json.encode(list(problems)).decode()
        among = "problem IN (SELECT value FROM json_each(:wanted))"
        return self._in_order(run_id, _SELECTED, stored.result_of, among, wanted=wanted)

    def layer_results(self, run_id: str) -> Iterator[Result]:
        """Yield the rows of problems that are layers of the run's networks."""
        among = "problem IN (SELECT problem FROM layer WHERE run_id = :run_id)"
        return self._in_order(run_id, _SELECTED, stored.result_of, among)

    def groups(self, run_id: str, limit: int = -1, offset: int = 0) -> Iterator[list[Result]]:
        """Yield lists of a run's rows with the same problem, mode and isa, in order of appearance."""
        query = f"""
            WITH own AS (
                SELECT problem, mode, isa, min(result_id) AS appeared FROM result WHERE {OF_RUN}
                GROUP BY problem, mode, isa ORDER BY appeared LIMIT :limit OFFSET :offset
            )
            SELECT appeared, result_id FROM result CROSS JOIN own USING (problem, mode, isa) WHERE {OF_RUN}
            ORDER BY appeared, result_id
        """
        keys = self._of_run(run_id, query, limit=limit, offset=offset)
        for _, rows in groupby(self._with_results(keys), key=itemgetter(0)):
            yield [result for _, result in rows]

    def _with_results(self, keys: Iterator[tuple[int, int]]) -> Iterator[tuple[int, Result]]:
        """Yield the row of each key (group, result_id). Only keys are sorted, since sorting rows needs more memory."""
        while chunk := list(islice(keys, 500)):
            ids = ", ".join(str(result_id) for _, result_id in chunk)
            query = f"SELECT result_id, {_SELECTED} FROM result WHERE result_id IN ({ids})"
            by_id = dict(self._rows(query, lambda values: (values[0], stored.result_of(values[1:]))))
            with self._guarded():
                results = [(group, by_id[result_id]) for group, result_id in chunk]
            yield from results

    def group_count(self, run_id: str) -> int:
        """Return the number of lists that `groups` yields."""
        query = f"SELECT count(*) FROM (SELECT DISTINCT problem, mode, isa FROM result WHERE {OF_RUN})"
        ((count,),) = self._of_run(run_id, query)
        return int(count)

    def statuses(self, run_id: str) -> Counter[str]:
        """Return the number of a run's rows by status, in order of appearance."""
        query = f"SELECT status, count(*) FROM result WHERE {OF_RUN} GROUP BY status ORDER BY min(result_id)"
        return Counter(dict(self._of_run(run_id, query, _all(tuple[str, int]))))

    def recorded(self, run_id: str) -> set[str]:
        """Return the cases that have a row in the run."""
        return set(self._rows("SELECT [case] FROM result WHERE run_id = :run_id", _only(str), run_id=run_id))

    def entropies(self, run_id: str) -> dict[str, str]:
        """Return, by case, the random bits that were mixed with the seed to draw the operands of each row of a run."""
        query = "SELECT [case], entropy FROM result WHERE run_id = :run_id AND entropy != ''"
        return dict(self._of_run(run_id, query, _all(tuple[str, Entropy])))

    def kernel_totals(self, run_id: str) -> list[stored.KernelTotal]:
        """Return the totals of each kernel's rows, in order of appearance; `speedup` is the rows' geometric mean."""
        self._db.create_function("log", 1, math.log, deterministic=True)
        query = f"""
            SELECT kernel, status, count(*), avg(log(speedup)) FILTER (WHERE speedup > 0), min(speedup), max(speedup),
                max(roofline_pct), min(result_id) AS appeared
            FROM result WHERE {OF_RUN} GROUP BY kernel, status ORDER BY appeared
        """
        by_kernel: dict[str, list[tuple[Any, ...]]] = {}
        for sums in self._of_run(run_id, query, _all(tuple[str, str, int, _Sum, _Sum, _Sum, _Sum, int])):
            by_kernel.setdefault(sums[0], []).append(sums)
        return [_total(kernel, sums) for kernel, sums in by_kernel.items()]

    def cases(self, run_id: str) -> Iterator[stored.CaseRow]:
        """Yield the rows of a run in the order of their cases."""
        names = _selected((*stored.CaseRow._fields[:-1], "part_blob"))
        query = f'SELECT {names} FROM result WHERE run_id = :run_id ORDER BY "case"'
        return self._rows(query, partial(_with_medians, stored.CaseRow), run_id=run_id)

    def points(self, text: str, problems: Iterable[str]) -> Iterator[stored.PointRow]:
        """Yield the timed rows, from all runs, on these problems or with a case that contains the text.

        Rows are ordered by case, machine, device and start of the run.
        """
        wanted = msgspec.json.encode(list(problems)).decode()
        query = f"""
            SELECT {_selected(stored.PointRow._fields[:-1])}, part_blob FROM result JOIN run USING (run_id)
            WHERE time_s_median > 0 AND (problem IN (SELECT value FROM json_each(:wanted))
                OR (:text != '' AND instr("case", :text)))
            ORDER BY "case", machine_id, device_name, run.started_at, run.rowid"""
        return self._rows(query, partial(_with_medians, stored.PointRow), text=text, wanted=wanted)

    def dimensions(self, run_id: str) -> list[str]:
        """Return the names of all dimensions in a run, in order of first appearance."""
        query = f"SELECT DISTINCT op, (SELECT group_concat(key) FROM json_each(dims)) FROM result WHERE {OF_RUN}"
        lists = self._of_run(run_id, query, lambda values: (values[1] or "").split(","))
        return list(dict.fromkeys(name for names in lists for name in names if name))

    # One case of a run.

    def find_cases(self, run_id: str, text: str, limit: int) -> list[str]:
        """Return at most `limit` cases of a run that contain a text; if one equals the text, return only this case."""
        query = 'SELECT "case" FROM result WHERE run_id = :run_id AND instr("case", :text) ORDER BY "case" != :text'
        cases = [case for (case,) in self._rows(f"{query} LIMIT :limit", run_id=run_id, text=text, limit=limit)]
        return cases[:1] if text in cases else cases

    def result(self, run_id: str, case: str) -> tuple[Result, stored.Dims]:
        """Return the row of a case of the run, with its dimensions."""
        row: tuple[Result, stored.Dims] = self._of_case(f"{_SELECTED}, dims", stored.with_dims, run_id, case)
        if not row:
            raise UsageError(f"{self.path}: cannot be read: its index has no {case!r}; --db names another file")
        return row

    def has(self, run_id: str, case: str) -> bool:
        return bool(self._of_case("1", _only(int), run_id, case))

    def variant_cases(self, run_id: str, limit: int) -> list[tuple[str, str]]:
        """Return the first `limit` pairs of cases in which one kernel computed two problems of the same job.

        Pairs are in the order of their rows. A kernel on n problems has about n^2 / 2 pairs, so only its first `limit`
        pairs are formed.
        """
        columns = "job, kernel, mode, threads, isa"
        query = f"""SELECT {columns}, result_id, "case" FROM result
            WHERE run_id = :run_id AND job != '' AND time_s_median IS NOT NULL ORDER BY {columns}, result_id"""
        groups = groupby(self._rows(query, run_id=run_id), itemgetter(slice(5)))
        pairs = (pair for _, rows in groups for pair in islice(combinations((row[5:] for row in rows), 2), limit))
        return [(first[1], other[1]) for first, other in nsmallest(limit, pairs)]

    def samples(self, run_id: str, case: str) -> list[float]:
        """Return the samples of a case, in seconds per call, in the order in which they were taken."""
        return list(self._of_case("sample_blob", lambda values: stored.samples_of(*values), run_id, case))

    def by_process(self, run_id: str, case: str) -> list[Sequence[float]]:
        """Return the samples of a case as one list for each process."""
        return self._of_case("sample_blob, part_blob", lambda values: stored.groups_of(*values), run_id, case) or [[]]

    def all_by_process(self, run_id: str, cases: Container[str]) -> Iterator[tuple[str, stored.Groups]]:
        """Yield each of these cases of a run, with one list of samples per process. The rows are read once."""
        for values in self._in_order(run_id, '"case", sample_blob, part_blob'):
            if values[0] in cases:
                with self._guarded():
                    pair = values[0], stored.groups_of(*values[1:])
                yield pair

    def parts(self, run_id: str, case: str) -> list[ProcessPart]:
        """Return the processes that the samples of a case come from."""
        return list(self._of_case("part_blob", lambda values: stored.parts_of(*values), run_id, case))

    def evidence(self, run_id: str, case: str) -> Evidence | None:
        """Return the evidence against a mistrusted case; None for other cases, or if an old store has no evidence."""
        query = 'SELECT found FROM evidence JOIN result USING (result_id) WHERE run_id = :run_id AND "case" = :case'
        return next(self._rows(query, _json(Evidence), run_id=run_id, case=case), None)

    # Other data of a run, and the versions of kernels.

    def ceilings(self, run_id: str) -> list[tuple[Ceiling, str]]:
        """Return the ceilings of a run, in the order measured, each with the reason to doubt it, or ""."""
        query = f"SELECT {_CEILING}, doubt FROM ceiling WHERE run_id = :run_id ORDER BY measured_at, ceiling_id"
        return list(self._rows(query, _doubted, run_id=run_id))

    def earlier_ceilings(self, run_id: str, need: Need) -> Iterator[tuple[Ceiling, str]]:
        """Yield the ceilings for `need` from all runs on this run's machine, each with the reason to doubt it, or "".

        Other runs with plug-ins are left out, since a plug-in could have affected the measurement.
        """
        query = f"""
            SELECT {_CEILING}, doubt FROM ceiling JOIN run USING (run_id)
            WHERE machine_id = (SELECT machine_id FROM run WHERE run_id = :run_id)
            AND device = :device AND threads = :threads AND kind = :kind AND problem = :problem
            AND (run_id = :run_id OR coalesce(json_extract(plan, '$.plugins'), '[]') = '[]')"""
        return self._rows(query, _doubted, run_id=run_id, **need._asdict())

    def layers(self, run_id: str) -> list[stored.Layer]:
        """Return the layers of a run's networks, in the order in which they were measured."""
        query = "SELECT network, problem, part, count FROM layer WHERE run_id = :run_id ORDER BY place, rowid"
        return list(self._rows(query, partial(stored.struct_of, stored.Layer), run_id=run_id))

    def pending(self, run_id: str, job: int) -> list[list[Measurement]]:
        """Return a job's pending measurements, a list for each finished process. job: the job's number in the plan."""
        query = "SELECT measured FROM pending WHERE run_id = :run_id AND job = :job ORDER BY process"
        return list(self._rows(query, _measured, run_id=run_id, job=job))

    def pending_host(self, run_id: str) -> str:
        """Return the host of the pending measurements, which all come from one host, or "" if there are none."""
        query = "SELECT measured FROM pending WHERE run_id = :run_id LIMIT 1"
        rows: list[Measurement] = next(self._rows(query, _measured, run_id=run_id), [])
        return next((measured.host for measured in rows if measured.host), "")

    def versions(self, kernel: str, problem: str) -> list[StoredVersion]:
        """Return the versions of a kernel on a problem, the oldest first."""
        query = """
            SELECT version_id, digest, facts, files FROM version JOIN source USING (digest)
            WHERE kernel = :kernel AND problem = :problem ORDER BY version_id"""
        return list(self._rows(query, lambda values: kept_of(*values), kernel=kernel, problem=problem))

    def resources(self, run_id: str) -> dict[str, LaunchResources]:
        """Return the registers and spilled bytes of a tuning run's compiled kernels, by case."""
        query = 'SELECT "case", registers, spill_bytes FROM resource WHERE run_id = :run_id'
        rows = self._rows(query, _all(tuple[str, int, int]), run_id=run_id)
        return {case: LaunchResources(*used) for case, *used in rows}


def _doubted(values: tuple[Any, ...]) -> tuple[Ceiling, str]:
    return stored.struct_of(Ceiling, values[:-1]), msgspec.convert(values[-1], str)


def _record(values: tuple[Any, ...]) -> stored.Record:
    ((*columns, dims, samples),) = stored.checked([values])
    return stored.Record(tuple(columns), stored.dims_of(dims), stored.samples_of(samples))


def _with_medians(kind: Any, values: tuple[Any, ...]) -> Any:
    """Convert a row to this type; the row's last value, a blob, becomes the list of the medians of its processes."""
    *columns, parts = values
    return msgspec.convert((*columns, stored.doubles(parts)[1::2].tolist()), kind)


def _measured(values: tuple[Any, ...]) -> list[Measurement]:
    return msgspec.msgpack.decode(values[0], type=list[Measurement])


def _total(kernel: str, sums: list[tuple[Any, ...]]) -> stored.KernelTotal:
    """Return the totals of a kernel's rows. Speedup and roofline come from its `ok` rows only."""
    _, _, _, mean, low, high, roofline, _ = next((row for row in sums if row[1] == Status.OK), sums[0])
    statuses = {status: count for _, status, count, *_ in sums}
    return stored.KernelTotal(kernel, statuses, None if mean is None else math.exp(mean), low, high, roofline)
