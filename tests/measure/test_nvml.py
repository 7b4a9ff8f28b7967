"""What NVML reports on a GPU between two samples, by a fake NVML that returns what the test sets."""

import sys
from collections.abc import Iterator

import pytest

from kernelmark.bench.measure import nvml
from kernelmark.bench.measure.disturbance import disturbance


class FakeNvml:
    """NVML with one GPU; a function that a test deletes is one that the GPU does not support."""

    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.mhz, self.milliwatts, self.degrees, self.reasons, self.millijoules = 1980, 350_500, 51, 0, 7_250
        self.started = 0

    def nvmlInit(self) -> None:
        self.started += 1

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:
        return bus_id

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        assert (handle, kind) == ("0000:01:00.0", self.NVML_CLOCK_SM)
        return self.mhz

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:
        return self.degrees

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return self.milliwatts

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        if self.millijoules < 0:
            raise self.NVMLError("Not Supported")
        return self.millijoules

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.reasons


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    nvml._library.cache_clear()
    yield fake
    nvml._library.cache_clear()


BUS = "0000:01:00.0"


def test_a_gpu_tells_clock_temperature_power_and_energy(gpu: FakeNvml) -> None:
    watch = nvml.GpuMonitor(BUS)
    assert watch.look().state == {"clock_mhz": 1980.0, "temperature_c": 51.0, "power_w": 350.5}
    assert watch.energy_j() == 7.25
    gpu.millijoules = -1
    assert watch.energy_j() is None


def test_the_library_is_started_once_a_process(gpu: FakeNvml) -> None:
    for _ in range(3):
        nvml.GpuMonitor(BUS).look()
    assert gpu.started == 1


def test_throttling_disturbs_and_idleness_or_a_chosen_clock_does_not(gpu: FakeNvml) -> None:
    watch = nvml.GpuMonitor(BUS)
    gpu.reasons = 0x1 | 0x2 | 0x100
    assert watch.look().causes == {}
    gpu.reasons = 0x4 | 0x40
    found = watch.look()
    assert disturbance([found]).startswith("the GPU was throttled (power cap) during 100 % of the sampling; ")
    assert "(hardware thermal slowdown)" in disturbance([found])


def test_a_gpus_clock_that_falls_by_more_than_three_per_cent_disturbs(gpu: FakeNvml) -> None:
    watch = nvml.GpuMonitor(BUS)
    assert watch.clock_mhz() == 1980.0  # while it was warming up
    gpu.mhz = 1930
    assert watch.look().causes == {}
    gpu.mhz = 1782
    assert disturbance([watch.look()]) == "the GPU's clock was 10 % below its highest during 100 % of the sampling"


def test_without_the_librarys_bindings_a_gpu_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml._library.cache_clear()
    watch = nvml.GpuMonitor(BUS)
    assert (watch.look().state, watch.clock_mhz(), watch.energy_j()) == ({}, None, None)
    nvml._library.cache_clear()
