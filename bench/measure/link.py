"""The PCIe link of the GPU as it is under load, and the NUMA nodes at either end: facts of a run's environment.

An idle link falls back to a lower generation, so it is read while copies cross it, in a process of its own: the parent
of a run has no context on the GPU. What neither NVML nor the system reports is left out.
"""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernelmark.bench.measure.nvml import GpuMonitor
from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.measure.timing import now

NODES, DEVICES = Path("/sys/devices/system/node"), Path("/sys/bus/pci/devices")
#: How long copies of that many bytes cross the link, and how long the process may take.
LOAD_S, LOAD_BYTES, TIMEOUT_S = 0.5, 64 * 2**20, 60


def numa_nodes() -> list[int]:
    """Return the numbers of the host's NUMA nodes; none where the system names none."""
    return sorted(int(path.name.removeprefix("node")) for path in NODES.glob("node[0-9]*"))


def facts() -> dict[str, Any]:
    """Return the host's NUMA nodes, and of a GPU its own and the link under load, as far as each is known."""
    found: dict[str, Any] = {"numa_nodes": numa_nodes()} if numa_nodes() else {}
    if cuda_missing():
        return found
    command = [sys.executable, "-P", "-m", "kernelmark.bench.measure.link"]
    with suppress(subprocess.SubprocessError, ValueError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        found |= json.loads(done.stdout)
    return found


def of_gpu() -> dict[str, int]:
    """Return `pcie_generation` and `pcie_lanes` under load, and `gpu_numa_node`; each is left out where unknown."""
    import cupy

    bus = cupy.cuda.Device(0).pci_bus_id
    found, monitor = {}, GpuMonitor(bus)
    if (node := _node_of(bus)) is not None:
        found["gpu_numa_node"] = node
    if monitor.link():
        found |= _under_load(monitor)
    return found


def _under_load(monitor: GpuMonitor) -> dict[str, int]:
    """Return the widest and fastest link that is seen while copies cross it."""
    import cupy

    runtime, stream = cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
    source, target = cupy.cuda.alloc_pinned_memory(LOAD_BYTES), cupy.empty(LOAD_BYTES, cupy.uint8)
    found: dict[str, int] = {}
    until_s = now() + LOAD_S
    while now() < until_s:
        runtime.memcpyAsync(target.data.ptr, source.ptr, LOAD_BYTES, runtime.memcpyHostToDevice, stream.ptr)
        for fact, value in monitor.link().items():
            found[fact] = max(value, found.get(fact, 0))
        stream.synchronize()
    return found


def _node_of(bus: str) -> int | None:
    """Return the NUMA node of a device of the bus; the system writes -1 where there is one node alone."""
    try:
        node = int((DEVICES / bus.lower()).joinpath("numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(of_gpu()))
