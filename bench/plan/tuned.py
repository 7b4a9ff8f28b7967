"""Tiles that tuning has found, as a plan and its jobs carry them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import msgspec

from bench.plan.kernel import Kernel
from bench.plan.tiles import Prefer, parse_tile

K = TypeVar("K", bound=Kernel)


class Field(Protocol):
    """Who contends on one problem of a job."""

    @property
    def problem(self) -> str: ...
    @property
    def baseline(self) -> str | None: ...
    @property
    def kernels(self) -> Sequence[Kernel]: ...


class TunedTile(msgspec.Struct, frozen=True):
    """The tile that a kernel takes on a problem in place of its default, and the run that found it.

    threads: of the jobs that it is for; a kernel that is not threaded takes it in all. tile: `BM=64,BN=32`.
    """

    kernel: str
    problem: str
    threads: int
    tile: str
    run: str

    def is_taken(self, field: Field, threads: int) -> bool:
        """Return whether a contender takes it; a baseline never does, since that would move what is set against it."""
        own = [kernel for kernel in field.kernels if kernel.id == self.kernel != field.baseline]
        return field.problem == self.problem and any(self.threads == threads or not one.threaded for one in own)


def preferring(kernel: K, problem: str, tiles: Iterable[TunedTile]) -> tuple[K, str]:
    """Return the kernel with the tile of its own as its default, and the run that found it; as it is without one."""
    found = next((tile for tile in tiles if (tile.kernel, tile.problem) == (kernel.id, problem)), None)
    if found is None:
        return kernel, ""
    return replace(kernel, prefer=Prefer((parse_tile(found.tile, kernel.id),))), found.run
