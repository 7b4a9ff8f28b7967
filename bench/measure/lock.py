"""Lock a GPU against other runs, which would disturb this run, and lock a run against a second process resuming it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from kernelmark.bench.measure.cuda import gpu_uuids
from kernelmark.bench.plan.errors import UsageError

#: The folder of a machine's locks; not TMPDIR, which may differ between processes.
MACHINE = Path("/tmp")


@contextmanager
def exclusive(devices: tuple[str, ...], shared: bool, gpus: tuple[str, ...] = ()) -> Iterator[None]:
    """Lock the GPU, if it is among the devices, while the context lasts. Raises UsageError if another run holds it.

    gpus: the UUIDs of GPUs to lock instead of the current one. shared: lock nothing.
    """
    if "cuda" not in devices or shared:
        yield
        return
    remedy = "pass --share-gpu to measure anyway, which disturbs both runs"
    with ExitStack() as locks:
        for uuid in gpus or gpu_uuids()[:1]:
            name = uuid.replace("GPU", "gpu")
            locks.enter_context(held(MACHINE / f"kernelmark-{name}.lock", name, remedy))
        yield


def held_run(store: Path, run_id: str, remedy: str) -> AbstractContextManager[None]:
    """Lock a run, by a file next to its store, so that no other process resumes it meanwhile.

    The file is removed afterwards. Raises UsageError if another process has locked it.
    """
    path = store.resolve()
    return held(path.with_name(f"{path.name}-{run_id}.lock"), f"run-{run_id}", remedy, once=True)


@contextmanager
def held(path: Path, subject: str, remedy: str, once: bool = False) -> Iterator[None]:
    """Lock a file until context or process ends. once: the context removes it. Raises UsageError, naming the holder."""
    try:
        fd = _locked(path)
    except BlockingIOError as error:
        complaint = f"{subject}: is being measured by process {error}"
        raise UsageError(f"{complaint}; wait until that ends, or {remedy}") from None
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
    """Open the file and lock it. Raises BlockingIOError with the holder's id, OSError if it cannot be opened."""
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
        os.close(fd)  # the holder has removed the file meanwhile, and another process may lock a new one of this name


def _opened(path: Path) -> int:
    """Open the file; if it is new, let other users open it, whatever the umask."""
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(fd, 0o666)
        return fd


@contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Hold a lock of this host, exclusive (`alone`) or shared. Processes get it in the order in which they asked."""
    queue, host = (_opened(MACHINE / f"kernelmark-{name}.lock") for name in ("queue", "host"))
    try:
        fcntl.flock(queue, fcntl.LOCK_EX)  # otherwise an exclusive lock could wait for ever for shared locks to end
        fcntl.flock(host, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        yield
    finally:
        os.close(queue)
        os.close(host)
