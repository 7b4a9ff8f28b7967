"""`kernelmark import`: store each file of another program as a run. The format is recognised by the contents."""

import hashlib
import json
import shlex
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import only_utf8, readable, require_file
from kernelmark.bench.record.foreign import nvbench, own_csv, pytest_benchmark
from kernelmark.bench.record.foreign.source import FindProblem, ForeignRow, ForeignRun, JsonNode
from kernelmark.bench.record.schema import INSERT, row_values
from kernelmark.bench.record.store import Run, Store

NewRunId = Callable[[datetime], str]
#: The number of characters of the first line that are read to recognise the format.
_LONGEST_LINE = 65536
EXPECTED = f"expected {pytest_benchmark.KIND}, {nvbench.KIND} or {own_csv.KIND}"


class Imported(NamedTuple):
    """A run made from a file. before: id of an earlier run of an equal file. refused: why benchmarks were skipped."""

    run_id: str
    path: Path
    rows: int
    before: str
    refused: Sequence[str] = ()


class ImportStore(Store):
    """A store that saves all added rows at `commit`. If it is closed before `commit`, no row is saved."""

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise UsageError(f"{self.path}: cannot be written: {error}; nothing was imported") from None

    def add_all(self, run_id: str, rows: Sequence[ForeignRow]) -> None:
        """Add rows to a run."""
        if isinstance(rows, own_csv.Rows):
            stored = rows.stored(run_id)
        else:
            stored = (row_values(run_id, r.result, r.dims, r.samples, r.parts) for r in rows)
        with self._writing():
            self._db.executemany(INSERT, stored)

    def commit(self) -> None:
        """Save all added rows. Raises UsageError if the store cannot be written, for instance on a full disk."""
        with self._writing():
            self._db.commit()


def import_files(db: Path, paths: Sequence[Path], find: FindProblem, new_run_id: NewRunId) -> list[Imported]:
    """Import each file as a run, or as one run for each device; all files are imported or none. Raises UsageError."""
    for path in paths:
        require_file(path)
        with only_utf8():
            str(path).encode()
    files = [(path, _digest(path), read(path, find)) for path in paths]
    with ImportStore(db) as store:
        plans = {run_id: store.run(run_id).plan for run_id in store.run_ids()}
        # The latest run of each file that was imported before, by the digest of its bytes.
        known = {plan["imported"]["sha256"]: run_id for run_id, plan in plans.items() if "imported" in plan}
        named = [(path, digest, source) for path, digest, sources in files for source in sources]
        imported = [_add(store, path, digest, source, known, new_run_id) for path, digest, source in named]
        store.commit()
    return imported


def read(path: Path, find: FindProblem) -> list[ForeignRun]:
    """Return the contents of a file. Raises UsageError for an unknown format or invalid values."""
    with readable(path), path.open(encoding="utf-8-sig", newline="") as file:
        try:
            begin = _first_character(file)
            if not begin:
                raise UsageError(f"{path}: is empty; {EXPECTED}")
            if begin in "{[":
                sources = _from_json(path, file.read(), find)
            elif own_csv.recognise(header := file.readline(_LONGEST_LINE).strip()):
                file.seek(0)
                sources = own_csv.read(file, str(path))
            else:
                raise UsageError(f"{path}: begins with {header[:60]!r}; {EXPECTED}")
        except UnicodeDecodeError:
            raise UsageError(f"{path}: byte {_first_wrong_byte(path)} is not UTF-8; {EXPECTED}") from None
    if not any(source.rows for source in sources):
        if refused := next((source.refused for source in sources if source.refused), ()):
            raise UsageError(refused[0])
        raise UsageError(f"{path}: is {sources[0].kind} without rows; there is nothing to import")
    _refuse_repeated(path, sources)
    return sources


def _first_character(file: IO[str]) -> str:
    """Return the first character that is not white space, or "", and seek to the beginning of the file."""
    character = ""
    while not character and (line := file.readline(_LONGEST_LINE)):
        character = line.strip()[:1]
    file.seek(0)
    return character


def _from_json(path: Path, text: str, find: FindProblem) -> list[ForeignRun]:
    try:
        value = json.loads(text)
        # Half a surrogate pair is valid in JSON, but neither the store nor a file can contain it.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not JSON: {error}; {EXPECTED}") from None
    root, suite = JsonNode(value, str(path)), f"imported:{path.name}"
    if not isinstance(value, dict):
        raise UsageError(f"{path}: is a list; {EXPECTED}")
    if value.keys() >= pytest_benchmark.KEYS:
        return pytest_benchmark.read(root, suite, find)
    if value.keys() >= nvbench.KEYS:
        return nvbench.read(root, path, suite, find)
    raise UsageError(f"{path}: is an object with {', '.join(list(value)[:5]) or 'nothing'}; {EXPECTED}")


def _refuse_repeated(path: Path, sources: list[ForeignRun]) -> None:
    for rows in (source.rows for source in sources):
        cases = Counter(rows.cases() if isinstance(rows, own_csv.Rows) else (row.result.case for row in rows))
        for case in (case for case, number in cases.items() if number > 1):
            raise UsageError(f"{path}: {case!r} occurs twice; a run has one row per case")


def _digest(path: Path) -> str:
    with readable(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first_wrong_byte(path: Path) -> int:
    try:
        path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _add(
    store: ImportStore, path: Path, digest: str, source: ForeignRun, known: dict[str, str], new_run_id: NewRunId
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
    store.add_all(run_id, source.rows)
    store.finish(run_id, now.isoformat(timespec="seconds"))
    return Imported(run_id, path, len(source.rows), known.get(digest, ""), source.refused)
