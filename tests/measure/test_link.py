"""The link of a GPU is read while copies cross it, and what nothing reports is left out. On a fake CuPy and NVML."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmark.bench.measure import machine, nvml
from kernelmark.bench.measure.nvml import GpuMonitor

BUS = "0000:65:00.0"


class Bus:
    """A link that falls back where nothing crosses it, as NVML and CuPy have it."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.under_way = 0
        pointer = SimpleNamespace(ptr=4096)
        stream = SimpleNamespace(ptr=16, synchronize=self._synchronize)
        runtime = SimpleNamespace(memcpyAsync=self._copy, memcpyHostToDevice=1)
        self.cupy = SimpleNamespace(empty=lambda *_: SimpleNamespace(data=pointer), uint8=None)
        self.cupy.cuda = SimpleNamespace(
            Device=lambda number: SimpleNamespace(pci_bus_id=BUS),
            Stream=lambda non_blocking: stream,
            alloc_pinned_memory=lambda nbytes: pointer,
            runtime=runtime,
        )

    def _copy(self, *_: Any) -> None:
        self.under_way += 1

    def _synchronize(self) -> None:
        self.under_way = 0

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:
        return bus_id

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:
        return 5 if self.under_way else 1

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:
        raise self.NVMLError("Not Supported")


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    found = Bus()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    monkeypatch.setitem(sys.modules, "cupy", found.cupy)
    monkeypatch.setattr(machine, "LOAD_S", 0.01)
    monkeypatch.setattr(machine, "DEVICES", tmp_path)
    nvml._library.cache_clear()
    yield found
    nvml._library.cache_clear()


def test_the_generation_is_that_of_a_link_under_load_and_what_nvml_lacks_is_left_out(bus: Bus) -> None:
    assert GpuMonitor(BUS).link() == {"pcie_generation": 1}
    assert machine.gpu_link() == {"pcie_generation": 5}


@pytest.mark.parametrize(("text", "found"), [("1\n", {"gpu_numa_node": 1}), ("-1\n", {}), ("", {})])
def test_the_node_of_a_gpu_is_the_systems(bus: Bus, tmp_path: Path, text: str, found: dict[str, int]) -> None:
    (tmp_path / BUS).mkdir()
    (tmp_path / BUS / "numa_node").write_text(text)
    assert machine.gpu_link() == {**found, "pcie_generation": 5}


def test_without_nvml_nothing_crosses_the_link(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(bus, "_copy", None)
    assert machine.gpu_link() == {}


def test_the_nodes_of_the_host_are_numbers_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "NODES", tmp_path)
    monkeypatch.setattr(machine, "cuda_missing", lambda: "no GPU")
    assert machine.link_facts() == {}
    for name in ("node10", "node2", "possible"):
        (tmp_path / name).mkdir()
    assert machine.link_facts() == {"numa_nodes": [2, 10]}


def test_a_process_that_fails_leaves_the_facts_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cuda_missing", lambda: None)
    monkeypatch.setattr(sys, "executable", "false")
    assert set(machine.link_facts()) <= {"numa_nodes"}
