"""The stages of `make gpu`, each run in a process of its own that `gpu.py` watches.

A stage saves what it finds as it finds it, looks at the clock before each job, and returns a line on what it came to.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, cast

import msgspec

import cudnn_table
import gpu_bars
from agreement import compare
from gpu_task import DISAGREEING, Question, Task
from kernelmark.bench.claims import claims_rows
from kernelmark.bench.claims.views import tally, write_files
from kernelmark.bench.emulator.shapes import problems
from kernelmark.bench.measure.compile import compile_cubin, in_parallel
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.launch import entries_of
from kernelmark.bench.measure.lock import exclusive
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.case import BASELINES, Budget, Job, Plan, PlannedJob, WorkerKey
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Kernel
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.selftest import clocks
from kernelmark.bench.selftest.finding import Finding, table

#: One call of a kernel on its smallest shape, and on the shapes of the suites.
FIRST_S, TIMEOUT_S = 5.0, 10.0
MAX_TIME_S = 0.15
PROCESSES = 3


def time_ways(task: Task) -> str:
    """Time work of known length through each way of launching; kernels of a way that disagrees get no rows."""
    found: list[Finding] = []
    for name, finding in clocks.findings(task.until_s):
        found.append(finding)
        if finding.holds is False:
            task.folder.note(DISAGREEING, name, " ".join(clocks.WAYS[name].serves))
        task.folder.write("clocks.md", f"# Clocks\n\n```\n{table(found)}\n```\n")
    bad = [finding.check.removeprefix("clocks: ") for finding in found if finding.holds is False]
    without = f" ({', '.join(bad)}): their kernels get no rows" if bad else ""
    text = f"{len(found)} ways, {len(bad)} disagree or fail{without}"
    missed = list(clocks.WAYS)[len(found) :]
    return f"{text}; no time for {', '.join(missed)}" if missed else text


def compile_ahead(task: Task) -> str:
    """Compile what the later stages launch, on all processors, rather than one by one while the device waits."""
    if not task.own():
        return "no kernel to compile"
    device, wanted = present_limits(), {}
    suites = [find_suite(name, task.registry) for name in task.settings.suites]
    timed = {entry.problem.id for suite in suites for entry in suite.entries()}
    bars_ = gpu_bars.all_bars()
    for kernel in task.own():
        of_bars = {bar.problem for bar in bars_ if kernel.id in bar.kernels}
        for name in {*filter(None, [smallest(kernel, task.registry)]), *of_bars, *timed}:
            problem = task.registry.problem(name)
            if problem.op == kernel.op and not kernel.refuses(problem, device):
                tile = kernel.tile_for(problem, device)
                assert tile is not None
                wanted[kernel.source, entries_of(kernel.calls(problem, tile, device))] = kernel.id
    failed = [found for found in in_parallel(lambda item: _refused(*item, device.arch), list(wanted.items())) if found]
    return f"{len(wanted)} programs for {device.arch}" + "".join(f"; {reason}" for reason in failed)


def _refused(program: tuple[str, tuple[str, ...]], kernel: str, arch: str) -> str | None:
    """Compile a program into the cache; return why that fails, or None."""
    try:
        compile_cubin(*program, arch, kernel)
    except UsageError as error:  # its row will say so
        return str(error).splitlines()[0]
    return None


def smallest(kernel: Kernel, registry: Registry) -> str | None:
    """Return the smallest problem that the kernel is swept through elsewhere, or None."""
    # The sweep asks a kernel for its domain and what it refuses, which every kernel has.
    taken = problems(cast(CudaKernel, kernel), registry.operations[kernel.op])
    return min(taken, key=lambda problem: problem.footprint_bytes).id if taken else None


def once(task: Task) -> str:
    """Verify every kernel of the device on its smallest shape."""
    return _verify(task, task.kernels(), "cuda-core")


def second_launcher(task: Task) -> str:
    """Verify our own kernels as PyCUDA launches them."""
    if missing := module_missing("pycuda.driver"):
        return f"not verified: {missing}"
    if "PyCUDA" in task.folder.read(DISAGREEING):
        return "not verified: the way PyCUDA launches is timed wrong"
    return _verify(task, task.own(), "pycuda")


def _verify(task: Task, kernels: Sequence[Kernel], launcher: str) -> str:
    chosen: dict[str, list[str]] = {}
    for kernel in kernels:
        if problem := smallest(kernel, task.registry):
            chosen.setdefault(problem, []).append(kernel.id)
    plan = Plan((task.settings.device,), mode=Mode.VERIFY, launcher=launcher, timeout_s=FIRST_S)

    def planned() -> Iterator[PlannedJob]:
        for problem, names in chosen.items():
            job = Job((problem,), tuple(names), Mode.VERIFY, task.settings.plugins, 0, Budget(), 1)
            job = msgspec.structs.replace(job, launcher=launcher, timeout_s=FIRST_S)
            yield PlannedJob(job, WorkerKey("cuda", 1), task.stage, 1)

    return task.measure(plan, (), planned)


def bars(task: Task) -> str:
    """Measure what our kernels promise, in fresh processes."""
    return gpu_bars.write(task.folder.path, task.until_s)


def suites(task: Task) -> str:
    """Time the suites on the device, with the baseline in turn."""
    return task.measure(_plan(task), [find_suite(name, task.registry) for name in task.settings.suites])


def several_processes(task: Task) -> str:
    """Time the problems of the first suite in several processes, one problem after another, so that rows come early."""
    plan = msgspec.structs.replace(_plan(task), processes=PROCESSES, spread_s=0.0, ceilings=False)
    entries = find_suite(task.settings.suites[0], task.registry).entries()
    results = []
    for problem in dict.fromkeys(entry.problem.id for entry in entries):
        if task.over:
            break
        task.stage = f"{PROCESSES} processes, {problem}"
        results.append(task.measure(plan, [find_suite(problem, task.registry)]))
    return f"{len(results)} problems in {PROCESSES} processes each" + (", cut off at its deadline" if task.over else "")


def _plan(task: Task) -> Plan:
    # A kernel that a plan names in full gets a row on every problem; a pattern selects it where it takes the problem.
    own = {f"*/{kernel.provider}.{kernel.name}" for kernel in task.kernels()}
    baselines = {f"*/{name.partition('/')[2]}" for name in (*BASELINES.values(), "transpose/openblas.imatcopy")}
    return Plan(
        ("cpu", task.settings.device),
        tuple(sorted(own | baselines)),
        threads=(cpu_count(),),
        plugins=task.settings.plugins,
        max_time_s=MAX_TIME_S,
        timeout_s=TIMEOUT_S,
    )


def claims(task: Task) -> str:
    """Judge the founding claims by the rows of the report."""
    with closing(task.folder.store()) as store:
        answers = claims_rows(store, store.run_ids(), here=True)
        write_files(task.folder.path, answers, task.folder.path.name)
    return tally(answers)


def cudnn(task: Task) -> str:
    """Ask cuDNN which of its algorithms run here."""
    with Workers() as workers:
        return cudnn_table.write(task.folder.path, workers.run, lambda: task.over)


def emulator(task: Task) -> str:
    """Compare the emulator with the device on one case of each of our kernels."""
    names = [kernel.id for kernel in task.own() if not kernel.emulated]
    lines = []
    for line in compare(names, task.until_s):
        lines.append(line)
        task.folder.write("emulator.md", "# Emulator and device\n\n" + "".join(f"- {text}\n" for text in lines))
    differ = sum("differ" in line for line in lines)
    return f"{len(lines)} of {len(names)} kernels compared, {differ} differ"


class Stage(NamedTuple):
    """What runs, and the seconds that it may take of a report of 540 s."""

    run: Callable[[Task], str]
    limit_s: float


STAGES: Mapping[str, Stage] = {
    "compilation": Stage(compile_ahead, 60),
    "clocks": Stage(time_ways, 60),
    "every kernel once": Stage(once, 120),
    "bars": Stage(bars, 170),
    "suites": Stage(suites, 200),
    "second launcher": Stage(second_launcher, 60),
    "emulator": Stage(emulator, 60),
    "several processes": Stage(several_processes, 90),
    "claims": Stage(claims, 30),
    "cuDNN": Stage(cudnn, 60),
}


def replies(questions: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield what each stage came to, or the exception that ended it; for `device`, the device's name."""
    for text in questions:
        asked = msgspec.json.decode(text, type=Question)
        try:
            if asked.stage == "device":
                discover(asked.settings.plugins)
                yield {"done": get_device(asked.settings.device).device_name}
            else:
                task = Task(asked)
                with exclusive((asked.settings.device,), shared=False):
                    done = STAGES[asked.stage].run(task)
                yield {"done": done}
        except Unsupported as error:
            yield {"failed": str(error)}
        except Exception as error:  # whatever it is, the other stages go on
            yield {"failed": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"}
