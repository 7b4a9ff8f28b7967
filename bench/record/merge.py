"""Merge stores: join the shards of a plan into one run, in any order, and copy other runs.

A file is merged completely or not at all. Rows that were merged before are skipped, so a merge can be repeated. Rows
are copied by SQL and never become Python objects.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from kernelmark.bench.measure.measurement import Ceiling, Need
from kernelmark.bench.plan.case import Shard
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.record.records import RunFacts, unlike
from kernelmark.bench.record.schema import OWN
from kernelmark.bench.record.store import Run, Store
from kernelmark.bench.record.versions import KernelVersion

T = TypeVar("T")

#: The command of a merged run. The commands of its shards are in its plan, under `shards`.
MERGED = "kernelmark merge"
_ELSEWHERE = "merge it into another file (--db)"
#: Fields of a plan that may differ between shards: paths on a host, and the number of the shard.
_OWN = ("shard", "shards", "suites", "plugins", "suite_digests")
#: The columns of a row without its id and its run's id.
_ROW = ("case", *OWN, "dims", "place", "part_blob", "sample_blob")
_NAMES = ", ".join(f'"{name}"' for name in _ROW)
#: The number of row ids reserved for each job of a merged run. If a shard is merged later, its rows get the ids
#: reserved for its jobs.
_ROOM = 2**20
_BEGAN = ("machine_id", "started_at", "suites", "command", "environment", "git_commit", "plan")
_RUN = ", ".join(("run_id", *_BEGAN, "finished_at", "name", "planned"))
#: The SQL that updates a merged run that already exists.
_AS_NOW = "ON CONFLICT DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in _RUN.split(", ")[1:])
_APART = "; one of the two was changed: merge it into another file (--db)"
#: The columns that identify a ceiling: all of its fields, since its table has no unique key.
_CEILING = Ceiling.__struct_fields__
_REST: dict[str, Sequence[str]] = {
    "layer": ("network", "problem", "part", "count", "place"),
    "ceiling": (*_CEILING, "doubt"),
    "host": ("host", "facts"),
    "resource": ("case", "registers", "spill_bytes"),
}
#: Number the rows that the target lacks. A row's id depends on its job's place, or comes after all existing ids.
_MOVED = """
CREATE TEMP TABLE moved AS
WITH ranked AS (
    SELECT result_id, "case", {number} AS number FROM shard.result WHERE run_id = :run_id
)
SELECT result_id AS old, number AS new FROM ranked
WHERE NOT EXISTS (SELECT 1 FROM main.result there WHERE there.run_id = :target AND there."case" = ranked."case")
"""
_BY_PLACE = ":first + place * :room + row_number() OVER (PARTITION BY place ORDER BY result_id)"
_AT_THE_END = ":first + row_number() OVER (ORDER BY result_id)"


class ShardRun(msgspec.Struct, frozen=True):
    """The recorded facts of a shard: its number, and where, when and how it was measured."""

    index: int
    run_id: str
    started_at: str
    finished_at: str | None
    command: str
    machine: dict[str, Any]
    environment: dict[str, Any]


class Campaign(NamedTuple):
    """The shards of one plan. known: shards merged before, by number. new: path, run id and shards of each new file."""

    run_id: str
    first: RunFacts
    known: dict[int, ShardRun]
    new: list[tuple[Path, str, list[ShardRun]]]

    @property
    def shard(self) -> Shard:
        """Return a Shard with the `count` and `cases` of the whole plan; its index has no meaning."""
        return _shard_of(self.first)

    @property
    def parts(self) -> dict[int, ShardRun]:
        """Return all shards that the store will have after this merge, by number."""
        shards = dict(self.known)
        for _, _, parts in self.new:
            shards |= {part.index: _later(shards.get(part.index), part) or part for part in parts}
        return dict(sorted(shards.items()))

    @property
    def missing(self) -> list[int]:
        """Return the numbers of the shards that neither the store nor a new file has."""
        return [index for index in range(1, self.shard.count + 1) if index not in self.parts]

    @property
    def unfinished(self) -> list[ShardRun]:
        """Return the shards whose runs have not ended."""
        return [part for part in self.parts.values() if not part.finished_at]

    def until(self, count: int) -> tuple[Run, str | None]:
        """Return the run merged from the first `count` new files, and when it ended; None if it has not ended."""
        parts = list(self._replace(new=self.new[:count]).parts.values())
        plan = {**self.first["plan"], "shard": {"index": 0, "count": self.shard.count, "cases": self.shard.cases}}
        ends = [part.finished_at for part in parts if part.finished_at]
        run = Run(
            run_id=self.run_id,
            machine=_common([part.machine for part in parts]),
            started_at=min(part.started_at for part in parts),
            suites=tuple(self.first["suites"]),
            command=MERGED,
            environment=_common([part.environment for part in parts]),
            git_commit=self.first["git_commit"],
            plan={**plan, "shards": msgspec.to_builtins(parts)},
            name=self.first["name"],
            planned=self.shard.cases,
        )
        return run, max(ends) if len(ends) == self.shard.count else None


class ShardPlace(NamedTuple):
    """Where a shard was measured: hosts, devices, number of rows, and the highest undoubted value of each ceiling."""

    hosts: list[str]
    devices: list[str]
    rows: int
    ceilings: dict[Need, Ceiling]


class Merged(NamedTuple):
    """The result of a merge. copied: the ids of runs that are not shards. rows: the number of new rows.

    places: where the shards of these files were measured, by run id.
    """

    campaigns: list[Campaign]
    copied: list[str]
    rows: int
    places: dict[str, ShardPlace]

    @property
    def complete(self) -> bool:
        """Return whether no shard is missing and all shards' runs have ended."""
        return not any(campaign.missing or campaign.unfinished for campaign in self.campaigns)


