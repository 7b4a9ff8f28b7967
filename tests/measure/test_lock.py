"""What processes share: locks of a GPU and of a run, and the board that records the call in progress."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kernelmark.bench.measure import board, lock
from kernelmark.bench.measure.board import Board
from kernelmark.bench.measure.lock import exclusive, held, held_run, turn
from kernelmark.bench.measure.timing import now
from support.processes import wait_for

HOLDER = """
import sys
from pathlib import Path
from kernelmark.bench.measure.lock import held_run
with held_run(Path(sys.argv[1]), "20260101-c0ffee", "leave"):
    print("held", flush=True)
    input()
"""


@pytest.fixture
def holder(tmp_path):
    """Start another process, with another TMPDIR, that locks a run of the store until its input ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    (tmp_path / "elsewhere").mkdir()
    words = [sys.executable, "-c", HOLDER, str(tmp_path / "elsewhere" / ".." / "r.db")]
    env = {**os.environ, "TMPDIR": str(tmp_path / "elsewhere")}
    with subprocess.Popen(words, text=True, env=env, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def take(tmp_path):
    return lambda run_id="20260101-c0ffee": hold(held_run(tmp_path / "r.db", run_id, "leave"))


def hold(lock):
    with lock:
        pass


def test_a_run_that_another_process_holds_is_refused_with_its_number_until_that_is_killed(holder, complaint, take):
    expected = f"run-20260101-c0ffee: is being measured by process {holder.pid}; wait until that ends, or leave"
    assert [complaint(take) for _ in range(2)] == [expected] * 2
    take("20260102-c0ffee")
    holder.kill()
    holder.wait()
    take()


def test_nothing_is_left_beside_the_store(tmp_path, take):
    with pytest.raises(ValueError, match="boom"), held_run(tmp_path / "r.db", "20260101-c0ffee", "leave"):
        raise ValueError("boom")
    take()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_its_holder_removes_meanwhile_is_not_taken_for_the_next_ones(tmp_path, monkeypatch, complaint):
    """A process opens the lock file; then the holder removes the file, and a third process creates a new one."""
    path = tmp_path / "test.lock"
    path.write_text("")
    opened, others = lock._opened, []

    def slowly(path):
        fd = opened(path)
        if not others:
            path.unlink()
            others.append(held(path, "test", "leave"))
            others[0].__enter__()
        return fd

    monkeypatch.setattr(lock, "_opened", slowly)

    assert "is being measured" in complaint(lambda: hold(held(path, "test", "leave")))
    others[0].__exit__(None, None, None)


def test_a_lock_that_cannot_be_opened_is_refused_in_one_line(complaint, tmp_path):  # even root cannot open a folder
    refusal = complaint(lambda: hold(held(tmp_path, "test", "leave")))
    assert refusal == f"{tmp_path}: cannot be opened: Is a directory; remove it, or leave"


def test_another_user_can_open_the_lock_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        hold(held(tmp_path / "test.lock", "test", "leave"))
    finally:
        os.umask(before)
    assert (tmp_path / "test.lock").stat().st_mode & 0o777 == 0o666


def test_only_a_gpu_is_locked_for_the_whole_machine_and_only_if_it_is_not_shared(complaint, monkeypatch, tmp_path):
    assert Path("/tmp") == lock.MACHINE  # independent of TMPDIR
    monkeypatch.setattr(lock, "MACHINE", tmp_path)
    monkeypatch.setattr(lock, "gpu_uuids", lambda: ["GPU-abc"])

    with exclusive(("cpu", "cuda"), shared=False):
        hold(exclusive(("cpu",), shared=False))
        hold(exclusive(("cuda",), shared=True))
        refusal = complaint(lambda: hold(exclusive(("cuda",), shared=False)))
    expected = f"gpu-abc: is being measured by process {os.getpid()}; wait until that ends, or pass --share"
    assert refusal.startswith(expected)
    hold(exclusive(("cuda",), shared=False))


def test_a_turn_alone_waits_for_shared_ones_and_they_for_it(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "MACHINE", tmp_path)
    order = []

    def take(name, alone):
        def wait():
            with turn(alone):
                order.append(name)

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    with turn(alone=False):
        take("in company", alone=False).join()
        waiting = take("alone", alone=True)
        wait_for(lambda: is_locked(tmp_path / "kernelmark-queue.lock"))
        late = take("late, in company", alone=False)
        order.append("the first leaves")
    waiting.join()
    late.join()
    assert order == ["in company", "the first leaves", "alone", "late, in company"]


def is_locked(path):
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


CALL_AND_DIE = """
import os, signal, sys
from kernelmark.bench.measure.board import Board
with Board(int(sys.argv[1])).calling(3, "warm-up"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_call_tells_contender_stage_and_since_when_until_it_returns_or_raises():
    board_, before = Board(), now()
    assert board_.read() is None
    with suppress(ValueError), board_.calling(2, "sampling"):
        call = board_.read()
        raise ValueError("boom")
    assert (call.contender, call.stage) == (2, "sampling")
    assert before <= call.since_s <= now()
    assert board_.read() is None


def test_the_call_outlives_the_process_that_was_in_it():
    with tempfile.TemporaryFile() as file:
        reader, fd = Board(file.fileno()), file.fileno()
        done = subprocess.run([sys.executable, "-c", CALL_AND_DIE, str(fd)], pass_fds=[fd])
    assert done.returncode == -signal.SIGKILL
    call = reader.read()
    assert (call.contender, call.stage) == (3, "warm-up")
    reader.clear()
    assert reader.read() is None


def test_whoever_reads_in_the_midst_of_writing_sees_no_earlier_time(monkeypatch):
    """If the parent read an earlier call's start, it would end the worker because of a call that has just begun."""
    board_, seen = Board(), []
    with board_.calling(0, "warm-up"):
        pass

    class Slow(struct.Struct):
        def pack_into(self, buffer, offset, *values):
            for kind, value in zip(self.format, values, strict=True):
                struct.pack_into(kind, buffer, offset, value)
                offset += struct.calcsize(kind)
                seen.append(board_.read())

    monkeypatch.setattr(board, "_LAYOUT", Slow(board._LAYOUT.format))
    before = now()
    with board_.calling(1, "sampling"):
        pass
    assert seen[:2] == [None, None]
    assert all(call is None or (call.contender == 1 and call.since_s >= before) for call in seen)
