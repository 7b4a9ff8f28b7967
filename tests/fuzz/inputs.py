"""An input of the campaign, which JSON holds whole: files, and the commands that are called among them."""

import hashlib
import json
import shlex
from pathlib import Path
from typing import Literal

import msgspec

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
    """A file of the working folder: a text, or a sample (`files.SAMPLES`), and damage to it.

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
    """Write an input, and what went wrong with it, as an entry of the corpus."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The encoder of msgspec refuses surrogates, which stand for bytes that are no UTF-8.
    path.write_text(json.dumps({"note": note, "input": msgspec.to_builtins(given)}, indent=1) + "\n", encoding="ascii")
    return path


def read(path: Path) -> Input:
    """Return the input of an entry of the corpus."""
    return msgspec.convert(json.loads(path.read_text(encoding="ascii"))["input"], Input)


def digest(given: Input) -> str:
    """Return a name for an input."""
    return hashlib.sha256(json.dumps(msgspec.to_builtins(given)).encode()).hexdigest()[:12]


def shown(given: Input, most: int = 160) -> str:
    """Return the commands of an input in one line, a long one cut."""
    line = "; ".join(ascii(shlex.join(["kernelmark", *step.words]))[1:-1] for step in given.steps)
    return line if len(line) <= most else f"{line[: most - 4]} ..."
