"""Two versions of one source, timed in turn in one job."""

import msgspec

from kernelmark.bench.measure.lock import exclusive
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.tune.watch.source import Version

#: A module that makes the versions kernels of their own, in a worker that has only what it can import.
PLUGIN = '''"""Versions of one source, each a kernel."""

from dataclasses import replace

from kernelmark.bench.plan.registry import REGISTRY

watched = REGISTRY.kernels[{kernel!r}]
for name, source in {sources!r}.items():
    REGISTRY.add(replace(watched, provider="watch", name=name, source=source, tile={{}}))
'''


class VersionTiming(msgspec.Struct, frozen=True):
    """A comparison to time: versions of a kernel on a problem, beside its counterparts; the plug-ins declare these.

    The kernel's id names the tile that they all take, if they do.
    """

    kernel: str
    problem: str
    counterparts: tuple[str, ...]
    plugins: tuple[str, ...]
    budget: Budget

    @property
    def ids(self) -> tuple[str, str]:
        """Return the kernels that the present and the previous version become."""
        op, tile = self.problem.partition("/")[0], "".join(self.kernel.partition("@")[1:])
        return f"{op}/watch.current{tile}", f"{op}/watch.previous{tile}"


def compare(comparison: VersionTiming, current: Version, previous: Version | None) -> list[Measurement]:
    """Verify and time the versions and their counterparts in a fresh process; the row of the present one comes first.

    Raises UsageError where another run holds the GPU.
    """
    with exclusive(("cuda",), shared=False), Workers() as workers:
        return workers.run(job_of(comparison, current, previous), WorkerKey("cuda", 1))


def _name(kernel: str) -> str:
    """Return `current` of `gemm/watch.current@BM=64`."""
    return kernel.partition("@")[0].partition(".")[2]


def job_of(comparison: VersionTiming, current: Version, previous: Version | None) -> Job:
    """Return a job with the versions as contenders, declared by a plug-in that is written beside the present one."""
    versions = dict(zip(comparison.ids, filter(None, (current, previous)), strict=False))
    sources = {_name(kernel): str(version.source) for kernel, version in versions.items()}
    plugin = current.source.with_name("versions.py")
    plugin.write_text(PLUGIN.format(kernel=comparison.kernel, sources=sources))
    return Job(
        problems=(comparison.problem,),
        kernels=(*versions, *comparison.counterparts),
        mode=Mode.COLD,
        plugins=(*comparison.plugins, str(plugin)),
        seed=current.number,
        budget=comparison.budget,
        threads=1,
        baseline=comparison.ids[0],  # sampled for as long as any other, so that each has its counterpart
    )
