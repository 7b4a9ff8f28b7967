"""The nominal peak rate of a CPU (clock rate x units x lanes), which bounds rows if no measured ceiling can be used.

Sources: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966); AMD Software Optimization Guides for
families 17h (55723, 56305), 19h (56665, 57647) and 1Ah (58455); Arm Neoverse N1, N2, V1 and V2 Core Software
Optimization Guides.
"""

from functools import lru_cache

from kernelmark.bench.measure.affinity import CPUS, cpu_facts
from kernelmark.bench.measure.cpu import cpu_name
from kernelmark.bench.measure.measurement import Ceiling, Need

#: The number of multiply-add units of a core, and the FP32 lanes of each unit, by vendor (`vendor_id`, or `CPU
#: implementer`), family (or `CPU part`) and first model. If models differ, the entry describes the model with the most
#: lanes.
UNITS = {
    ("GenuineIntel", 6, 0x3C): (2, 8),  # Haswell and later
    ("GenuineIntel", 6, 0x55): (2, 16),  # Skylake-SP and later, including client models, which have half
    ("AuthenticAMD", 0x17, 0x00): (2, 4),  # Zen
    ("AuthenticAMD", 0x17, 0x30): (2, 8),  # Zen 2
    ("AuthenticAMD", 0x19, 0x00): (2, 8),  # Zen 3 and 4, whose units take two cycles for 512 bits
    ("AuthenticAMD", 0x1A, 0x00): (2, 16),  # Zen 5
    ("0x41", 0xD0C, 0): (2, 4),  # Neoverse N1
    ("0x41", 0xD40, 0): (2, 8),  # Neoverse V1
    ("0x41", 0xD49, 0): (2, 4),  # Neoverse N2
    ("0x41", 0xD4F, 0): (4, 4),  # Neoverse V2
}
LANES = {"fp32": 1.0, "fp64": 0.5}


@lru_cache
def nominal_peak(need: Need) -> Ceiling | None:
    """Return the peak rate of a CPU's threads, or None if the units or the highest clock are unknown."""
    units, hertz = _units(), _highest_hertz()
    if need.device != "cpu" or need.kind not in LANES or not (units and hertz):
        return None
    rate = 2 * hertz * units[0] * units[1] * LANES[need.kind] * need.threads
    peak = f"nominal peak of {hertz * 1e-9:.3g} GHz x {units[0]} units x {units[1] * LANES[need.kind]:.0f} lanes"
    return Ceiling(need.device, need.threads, need.kind, "", peak, cpu_name(), rate, rate, rate, rate, "")


def _units() -> tuple[int, int] | None:
    """Return the FMA units of a core and the FP32 lanes of each, or None if unknown."""
    facts = cpu_facts()
    try:
        vendor = facts.get("vendor_id") or facts["CPU implementer"]
        family, model = int(facts.get("cpu family") or facts["CPU part"], 0), int(facts.get("model") or 0)
    except (KeyError, ValueError):
        return None
    known = [units for units in UNITS if units[:2] == (vendor, family) and units[2] <= model]
    return UNITS[max(known)] if known else None


def _highest_hertz() -> float | None:
    """Return the highest clock that the system reports, or None for acpi-cpufreq, which leaves out the boost."""
    folder = CPUS / "cpu0" / "cpufreq"
    try:
        if (folder / "scaling_driver").read_text().strip() == "acpi-cpufreq":
            return None
        return 1e3 * max(int(path.read_text()) for path in CPUS.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq"))
    except (OSError, ValueError):
        return None
