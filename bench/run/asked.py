"""The plan that a user asks for, on this machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.measure.cpu import cpu_count
from bench.measure.devices import choose_devices
from bench.measure.isa import choose_isas
from bench.plan.case import Plan
from bench.plan.errors import UsageError
from bench.plan.modes import Mode
from bench.plan.suites import full_name


def plan_asked(suites: Sequence[str], asked: Mapping[str, Any], prefix: str = "--") -> Plan:
    """The plan of the options asked for, by field; those left out keep the plan's own defaults.

    prefix: what the user typed before an option's name. Raises UsageError for what this machine does not have.
    """
    if asked["threads"] and max(asked["threads"]) > cpu_count():
        found = f"{prefix}threads {max(asked['threads'])}: is more than the CPUs that may be used here"
        raise UsageError(f"{found}; expected at most {cpu_count()}, since threads on one CPU wait for each other")
    here = {
        "devices": choose_devices(asked["devices"], f"{prefix}device"),
        "kernels": tuple(asked["kernels"]),
        "threads": asked["threads"] or (cpu_count(),),
        "isas": choose_isas(asked["isas"], f"{prefix}isa"),
        "plugins": tuple(str(Path(plugin).absolute()) for plugin in asked["plugins"]),
        "mode": Mode(asked["mode"]),
        "suites": tuple(map(full_name, suites)),
    }
    return Plan(**{**asked, **here})
