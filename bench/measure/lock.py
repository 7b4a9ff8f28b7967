"""One run at a time on a GPU: two would time each other."""

import ctypes
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.plan.errors import UsageError


@contextmanager
def exclusive(devices: tuple[str, ...], shared: bool) -> Iterator[None]:
    """Hold the GPU, if it is among the devices, while this lasts. Raises UsageError where another run holds it."""
    if "cuda" not in devices or shared:
        yield
        return
    with held(f"gpu-{gpu_uuid()}", "--share-gpu measures all the same, and both will be disturbed"):
        yield


@contextmanager
def held(name: str, remedy: str, once: bool = False) -> Iterator[None]:
    """Hold the lock of this name on this machine, which ends with the process; `once`: no other use follows.

    Raises UsageError with the holder's number.
    """
    path = Path(tempfile.gettempdir(), f"kernelmark-{name}.lock")
    try:
        fd = _opened(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be opened: {error.strerror}; remove it, or {remedy}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            raise UsageError(f"{name}: is being measured by process {holder}; wait for its end, or {remedy}") from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        yield
        if once:
            path.unlink(missing_ok=True)
    finally:
        os.close(fd)


def _opened(path: Path) -> int:
    """The file, whoever made it; made here, it is left for other users to open, whatever the umask."""
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.fchmod(fd, 0o666)
        return fd


def gpu_uuid() -> str:
    """The identity of the present GPU, which no renumbering changes, from the driver; `unknown` if it gives none."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0) or driver.cuDeviceGetUuid_v2(uuid, device):
        return "unknown"
    return bytes(uuid).hex()
