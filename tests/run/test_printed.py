"""What kernels print: shown in part, as plain text, and never more on the disk than for a moment."""

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from kernelmark.bench.plan.text import MOST as LINE
from kernelmark.bench.record.store import Store
from kernelmark.bench.run import printed
from kernelmark.bench.run.printed import MOST, last_words, relay, trim

LOUD = r'''
import sys
from kernelmark import kernel

@kernel("copy", provider="loud", device="cpu", numerics="exact")
def prints(problem, x):
    """Copy, and print."""
    def launch():
        x.b[:] = x.a
        print("\x1b[31mred\x1b[0m\x07" + "x" * 100_000 + "\x1b]0;title\x07")
    return launch

@kernel("copy", provider="loud", device="cpu", numerics="exact", supports=lambda problem: "\x1b[31m" + "y" * 10_000_000)
def refuses(problem, x):
    """Refuse at length."""
'''


@pytest.fixture
def log() -> Iterator[IO[bytes]]:
    """A file that a process shares, as a worker's output does."""
    with tempfile.TemporaryFile() as found:
        yield found


def shown(log: IO[bytes]) -> str:
    out = io.StringIO()
    relay(log.fileno(), out)
    return out.getvalue()


def test_what_was_printed_is_passed_on_once_as_plain_text(log: IO[bytes]) -> None:
    os.write(log.fileno(), b"\x1b[31mone\x1b[0m\n\xfftwo\n")
    assert shown(log) == "one\n\ufffdtwo\n"
    assert shown(log) == ""
    os.write(log.fileno(), b"three\n")
    assert shown(log) == "three\n"


def test_more_than_is_shown_is_counted(log: IO[bytes]) -> None:
    os.write(log.fileno(), b"x" * (3 * MOST))
    text = shown(log)
    assert text == "x" * MOST + f"\n(a job printed {3 * MOST / 1e6:.3g} MB, of which 64 kB are shown)\n"


def test_a_worker_that_prints_on_takes_no_more_of_the_disk(log: IO[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "_GROWN", MOST)
    write = "import os; [os.write(1, b'first' if i == 0 else b'x' * 4096) for i in range({})]; os.write(1, b'\\nlast')"
    for _ in range(3):
        subprocess.run([sys.executable, "-c", write.format(64)], stdout=log, check=True)
        trim(log.fileno())
        assert os.fstat(log.fileno()).st_blocks * 512 <= 2 * MOST
    subprocess.run([sys.executable, "-c", write.format(1)], stdout=log, check=True)
    assert last_words(log.fileno()) == "last"
    assert shown(log).startswith("firstxxx")


def test_the_last_words_are_one_plain_line_of_bounded_length(log: IO[bytes]) -> None:
    assert last_words(log.fileno()) == ""
    os.write(log.fileno(), b"x" * (2 * MOST) + b"\n\x1b[31m" + b"cannot go on " * 1000 + b"\n \n")
    assert last_words(log.fileno()) == ("cannot go on " * 1000)[:200]


@pytest.mark.long
def test_what_a_kernel_prints_and_why_it_refuses_are_bounded(tmp_path: Path, kernelmark: Callable[..., object]) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    quick = ("--mode", "hot", "--max-time", "0.02", "--no-ceilings", "--threads", "1", "--plugin", "loud.py")
    done = kernelmark("run", "copy/m8n8/f32", "--kernels", "copy/loud.*", *quick, "--db", "r.db")
    assert done.returncode == 0
    assert 60_000 < len(done.stderr) < 2 * MOST
    assert "red" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x07" not in done.stderr
    store = Store(tmp_path / "r.db", create=False)
    reasons = {row.kernel: row.reason for row, _ in store.results(store.run_ids()[0])}
    store.close()
    assert reasons["copy/loud.prints"] == ""
    assert reasons["copy/loud.refuses"].startswith(r"\x1b[31myyy")
    assert len(reasons["copy/loud.refuses"]) <= LINE
    assert len(done.stdout) < 10_000
