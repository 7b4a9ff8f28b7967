"""What a run records of its machine: processor, memory, system, GPU, and the versions a kernel stands on."""

import importlib.util
import os
import platform
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelmark import __version__
from kernelmark.bench.measure import link
from kernelmark.bench.measure.cpu import cpu_count, cpu_name, last_level_cache_bytes
from kernelmark.bench.measure.cuda import cuda_missing
from kernelmark.bench.plan.kernel import Kernel
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.text import as_utf8

#: Distributions whose name differs from the module's, and the extra of kernelmark that installs each.
DISTRIBUTIONS = {
    "cupy": "cupy-cuda13x",
    "cuda.core": "cuda-core",
    "nvmath.bindings": "nvmath-python",
    "pycuda.driver": "pycuda",
    "cudnn": "nvidia-cudnn-frontend",
}
EXTRAS = {
    "cupy": "gpu",
    "cuda.core": "gpu",
    "nvmath.bindings": "gpu",
    "pycuda.driver": "pycuda",
    "torch": "torch",
    "cudnn": "cudnn",
    "pygal": "histogram",
    "kernel_tuner": "tune",
    "parsl": "cluster",
}


@lru_cache
def module_missing(module: str) -> str | None:
    """Why `module` cannot be imported, with the command that installs it; looks for it without importing anything."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    # find_spec of a dotted name would import its parents, which for GPU libraries takes seconds.
    if spec and (not rest or _inside(spec.submodule_search_locations or [], Path(*rest))):
        return None
    what = f"'kernelmark[{EXTRAS[module]}]'" if module in EXTRAS else DISTRIBUTIONS.get(module, module)
    return f"{module} is not installed; pip install {what}"


def _inside(folders: Iterable[str], module: Path) -> bool:
    return any(next(Path(folder, module.parent).glob(f"{module.name}*"), None) for folder in folders)


def unavailable(kernel: Kernel) -> str | None:
    """Return why no problem can be run by `kernel` on this machine, or None."""
    if kernel.device == "cuda" and (reason := cuda_missing()):
        return reason
    return next((reason for module in kernel.modules if (reason := module_missing(module))), None)


def versions(kernel: Kernel, problem: Problem, launcher: str | None = None) -> str:
    """`numpy 2.4.6; openblas 0.3.31 Haswell pthreads (numpy.libs)`: what the numbers of a row stand on."""
    parts = [f"{module} {version}" for module in kernel.modules if (version := module_version(module))]
    parts += [build for module in kernel.modules for build in _blas_of(module)]
    if kernel.library_version:
        parts += [kernel.library_version(problem)]
    if kernel.device == "cuda":
        parts += [f"driver {_driver_version()}"]
    if launcher:
        parts += [f"launcher {launcher}"]
    return "; ".join(parts)


@lru_cache
def module_version(module: str) -> str | None:
    """The installed version of the distribution that holds `module`, or None."""
    from importlib import metadata

    try:
        return metadata.version(DISTRIBUTIONS.get(module, module))
    except metadata.PackageNotFoundError:
        return None


@lru_cache
def _blas_of(module: str) -> tuple[str, ...]:
    """The BLAS builds that `module`, imported by now, brought along; asked once, since looking takes milliseconds."""
    return tuple(build for owner, build in _blas_builds() if owner == module)


def _blas_builds() -> list[tuple[str, str]]:
    """The BLAS libraries loaded by now: which module brought each, and its version, build and threading."""
    import threadpoolctl

    builds = []
    for lib in threadpoolctl.threadpool_info():
        if lib["user_api"] == "blas":
            folder = Path(lib["filepath"]).parent.name
            owner = folder.partition(".")[0] if folder.endswith((".libs", ".dylibs")) else "numpy"
            build = " ".join(str(lib.get(key, "")) for key in ("version", "architecture", "threading_layer"))
            builds.append((owner, f"{lib['internal_api']} {build} ({folder})"))
    return builds


@lru_cache
def _driver_version() -> str:
    import cupy

    version = cupy.cuda.runtime.driverGetVersion()
    return f"{version // 1000}.{version % 1000 // 10}"


def machine() -> dict[str, Any]:
    """The facts that make two runs comparable or not; empty values are left out."""
    facts: dict[str, Any] = {
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "cpus_usable": cpu_count(),
        "llc_bytes": last_level_cache_bytes(),
        "memory_bytes": _memory_bytes(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "virtual": _hypervisor(),
    }
    if cuda_missing() is None and module_missing("cupy") is None:
        facts |= _gpu()
    return {key: value for key, value in facts.items() if value is not None}


def environment() -> dict[str, Any]:
    """What a run can vary on one machine: versions of kernelmark and its libraries, variables that steer them."""
    names = ("numpy", "scipy", "pyfftw", "numba", "cupy", "cuda.core", "nvmath.bindings", "pycuda.driver")
    prefixes = ("OPENBLAS_", "OMP_", "GOMP_", "MKL_", "ONEDNN_", "ATEN_", "NPY_", "NUMBA_", "CUDA_")
    return {
        "kernelmark": __version__,
        "versions": {name: version for name in names if (version := module_version(name))},
        "blas": [build for _, build in _blas_builds()],
        "link": link.facts(),
        "variables": {as_utf8(k): as_utf8(v) for k, v in sorted(os.environ.items()) if k.startswith(prefixes)},
    }


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _hypervisor() -> bool | None:
    try:
        return " hypervisor" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return None


def _gpu() -> dict[str, Any]:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "gpu": properties["name"].decode(),
        "gpu_memory_bytes": int(properties["totalGlobalMem"]),
        "gpu_l2_bytes": int(properties["l2CacheSize"]),
        "gpu_multiprocessors": int(properties["multiProcessorCount"]),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "cuda_driver": _driver_version(),
    }
