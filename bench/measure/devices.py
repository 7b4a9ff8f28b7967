"""The devices of this machine; a process has one object for each."""

from collections.abc import Callable
from functools import lru_cache

from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.cuda import Cuda
from kernelmark.bench.measure.device import Device
from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.plan.errors import Unsupported, UsageError


def _cuda() -> Device:
    if reason := cuda_missing():
        raise Unsupported(reason)
    return Cuda()


#: The constructor of each device; tests add a fake device.
DEVICES: dict[str, Callable[[], Device]] = {"cpu": Cpu, "cuda": _cuda}


@lru_cache
def get_device(name: str) -> Device:
    """Return the device of this name, one object per process. Raises Unsupported."""
    return DEVICES[name]()


def devices_present() -> tuple[str, ...]:
    """Return `cpu`, and `cuda` if a GPU is usable."""
    return ("cpu",) if cuda_missing() else ("cpu", "cuda")


def choose_devices(choice: str, option: str = "--device") -> tuple[str, ...]:
    """Return the devices that `auto` (all present), `cpu` or `cuda` selects. Raises UsageError if no GPU is usable."""
    if choice == "cuda" and (reason := cuda_missing()):
        raise UsageError(f"{option} cuda: {reason}; `kernelmark doctor` shows what is usable")
    return devices_present() if choice == "auto" else (choice,)
