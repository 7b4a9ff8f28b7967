"""Facts that a run records: the machine's processor, memory, system and GPU, and the versions of libraries."""

import json
import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelmark import __version__
from kernelmark.bench.measure.affinity import cpu_facts
from kernelmark.bench.measure.cpu import cpu_count, cpu_name, known_llc_bytes
from kernelmark.bench.measure.isa import isas_here
from kernelmark.bench.measure.memory import number_in, physical_bytes
from kernelmark.bench.measure.nvml import GpuMonitor
from kernelmark.bench.measure.present import cuda_missing, module_missing, module_version
from kernelmark.bench.measure.timing import now
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import Kernel
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.text import as_utf8

#: OpenBLAS's idle threads spin for 2^28 ticks of the time-stamp counter before they sleep. Contenders that use two
#: OpenBLAS builds (NumPy's and SciPy's) and are measured in turn would then compete with each other's spinning threads:
#: a 256^3 SGEMM ran 22x slower. 2^20 ticks keep a pool awake in a batch and let it sleep between contenders. The
#: threads of libgomp, which pyFFTW's and PyTorch's wheels use, spin for up to 10 ms, longer than the time between
#: contenders; 30000 rounds take about 1 ms. Those of Intel's and LLVM's OpenMP spin for 200 ms by default, here 1 ms.
#: Libraries read these variables when loaded, so workers start with them.
IDLE = {"OPENBLAS_THREAD_TIMEOUT": "20", "GOMP_SPINCOUNT": "30000", "KMP_BLOCKTIME": "1"}
NODES, DEVICES = Path("/sys/devices/system/node"), Path("/sys/bus/pci/devices")
#: Seconds for which copies load the link, bytes of each copy, and seconds that the measuring process may take.
LOAD_S, LOAD_BYTES, TIMEOUT_S = 0.5, 64 * 2**20, 60


def versions(kernel: Kernel, problem: Problem, launcher: str | None = None) -> str:
    """Return the versions of a kernel's libraries: `numpy 2.4.6; openblas 0.3.31 Haswell pthreads (numpy.libs)`."""
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
def _blas_of(module: str) -> tuple[str, ...]:
    """Return the BLAS builds that an imported module has loaded; cached, since the search takes milliseconds."""
    return tuple(build for owner, build in _blas_builds() if owner == module)


def _blas_builds() -> list[tuple[str, str]]:
    """Return each BLAS library in this process: the module that loaded it, and its version, build and threading."""
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


def idle_variables() -> dict[str, str]:
    """Return environment variables that make a worker's idle library threads sleep soon; the user's values are kept.

    Raises UsageError if a value of NUMBA_NUM_THREADS would stop Numba from being imported.
    """
    if re.fullmatch(r"\s*(-\d+|0+)\s*", threads := os.environ.get("NUMBA_NUM_THREADS", "")):
        raise UsageError(f"NUMBA_NUM_THREADS: is {threads}, expected at least 1; unset it")
    return {name: os.environ.get(name, value) for name, value in IDLE.items()}


def machine() -> dict[str, Any]:
    """Return the facts that decide whether two runs are comparable; unknown values are left out."""
    facts: dict[str, Any] = {
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "cpus_usable": cpu_count(),
        "isas": isas_here(),
        "llc_bytes": known_llc_bytes(),
        "memory_bytes": physical_bytes(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "virtual": "hypervisor" in cpu.get("flags", "").split() if (cpu := cpu_facts()) else None,
    }
    if cuda_missing() is None and module_missing("cupy") is None:
        facts |= _gpu()
    return {key: value for key, value in facts.items() if value is not None}


def environment() -> dict[str, Any]:
    """Return facts that can vary between runs on one machine: versions, BLAS builds, links, environment variables."""
    names = ("numpy", "scipy", "pyfftw", "numba", "cupy", "cuda.core", "nvmath.bindings", "pycuda.driver")
    prefixes = ("OPENBLAS_", "OMP_", "GOMP_", "MKL_", "ONEDNN_", "ATEN_", "NPY_", "NUMBA_", "CUDA_")
    variables = idle_variables() | os.environ
    return {
        "kernelmark": __version__,
        "versions": {name: version for name in names if (version := module_version(name))},
        "blas": [build for _, build in _blas_builds()],
        "link": link_facts(),
        "variables": {as_utf8(k): as_utf8(v) for k, v in sorted(variables.items()) if k.startswith(prefixes)},
    }


def _gpu() -> dict[str, Any]:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "gpu": properties["name"].decode(),
        "gpus": cupy.cuda.runtime.getDeviceCount(),
        "gpu_memory_bytes": int(properties["totalGlobalMem"]),
        "gpu_l2_bytes": int(properties["l2CacheSize"]),
        "gpu_multiprocessors": int(properties["multiProcessorCount"]),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "cuda_driver": _driver_version(),
    }


def numa_nodes() -> list[int]:
    """Return the numbers of the host's NUMA nodes; none if the system reports none."""
    return sorted(int(path.name.removeprefix("node")) for path in NODES.glob("node[0-9]*"))


def link_facts() -> dict[str, Any]:
    """Return the host's NUMA nodes, and a GPU's node and its link under load, if known."""
    facts: dict[str, Any] = {"numa_nodes": numa_nodes()} if numa_nodes() else {}
    if cuda_missing():
        return facts
    command = [sys.executable, "-P", "-m", "kernelmark.bench.measure.machine"]
    with suppress(subprocess.SubprocessError, ValueError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        facts |= json.loads(done.stdout)
    return facts


def gpu_link() -> dict[str, int]:
    """Return `pcie_generation` and `pcie_lanes` under load, and `gpu_numa_node`; each is left out if unknown."""
    import cupy

    bus = cupy.cuda.Device(0).pci_bus_id
    facts, monitor = {}, GpuMonitor(bus)
    node = number_in(DEVICES / bus.lower() / "numa_node")
    if node is not None and node != -1:  # the system writes -1 if there is only one node
        facts["gpu_numa_node"] = node
    if monitor.link():
        facts |= _under_load(monitor)
    return facts


def _under_load(monitor: GpuMonitor) -> dict[str, int]:
    """Return the most lanes and the highest generation that the link reports while copies cross it."""
    import cupy

    runtime, stream = cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
    source, target = cupy.cuda.alloc_pinned_memory(LOAD_BYTES), cupy.empty(LOAD_BYTES, cupy.uint8)
    link: dict[str, int] = {}
    until_s = now() + LOAD_S
    while now() < until_s:
        runtime.memcpyAsync(target.data.ptr, source.ptr, LOAD_BYTES, runtime.memcpyHostToDevice, stream.ptr)
        for fact, value in monitor.link().items():
            link[fact] = max(value, link.get(fact, 0))
        stream.synchronize()
    return link


if __name__ == "__main__":
    sys.stdout.write(json.dumps(gpu_link()))
