"""Turn the user's options into a plan for this machine, and a plan into its suites and jobs."""

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kernelmark.bench.measure.cpu import cpu_count, default_threads
from kernelmark.bench.measure.devices import choose_devices
from kernelmark.bench.measure.isa import choose_isas
from kernelmark.bench.plan.case import Plan, PlannedJob, jobs
from kernelmark.bench.plan.declared import is_foreign, require_figures
from kernelmark.bench.plan.errors import UsageError, meant
from kernelmark.bench.plan.foreign import each_overseen, overseen
from kernelmark.bench.plan.kernel import PLUGIN_MODULE, Kernel, tiled
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
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


def checked_jobs(suites: list[Suite], registry: Registry, plan: Plan, prefix: str = "--") -> list[PlannedJob]:
    """Return the jobs of a plan. Raises UsageError if there are none, or if a glob matches no kernel.

    prefix: the text before an option's name in messages.
    """
    for sweep in (sweep for suite in suites for sweep in suite.sweeps):
        op = sweep.problem_class.op
        known = [name for name, kernel in registry.kernels.items() if kernel.op == op]
        for glob in sweep.kernels:
            if complaint := _matches_none(glob, known, f" of {op}"):
                raise UsageError(f"{sweep.where}, key 'kernels': {glob!r} {complaint}")
    expanded = jobs_asked(suites, registry, plan)
    if not expanded:
        raise UsageError(_why_none(plan, suites, registry, prefix))
    for glob in plan.kernels:
        if complaint := _matches_none(glob, registry.kernels):
            raise UsageError(f"{prefix}kernels {glob!r}: {complaint}")
    return expanded


def unfit(plan: Plan, planned_jobs: Sequence[PlannedJob], registry: Registry) -> list[str]:
    """For plug-ins that have no kernel in any job, return the reasons why their selected kernels are in none."""
    used = {registry.kernels[name].module for planned in planned_jobs for name in planned.job.kernels}
    unused = [k for k in registry.kernels.values() if k.module.startswith(PLUGIN_MODULE) and k.module not in used]
    firsts: dict[str, str] = {}
    for name in (name for planned in planned_jobs for name in planned.job.problems if unused):
        firsts.setdefault(name.partition("/")[0], name)
    return _outside(unused, map(registry.problem, firsts.values()), plan)


def _outside(kernels: Iterable[Kernel], problems: Iterable[Problem], plan: Plan) -> list[str]:
    """Return a reason for each selected kernel whose domain excludes the first problem of its operation."""
    firsts: dict[str, Problem] = {}
    for problem in problems:
        firsts.setdefault(problem.op, problem)
    chosen = (k for k in kernels if k.op in firsts and k.device in plan.devices and any(tiled(k, plan.kernels)))
    return [reason for kernel in chosen if (reason := kernel.outside(firsts[kernel.op]))]


def _matches_none(glob: str, names: Iterable[str], of: str = "") -> str | None:
    """Return a complaint if a glob, which may begin with ! or end in a tile, matches none of the kernels' names."""
    head = glob.removeprefix("!").partition("@")[0]
    if fnmatch.filter(names, head):
        return None
    return f"matches no kernel{of}; `kernelmark list --all` lists them{meant(head, names)}"


def _why_none(plan: Plan, suites: list[Suite], registry: Registry, prefix: str) -> str:
    globs = "".join(f" {prefix}kernels {glob!r}" for glob in plan.kernels)
    which = f"no kernel matches{globs} on {' and '.join(plan.devices)}"
    for device in sorted({kernel.device for kernel in registry.kernels.values()} - set(plan.devices)):
        elsewhere = jobs_asked(suites, registry, msgspec.structs.replace(plan, devices=(device,)))
        if names := list(dict.fromkeys(name for planned in elsewhere for name in planned.job.kernels)):
            listed = ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)
            return f"{which}; on {device}, {listed} would match; `kernelmark doctor` reports what is missing here"
    problems = (entry.problem for suite in suites for entry in suite.entries())
    if reasons := _outside(registry.kernels.values(), problems, plan) if plan.kernels else []:
        return f"{which}; {reasons[0]}" + f", and {len(reasons) - 1} more" * (len(reasons) > 1)
    near = "".join(meant(glob, registry.kernels) for glob in plan.kernels if glob not in registry.kernels)
    return f"{which}; `kernelmark list --all` lists them{near}"


def _patience_s(plan: Plan, registry: Registry) -> float:
    """Return the time limit for operations of plug-ins in this process, in seconds; infinite if there are none."""
    return plan.timeout_s if any(map(is_foreign, registry.operations.values())) else math.inf