def merge_files(db: Path, paths: Sequence[Path]) -> Merged:
    """Merge stores into the store `db`, which is created if needed. Raises UsageError if they contradict each other."""
    sources = [_source(path, db) for path in {path.resolve(): path for path in paths}.values()]
    with Store(db) as store:
        store.require_sound()
        campaigns = _campaigns([(path, run) for path, runs, _ in sources for run in runs], db, store.runs())
    with _Copying(db) as target:
        rows, copied = 0, dict[str, None]()
        for path, runs, _ in sources:
            whole = [run for run in runs if not _is_part(run)]
            with target.attached(path):
                rows += target.copy_whole(whole, path)
            copied |= {run["run_id"]: None for run in whole}
        for campaign in campaigns:
            first = target.room(campaign.run_id)
            for count, (path, run_id, _) in enumerate(campaign.new, 1):
                with target.attached(path):
                    rows += target.join(*campaign.until(count), run_id, path, first)
    places = {run_id: place for *_, by_run in sources for run_id, place in by_run.items()}
    return Merged(campaigns, list(copied), rows, places)


def _source(path: Path, db: Path) -> tuple[Path, list[RunFacts], dict[str, ShardPlace]]:
    require_file(path)
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file; expected a store that `kernelmark run --shard` has written")
    if path.resolve() == db.resolve():
        raise UsageError(f"{path}: is the target of the merge, expected another store; --db names the target")
    if path.stat().st_size == 0:
        raise UsageError(f"{path}: is empty, expected a store that `kernelmark run --shard` has written")
    with Store(path, create=False) as store:
        store.require_sound()
        runs = store.runs()
        places = {run["run_id"]: _place(store, run["run_id"]) for run in runs if _is_part(run)}
    if not runs:
        raise UsageError(f"{path}: holds no run; expected a store that `kernelmark run --shard` has written")
    return path, runs, places


def _place(store: Store, run_id: str) -> ShardPlace:
    machines = store.machines(run_id)
    best: dict[Need, Ceiling] = {}
    for ceiling, doubt in store.ceilings(run_id):
        if not doubt and ceiling.rate > (best[ceiling.need].rate if ceiling.need in best else 0):
            best[ceiling.need] = ceiling
    hosts = list(dict.fromkeys(m.host for m in machines if m.host))
    devices = list(dict.fromkeys(m.device for m in machines if m.device))
    return ShardPlace(hosts, devices, sum(m.rows for m in machines), best)


def _is_part(run: RunFacts) -> bool:
    """Return whether a run is a shard or was merged from shards."""
    return bool(run["plan"].get("shard"))


