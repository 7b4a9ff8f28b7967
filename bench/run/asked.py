"""Turn the user's options into a plan for this machine, and a plan into its suites and jobs."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelmark.bench.measure.cpu import cpu_count, default_threads
from kernelmark.bench.measure.devices import choose_devices
from kernelmark.bench.measure.isa import choose_isas
from kernelmark.bench.plan.case import Plan, PlannedJob, jobs
from kernelmark.bench.plan.declared import is_foreign, require_figures
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.foreign import each_overseen, overseen
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import Suite, find_suite, full_name


def plan_asked(suites: Sequence[str], options: Mapping[str, Any], prefix: str = "--") -> Plan:
    """Return the plan of the given options; missing options keep the plan's defaults.

    prefix: the text before an option's name in messages. Raises UsageError for options that this machine cannot
    satisfy.
    """
    if options["threads"] and max(options["threads"]) > cpu_count():
        complaint = f"{prefix}threads {max(options['threads'])}: exceeds the CPUs that may be used here"
        raise UsageError(f"{complaint}; expected at most {cpu_count()}, since threads on one CPU wait for each other")
    devices = choose_devices(options["devices"], f"{prefix}device")
    here = {
        "devices": devices,
        "absent": ("cuda",) if options["devices"] == "auto" and "cuda" not in devices else (),
        "kernels": tuple(options["kernels"]),
        "threads": options["threads"] or (default_threads(),),
        "isas": choose_isas(options["isas"], f"{prefix}isa"),
        "plugins": tuple(str(Path(plugin).absolute()) for plugin in options["plugins"]),
        "mode": Mode(options["mode"]),
        "suites": tuple(map(full_name, suites)),
    }
    return Plan(**{**options, **here})


def suites_asked(plan: Plan, registry: Registry) -> list[Suite]:
    """Return the suites of a plan, within a time limit for plug-ins that define their problems. Raises UsageError."""
    suites = (find_suite(name, registry) for name in plan.suites)
    return list(each_overseen(suites, "a suite", _patience_s(plan, registry)))


def jobs_asked(suites: list[Suite], registry: Registry, plan: Plan) -> list[PlannedJob]:
    """Return the jobs of a plan, after a check that sizes and work of a plug-in's problems can be computed."""
    patience_s = _patience_s(plan, registry)
    expanded = list(each_overseen(jobs(suites, registry, plan), "planning the next job", patience_s))
    foreign = {op for op, problem_class in registry.operations.items() if is_foreign(problem_class)}
    for name in dict.fromkeys(name for planned in expanded for name in planned.job.problems if foreign):
        if name.partition("/")[0] in foreign:
            with overseen(f"{name}: its size, work and traffic", patience_s):
                require_figures(registry.problem(name), name)
    return expanded


def _patience_s(plan: Plan, registry: Registry) -> float:
    """Return the time limit for operations of plug-ins in this process, in seconds; infinite if there are none."""
    return plan.timeout_s if any(map(is_foreign, registry.operations.values())) else math.inf
