"""The nominal peak of a CPU, by its family and the highest clock that the system reports."""

import pytest

from kernelmark.bench.measure import peak
from kernelmark.bench.measure.measurement import Need

NEED = Need("cpu", 2, "fp32", "fma/n196608k512/f32")
EMERALD = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 207\n"
ZEN_2 = "vendor_id : AuthenticAMD\ncpu family : 23\nmodel : 49\n"
NEOVERSE = "CPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd0c\n"


@pytest.fixture
def found(tmp_path, monkeypatch):
    """The peak in GFLOP/s where the system gives these facts; None where there is none."""

    def of(cpuinfo, need=NEED, mhz=2000, driver="intel_pstate"):
        (tmp_path / "cpuinfo").write_text(cpuinfo)
        folder = tmp_path / "cpu0" / "cpufreq"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scaling_driver").write_text(f"{driver}\n")
        (folder / "cpuinfo_max_freq").write_text(f"{1000 * mhz}\n")
        peak._units.cache_clear()
        peak._highest_hertz.cache_clear()
        ceiling = peak.nominal_peak(need)
        return ceiling and ceiling.rate * 1e-9

    monkeypatch.setattr(peak, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(peak, "CPUS", tmp_path)
    yield of
    peak._units.cache_clear()
    peak._highest_hertz.cache_clear()


@pytest.mark.parametrize(
    ("cpuinfo", "flop_per_cycle"), [(EMERALD, 2 * 2 * 16), (ZEN_2, 2 * 2 * 8), (NEOVERSE, 2 * 2 * 4), ("", None)]
)
def test_the_peak_is_clock_times_units_times_lanes_of_each_thread(found, cpuinfo, flop_per_cycle):
    assert found(cpuinfo) == (flop_per_cycle and pytest.approx(2 * 2 * flop_per_cycle))
    assert found(cpuinfo, NEED._replace(kind="fp64")) == (flop_per_cycle and pytest.approx(2 * flop_per_cycle))
    assert found(cpuinfo, NEED._replace(kind="memory")) is None


def test_there_is_no_peak_where_the_highest_clock_is_unknown_or_without_its_boost(found, tmp_path):
    assert found(EMERALD, driver="acpi-cpufreq") is None
    (tmp_path / "cpu0/cpufreq/cpuinfo_max_freq").unlink()
    peak._highest_hertz.cache_clear()
    assert peak.nominal_peak(NEED) is None