def _planned(run: RunFacts, name: str, kind: type[T], what: str) -> T:
    """Return a part of a run's plan. Raises UsageError if it is damaged."""
    try:
        return msgspec.convert(run["plan"][name], kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"run {run['run_id']}: its {what} damaged: {error}; start a new run") from None


def _shard_of(run: RunFacts) -> Shard:
    return _planned(run, "shard", Shard, "plan is")


def _parts_of(run: RunFacts) -> list[ShardRun]:
    """Return the shards that a run was merged from, or the run itself as the only shard."""
    if "shards" in run["plan"]:
        return _planned(run, "shards", list[ShardRun], "shards are")
    facts = {name: run[name] for name in ShardRun.__struct_fields__ if name != "index"}  # type: ignore[literal-required]
    return [ShardRun(_shard_of(run).index, **facts)]


def _campaigns(runs: Sequence[tuple[Path, RunFacts]], db: Path, there: Iterable[RunFacts]) -> list[Campaign]:
    shards: dict[tuple[str, ...], list[tuple[Path, RunFacts]]] = {}
    for path, run in runs:
        if _is_part(run):
            shards.setdefault(_key(run), []).append((path, run))
    before = {_key(run): run for run in there if "shards" in run["plan"]}
    return [_campaign(parts, db, before.get(key)) for key, parts in shards.items()]


def _campaign(runs: Sequence[tuple[Path, RunFacts]], db: Path, before: RunFacts | None) -> Campaign:
    """Return the campaign of runs with the same key. Its shards are in the order of their numbers, not of files."""
    ordered = sorted(runs, key=lambda pair: (_shard_of(pair[1]).index, pair[1]["run_id"], str(pair[0])))
    holder, first = (db, before) if before else ordered[0]
    expected = _agreed(first)
    seen = {part.index: (db, part) for part in (_parts_of(before) if before else [])}
    known = {index: part for index, (_, part) in seen.items()}
    for path, run in ordered:
        agreed = _agreed(run)
        for name in {**expected, **agreed}:
            if agreed.get(name) != expected.get(name):
                what = f"{name} is {_brief(agreed.get(name))}, but in {holder} it is {_brief(expected.get(name))}"
                raise UsageError(f"{path}: {what}; {_ELSEWHERE}")
        for part in _parts_of(run):
            where, other = seen.setdefault(part.index, (path, part))
            if _later(other, part) is None:
                label = f"shard {part.index}/{_shard_of(run).count}"
                which = f"is run {part.run_id}, and in {where} it is run {other.run_id}"
                which = which if part.run_id != other.run_id else f"(run {part.run_id}) and the one in {where} differ"
                raise UsageError(f"{path}: {label} {which}; {_ELSEWHERE}")
    new = [(path, run["run_id"], _parts_of(run)) for path, run in ordered]
    plans = [run["plan"] for run in [first, *(run for _, run in ordered)]]
    paths = {name: min(plan.get(name, []) for plan in plans) for name in ("suites", "plugins")}
    return Campaign(_run_id(first), {**first, "plan": {**first["plan"], **paths}}, known, new)


def _later(copy: ShardRun | None, other: ShardRun) -> ShardRun | None:
    """Return the later of two copies of a shard's run, or None if they are different runs."""
    if copy is None:
        return other
    last = max(filter(None, (copy.finished_at, other.finished_at)), default=None)
    copy, other = (msgspec.structs.replace(part, finished_at=last) for part in (copy, other))
    return copy if copy == other else None


def _agreed(run: RunFacts) -> dict[str, Any]:
    """Return the facts that all shards of a plan must have in common."""
    plan, shard = run["plan"], _shard_of(run)
    return {
        "the digest of the suite": plan.get("suite_digests"),
        "the commit": run["git_commit"],
        "the version of kernelmark": run["environment"].get("kernelmark"),
        "the number of shards": shard.count,
        **{f"plan.{name}": value for name, value in sorted(plan.items()) if name not in _OWN},
        "plan.plugins": [Path(plugin).name for plugin in plan.get("plugins", [])],
        "the number of cases": shard.cases,
    }


