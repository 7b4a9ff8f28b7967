"""Make the tasks of a GPU's agenda, each with its measurement, the value of its answer, and the expected time.

Values are relative. They put quick and decisive tasks first: verification of changed kernels, then the founding
question, bars, claims, networks, and the tiles that a search would try.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import combinations, product
from typing import Any, cast

import msgspec

import gpu_bars
from agenda import Task
from counters import CHOSEN
from kernelmark.bench.claims.catalog import claims, experiment_names
from kernelmark.bench.claims.evidence import planned
from kernelmark.bench.emulator.shapes import problems as swept
from kernelmark.bench.measure.sources import code_of, task_digest
from kernelmark.bench.plan.case import Budget, Entrant, Job, Plan, PlannedJob, WorkerKey
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import VENDORS, CudaKernel, Kernel
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Kernels, Registry
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.plan.tiles import Tile
from kernelmark.bench.report.format import count

#: Seconds without sampling: for a timed case (set-up, two verifications), a fresh worker, a case that is only verified,
#: and an emulated case.
CASE_S, WORKER_S, VERIFIED_S, EMULATED_S = 0.45, 2.5, 0.1, 0.6
#: Additional seconds for the first task of a kind, which compiles the emulator's programs.
FIRST_S = {"emulator": 15.0}
#: Seconds after which a call counts as hung.
TIMEOUT_S = 10.0
NETWORKS = ("alexnet", "vgg16", "googlenet", "resnet50")
IMAGES = 32
#: The relative values of answers: the founding question, bars and claims come before tiles, layers and problems.
VALUE = {
    "verify": 8.0, "pycuda": 1.0, "emulator": 1.0, "clocks": 60.0, "founding": 600.0, "bar": 60.0, "claim": 25.0,
    "claim on the CPU": 1.0, "layer": 4.0, "layer in 16 bits": 2.0, "problem": 3.0, "mode": 12.0, "energy": 8.0,
    "energy of a layer": 2.0, "batch": 20.0, "tune": 15.0, "sanitizer": 20.0, "counters": 150.0, "cudnn": 6.0,
}  # fmt: skip
FOUNDING = ("gemm/m1024n2048k26752/f32/NT", "gemm/m1024n2048k26752/f32/NN")
TURNED = ("transpose/m2048n26752/f32/out", "transpose/m2048n26752/f32/in", "copy/m2048n26752/f32")
#: The problems that are timed in all three modes; SMALL is also timed with the second launcher.
SMALL, LARGE = "gemm/m512n512k512/f32/NT", "gemm/m4096n4096k4096/f32/NT"
MODES = (SMALL, LARGE, "transpose/m4096n4096/f32/out", "conv/n32c64h56w56k64r3s3pad1/f32/nchw/fprop")
#: The network in whose forward layers energy is measured, and the kernels: ours and cuDNN's of each algorithm.
METERED_NETWORK = "resnet50"
METERED = ("conv/cuda.winograd4", "conv/cuda.implicit", "conv/cudnn.winograd_nonfused",
           "conv/cudnn.implicit_precomp_gemm")  # fmt: skip
#: Seconds of sampling in which a device's energy counter is updated often enough.
METERED_S = 1.2
#: The number of a kernel's tiles in one job, and of the best tiles that are measured again in two processes.
TILES, AGAIN = 16, 2
_4096, _FOUNDING = "gemm/m4096n4096k4096", "gemm/m1024n2048k26752"
#: Groups of kernels, and the problems on which their tiles are tried.
TUNED = (
    (("gemm/cuda.splitk", "gemm/cuda.streamk"), [f"{_FOUNDING}/f32/{layout}" for layout in gpu_bars.LAYOUTS]),
    (("gemm/cuda.async",), [f"{_4096}/f32/{layout}" for layout in gpu_bars.LAYOUTS]),
    (("gemm/cuda.warptile",), [LARGE, f"{_4096}/f32/TT", FOUNDING[0]]),
    (("gemm/cuda.wgmma_persistent",), [f"{_4096}/bf16/NT", "gemm/m8192n8192k8192/bf16/NT"]),
    (("gemm/cuda.wgmma_grouped",), ["gemm/m8192n4096k4096/bf16/NT/groups8-skewed"]),
    (("gemm/cuda.wgmma_fp8",), [f"{_4096}/e4m3.bf16/NT"]),
    (("gemm/cuda.wgmma_int8",), [f"{_4096}/s8.s32/NT"]),
    (("gemm/cuda.wgmma_fp8_blocks",), [f"{_4096}/e4m3.bf16/NT/scale-blocks"]),
    (("gemm/cuda.wgmma_3xtf32", "gemm/cuda.wgmma_tf32"), [LARGE, FOUNDING[0]]),
    (("gemm/cuda.wgmma_tf32_registers",), [f"{_4096}/f32/NN", f"{_4096}/f32/TT", FOUNDING[1]]),
    (("gemm/cuda.wgmma_tf32_turned",), [f"{_4096}/f32/TN", f"{_FOUNDING}/f32/TN"]),
    (("transpose/cuda.tma", "transpose/cuda.vectorised"), ["transpose/m2048n26752/f32/out"]),
    (("transpose/cuda.vectorised_inplace", "transpose/cuda.tiled_inplace"), ["transpose/m8192n8192/f32/in"]),
    (("transpose/cuda.c2r", "transpose/cuda.c2r_fused"), ["transpose/m2048n26752/f32/in"]),
    (("conv/cuda.implicit", "conv/cuda.winograd4"), gpu_bars.VGG[1:5:2]),
    (("conv/cuda.winograd4_fused", "conv/cuda.winograd"), gpu_bars.VGG[1:5:2]),
    (("conv/cuda.fft_tiled",), [f"conv/{shape}/f32/nchw/fprop" for shape in gpu_bars.CONVNET]),
)


def without(registry: Registry, globs: Sequence[str]) -> Registry:
    """Return a registry without some kernels, so that no glob of a plan can select them."""
    left = (id_ for id_ in registry.kernels if not any(fnmatchcase(id_, glob) for glob in globs))
    return Registry(registry.operations, Kernels((id_, registry.kernels[id_]) for id_ in left))


class Tasks:
    """All tasks of a device, from the registry and the device's limits."""

    def __init__(self, registry: Registry, limits: DeviceLimits, device: str = "cuda") -> None:
        self._registry, self._limits, self._device = registry, limits, device
        self._kernels = [kernel for kernel in registry.kernels.values() if kernel.device == device]
        self.smallest, self._takes = cache(self._smallest), cache(self._would_take)
        self._codes: dict[str, tuple[str, ...]] = {}
        #: A line for each task that was left out since its digest cannot be computed.
        self.refused: list[str] = []

    def all(self) -> list[Task]:
        made = (
            self._tools(), self._verified(), self._founding(), self._bars(), self._claims(), self._layers(),
            self._problems(), self._modes(), self._tiles(),
        )  # fmt: skip
        return list({task.name: task for tasks in made for task in tasks}.values())

    def _digest(self, pairs: Iterable[tuple[str, str]], launcher: str = "cuda-core") -> str:
        taken: dict[str, list[Problem]] = {}
        for kernel, problem in pairs:
            taken.setdefault(kernel, []).append(self._registry.problem(problem))
        return task_digest([(self._registry.named(k), p) for k, p in taken.items()], self._limits, launcher, self._code)

    def _code(self, kernel: Kernel) -> tuple[str, ...]:
        """Read the code of a kernel once, for all of its tiles and tasks."""
        if kernel.base_id not in self._codes:
            self._codes[kernel.base_id] = code_of(kernel)
        return self._codes[kernel.base_id]

    def _task(
        self, name: str, kind: str, value: str, problems: Sequence[str], kernels: Sequence[str], **more: Any
    ) -> Iterator[Task]:
        """Yield a task for jobs: each kernel on each problem that it supports; nothing if there is no such pair."""
        launcher = more.get("launcher", "cuda-core")
        pairs = [(k, p) for p in problems for k in kernels if self._takes(k, p)]
        if not pairs:
            return
        max_time_s, processes = more.get("max_time_s", 0.15), more.get("processes", 1)
        case_s = more.pop("case_s", VERIFIED_S if more.get("mode") == Mode.VERIFY else max_time_s + CASE_S)
        worker_s = 0.0 if kind != "time" and kind in BATCHED else WORKER_S
        times = f", {processes} times" if processes > 1 else ""
        basis = f"{count(len(pairs), 'case')} x {case_s:.2f} s + {worker_s:g} s{times}"
        seconds = processes * (len(pairs) * case_s + worker_s)
        try:
            value_, digest = more.pop("worth", VALUE[value]), self._digest(pairs, launcher)
        except UsageError as error:
            self.refused.append(f"{name} is left out: {error}")
            return
        names = tuple(dict.fromkeys(kernel for kernel, _ in pairs))
        where: dict[str, Any] = {"problems": tuple(problems), "kernels": names}
        yield Task(name=name, kind=kind, value=value_, digest=digest, seconds=seconds, basis=basis, **where, **more)

    def _would_take(self, kernel: str, problem: str) -> bool:
        if kernel.partition("@")[0] not in self._registry.kernels:  # its launches have wrong timing
            return False
        candidate, wanted = self._registry.named(kernel), self._registry.problem(problem)
        ours = (candidate.op, candidate.device) == (wanted.op, self._device)
        return ours and candidate.refuses(wanted, self._limits) is None

    def _able(self, problem: str, wanted: Callable[[Kernel], bool]) -> list[str]:
        return [kernel.id for kernel in self._kernels if wanted(kernel) and self._takes(kernel.id, problem)]

    def _tools(self) -> Iterator[Task]:
        smallest = {kernel.id: self.smallest(kernel.id) for kernel in self._kernels if isinstance(kernel, CudaKernel)}
        every = self._digest((kernel, problem) for kernel, problem in smallest.items() if problem)
        nothing = self._digest(())
        for name, kind, digest, seconds in (
            ("clocks", "clocks", nothing, 7),
            ("compute-sanitizer", "sanitizer", every, 90),
            ("counters", "counters", self._digest(p for p in CHOSEN if p[0] in self._registry.kernels), 85),
            ("cuDNN's algorithms", "cudnn", nothing, 8),
        ):
            yield Task(name=name, kind=kind, value=VALUE[kind], digest=digest, seconds=seconds, basis="a first guess")

    def _smallest(self, name: str) -> str | None:
        kernel = self._registry.kernels[name]
        # The sweep only uses a kernel's domain and refusals, which every kernel has.
        taken = swept(cast(CudaKernel, kernel), self._registry.operations[kernel.op])
        by_size = sorted(taken, key=lambda problem: problem.footprint_bytes)
        return next((problem.id for problem in by_size if kernel.refuses(problem, self._limits) is None), None)

    def _verified(self) -> Iterator[Task]:
        for kernel in self._kernels:
            if problem := self.smallest(kernel.id):
                yield from self._verify("verify", problem, kernel.id)
                if isinstance(kernel, CudaKernel):
                    yield from self._verify("pycuda", problem, kernel.id, launcher="pycuda")
                    if not kernel.emulated:
                        yield from self._verify("emulator", problem, kernel.id, case_s=EMULATED_S)

    def _verify(self, what: str, problem: str, kernel: str, **more: Any) -> Iterator[Task]:
        kind = "emulator" if what == "emulator" else "verify"
        return self._task(f"{what} {kernel}", kind, what, (problem,), (kernel,), mode=Mode.VERIFY, **more)

    def _founding(self) -> Iterator[Task]:
        problems = (*FOUNDING, *TURNED)
        kernels = dict.fromkeys(name for problem in problems for name in self._able(problem, gpu_bars.is_rival))
        more: dict[str, Any] = {"baseline": "gemm/cublas.sgemm", "group": "The founding question"}
        more |= {"processes": gpu_bars.PROCESSES, "max_time_s": 0.3}
        yield from self._task("founding", "time", "founding", problems, list(kernels), **more)
        # These rows show why one layout beats the other: they list the heuristic's algorithms and the kernels launched.
        for problem in FOUNDING:
            listed = self._able(problem, lambda kernel: kernel.provider == "cublaslt")
            name, more = f"cuBLASLt's algorithms on {problem}", {"baseline": "gemm/cublaslt.heuristic"}
            yield from self._task(name, "time", "mode", (problem,), listed, group="cuBLASLt's algorithms", **more)

    def _bars(self) -> Iterator[Task]:
        wanted: dict[tuple[str, str], list[gpu_bars.Bar]] = {}
        for bar in (*gpu_bars.bars(), *gpu_bars.lines()):
            wanted.setdefault((bar.problem, bar.on), []).append(bar)
        for (problem, on), bars in wanted.items():
            ours, rivals = zip(*(gpu_bars.contenders(bar, self._registry) for bar in bars), strict=True)
            first = dict.fromkeys(name for names in (*rivals, *ours) for name in names)
            kernels = list(gpu_bars.variants(first, problem, self._registry, self._limits))
            worth = VALUE["bar"] * max(1, sum(bar.is_fair for bar in bars)) * (1 + (gpu_bars.FOUNDING in problem))
            more: dict[str, Any] = {"baseline": next((name for names in rivals for name in names), ""), "group": "Bars"}
            more |= {"processes": gpu_bars.PROCESSES, "max_time_s": 0.25, "worth": worth}
            yield from self._task(f"bar {problem}", "time", "bar", (problem, on) if on else (problem,), kernels, **more)

    def _claims(self) -> Iterator[Task]:
        judged = Counter(claim.experiment for claim in claims())
        for name in experiment_names():
            plan, jobs = planned(name, self._registry, ("cpu", self._device))
            cases = [entrant for job in jobs for entrant in job.job.entrants]
            if not cases:  # the experiment needs several GPUs
                continue
            on_gpu = any(self._registry.named(kernel).device == self._device for _, kernel in cases)
            case_s = max((job.job.budget.max_time_s for job in jobs), default=0.0) + CASE_S
            yield Task(
                name=f"claim {name}", kind="claim", detail=name, processes=plan.processes, group="Founding claims",
                value=VALUE["claim" if on_gpu else "claim on the CPU"] * judged[name],
                digest=self._digest((k, p) for p, k in cases if self._takes(k, p)),
                seconds=plan.processes * (len(cases) * case_s + WORKER_S),
                basis=f"{count(len(cases), 'case')} x {case_s:.2f} s + {WORKER_S:g} s, {plan.processes} times",
            )  # fmt: skip

    def _layers(self) -> Iterator[Task]:
        for name in (*NETWORKS, "convnet-benchmarks"):
            for of_problem, times in self._at_once(name):
                for dtype in ("f32", "f16", "bf16"):
                    problem_id = msgspec.structs.replace(of_problem, dtype=dtype).id
                    worth = "layer" if dtype == "f32" else "layer in 16 bits"
                    group = f"Convolution: {name}"
                    yield from self._timed(f"{name} {problem_id}", problem_id, worth, group, detail=str(times))
        more: dict[str, Any] = {"max_time_s": METERED_S, "baseline": METERED[-1], "group": f"Energy: {METERED_NETWORK}"}
        for of_problem, times in self._at_once(METERED_NETWORK):
            if (problem_id := of_problem.id).endswith("/fprop"):
                name, more["detail"] = f"energy {METERED_NETWORK} {problem_id}", str(times)
                yield from self._task(name, "time", "energy of a layer", (problem_id,), METERED, **more)

    def _at_once(self, name: str) -> Iterator[tuple[Problem, int]]:
        """Yield the convolutions of a suite and how often each occurs; networks have a batch of IMAGES images."""
        for entry in find_suite(name, self._registry).entries():
            if entry.problem.op == "conv" and entry.problem.dtype == "f32":
                problem = msgspec.structs.replace(entry.problem, **({"n": IMAGES} if name in NETWORKS else {}))
                yield problem, entry.count

    def _problems(self) -> Iterator[Task]:
        for suite in ("fft", "transfer", "aggregation"):
            for place, entry in enumerate(find_suite(suite, self._registry).entries()):
                name, worth = entry.problem.id, max(VALUE["problem"], 24.0 / (1 + place))  # some of each suite first
                yield from self._timed(f"{suite} {name}", name, "problem", suite.capitalize(), worth=worth)
        yield from self._timed("copy", "copy/m8192n8192/f32", "problem", "Copy")
        batches = [entry.problem.id for entry in find_suite("batch-sweep", self._registry).entries()]
        kernels = ["conv/cudnn.implicit_precomp_gemm", "conv/cuda.implicit", "conv/cudnn.winograd_nonfused"]
        yield from self._task("batch sweep", "time", "batch", batches, kernels, mode="cold", group="Batch sweep")

    def _timed(self, name: str, problem: str, value: str, group: str, **more: Any) -> Iterator[Task]:
        if kernels := self._able(problem, gpu_bars.is_rival):
            baseline = next((k for k in kernels if k.split("/")[1].partition(".")[0] in VENDORS), kernels[0])
            yield from self._task(name, "time", value, (problem,), kernels, baseline=baseline, group=group, **more)

    def _modes(self) -> Iterator[Task]:
        for problem in MODES:
            for mode in (Mode.COLD, Mode.HOT, Mode.GRAPH):
                yield from self._timed(f"{mode} {problem}", problem, "mode", "Cold, hot and graph", mode=mode)
            yield from self._timed(f"energy {problem}", problem, "energy", "Energy", max_time_s=METERED_S)
        kernels = self._able(SMALL, lambda kernel: isinstance(kernel, CudaKernel))
        more = {"launcher": "pycuda", "group": "Second launcher"}
        yield from self._task("launched by PyCUDA", "time", "mode", (SMALL,), kernels, **more)

    def _tiles(self) -> Iterator[Task]:
        for names, problems in TUNED:
            for name, problem in product(names, problems):
                if name in self._registry.kernels and self._takes(name, problem):
                    tiles = self._first_tiles(name, problem)
                    more = {"baseline": tiles[0], "max_time_s": 0.1, "group": "Tiles", "detail": name}
                    yield from self._task(f"tiles of {name} on {problem}", "tune", "tune", (problem,), tiles, **more)

    def _first_tiles(self, name: str, problem: str) -> list[str]:
        """Return the default tile of a kernel for a problem, and the tiles that differ from it in one or two values."""
        kernel, wanted = self._registry.named(name), self._registry.problem(problem)
        default = kernel.default_tile(wanted, self._limits)
        space = kernel.values(self._limits)
        tiles = [default]
        for names in (*((key,) for key in space), *combinations(space, 2)):
            for values in product(*(space[key] for key in names)):
                tile = Tile(**{**vars(default), **dict(zip(names, values, strict=True))})
                if len(tiles) < TILES and tile not in tiles and kernel.unfit(wanted, tile, self._limits) is None:
                    tiles.append(tile)
        return [gpu_bars.with_tile(name, tile, wanted, self._registry, self._limits) for tile in tiles]


