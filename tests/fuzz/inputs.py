"""An input of the campaign, stored as JSON: files, sound or damaged, and the commands called on them."""

import hashlib
import json
import os
import shlex
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal

import msgspec

from kernelmark.bench.record.store import Layer, Store
from kernelmark.bench.record.versions import KernelVersion, VersionRatio
from kernelmark.bench.report.export import write_file
from kernelmark.bench.report.parquet import write_parquet_file
from support.compared import LOOSE, STEADY, add, begin
from support.rows import begin as begin_made
from support.rows import put, varied

#: The kinds of standard output and standard error: a file that is read afterwards, a closed one, a full disk, a pipe
#: without a reader, and a pipe whose reader leaves after the first bytes.
Stream = Literal["file", "closed", "full", "gone", "head"]


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    pass


class Damage(_Part):
    """A change of a file. at: its place, as a share of the length; size: the bytes to zero, or the bit to flip."""

    way: Literal["flip", "zero", "cut", "over", "insert", "sql"]
    at: float = 0.0
    size: int = 1
    text: str = ""


class File(_Part):
    """A file of the working folder: a text or a sample (`make_samples`), with damage.

    text: the contents, with surrogates for bytes that are not UTF-8; for a link, its target.
    """

    text: str = ""
    sample: str = ""
    damage: tuple[Damage, ...] = ()
    kind: Literal["file", "folder", "fifo", "link"] = "file"


class Step(_Part):
    """One command. fresh: run the console script, instead of a fork of a process that has imported the package.

    patience_s: the time after which a long command is interrupted; 0 if it must end by itself.
    refused: the exit status must be 2.
    """

    words: tuple[str, ...]
    out: Stream = "file"
    err: Stream = "file"
    variables: dict[str, str] = {}
    fresh: bool = False
    patience_s: float = 0.0
    refused: bool = False


class Input(_Part):
    """Files by name, and the commands that are called in their folder.

    asked: files that may be new or changed although no word names them; `.` for all. wild: foreign code may print,
    leave files and choose the exit status.
    """

    steps: tuple[Step, ...]
    files: dict[str, File] = {}
    asked: tuple[str, ...] = ()
    wild: bool = False


def write(path: Path, note: str, given: Input) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The encoder of msgspec refuses surrogates.
    path.write_text(json.dumps({"note": note, "input": msgspec.to_builtins(given)}, indent=1) + "\n", encoding="ascii")
    return path


def read(path: Path) -> Input:
    return msgspec.convert(json.loads(path.read_text(encoding="ascii"))["input"], Input)


def digest(given: Input) -> str:
    return hashlib.sha256(json.dumps(msgspec.to_builtins(given)).encode()).hexdigest()[:12]


def shown(given: Input, most: int = 160) -> str:
    line = "; ".join(ascii(shlex.join(["kernelmark", *step.words]))[1:-1] for step in given.steps)
    return line if len(line) <= most else f"{line[: most - 4]} ..."


DATA = Path(__file__).resolve().parents[1] / "data"
#: The runs of the store `runs.db`: two ids, and the name of the first.
RUNS = ("20260101-old", "20260201-new", "base")
#: The run of the stores `rows.db` and `net.db`.
ROWS_RUN = "r1"
#: The network of the store `net.db`, and the kernel and problem that have a history there.
NETWORK, HISTORY = "net", ("gemm/numpy.matmul", "gemm/m1n1000k500/f32/NT")
#: Stores, and a database that is none; results exported by kernelmark and by other programs.
STORES = ("rows.db", "runs.db", "net.db", "old.db", "foreign.db")
EXPORTS = ("rows.csv", "rows.json", "rows.parquet", "nvbench.json", "pytest_benchmark.json")


def make_samples(folder: Path) -> Path:
    with Store(folder / "rows.db") as rows:
        varied(rows)
        write_file(rows, [ROWS_RUN], "csv", folder / "rows.csv")
        write_file(rows, [ROWS_RUN], "json", folder / "rows.json")
        write_parquet_file(rows, [ROWS_RUN], folder / "rows.parquet")
    with Store(folder / "runs.db") as runs:
        for run_id, factor, month in zip(RUNS, (1.0, 1.2), (1, 2), strict=False):
            name, planned = ("", RUNS[2])[month == 1], month + 1
            begin(runs, run_id, name=name, started_at=f"2026-0{month}-01T10:00:00+00:00", planned=planned)
            add(runs, run_id, "m3n5/f32", tuple(factor * median for median in STEADY))
            add(runs, run_id, "m9n5/f32", LOOSE)
    with Store(folder / "net.db") as net:
        _network(net)
    with closing(sqlite3.connect(folder / "old.db")) as db:
        db.executescript((DATA / "schema4.sql").read_text())
    with closing(sqlite3.connect(folder / "foreign.db")) as db:
        db.executescript("CREATE TABLE run (id INTEGER); CREATE TABLE result (a, b); INSERT INTO run VALUES (1)")
    for name in EXPORTS[-2:]:
        (folder / name).write_bytes((DATA / name).read_bytes())
    return folder


def _network(net: Store) -> None:
    begin_made(net, ROWS_RUN)
    for problem, part in ((HISTORY[1], "forward"), ("gemm/m1000n500k1/f32/TN", "backward")):
        put(net, problem, HISTORY[0])
        net.add_layer(ROWS_RUN, Layer(NETWORK, problem, part, 1))
    for kernel in ("cpu.host_serial", "cpu.ring"):
        put(net, "aggregate/w4n500000/f32", f"aggregate/{kernel}", 1e-4, {"w": 4, "n": 500_000, "step": "sum"})
    for number in (1, 2):
        made = KernelVersion(
            kernel=HISTORY[0], problem=HISTORY[1], saved_at="2026-01-01T10:00:00+00:00", by="watch", verdict="right",
            right=True, time_s=1e-3, low=9e-4, high=2e-3, compared=(VersionRatio(1.5, 1.2, None, version=1),),
        )  # fmt: skip
        net.add_version(made, {"a.cu": f"int a = {number};\n".encode()})


def lay_out(files: dict[str, File], folder: Path, samples: Path) -> None:
    """Make the files of an input in a folder, except those that the system refuses, such as names that are too long."""
    for name, file in files.items():
        path = folder / name
        with suppress(OSError, ValueError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.kind == "folder":
                path.mkdir()
            elif file.kind == "fifo":
                os.mkfifo(path)
            elif file.kind == "link":
                path.symlink_to(file.text)
            else:
                path.write_bytes((samples / file.sample).read_bytes() if file.sample else _bytes(file.text))
                for damage in file.damage:
                    _hurt(path, damage)


def _hurt(path: Path, damage: Damage) -> None:
    """Change the bytes of a file, or execute SQL on it, which SQLite may refuse."""
    if damage.way == "sql":
        with closing(sqlite3.connect(path)) as db, suppress(sqlite3.Error, UnicodeEncodeError):
            db.execute("PRAGMA foreign_keys = OFF")
            db.executescript(damage.text)
        return
    data, put = path.read_bytes(), _bytes(damage.text)
    start = int(damage.at * len(data))
    before, after = data[:start], data[start:]
    changed = {
        "flip": bytes([after[0] ^ 1 << damage.size % 8]) + after[1:] if after else b"",
        "zero": bytes(len(after[: damage.size])) + after[damage.size :],
        "cut": b"",
        "over": put + after[len(put) :],
        "insert": put + after,
    }
    path.write_bytes(before + changed[damage.way])


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
