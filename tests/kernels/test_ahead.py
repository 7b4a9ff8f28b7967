"""Child processes that compile ahead fill the cache, and end with their parent's set-up."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelmark.kernels import _ahead, _numba, _worth
from kernelmark.kernels._ahead import ahead
from kernelmark.kernels._numba import bind, jit
from support.kernels import set_up
from support.processes import gone, wait_for

PARENT = """
import os, pathlib, sys, time
from kernelmark.kernels._ahead import ahead

def sleeps():
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(600)

with ahead((sleeps, sleeps)):
    time.sleep(600)
"""

if not _ahead._may_fork():
    pytest.skip("needs Linux and two CPUs", allow_module_level=True)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A folder in which nothing is compiled yet."""
    monkeypatch.setattr(_numba, "_compiled", lambda: tmp_path)
    return tmp_path


def write_pid(path):
    """Return a task for a child: to write its process id into a file."""
    return lambda: path.write_text(str(os.getpid()))


def ended(path):
    """Return whether the child that wrote its id into this file has ended."""
    return gone(int(path.read_text()))


def wait_for_file(path):
    wait_for(lambda: path.exists() and path.read_text() != "", 60)


def test_a_function_that_a_child_has_compiled_is_loaded(cache):
    @jit
    def twice(value):
        return 2 * value

    with ahead((twice, lambda: bind(twice, 1))):
        assert not twice.signatures
    bind(twice, 1)
    stats = twice.stats
    assert sum(stats.cache_hits.values()) == 1
    assert not stats.cache_misses
    assert twice(3) == 6


def test_a_function_is_compiled_by_only_one_child(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        with ahead((write_pid, write_pid(path))):
            pass
    assert ended(first)
    assert not second.exists()


def test_functions_are_compiled_at_the_same_time(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"

    def wait(file, awaited):
        return lambda: (file.write_text("here"), wait_for_file(awaited), file.with_suffix(".done").write_text("here"))

    with ahead((write_pid, wait(first, second)), (ended, wait(second, first))):
        pass
    assert first.with_suffix(".done").exists()
    assert second.with_suffix(".done").exists()


@pytest.mark.parametrize("ends", [lambda: 1 // 0, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: sys.exit(3)])
def test_a_child_that_fails_is_ignored(ends, capfd):
    with ahead((write_pid, ends)):
        pass
    assert capfd.readouterr() == ("", "")


def test_a_child_that_hangs_is_ended_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(_ahead, "LIMIT_S", 1)
    path = tmp_path / "child"
    with ahead((write_pid, lambda: (write_pid(path)(), time.sleep(600)))):
        pass
    assert ended(path)


def raised():
    raise KeyboardInterrupt


def interrupted_later():
    signal.setitimer(signal.ITIMER_REAL, 0.2)


@pytest.mark.parametrize("interrupt", [raised, interrupted_later])
def test_an_interrupt_ends_the_child(interrupt, tmp_path):
    begun, done = tmp_path / "begun", tmp_path / "done"

    def is_interrupted():
        with ahead((write_pid, lambda: (write_pid(begun)(), time.sleep(3), done.write_text("here")))):
            wait_for_file(begun)
            interrupt()

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            is_interrupted()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended(begun)
    assert not done.exists()


def test_a_child_holds_no_pipe_of_its_parent(tmp_path, capfd):
    reads, writes = os.pipe()
    with ahead((write_pid, lambda: (os.write(1, b"said"), wait_for_file(tmp_path / "seen")))):
        os.close(writes)
        assert select.select([reads], [], [], 30)[0]
        (tmp_path / "seen").write_text("here")
    assert os.read(reads, 1) == b""
    os.close(reads)
    assert capfd.readouterr() == ("", "")


def test_a_child_ends_with_its_parent(tmp_path):
    path = tmp_path / "child"
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", PARENT, path]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], env=env) as parent:
        wait_for_file(path)
        parent.kill()
    wait_for(lambda: ended(path), 60)


def refuses():
    raise BlockingIOError


@pytest.mark.parametrize(
    ("module", "name", "replacement"),
    [
        pytest.param(os, "sched_getaffinity", lambda _: {0}, id="one CPU"),
        pytest.param(os, "fork", refuses, id="no fork"),
        pytest.param(_numba, "_compiled", lambda: Path(__file__), id="no cache"),
    ],
)
def test_no_child_is_started_without_a_second_cpu_fork_or_a_cache(module, name, replacement, tmp_path, monkeypatch):
    monkeypatch.setattr(module, name, replacement)
    with ahead((write_pid, write_pid(tmp_path / "child"))):
        pass
    assert not (tmp_path / "child").exists()


class Handed(Exception):
    """A set-up has left all expected functions to children."""


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("conv/numba.direct", set()),
        ("conv/cpu.im2col", {"_product._multiply"}),
        ("conv/cpu.winograd4", {"_product._multiply"}),
        ("conv/numba.fft_tiled", {"conv.fft._lanes.inverse", "conv.fft._products.products"}),
    ],
)
def test_set_ups_leave_functions_to_children(kernel, expected, monkeypatch):
    claims = set[str]()

    def claimed(function):
        claims.add(f"{function.__module__}.{function.__qualname__}".removeprefix("kernelmark.kernels."))
        if any(name.endswith(f".cpu.{kernel.partition('.')[2]}") for name in claims) and claims >= expected:
            raise Handed  # before more is compiled
        return False

    monkeypatch.setattr(_numba, "claim", claimed)
    monkeypatch.setattr(_worth, "_compile", lambda: None)
    with pytest.raises(Handed):
        set_up("conv/n1c4h8w8k4r3s3pad1/f32/nchw/fprop", kernel)
