"""A session: what is shown of each version, which one the next is compared with, and what it comes to in the end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kernelmark.bench.emulator.build import HostCompileError
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Tile
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.report.format import count, seconds
from kernelmark.bench.tune.inspect import InspectRow, launch_rows
from kernelmark.bench.tune.profile.change import change_table
from kernelmark.bench.tune.profile.counted import Counts, counted_kernel
from kernelmark.bench.tune.profile.counted import count as count_of
from kernelmark.bench.tune.watch.comparison import VersionTiming, compare
from kernelmark.bench.tune.watch.emulator import emulate
from kernelmark.bench.tune.watch.source import Version
from kernelmark.bench.tune.watch.verdict import bugs, verdict
from kernelmark.bench.tune.watch.view import resource_table, time_table


@dataclass
class Tried:
    """A version that was looked at, beside another. against: what was found, in a few words.

    judged: it ran somewhere and was right. launches: what it takes. rows: of its job, its own first.
    """

    version: Version
    against: list[str] = field(default_factory=list)
    judged: bool = False
    done: bool = False
    beside: Version | None = None
    launches: Sequence[InspectRow] = ()
    rows: Sequence[Measurement] = ()

    @property
    def time_s(self) -> float | None:
        """Return the median of its own job, if it has one."""
        own = self.rows[0].interval if self.rows and self.rows[0].status == Status.OK else None
        return own.median if own else None

    @property
    def good(self) -> bool:
        """Return whether nothing was found against it."""
        return self.done and not self.against

    @property
    def state(self) -> str:
        if not self.done:
            return "interrupted"
        return f"FAIL, {' and '.join(self.against)}" if self.against else "PASS" if self.judged else "not verified"


class WatchSession:
    """Versions of one kernel on one problem. comparison: None where there is no GPU. vs: compare each with this."""

    def __init__(
        self,
        registry: Registry,
        kernel: CudaKernel,
        problem: Problem,
        arch: str,
        comparison: VersionTiming | None,
        device: DeviceLimits = H100,
        vs: Version | None = None,
    ) -> None:
        self._registry, self.kernel, self.problem = registry, kernel, problem
        self.arch, self._comparison, self._device = arch, comparison, device
        self.beside = self._vs = vs
        self.tried: list[Tried] = []
        self._known_counts: dict[Version, Counts] = {}
        if vs:
            self._resources(vs)  # raises where it does not compile

    @property
    def good(self) -> bool:
        """Return whether the last version compiles and nothing was found against it."""
        return bool(self.tried) and self.tried[-1].good

    def look(self, version: Version) -> Iterator[str]:
        """Yield what is shown of a version, part by part. The next is compared with the last version that is right."""
        tried = Tried(version, beside=self.beside)
        self.tried.append(tried)
        yield from map(version.told, self._looked_at(tried))
        tried.done = True
        if tried.good and self._vs is None:
            self.beside = version

    def _looked_at(self, tried: Tried) -> Iterator[str]:
        try:
            tried.launches = self._resources(tried.version)
        except UsageError as error:
            tried.against.append("does not compile")
            yield f"FAIL: {error}"
            return
        yield resource_table(tried.launches, self._resources(self.beside) if self.beside else [])
        if self._comparison:
            yield from self._timed(tried, self._comparison)
        judgement = self._emulated(tried)
        if tried.judged and not tried.against:  # one that hangs is not run again
            yield self._counted(tried.version)
        yield judgement

    def _resources(self, version: Version) -> list[InspectRow]:
        """Compile a version as a run would for this problem. Raises UsageError, in the user's names of the files."""
        try:
            return launch_rows(self._of(version), self.problem, self.tile, self.arch, self._device)
        except UsageError as error:
            raise UsageError(version.told(str(error))) from None

    @property
    def tile(self) -> Tile:
        """Return the tile that a run takes for the problem."""
        tile = self.kernel.tile_for(self.problem, self._device)
        assert tile is not None, "a kernel that takes the problem has a tile for it"
        return tile

    @property
    def previous_id(self) -> str:
        """Return what the version before is called in a job."""
        return self._comparison.ids[1] if self._comparison else ""

    def _of(self, version: Version) -> CudaKernel:
        return replace(self.kernel, source=str(version.source))

    def _timed(self, tried: Tried, comparison: VersionTiming) -> Iterator[str]:
        """Verify and time a version on the GPU."""
        try:
            rows = compare(comparison, tried.version, self.beside)
        except UsageError as error:
            yield f"not timed: {error}"
            return
        named = (tried.version, self.beside) if self.beside else (tried.version,)
        names = {of: v.name for of, v in zip(comparison.ids, named, strict=False)}
        tried.rows = rows
        yield time_table(rows, names, self.problem)
        if rows[0].status == Status.OK:
            tried.judged = True
        else:
            tried.against.append(rows[0].status)
            yield f"FAIL: {rows[0].status} on {self.problem.id}"

    def _emulated(self, tried: Tried) -> str:
        """Judge a version in the emulator, every tile of it, and return what is shown of that."""
        found = emulate(self._registry, self._of(tried.version), self.problem, self._device)
        if found.skipped:
            return f"not {'emulated:' if self._comparison else 'verified: no GPU is here, and'} {found.skipped}"
        tried.judged = True
        if found.refused:
            tried.against.append("refused by the emulator")
        elif reports := bugs(found.findings):
            tried.against.append(count(len(reports), "report"))
        return verdict(found)

    def _counted(self, version: Version) -> str:
        """Count what a version does, and return what is shown of that beside the version before."""
        try:
            before = self._counts(self.beside) if self.beside else None
            return change_table(self._counts(version), before)
        except (HostCompileError, UsageError) as error:
            return f"not counted: {error}"

    def _counts(self, version: Version) -> Counts:
        if version not in self._known_counts:
            kernel = counted_kernel(self._of(version))
            self._known_counts[version] = count_of(kernel, self.problem, self.tile, self._device)
        return self._known_counts[version]

    def summary(self) -> str:
        """Return how many versions were tried, the best of those that passed, and what became of the last."""
        if not self.tried:
            return "no version was tried"
        good = [tried for tried in self.tried if tried.good]
        lines = [f"{count(len(self.tried), 'version')} tried, {len(good)} passed"]
        timed = [(tried.time_s, tried.version.name) for tried in good if tried.time_s is not None]
        if timed:
            time_s, name = min(timed)
            lines.append(f"best: {name}, {seconds(time_s)} (its own job's median)")
        elif good:
            lines.append(f"last that passed: {good[-1].version.name}")
        last = self.tried[-1]
        return "\n".join([*lines, f"last: {last.version.name}, {last.state}"])
