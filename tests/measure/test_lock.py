"""One run at a time on a GPU, between real processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.measure import lock
from bench.measure.lock import exclusive, held

HOLDER = "from bench.measure.lock import held\nwith held('test', 'leave'):\n print('held', flush=True)\n input()\n"
Complaint = Callable[[Callable[[], object]], str]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its input ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDER], text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def take(name: str = "test") -> None:
    with held(name, "leave"):
        pass


def test_what_another_process_holds_is_refused_with_its_number(
    holder: subprocess.Popen[str], complaint: Complaint
) -> None:
    expected = f"test: is being measured by process {holder.pid}; wait for its end, or leave"
    assert complaint(take) == expected
    assert complaint(take) == expected
    take("other")


def test_a_holder_that_is_killed_holds_nothing(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    take()


def test_it_is_free_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="boom"), held("test", "leave"):
        raise ValueError("boom")
    take()


def test_a_lock_that_cannot_be_opened_is_refused_in_one_line(complaint: Complaint, tmp_path: Path) -> None:
    path = tmp_path / "kernelmark-test.lock"
    path.mkdir()  # not even root can open it
    assert complaint(take) == f"{path}: cannot be opened: Is a directory; remove it, or leave"


def test_another_user_can_open_the_lock_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        take()
    finally:
        os.umask(before)
    assert (tmp_path / "kernelmark-test.lock").stat().st_mode & 0o777 == 0o666


def test_only_a_gpu_is_locked_and_only_if_it_is_not_shared(
    complaint: Complaint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "gpu_uuid", lambda: "abc")

    def again(devices: tuple[str, ...], shared: bool) -> None:
        with exclusive(devices, shared):
            pass

    with exclusive(("cpu", "cuda"), shared=False):
        again(("cpu",), shared=False)
        again(("cuda",), shared=True)
        found = complaint(lambda: again(("cuda",), shared=False))
    assert found.startswith(f"gpu-abc: is being measured by process {os.getpid()}; ")
    assert "--share-gpu" in found
    again(("cuda",), shared=False)