def differing(parts: Sequence[ShardRun]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the differences between the shards' machines and environments, with the value of each shard."""
    for name in ("machine", "environment"):
        yield from unlike(name, [getattr(part, name) for part in parts])


def _brief(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _key(run: RunFacts) -> tuple[str, ...]:
    """Return the key of a shard's plan: its suites and the user's name for the run."""
    return (run["name"], *run["suites"])


def _run_id(run: RunFacts) -> str:
    facts = json.dumps([_key(run), _agreed(run)], sort_keys=True)
    return f"{_shard_of(run).count}-shards-{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


def _common(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in facts[0].items() if all(others.get(name) == value for others in facts)}


def _aliased(table: str, names: Sequence[str]) -> str:
    return ", ".join(f'{table}."{name}"' for name in names)


class _Copying(Store):
    """A store that receives the rows of another store, which is attached as `shard`."""

    @contextmanager
    def attached(self, path: Path) -> Iterator[None]:
        """Attach another store while the context lasts. Raises UsageError if it cannot be read."""
        with self._guarded():
            self._db.execute("ATTACH DATABASE ? AS shard", (str(path),))
        try:
            yield
        finally:
            self._db.execute("DETACH DATABASE shard")

    def copy_whole(self, runs: Sequence[RunFacts], path: Path) -> int:
        """Copy runs that are not shards, and the versions of kernels; return the number of new rows."""
        with self._writing():
            self._copy_versions()
            return sum(self._copy_run(run, path) for run in runs)

    def _copy_run(self, run: RunFacts, path: Path) -> int:
        run_id = run["run_id"]
        same = f"({_aliased('there', _BEGAN)}) IS ({_aliased('own', _BEGAN)})"
        query = f"SELECT {same} FROM main.run there JOIN shard.run own USING (run_id) WHERE run_id = ?"
        for (is_same,) in self._db.execute(query, (run_id,)).fetchall():
            if not is_same:
                differs = f"and the one in {self.path} differ in one of {', '.join(_BEGAN)}"
                raise UsageError(f"{path}: its run {run_id} {differs}{_APART}")
        self._refuse_taken(run["name"], run_id, path)
        self._db.execute("INSERT OR IGNORE INTO main.machine SELECT * FROM shard.machine")
        self._db.execute(
            f"INSERT INTO main.run ({_RUN}) SELECT {_RUN} FROM shard.run WHERE run_id = ? "
            "ON CONFLICT DO UPDATE SET finished_at = coalesce(excluded.finished_at, finished_at)",
            (run_id,),
        )
        last = self._db.execute("SELECT coalesce(max(result_id), 0) FROM main.result").fetchone()[0]
        return self._copy_rows(_AT_THE_END, run_id, run_id, path, last)

    def join(self, run: Run, finished_at: str | None, run_id: str, path: Path, first: int) -> int:
        """Copy the rows of the shard `run_id` into the merged run; return the number of new rows."""
        with self._writing():
            self._refuse_taken(run.name, run.run_id, path)
            self._record(run, finished_at, _AS_NOW)
            return self._copy_rows(_BY_PLACE, run_id, run.run_id, path, first)

    def room(self, run_id: str) -> int:
        """Return the id after which a merged run's rows are numbered; it exceeds the ids of all other runs' rows.

        If another run's rows have higher ids than existing rows of the merged run, the existing rows get new ids.
        """
        with self._writing():
            query = """
                SELECT min(result_id - place * :room) FILTER (WHERE run_id = :run_id) / :room * :room,
                    coalesce(max(result_id) FILTER (WHERE run_id != :run_id), 0), coalesce(max(result_id), 0)
                FROM main.result"""
            first, others, last = self._db.execute(query, {"run_id": run_id, "room": _ROOM}).fetchone()
            if first is not None and others < first:
                return int(first)
            free = int((last // _ROOM + 1) * _ROOM)
            for table in ("ratio", "evidence", "result") if first is not None else ():
                where = "result_id IN (SELECT result_id FROM main.result WHERE run_id = ?)"
                update = f"UPDATE main.{table} SET result_id = result_id + ? WHERE {where}"
                self._db.execute(update, (free - first, run_id))
            return free

    def _refuse_taken(self, name: str, run_id: str, path: Path) -> None:
        query = "SELECT run_id FROM main.run WHERE name = ? AND name != '' AND run_id != ?"
        for (taken,) in self._db.execute(query, (name, run_id)).fetchall():
            remedy = f"remove that run: `kernelmark runs --delete {name}`"
            raise UsageError(f"{path}: its run and run {taken} of {self.path} are both named {name}; {remedy}")

    def _copy_rows(self, number: str, run_id: str, target: str, path: Path, first: int) -> int:
        """Copy the rows of a run that the run `target` lacks. Raises UsageError if a row differs between the runs."""
        values = {"run_id": run_id, "target": target, "first": first, "room": _ROOM}
        self._refuse_other(values, path)
        self._db.execute(_MOVED.format(number=number), values)
        self._db.execute(
            f"INSERT INTO main.result (result_id, run_id, {_NAMES}) SELECT new, :target, {_aliased('own', _ROW)} "
            "FROM moved JOIN shard.result own ON own.result_id = old ORDER BY new",
            values,
        )
        for table, rest in (("ratio", "baseline, median, low, high, method, minima"), ("evidence", "found")):
            self._db.execute(
                f"INSERT INTO main.{table} (result_id, {rest}) SELECT new, {rest} "
                f"FROM moved JOIN shard.{table} own ON own.result_id = old"
            )
        (rows,) = self._db.execute("SELECT count(*) FROM moved").fetchone()
        self._db.execute("DROP TABLE moved")
        self._copy_rest(values)
        return int(rows)

    def _refuse_other(self, values: Mapping[str, Any], path: Path) -> None:
        query = f"""
            SELECT own."case" FROM main.result there
            JOIN shard.result own ON own.run_id = :run_id AND own."case" = there."case"
            WHERE there.run_id = :target AND ({_aliased("own", _ROW)}) IS NOT ({_aliased("there", _ROW)}) LIMIT 1"""
        for (case,) in self._db.execute(query, values).fetchall():
            raise UsageError(f"{path}: its run {values['run_id']} and {self.path} differ in the row of {case}{_APART}")

    def _copy_rest(self, values: Mapping[str, Any]) -> None:
        """Copy layers, ceilings, hosts and resources, without duplicates."""
        same = f"there.run_id = :target AND ({_aliased('there', _CEILING)}) IS ({_aliased('own', _CEILING)})"
        absent = f"NOT EXISTS (SELECT 1 FROM main.ceiling there WHERE {same})"
        for table, names in _REST.items():
            listed, where = ", ".join(f'"{name}"' for name in names), absent if table == "ceiling" else "TRUE"
            self._db.execute(
                f"INSERT OR IGNORE INTO main.{table} (run_id, {listed}) SELECT :target, {listed} "
                f"FROM shard.{table} own WHERE run_id = :run_id AND {where} ORDER BY rowid",
                values,
            )

    def _copy_versions(self) -> None:
        """Copy kernel versions that `watch` and `tune` tried, without duplicates; renumber references between them."""
        self._db.execute("INSERT OR IGNORE INTO main.source SELECT * FROM shard.source")
        numbers: dict[int | None, int | None] = {None: None}
        query = "SELECT version_id, kernel, problem, digest, facts FROM shard.version ORDER BY version_id"
        for number, names, version in list(self._rows(query, _version)):
            compared = tuple(msgspec.structs.replace(c, version=numbers.get(c.version)) for c in version.compared)
            told = msgspec.json.encode(msgspec.structs.replace(version, compared=compared)).decode()
            where = "kernel = ? AND problem = ? AND digest = ? AND facts = ?"
            there = self._db.execute(f"SELECT version_id FROM main.version WHERE {where}", (*names, told)).fetchone()
            if there is None:
                row = dict(zip(("kernel", "problem", "digest", "facts"), (*names, told), strict=True))
                there = (self._insert("main.version", row),)
            numbers[number] = there[0]


def _version(values: tuple[Any, ...]) -> tuple[int, tuple[str, ...], KernelVersion]:
    number, *names, facts = values
    return int(number), tuple(names), msgspec.json.decode(facts, type=KernelVersion)
