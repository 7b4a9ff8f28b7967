"""Copy each saved version of a source, and time two versions in turn, as two kernels of one job."""

import time
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from kernelmark.bench.measure.compile import cuda_sources
from kernelmark.bench.measure.lock import exclusive
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import require_file
from kernelmark.bench.plan.kernel import VENDORS, CudaKernel, Kernel
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.tiles import parse_tile
from kernelmark.bench.run.crashes import Workers

#: Seconds between two checks of the files.
POLL_S = 0.2
#: Contents by name: the watched file and the headers in its folder, which it may include.
Files = Mapping[str, bytes]


class Version(msgspec.Struct, frozen=True):
    """A copy of the saved file and of the headers in its folder. number: from 1; 0 for the file of `--vs`."""

    number: int
    source: Path
    original: Path

    @property
    def name(self) -> str:
        """Return `version 2`, or `other.cu` for the file that versions are compared with."""
        return f"version {self.number}" if self.number else self.original.name

    def told(self, text: str) -> str:
        """Return a compiler's or checker's output, with the paths of copies replaced by those of the user's files."""
        return text.replace(f"{self.source.parent}/", str(self.original).removesuffix(self.original.name))


def saves(file: Path) -> Iterator[Files]:
    """Yield the contents of the files now, and after each change."""
    known: Files | None = None
    while True:
        files = contents(file)
        time.sleep(POLL_S)
        if files is not None and files != known and files == contents(file):  # not still being written
            known = files
            yield files


def contents(file: Path) -> Files | None:
    """Return the file and the headers in its folder by name; None while an editor is replacing one of them.

    Raises UsageError if `file` is not a regular file, for instance a pipe.
    """
    require_file(file)
    try:
        headers = sorted(header for header in file.parent.glob("*.cuh") if header.is_file())
        return {path.name: path.read_bytes() for path in (file, *headers)}
    except FileNotFoundError:
        return None


def keep(files: Files, file: Path, folder: Path, number: int) -> Version:
    """Copy this version to a new folder inside `folder`, so that a later save does not change it."""
    place, original = folder / str(number), file.resolve().parent.name
    place.mkdir()
    for name, content in files.items():
        copied = content
        for header in files:  # includes with a folder (`cuda/`) would find the originals
            copied = copied.replace(f'"{original}/{header}"'.encode(), f'"{header}"'.encode())
        (place / name).write_bytes(copied)
    return Version(number, place / file.name, file)


def watched_kernel(
    registry: Registry, file: Path, problem: Problem, wanted: str | None, device: DeviceLimits
) -> CudaKernel:
    """Return the kernel in `file` that takes `problem`; `wanted` selects one of several. Raises UsageError."""
    handwritten = (k for k in registry.kernels.values() if isinstance(k, CudaKernel))
    kernels = [k for k in handwritten if (cuda_sources() / k.source).resolve() == file.resolve()]
    if not kernels:
        raise UsageError(f"{file}: no registered kernel uses this file; --plugin names the file that declares one")
    head, _, tile = (wanted or "").partition("@")
    named = [k for k in kernels if head in ("", k.id)]
    if tile:
        named = [k.with_tile(parse_tile(tile, f"--kernel {wanted}")) for k in named]
    if not named:
        raise UsageError(f"--kernel {wanted}: is not in {file}; expected one of {_ids(kernels)}")
    of_operation = [k for k in named if k.op == problem.op]
    able = [k for k in of_operation if k.refuses(problem, device) is None]
    if len(able) > 1:
        raise UsageError(f"{file}: is the source of {_ids(able)}; choose one with --kernel")
    if not able:
        reason = of_operation[0].refuses(problem, device) if of_operation else None
        reason = reason or f"is not a problem of {named[0].op}, which {_ids(named)} computes"
        raise UsageError(f"{problem.id}: {reason}; choose another problem")
    return able[0]


def with_tile(kernel: CudaKernel, tile: Mapping[str, int], problem: Problem, device: DeviceLimits) -> CudaKernel:
    """Return the kernel with these values of its tunables fixed. Raises UsageError for invalid ones."""
    if not tile:
        return kernel
    fixed = kernel.with_tile({**kernel.tile, **tile})
    if reason := fixed.refuses(problem, device):
        raise UsageError(f"--tile: {reason}; choose another tile or problem")
    return fixed


def _ids(kernels: Iterable[Kernel]) -> str:
    return ", ".join(kernel.id for kernel in kernels)


def counterparts(
    registry: Registry, kernel: CudaKernel, problem: Problem, glob: str | None, device: DeviceLimits = H100
) -> tuple[str, ...]:
    """Return the GPU kernels that take the problem and match `glob`; by default vendors' kernels with equal numerics.

    Raises UsageError if the glob matches none.
    """
    able = [k for k in registry.kernels.values() if (k.op, k.device) == (problem.op, "cuda") and k.id != kernel.base_id]
    able = [k for k in able if k.refuses(problem, device) is None]
    if glob is None:
        numerics = kernel.numerics_for(problem)
        vendor = (k for k in able if k.provider in VENDORS and k.order == "C" and not k.on_request)
        return tuple(k.id for k in vendor if k.numerics_for(problem) == numerics)
    if not (matched := tuple(k.id for k in able if fnmatchcase(k.id, glob))):
        raise UsageError(f"--against {glob!r}: matches no GPU kernel that takes {problem.id}; see `kernelmark list`")
    return matched


#: A plug-in that registers the versions as separate kernels in the worker.
PLUGIN = '''"""Versions of one source, each a kernel."""

from dataclasses import replace

from kernelmark.bench.plan.registry import REGISTRY

watched = REGISTRY.kernels[{kernel!r}]
for name, source in {sources!r}.items():
    REGISTRY.add(replace(watched, provider="watch", name=name, source=source, tile={{}}))
'''


class VersionTiming(msgspec.Struct, frozen=True):
    """The kernel, problem, counterparts and plug-ins of comparisons between versions.

    If all versions use the same tile, the kernel's id contains it.
    """

    kernel: str
    problem: str
    counterparts: tuple[str, ...]
    plugins: tuple[str, ...]
    budget: Budget

    @property
    def ids(self) -> tuple[str, str]:
        """Return the ids of the present and of the previous version."""
        op, tile = self.problem.partition("/")[0], "".join(self.kernel.partition("@")[1:])
        return f"{op}/watch.current{tile}", f"{op}/watch.previous{tile}"


def compare(comparison: VersionTiming, current: Version, previous: Version | None) -> list[Measurement]:
    """Verify and time the versions and their counterparts in a fresh process; the current version's row comes first.

    Raises UsageError if another run holds the GPU.
    """
    with exclusive(("cuda",), shared=False), Workers() as workers:
        return workers.run(job_of(comparison, current, previous), WorkerKey("cuda", 1))


def job_of(comparison: VersionTiming, current: Version, previous: Version | None) -> Job:
    """Return a job with the versions as contenders, declared by a plug-in that is written next to the current copy."""
    versions = dict(zip(comparison.ids, filter(None, (current, previous)), strict=False))
    sources = {kernel.partition("@")[0].partition(".")[2]: str(version.source) for kernel, version in versions.items()}
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
        baseline=comparison.ids[0],  # sampled as long as any other kernel, so that each sample has a counterpart
    )
