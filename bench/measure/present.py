"""Report whether Python packages and the CUDA driver are usable on this machine, without importing any package."""

import ctypes
import importlib.util
from functools import lru_cache
from pathlib import Path

from kernelmark.bench.plan.kernel import Kernel

#: Distributions whose name differs from the module's, and the extra of kernelmark that installs each.
DISTRIBUTIONS = {
    "cupy": "cupy-cuda13x",
    "cuda.core": "cuda-core",
    "nvmath.bindings": "nvmath-python",
    "pycuda.driver": "pycuda",
    "cudnn": "nvidia-cudnn-frontend",
}
EXTRAS = dict.fromkeys(("cupy", "cuda.core", "nvmath.bindings"), "gpu") | {"pycuda.driver": "pycuda", "torch": "torch"}
EXTRAS |= {"cudnn": "cudnn", "pygal": "histogram", "kernel_tuner": "tune", "parsl": "cluster"}


@lru_cache
def module_missing(module: str) -> str | None:
    """Return why `module` cannot be imported, with the command that installs it, without importing anything."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    # find_spec with a dotted name would import the parent packages, which takes seconds for GPU libraries.
    folders = [Path(folder, *rest[:-1]) for folder in spec.submodule_search_locations or ()] if spec else []
    if spec and (not rest or any(next(folder.glob(f"{rest[-1]}*"), None) for folder in folders)):
        return None
    what = f"'kernelmark[{EXTRAS[module]}]'" if module in EXTRAS else DISTRIBUTIONS.get(module, module)
    return f"{module} is not installed; pip install {what}"


def unavailable(kernel: Kernel) -> str | None:
    """Return why `kernel` cannot run on this machine, whatever the problem, or None."""
    if kernel.device == "cuda" and (reason := cuda_missing()):
        return reason
    return next((reason for module in kernel.modules if (reason := module_missing(module))), None)


@lru_cache
def module_version(module: str) -> str | None:
    """Return the installed version of the distribution that contains `module`, or None."""
    from importlib import metadata

    try:
        return metadata.version(DISTRIBUTIONS.get(module, module))
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: damaged metadata
        return None


@lru_cache
def cuda_missing() -> str | None:
    """Return why there is no CUDA device here, or None; only the driver is called, no Python package."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver here (libcuda.so.1); install one on a machine with an NVIDIA GPU"
    count = ctypes.c_int(0)
    if (status := driver.cuInit(0)) or (status := driver.cuDeviceGetCount(ctypes.byref(count))):
        return f"the NVIDIA driver does not start (CUDA error {status}); see nvidia-smi"
    return None if count.value else "the NVIDIA driver sees no GPU; see nvidia-smi"
