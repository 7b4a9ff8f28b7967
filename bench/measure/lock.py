"""Lock a GPU, since two runs would time each other, and a run, which one process at a time may continue."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from kernelmark.bench.measure.cuda import gpu_uuids
from kernelmark.bench.plan.errors import UsageError

#: Where the locks of a machine are: not in TMPDIR, of which each process may have another.
MACHINE = Path("/tmp")


@contextmanager
def exclusive(devices: tuple[str, ...], shared: bool, gpus: tuple[str, ...] = ()) -> Iterator[None]:
    """Hold the GPU, if it is among the devices, while the context lasts. Raises UsageError if another run holds it.

    gpus: the GPUs to hold instead of the current one, by UUID.
    """
    if "cuda" not in devices or shared:
        yield
        return
    remedy = "--share-gpu measures anyway, and both will be disturbed"
    with ExitStack() as locks:
        for uuid in gpus or gpu_uuids()[:1]:
            name = uuid.replace("GPU", "gpu")
            locks.enter_context(held(MACHINE / f"kernelmark-{name}.lock", name, remedy))
        yield


def held_run(store: Path, run_id: str, remedy: str) -> AbstractContextManager[None]:
    """Lock a run with a file beside its store against other processes that would continue it.

    The file is removed afterwards. Raises UsageError if another process holds it.
    """
    path = store.resolve()
    return held(path.with_name(f"{path.name}-{run_id}.lock"), f"run-{run_id}", remedy, once=True)


@contextmanager
def held(path: Path, subject: str, remedy: str, once: bool = False) -> Iterator[None]:
    """Hold the lock of a file, which ends with the process; once: remove the file afterwards.

    Raises UsageError with the holder's process id.
    """
    try:
        fd = _locked(path)
    except BlockingIOError as error:
        complaint = f"{subject}: is being measured by process {error}"
        raise UsageError(f"{complaint}; wait for its end, or {remedy}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be opened: {error.strerror}; remove it, or {remedy}") from None
    try:
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        yield
    finally:
        if once:
            path.unlink(missing_ok=True)
        os.close(fd)


def _locked(path: Path) -> int:
    """Open the file and lock it. Raises BlockingIOError with the holder's number, OSError where it cannot be opened."""
    while True:
        fd = _opened(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise BlockingIOError(holder) from None
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(fd).st_ino:
                return fd
        os.close(fd)  # its holder has removed it in between: another may lock the one that is there now


def _opened(path: Path) -> int:
    """The file, whoever made it; made here, it is left for other users to open, whatever the umask."""
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(fd, 0o666)
        return fd


@contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Wait for a turn on this host, alone or together with others that need not be alone; first come, first served."""
    queue, host = (_opened(MACHINE / f"kernelmark-{name}.lock") for name in ("queue", "host"))
    try:
        fcntl.flock(queue, fcntl.LOCK_EX)  # otherwise those that share could keep one that is alone waiting for ever
        fcntl.flock(host, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield
    finally:
        os.close(queue)
        os.close(host)
