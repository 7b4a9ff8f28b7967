"""What a kernel declares of its tiles: the space, what cannot be, and what is taken by default."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Self, TypeVar

from kernelmark.bench.plan.errors import UsageError, unknown
from kernelmark.bench.plan.globs import matches
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.tiles import (
    Prefer,
    Rule,
    Tile,
    Tunable,
    every_tile,
    nearest,
    parse_tile,
    tile_on,
    tile_text,
    values_on,
    walk,
)


@dataclass(frozen=True, kw_only=True)
class Tunables:
    """The tiles of a kernel.

    tunables: the values that each may have, the space; a function returns the value on a device. Set-up finds its tile
    as `x.tile`, a plan of CUDA launches gets it. valid: why a tile cannot take a problem on a device, or None, by the
    tile's attributes alone. prefer: what is taken by default; without it the first tile that is valid.
    tile: values that the tunables have in this kernel and no others, which its id names; `with_tile` sets them.
    """

    tunables: Mapping[str, tuple[Tunable, ...]] = field(default_factory=dict)
    valid: Rule | None = None
    prefer: Prefer | None = None
    tile: Mapping[str, int] = field(default_factory=dict)

    @property
    def base_id(self) -> str:
        """The id without a tile."""
        raise NotImplementedError

    @property
    def id(self) -> str:
        """`gemm/numpy.matmul`, and where it has a tile of its own `gemm/cuda.async@BM=128,BN=64`."""
        return f"{self.base_id}@{tile_text(self.tile)}" if self.tile else self.base_id

    def with_tile(self, values: Mapping[str, int]) -> Self:
        """Return the kernel with these values of its tunables and no others. Raises UsageError for one it has not."""
        return replace(self, tile=checked(self, values))

    def values(self, device: DeviceLimits = H100) -> dict[str, tuple[int, ...]]:
        """Return the values of each tunable on the device."""
        pinned = {name: (value,) for name, value in self.tile.items()}
        return {name: values_on(device, values) for name, values in self.tunables.items()} | pinned

    def tiles(self, device: DeviceLimits = H100) -> Iterator[Tile]:
        """Yield the tiles that a run takes by itself, the default first; without `prefer` the whole space."""
        if self.prefer is None:
            return every_tile(self.values(device))
        wanted = (tile_on(device, tile) for tile in self.prefer.tiles)
        return iter(nearest(wanted, self.tile)) if self.tile else wanted

    def unfit(self, problem: Problem, tile: Tile, device: DeviceLimits = H100) -> str | None:
        """Return why `tile` cannot take `problem` on the device, or None."""
        return self.valid(problem, tile, device) if self.valid else None

    def unwanted(self, problem: Problem, tile: Tile, device: DeviceLimits = H100) -> str | None:
        """Return why `tile` cannot take `problem`, or is left to a later one of those preferred, or None."""
        if reason := self.unfit(problem, tile, device):
            return reason
        unless = self.prefer.unless if self.prefer and not self.tile else None
        return unless(problem, tile, device) if unless else None

    def tile_for(self, problem: Problem, device: DeviceLimits = H100) -> Tile | None:
        """Return the tile that a run takes for `problem` on the device, or None."""
        if self.prefer is not None:
            return next((t for t in self.tiles(device) if self.unwanted(problem, t, device) is None), None)
        found = walk(self.values(device), lambda tile: self.unfit(problem, tile, device))
        return next((tile for tile in found if isinstance(tile, Tile)), None)


K = TypeVar("K", bound=Tunables)


def checked(kernel: Tunables, values: Mapping[str, int]) -> dict[str, int]:
    """Return the values in the order in which the kernel declares its tunables. Raises UsageError for one it has not.

    A tunable of which a value follows from the device takes any number, since the device need not be here.
    """
    subject = f"{kernel.base_id}@{tile_text(values)}"
    if not kernel.tunables:
        raise UsageError(f"{subject}: {kernel.base_id} has no tunables; leave the tile out")
    for name, value in values.items():
        if name not in kernel.tunables:
            raise UsageError(f"{subject}: {name} {unknown(name, kernel.tunables)}")
        known = kernel.tunables[name]
        if value not in known and not any(map(callable, known)):
            raise UsageError(f"{subject}: {name} is {value}, {kernel.base_id} has {', '.join(map(str, known))}")
    return {name: values[name] for name in kernel.tunables if name in values}


def tiled(kernel: K, globs: Sequence[str]) -> Iterator[K]:
    """Yield the kernel as globs select it: as it is, and with each tile that stands after the @ of one.

    Raises UsageError where a kernel that is matched has no such tile.
    """
    if not globs:
        yield kernel
        return
    excluded = [glob for glob in globs if glob[:1] == "!"]
    asked = [glob for glob in globs if "@" in glob and glob not in excluded]
    plain = [glob for glob in globs if glob not in asked]
    if (kernel.tile or plain != excluded or not asked) and matches(kernel.id, globs if kernel.tile else plain):
        yield kernel
    if kernel.tile:
        return
    parts = (glob.partition("@") for glob in asked)
    tiles = [parse_tile(tile, f"{head}@{tile}") for head, _, tile in parts if fnmatchcase(kernel.base_id, head)]
    found = {pinned.id: pinned for pinned in map(kernel.with_tile, tiles)}
    yield from (pinned for pinned in found.values() if matches(pinned.id, excluded))
