"""What the store holds of one case: its row, its samples, the processes they come from, what accuses it."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from bench.measure.measurement import Evidence, Part
from bench.record.query import SELECTED, Query, doubles, result_of
from bench.record.result import Result


class CaseReader(Query):
    """Queries for one case of a run."""

    def find_cases(self, run_id: str, text: str, limit: int) -> list[str]:
        """The cases of a run that contain a text, as many as are asked for; that one alone which is the text itself."""
        query = 'SELECT "case" FROM result WHERE run_id = :run_id AND instr("case", :text) ORDER BY "case" != :text'
        found = [case for (case,) in self._rows(f"{query} LIMIT :limit", run_id=run_id, text=text, limit=limit)]
        return found[:1] if text in found else found

    def result(self, run_id: str, case: str) -> tuple[Result, dict[str, Any]]:
        """The row of a case that the run has, with its dimensions."""
        query = f'SELECT {SELECTED}, dims FROM result WHERE run_id = :run_id AND "case" = :case'
        ((*values, dims),) = self._rows(query, run_id=run_id, case=case)
        return result_of(values), json.loads(dims)

    def sibling_cases(self, run_id: str, limit: int) -> list[tuple[str, str]]:
        """The pairs of cases that are one kernel's on two problems, timed in one job; by the order of their rows."""
        query = """
            SELECT one."case", other."case" FROM result AS one JOIN result AS other
            USING (run_id, job, kernel, mode, threads, isa)
            WHERE run_id = :run_id AND job != '' AND one.result_id < other.result_id AND one.problem != other.problem
            AND one.time_s_median IS NOT NULL AND other.time_s_median IS NOT NULL
            ORDER BY one.result_id, other.result_id LIMIT :limit"""
        return [(one, other) for one, other in self._rows(query, run_id=run_id, limit=limit)]

    def samples(self, run_id: str, case: str) -> list[float]:
        """The samples of a case, seconds a call, in the order in which they were taken."""
        return doubles(self._blob("sample_blob", run_id, case)).tolist()

    def by_process(self, run_id: str, case: str) -> list[Sequence[float]]:
        """The samples of each process that a case was measured in."""
        query = 'SELECT sample_blob, part_blob FROM result WHERE run_id = :run_id AND "case" = :case'
        (blob, part_blob) = next(self._rows(query, run_id=run_id, case=case), (b"", b""))
        samples, groups, start = doubles(blob), list[Sequence[float]](), 0
        for count in map(int, doubles(part_blob)[::2]):
            groups.append(samples[start : start + count])
            start += count
        return groups if groups and start == len(samples) else [samples]

    def parts(self, run_id: str, case: str) -> list[Part]:
        """The processes that the samples of a case come from."""
        values = doubles(self._blob("part_blob", run_id, case))
        return [Part(int(count), median) for count, median in zip(values[::2], values[1::2], strict=True)]

    def evidence(self, run_id: str, case: str) -> Evidence | None:
        """What accuses a case that is mistrusted; None for any other, and where the store is older than evidence."""
        query = 'SELECT found FROM evidence JOIN result USING (result_id) WHERE run_id = :run_id AND "case" = :case'
        found = self._rows(query, run_id=run_id, case=case)
        return next((msgspec.json.decode(text, type=Evidence) for (text,) in found), None)

    def _blob(self, column: str, run_id: str, case: str) -> bytes:
        query = f'SELECT {column} FROM result WHERE run_id = :run_id AND "case" = :case'
        return next((blob for (blob,) in self._rows(query, run_id=run_id, case=case)), b"")
