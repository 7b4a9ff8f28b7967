"""A monitor that reads a GPU through NVIDIA's management library, and sets neither clocks nor power."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from kernelmark.bench.measure.device import Window
from kernelmark.bench.measure.timing import now

#: A window is disturbed if the clock is more than this percentage below its highest value during sampling.
CLOCK_PCT = 3.0
#: Bits of the clocks event reasons (nvml.h); idleness and an application clock do not count as throttling.
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class GpuMonitor:
    """The monitor of SM clock, temperature, power, throttling and energy; values that the GPU lacks are left out."""

    def __init__(self, pci_bus_id: str) -> None:
        self._nvml, self._handle = _library(), None
        if self._nvml is not None:
            self._handle = self._ask(lambda: self._nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id))
        self._highest_mhz = 0.0
        self._before_s = now()

    def look(self) -> Window:
        """Return the Window since the previous call; the current readings stand for all of this time."""
        began, self._before_s = self._before_s, now()
        readings = {
            "clock_mhz": self.clock_mhz(),
            "temperature_c": self._read("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
            "power_w": self._read("nvmlDeviceGetPowerUsage", scale=1e-3),
        }
        state = {column: value for column, value in readings.items() if value is not None}
        return Window(self._before_s - began, state, self._causes(state))

    def clock_mhz(self) -> float | None:
        """Return the SM clock in MHz, or None."""
        mhz = self._read("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM")
        self._highest_mhz = max(self._highest_mhz, mhz or 0.0)
        return mhz

    def energy_j(self) -> float | None:
        """Return the board's energy use since the driver was loaded, in joules, or None; NVML counts millijoules."""
        return self._read("nvmlDeviceGetTotalEnergyConsumption", scale=1e-3)

    def link(self) -> dict[str, int]:
        """Return the current generation and lanes of the PCIe link; a value that NVML does not report is left out."""
        readings = {
            "pcie_generation": self._read("nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_lanes": self._read("nvmlDeviceGetCurrPcieLinkWidth"),
        }
        return {fact: int(value) for fact, value in readings.items() if value is not None}

    def _causes(self, state: dict[str, float]) -> dict[str, float]:
        bits = self._read("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # bindings before CUDA 12.6 have the function under an older name
            bits = self._read("nvmlDeviceGetCurrentClocksThrottleReasons")
        causes = {f"the GPU was throttled ({reason})": 1.0 for bit, reason in REASONS.items() if int(bits or 0) & bit}
        if "clock_mhz" in state and self._highest_mhz:
            below_pct = 100 * (1 - state["clock_mhz"] / self._highest_mhz)
            if below_pct > CLOCK_PCT:
                causes["the GPU's clock was {:.2g} % below its highest"] = below_pct
        return causes

    def _read(self, function: str, *constants: str, scale: float = 1.0) -> float | None:
        call = getattr(self._nvml, function, None)
        if call is None or self._handle is None:
            return None
        value = self._ask(lambda: call(self._handle, *(getattr(self._nvml, name) for name in constants)))
        return None if value is None else float(value) * scale

    def _ask(self, call: Callable[[], Any]) -> Any:
        assert self._nvml is not None
        try:
            return call()
        except self._nvml.NVMLError:
            return None


@lru_cache
def _library() -> Any:
    """Return NVML, initialised once per process, or None if its bindings or the driver are missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