#: Kinds whose tasks share workers, a run and a question, since starting a process takes far longer than a case.
BATCHED = ("verify", "emulator", "time")


def jobs_of(
    tasks: Sequence[Task], registry: Registry, plugins: tuple[str, ...], device: str
) -> tuple[Plan, list[PlannedJob]]:
    """Return the plan and the jobs of tasks of one kind, for one run. Raises UsageError."""
    first, key = tasks[0], WorkerKey("cuda", 1)
    jobs = [PlannedJob(_job(task, registry, plugins), key, task.name, 1, place=i) for i, task in enumerate(tasks)]
    plan = Plan(
        (device,), mode=Mode(first.mode), launcher=first.launcher, plugins=plugins, processes=first.processes,
        spread_s=0.0, max_time_s=first.max_time_s, ceilings=first.kind == "time" and first.processes > 1,
    )  # fmt: skip
    return plan, jobs


def _job(task: Task, registry: Registry, plugins: tuple[str, ...]) -> Job:
    def takes(entrant: Entrant) -> bool:
        kernel, problem = registry.named(entrant.kernel), registry.problem(entrant.problem)
        return kernel.op == problem.op and kernel.outside(problem) is None

    job = Job(
        task.problems, task.kernels, Mode(task.mode), plugins, 0, Budget(task.max_time_s), threads=1,
        baseline=task.baseline or None, launcher=task.launcher, timeout_s=TIMEOUT_S,
    )  # fmt: skip
    job = job.only([entrant for entrant in job.entrants if takes(entrant)])
    taken = {entrant.problem: entrant.kernel for entrant in reversed(job.entrants)}
    others = {p: k for p, k in taken.items() if Entrant(p, task.baseline) not in job.entrants}
    return msgspec.structs.replace(job, baselines=others)
