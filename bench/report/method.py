"""Describe how a run was measured, from its recorded facts and in the style of a paper."""

from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.record.store import Run
from kernelmark.bench.report.format import count, size
from kernelmark.bench.report.noise import noise_of
from kernelmark.bench.report.run_data import RunData


def paragraph(data: RunData) -> str:
    """Return a paragraph on how a run was measured."""
    if not data.rows:
        return " ".join([*_where(data), "The run recorded no case."])
    return " ".join([*_where(data), *_what(data), *_how(data), *_result(data)])


def _where(data: RunData) -> Iterator[str]:
    machine, environment = data.run.machine, data.run.environment
    yield f"The measurements were taken with {software(data.run)} on {_machine(machine)}."
    names = [f"{name} {version}" for name, version in environment.get("versions", {}).items()]
    builds = environment.get("blas", [])
    if names:
        yield f"Libraries: {', '.join(names)}" + (f"; BLAS: {'; '.join(builds)}." if builds else ".")
    variables = environment.get("variables", {})
    if variables:
        yield "Set in the environment: " + ", ".join(f"{key}={value}" for key, value in variables.items()) + "."


def software(run: Run) -> str:
    """Return version and commit for a caption: `kernelmark 0.1.0 (commit c0ffee123456)`."""
    version = f"kernelmark {run.environment.get('kernelmark', '')}".strip()
    commit, _, dirty = run.git_commit.partition("-")
    if not commit or " " in commit:  # kernelmark did not run from a checkout
        return version
    return f"{version} (commit {commit[:12]}{', with changes that are not committed' if dirty else ''})"


def _machine(machine: dict[str, Any]) -> str:
    parts = [f"{machine['cpus_usable']} of {machine['cpus']} logical CPUs" if "cpus_usable" in machine else ""]
    for key, text in (("llc_bytes", "of last-level cache"), ("memory_bytes", "of memory")):
        parts.append(f"{size(machine[key])} {text}" if machine.get(key) else "")
    kind = "a virtual machine with " if machine.get("virtual") else ""
    known = ", ".join(filter(None, parts))
    description = f"{kind}{machine.get('cpu') or 'a processor that is not recorded'}" + (f" ({known})" if known else "")
    if "gpu" in machine:
        description += f" and {machine['gpu']} (driver {machine.get('cuda_driver', 'unknown')})"
    software = [machine.get("system", ""), f"Python {machine['python']}" if "python" in machine else ""]
    return description + "".join(f", {each}" for each in software if each)


def _what(data: RunData) -> Iterator[str]:
    rows = data.rows
    suites = ", ".join(data.run.suites) or "no suite"
    problems, kernels = len({r.problem for r in rows}), len({r.kernel for r in rows})
    threads = _listed(sorted({r.threads for r in rows}), "thread")
    yield (
        f"The run {data.run_id} of {suites} has {count(len(rows), 'case')}: "
        f"{count(kernels, 'kernel')} on {count(problems, 'problem')}, {threads}."
    )
    if data.run.plan:
        seeds = _listed(sorted({r.seed for r in rows}), "")
        yield f"Operands were drawn from seed {seeds} and random bits of each process."
        yield (
            "Each kernel's result was checked against a float64 reference before timing, and after timing on newly "
            "drawn operands. The tolerance follows from length of reduction, storage type and arithmetic. A kernel "
            "with a wrong result has no time."
        )
        yield from (mode.does.sentence for mode in sorted(Mode) if any(r.mode == mode for r in rows))


def _listed(values: list[int], noun: str) -> str:
    shown = [str(value) for value in values[:6]] + ([f"{len(values) - 6} more"] if len(values) > 6 else [])
    text = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    return f"{text} {noun}{'s' * (values != [1])}" if noun else text


def _how(data: RunData) -> Iterator[str]:
    timed, plan = data.timed, data.run.plan
    if not timed or not plan:
        return
    width, limit = plan.get("rel_ci"), plan.get("max_time_s")
    stops = Counter(r.stopped_by or "an unrecorded reason" for r in timed).most_common()
    stopped = ", ".join(f"{number} stopped by {reason}" for reason, number in stops)
    spent = f"{limit:g} s per case" if limit else "the suite's time limit per case (2 s if it sets none)"
    yield (
        "The kernels of a problem were sampled in turn, forward and backward (ABBA), after an untimed warm-up, until "
        f"the 95 % interval of the median was narrower than {100 * (width or 0):g} % of it or {spent} was spent, and "
        f"never with fewer than six samples: {stopped}."
    )
    counts = [r.samples for r in timed]
    yield f"A case has {min(counts)} to {max(counts)} samples (median {median(counts):g})."
    processes = sorted({r.processes for r in timed})
    if processes == [1]:
        yield (
            "Each case was measured in one process; intervals are those of the sign test, widened by the samples' "
            "autocorrelation, and hold within that process."
        )
    else:
        yield (
            f"Each case was measured in {_listed(processes, '')} fresh processes; if there are several, intervals "
            "are Student's over the logarithms of the processes' medians and hold for the next process too."
        )
    yield (
        "A speedup is the median, over pairs of neighbouring rounds, of the baseline's time over the kernel's. GFLOP/s "
        "counts the nominal operations, GB/s (1e9 bytes) the compulsory traffic."
    )
    if data.all_ceilings:
        yield "Ceilings are the rates that microbenchmarks of arithmetic and of copying reached here in this run."


def _result(data: RunData) -> Iterator[str]:
    counts = Counter(r.status for r in data.rows).most_common()
    yield "Of the cases " + ", ".join(f"{number} {_were(number)} {status}" for status, number in counts) + "."
    if sentence := noise_of(data.rows).sentence:
        yield sentence + "."
    if repeated := sum(r.repeated or 0 for r in data.rows):
        yield f"{count(repeated, 'sample')} taken under such load {_were(repeated)} taken again."


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
