"""What the store holds of whole runs: which there are, which is meant, how many rows of which kind each has."""

import json
from typing import Any, NamedTuple, TypedDict

import msgspec

from kernelmark.bench.measure.host import Host
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.tuned import TunedTile, Tunes
from kernelmark.bench.record.query import Query
from kernelmark.bench.record.result import finite


class RunFacts(TypedDict):
    """All that the store holds of a run. planned: how many cases it has when it is complete, if that was recorded."""

    run_id: str
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


class Tally(NamedTuple):
    """How many rows of a run are alike in these columns; timed: whether they have a median."""

    status: str
    device_name: str
    disturbed: str
    timed: bool
    rows: int


class Machine(NamedTuple):
    """A host and a device of it, with how many rows of a run were measured there."""

    host: str
    device: str
    device_uuid: str
    rows: int


class JobBegun(NamedTuple):
    """When a job of a run began, with the number of its rows; problems: their ids, between commas."""

    started_at: str
    suite: str
    isa: str
    problems: str
    rows: int


class _Plan(msgspec.Struct):
    """What reports read of a plan; older runs and runs from elsewhere lack some of it, or all."""

    processes: int = 1
    max_time_s: float | None = None
    rel_ci: float | None = None
    suites: list[str] = []
    plugins: list[str] = []
    tiles: list[TunedTile] = []
    tunes: Tunes | None = None


class _Environment(msgspec.Struct):
    """What reports read of the environment."""

    versions: dict[str, Any] = {}
    blas: list[str] = []
    variables: dict[str, Any] = {}


class _Machine(msgspec.Struct):
    """What reports compute from the machine."""

    llc_bytes: float | None = None
    memory_bytes: float | None = None


_PARTS = {"plan": _Plan, "environment": _Environment, "machine": _Machine}


class RunReader(Query):
    """Queries for runs. They count all rows, whatever part of them was selected."""

    def run_ids(self) -> list[str]:
        """The ids of all runs, the latest last."""
        return list(self._rows("SELECT run_id FROM run ORDER BY rowid", _run_id))

    def runs(self, run_id: str | None = None) -> list[RunFacts]:
        """The runs of the store, the latest last; or this one alone."""
        query = f"{_RUNS} WHERE :run_id IS NULL OR run_id = :run_id ORDER BY run.rowid"
        return list(self._rows(query, _facts, run_id=run_id))

    def tallies(self, run_id: str | None = None) -> dict[str, list[Tally]]:
        """Return the counts of the rows of each run that has any, or of this one alone."""
        columns = "status, device_name, disturbed, time_s_median IS NOT NULL"
        query = f"SELECT run_id, {columns}, count(*) FROM main.result WHERE {{of_run}} GROUP BY run_id, {columns}"
        every = self._rows(query.format(of_run="TRUE"), _tally)
        found: dict[str, list[Tally]] = {}
        for own, tally in every if run_id is None else self._of_run(run_id, query, _tally):
            found.setdefault(own, []).append(tally)
        return found

    def machines(self, run_id: str) -> list[Machine]:
        """Return the hosts and the names of the devices that the rows of a run come from."""
        names = "host, device_name, device_uuid"
        query = f"SELECT {names}, count(*) FROM main.result WHERE run_id = :run_id GROUP BY {names} ORDER BY {names}"
        return list(self._rows(query, _machine, run_id=run_id))

    def hosts(self, run_id: str) -> list[Host]:
        """Return the hosts that a run recorded, in the order in which they came to it; none of a run at home."""
        return list(self._rows("SELECT facts FROM host WHERE run_id = :run_id ORDER BY rowid", _host, run_id=run_id))

    def jobs_begun(self, run_id: str) -> list[JobBegun]:
        """Return the jobs of a run in the order in which they began, but for rows whose worker was lost."""
        query = """
            SELECT min(started_at), suite, isa, group_concat(DISTINCT problem), count(*)
            FROM main.result WHERE run_id = :run_id AND job != '' GROUP BY job ORDER BY 1"""
        return list(self._rows(query, _job_begun, run_id=run_id))

    def find_run(self, run_id: str | None) -> RunFacts:
        """The run with this id or name, or the only one with an id or name that begins so, or the latest.

        Raises UsageError.
        """
        if run_id is None:
            found: list[RunFacts] = list(self._rows(f"{_RUNS} ORDER BY run.rowid DESC LIMIT 1", _facts))
        else:
            begins = "substr(run_id, 1, length(:text)) = :text OR substr(name, 1, length(:text)) = :text"
            query = f"{_RUNS} WHERE :text != '' AND ({begins}) ORDER BY :text IN (run_id, name) DESC LIMIT 2"
            found = list(self._rows(query, _facts, text=run_id))
            found = found[:1] if found and run_id in (found[0]["run_id"], found[0]["name"]) else found
        if len(found) == 1:
            return found[0]
        if run_id is None:
            raise UsageError(f"{self.path}: holds no run yet; `kernelmark run SUITE` makes one")
        latest = ", ".join(self.run_ids()[:-4:-1]) or "none"
        what = "is not a run of" if not found else "begins more than one run of"
        raise UsageError(f"run {run_id!r}: {what} {self.path}; the latest are {latest}")


_COLUMNS = {name: f"[{name}]" for name in RunFacts.__annotations__} | {"machine": "machine.facts"}
_RUNS = f"SELECT {', '.join(_COLUMNS.values())} FROM run JOIN machine USING (machine_id)"
_AS_JSON = ("suites", "environment", "plan", "machine")


def _facts(values: tuple[Any, ...]) -> RunFacts:
    """The facts of a run; None in the place of what JSON has no number for. Raises ValueError."""
    found = dict(zip(_COLUMNS, values, strict=True))
    for name in _AS_JSON:
        found[name] = _decoded(found[name])
    for name, kind in _PARTS.items():
        msgspec.convert(found[name], kind)
    return msgspec.convert(found, RunFacts)


def _decoded(text: str) -> Any:
    """Decode JSON; None stands for what is no number of it, `?` for half a character, which can be written nowhere."""
    found = json.loads(text, parse_constant=lambda word: None, parse_float=lambda text: finite(float(text)))
    return json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace")) if "\\ud" in text else found


def _run_id(values: tuple[str]) -> str:
    return msgspec.convert(*values, str)


def _host(values: tuple[str]) -> Host:
    return msgspec.json.decode(msgspec.convert(*values, str), type=Host)


def _machine(values: tuple[Any, ...]) -> Machine:
    return msgspec.convert(values, Machine)


def _job_begun(values: tuple[Any, ...]) -> JobBegun:
    return msgspec.convert(values, JobBegun)


def _tally(values: tuple[Any, ...]) -> tuple[str, Tally]:
    own, *counted = values
    return msgspec.convert(own, str), msgspec.convert((*counted[:-2], bool(counted[-2]), counted[-1]), Tally)
