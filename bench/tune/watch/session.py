"""A session: what is shown of each version, and which one the next is compared with."""

from collections.abc import Iterator
from dataclasses import replace

from bench.plan.errors import UsageError
from bench.plan.kernel import CudaKernel
from bench.plan.limits import H100, DeviceLimits
from bench.plan.operation import Problem
from bench.plan.registry import Registry
from bench.plan.status import Status
from bench.tune.inspect import InspectRow, launch_rows
from bench.tune.watch.comparison import Comparison, compare
from bench.tune.watch.emulator import emulate
from bench.tune.watch.source import Version
from bench.tune.watch.view import resource_table, time_table


class Session:
    """Versions of one kernel on one problem. comparison: None where there is no GPU, and the emulator judges."""

    def __init__(
        self,
        registry: Registry,
        kernel: CudaKernel,
        problem: Problem,
        arch: str,
        comparison: Comparison | None,
        device: DeviceLimits = H100,
    ) -> None:
        self._registry, self._kernel, self._problem = registry, kernel, problem
        self._arch, self._comparison, self._device = arch, comparison, device
        self.previous: Version | None = None
        self._known: list[InspectRow] = []
        self.good = False

    def look(self, version: Version) -> Iterator[str]:
        """Yield what is shown of a version, part by part. The next is compared with the last version that is right."""
        self.good = False
        kernel = replace(self._kernel, source=str(version.source))
        try:
            rows = self._resources(kernel)
        except UsageError as error:
            yield version.told(str(error))
            return
        yield resource_table(rows, self._known)
        judge = self._emulated if self._comparison is None else self._timed
        yield from (version.told(text) for text in judge(kernel, version))
        if self.good:
            self.previous, self._known = version, rows

    def _resources(self, kernel: CudaKernel) -> list[InspectRow]:
        """Compile the kernel as a run would for this problem."""
        tile = kernel.tile_for(self._problem, self._device)
        assert tile is not None, "a kernel that takes the problem has a tile for it"
        return launch_rows(kernel, self._problem, tile, self._arch, self._device)

    def _emulated(self, kernel: CudaKernel, version: Version) -> Iterator[str]:
        found = emulate(self._registry, kernel, self._problem)
        self.good = not found.complaints
        if found.skipped:
            yield f"not verified: no GPU is here, and {found.skipped}"
        elif found.complaints:
            yield "\n".join(("wrong in the emulator:", *found.complaints))
        else:
            yield f"right in the emulator, without a report: {found.problems} small problems, three orders of threads"

    def _timed(self, kernel: CudaKernel, version: Version) -> Iterator[str]:
        assert self._comparison is not None
        try:
            rows = compare(self._comparison, version, self.previous)
        except UsageError as error:
            yield f"not timed: {error}"
            return
        self.good = rows[0].status == Status.OK
        named = (version, self.previous) if self.previous else (version,)
        names = {of: f"version {v.number}" for of, v in zip(self._comparison.ids, named, strict=False)}
        yield time_table(rows, names, self._problem)
