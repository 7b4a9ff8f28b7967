"""What the store holds of one case: its row, its samples, the processes they come from, what accuses it."""

from collections.abc import Container, Iterator, Sequence
from heapq import nsmallest
from itertools import combinations, groupby
from operator import itemgetter
from typing import Any

import msgspec

from kernelmark.bench.measure.measurement import Evidence, Part
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.query import SELECTED, Dims, Query, Read, dims_of, doubles, result_of, samples_of
from kernelmark.bench.record.result import Result

#: The samples of a row, process by process.
Groups = Sequence[Sequence[float]]


class CaseReader(Query):
    """Queries for one case of a run."""

    def find_cases(self, run_id: str, text: str, limit: int) -> list[str]:
        """The cases of a run that contain a text, as many as are asked for; that one alone which is the text itself."""
        query = 'SELECT "case" FROM result WHERE run_id = :run_id AND instr("case", :text) ORDER BY "case" != :text'
        found = [case for (case,) in self._rows(f"{query} LIMIT :limit", run_id=run_id, text=text, limit=limit)]
        return found[:1] if text in found else found

    def result(self, run_id: str, case: str) -> tuple[Result, Dims]:
        """The row of a case that the run has, with its dimensions."""
        query = f'SELECT {SELECTED}, dims FROM result WHERE run_id = :run_id AND "case" = :case'
        found: tuple[Result, Dims] | None = next(self._rows(query, with_dims, run_id=run_id, case=case), None)
        if found is None:
            raise UsageError(f"{self.path}: cannot be read: its index has no {case!r}; --db names another file")
        return found

    def sibling_cases(self, run_id: str, limit: int) -> list[tuple[str, str]]:
        """The pairs of cases that are one kernel's on two problems, timed in one job; by the order of their rows."""
        own = "job, kernel, mode, threads, isa"
        query = f"""SELECT {own}, result_id, problem, "case" FROM result
            WHERE run_id = :run_id AND job != '' AND time_s_median IS NOT NULL ORDER BY {own}, result_id"""
        groups = groupby(self._rows(query, run_id=run_id), itemgetter(slice(5)))
        pairs = (pair for _, rows in groups for pair in combinations((row[5:] for row in rows), 2))
        first = nsmallest(limit, ((one, other) for one, other in pairs if one[1] != other[1]))
        return [(one[2], other[2]) for one, other in first]

    def samples(self, run_id: str, case: str) -> list[float]:
        """The samples of a case, seconds a call, in the order in which they were taken."""
        return self._of_case("sample_blob", _samples, run_id, case)

    def by_process(self, run_id: str, case: str) -> list[Sequence[float]]:
        """The samples of each process that a case was measured in."""
        return self._of_case("sample_blob, part_blob", _groups, run_id, case) or [[]]

    def pair_by_process(self, run_id: str, one: str, other: str) -> tuple[list[Sequence[float]], list[Sequence[float]]]:
        """The samples of each process that two cases of a run were measured in, from one question."""
        query = 'SELECT "case", sample_blob, part_blob FROM result WHERE run_id = :run_id AND "case" IN (:one, :other)'
        found = dict(self._rows(query, _named_groups, run_id=run_id, one=one, other=other))
        return found.get(one) or [[]], found.get(other) or [[]]

    def all_by_process(self, run_id: str, cases: Container[str]) -> Iterator[tuple[str, Groups]]:
        """The samples of each process that some cases of a run were measured in, each after its name; from one pass."""
        query = 'SELECT "case", sample_blob, part_blob FROM result WHERE {of_run} ORDER BY result_id'
        for values in self._of_run(run_id, query):
            if values[0] in cases:
                with self._guarded():
                    found = _named_groups(values)
                yield found

    def parts(self, run_id: str, case: str) -> list[Part]:
        """The processes that the samples of a case come from."""
        return self._of_case("part_blob", _parts, run_id, case)

    def evidence(self, run_id: str, case: str) -> Evidence | None:
        """What accuses a case that is mistrusted; None for any other, and where the store is older than evidence."""
        query = 'SELECT found FROM evidence JOIN result USING (result_id) WHERE run_id = :run_id AND "case" = :case'
        return next(self._rows(query, _evidence, run_id=run_id, case=case), None)

    def _of_case(self, columns: str, read: Read, run_id: str, case: str) -> list[Any]:
        query = f'SELECT {columns} FROM result WHERE run_id = :run_id AND "case" = :case'
        return next(self._rows(query, read, run_id=run_id, case=case), [])


def with_dims(values: tuple[Any, ...]) -> tuple[Result, Dims]:
    """The result of these columns with its dimensions, which come last. Raises ValueError."""
    *columns, dims = values
    return result_of(columns), dims_of(dims)


def _samples(values: tuple[bytes]) -> list[float]:
    return samples_of(*values).tolist()


def _groups(values: tuple[bytes, bytes]) -> list[Sequence[float]]:
    samples, counts = samples_of(values[0]), doubles(values[1])[::2]
    if len(counts) == 1:  # as they nearly all are
        return [samples]
    groups, start = list[Sequence[float]](), 0
    for count in map(int, counts):
        groups.append(samples[start : start + count])
        start += count
    return groups if groups and start == len(samples) else [samples]


def _named_groups(values: tuple[str, bytes, bytes]) -> tuple[str, list[Sequence[float]]]:
    case, *blobs = values
    return case, _groups((blobs[0], blobs[1]))


def _parts(values: tuple[bytes]) -> list[Part]:
    numbers = doubles(*values)
    return [Part(int(count), median) for count, median in zip(numbers[::2], numbers[1::2], strict=True)]


def _evidence(values: tuple[str]) -> Evidence:
    return msgspec.json.decode(*values, type=Evidence)
