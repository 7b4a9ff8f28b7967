"""`kernelmark import`: files of other programs become runs of their own. The format is recognised by the content."""

import hashlib
import json
import shlex
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.plan.errors import UsageError
from bench.record.foreign import nvbench, own_csv, pytest_benchmark
from bench.record.foreign.node import Node
from bench.record.foreign.source import FindProblem, Source
from bench.record.store import Run, Store

#: What makes the id of a run that begins at this time.
NewRunId = Callable[[datetime], str]
EXPECTED = f"expected {pytest_benchmark.KIND}, {nvbench.KIND} or {own_csv.KIND}"


class Imported(NamedTuple):
    """A run that came from a file, and the earlier run that came from the same bytes (or "")."""

    run_id: str
    path: Path
    rows: int
    before: str


class Batch(Store):
    """A store of which either everything is kept or nothing: closed before `commit`, it drops what was added."""

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise UsageError(f"{self.path}: cannot be written: {error}; nothing was imported") from None

    def commit(self) -> None:
        """Keep everything that was added. Raises UsageError for a full disk and the like."""
        with self._writing():
            self._db.commit()


def import_files(db: Path, paths: Sequence[Path], find: FindProblem, new_run_id: NewRunId) -> list[Imported]:
    """Make every file a run, one a device; all of them or none. Raises UsageError."""
    files = [(path, data := _bytes(path), read(path, data, find)) for path in paths]
    store = Batch(db)
    try:
        known = _digests(store)
        imported = [
            _add(store, path, hashlib.sha256(data).hexdigest(), source, known, new_run_id)
            for path, data, sources in files
            for source in sources
        ]
        store.commit()
    finally:
        store.close()
    return imported


def read(path: Path, data: bytes, find: FindProblem) -> list[Source]:
    """Return what a file holds. Raises UsageError for one that is none of the formats, or not sound."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is no UTF-8; {EXPECTED}") from None
    if not text.strip():
        raise UsageError(f"{path}: is empty; {EXPECTED}")
    sources = _from_json(path, text, find) if text.lstrip()[0] in "{[" else _from_csv(path, text)
    if not any(source.rows for source in sources):
        raise UsageError(f"{path}: {sources[0].kind} without a single row; there is nothing to import")
    _refuse_repeated(path, sources)
    return sources


def _from_json(path: Path, text: str, find: FindProblem) -> list[Source]:
    try:
        value = json.loads(text)
        # Half a surrogate pair passes as JSON, and neither the store nor a file can hold it.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is no JSON: {error}; {EXPECTED}") from None
    root, suite = Node(value, str(path)), f"imported:{path.name}"
    if pytest_benchmark.recognise(value):
        return pytest_benchmark.read(root, suite, find)
    if nvbench.recognise(value):
        return nvbench.read(root, path, suite, find)
    found = f"an object with {', '.join(list(value)[:5]) or 'nothing'}" if isinstance(value, dict) else "a list"
    raise UsageError(f"{path}: is {found}; {EXPECTED}")


def _from_csv(path: Path, text: str) -> list[Source]:
    header = text.partition("\n")[0].strip()
    if not own_csv.recognise(header):
        raise UsageError(f"{path}: begins with {header[:60]!r}; {EXPECTED}")
    return own_csv.read(text, str(path))


def _refuse_repeated(path: Path, sources: list[Source]) -> None:
    for source in sources:
        seen: set[str] = set()
        for row in source.rows:
            if row.result.case in seen:
                raise UsageError(f"{path}: {row.result.case!r} is there twice; a run has one row a case")
            seen.add(row.result.case)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _digests(store: Store) -> dict[str, str]:
    """The latest run of each file that was imported before, by the digest of its bytes."""
    plans = {run_id: store.run(run_id).plan for run_id in store.run_ids()}
    return {plan["imported"]["sha256"]: run_id for run_id, plan in plans.items() if "imported" in plan}


def _add(
    store: Store, path: Path, digest: str, source: Source, known: dict[str, str], new_run_id: NewRunId
) -> Imported:
    now = datetime.now(UTC)
    run_id = new_run_id(now)
    plan: dict[str, Any] = {"devices": [], "imported": {"file": path.name, "format": source.kind, "sha256": digest}}
    run = Run(
        run_id=run_id,
        machine=source.machine,
        started_at=now.isoformat(timespec="seconds"),
        suites=(f"imported:{path.name}",),
        command=shlex.join(["kernelmark", "import", str(path)]),
        environment=source.environment,
        git_commit=source.git_commit,
        plan=plan,
    )
    store.begin(run)
    for row in source.rows:
        row.result.run_id = run_id
        store.add(row.result, row.dims, row.samples, None, row.parts)
    store.finish(run_id, now.isoformat(timespec="seconds"))
    return Imported(run_id, path, len(source.rows), known.get(digest, ""))
