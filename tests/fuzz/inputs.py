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

#: What standard output or standard error is: a file that is read afterwards, none at all, a full disk, a pipe whose
#: reader has gone, or one whose reader goes after the first bytes.
Stream = Literal["file", "closed", "full", "gone", "head"]


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    pass


class Damage(_Part):
    """A change to the bytes of a file. at: where, as a share of its length; size: bytes, or which bit to flip."""

    way: Literal["flip", "zero", "cut", "over", "insert", "sql"]
    at: float = 0.0
    size: int = 1
    text: str = ""


class File(_Part):
    """A file of the working folder: a text, or a sample (`make_samples`), and damage to it.

    text: bytes that are no UTF-8 are surrogates; the target of a link.
    """

    text: str = ""
    sample: str = ""
    damage: tuple[Damage, ...] = ()
    kind: Literal["file", "folder", "fifo", "link"] = "file"


class Step(_Part):
    """One command. fresh: by the console script, and not in a fork of a process that has imported it.

    patience_s: a command that may go on for long is interrupted after this; 0 for one that must end by itself.
    refused: exit status 2 is certain.
    """

    words: tuple[str, ...]
    out: Stream = "file"
    err: Stream = "file"
    variables: dict[str, str] = {}
    fresh: bool = False
    patience_s: float = 0.0
    refused: bool = False


class Input(_Part):
    """Files by their names, and what is called among them.

    asked: files that may be new or changed, besides those that the words name; `.` for any. wild: foreign code may
    print, leave files and choose the exit status.
    """

    steps: tuple[Step, ...]
    files: dict[str, File] = {}
    asked: tuple[str, ...] = ()
    wild: bool = False


def write(path: Path, note: str, given: Input) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The encoder of msgspec refuses surrogates, which stand for bytes that are no UTF-8.
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
#: Of the store `runs.db`, by id and by name.
RUNS = ("20260101-old", "20260201-new", "base")
#: Of the stores `rows.db` and `net.db`.
ROWS_RUN = "r1"
#: The network of the store `net.db`, and the kernel and the problem that have a history there.
NETWORK, KEPT = "net", ("gemm/numpy.matmul", "gemm/m1n1000k500/f32/NT")
#: Stores and databases that are none, and results of this program and others.
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
    for problem, part in ((KEPT[1], "forward"), ("gemm/m1000n500k1/f32/TN", "backward")):
        put(net, problem, KEPT[0])
        net.add_layer(ROWS_RUN, Layer(NETWORK, problem, part, 1))
    for kernel in ("cpu.host_serial", "cpu.ring"):
        put(net, "aggregate/w4n500000/f32", f"aggregate/{kernel}", 1e-4, {"w": 4, "n": 500_000, "step": "sum"})
    for number in (1, 2):
        made = KernelVersion(
            kernel=KEPT[0], problem=KEPT[1], saved_at="2026-01-01T10:00:00+00:00", by="watch", verdict="right",
            right=True, time_s=1e-3, low=9e-4, high=2e-3, compared=(VersionRatio(1.5, 1.2, None, version=1),),
        )  # fmt: skip
        net.add_version(made, {"a.cu": f"int a = {number};\n".encode()})


def lay_out(files: dict[str, File], folder: Path, samples: Path) -> None:
    """Make the files of an input in a folder. What the system refuses to make, such as a name too long, is left out."""
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
    """Do damage to a file, to a database by SQL. What SQLite refuses changes nothing."""
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
