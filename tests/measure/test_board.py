"""Who is being called: written by one process, read by another, whatever becomes of the first."""

import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

import pytest

from kernelmark.bench.measure import board
from kernelmark.bench.measure.board import Board
from kernelmark.bench.measure.timing import now

CALL_AND_DIE = """
import os, signal, sys
from kernelmark.bench.measure.board import Board
with Board(int(sys.argv[1])).calling(3, "warm-up"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def shared() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


def test_nobody_is_being_called_at_first_and_after_each_call() -> None:
    own = Board()
    assert own.read() is None
    with own.calling(0, "set-up"):
        assert own.read() is not None
    assert own.read() is None


def test_a_call_tells_contender_stage_and_since_when() -> None:
    own, before = Board(), now()
    with own.calling(2, "sampling"):
        call = own.read()
    assert (call.contender, call.stage) == (2, "sampling")
    assert before <= call.since_s <= now()


def test_a_kernel_that_raises_is_not_being_called_any_more() -> None:
    own = Board()
    with pytest.raises(ValueError, match="boom"), own.calling(1, "verification"):
        raise ValueError("boom")
    assert own.read() is None


def test_the_call_outlives_the_process_that_was_in_it(shared: IO[bytes]) -> None:
    reader = Board(shared.fileno())

    done = subprocess.run([sys.executable, "-c", CALL_AND_DIE, str(shared.fileno())], pass_fds=[shared.fileno()])
    assert done.returncode == -signal.SIGKILL
    call = reader.read()
    assert (call.contender, call.stage) == (3, "warm-up")
    reader.clear()
    assert reader.read() is None


def test_whoever_reads_in_the_midst_of_writing_sees_no_earlier_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time that is too early would end a worker for a call that has just begun."""
    own, seen = Board(), []
    with own.calling(0, "warm-up"):
        pass

    class Slow(struct.Struct):
        """Packs a field at a time, looking after each."""

        def pack_into(self, buffer: object, offset: int, *values: object) -> None:
            for kind, value in zip(self.format, values, strict=True):
                struct.pack_into(kind, buffer, offset, value)  # type: ignore[arg-type]
                offset += struct.calcsize(kind)
                seen.append(own.read())

    monkeypatch.setattr(board, "_LAYOUT", Slow(board._LAYOUT.format))
    before = now()
    with own.calling(1, "sampling"):
        pass
    assert seen[:2] == [None, None]
    assert all(call is None or (call.contender == 1 and call.since_s >= before) for call in seen)
