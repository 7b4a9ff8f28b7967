"""The tiles that a tuning may choose from: all that are valid, or a sample where the space is huge."""

from collections.abc import Iterable
from typing import NamedTuple

from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.present import cuda_missing
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import Kernel, Tile
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.space import Count, Space
from kernelmark.bench.tune.search import Config, SearchDomain

#: Tiles that are drawn from a space too large to be listed.
SAMPLE = 2_000


class Listing(NamedTuple):
    """Valid tiles of a kernel on a problem, as values in the order of the names, and the tile that it has by default.

    counted: how many there are, valid and not.
    """

    names: tuple[str, ...]
    configs: list[Config]
    default: Config
    counted: Count

    @property
    def field(self) -> SearchDomain:
        """Return what is searched."""
        return SearchDomain(self.names, self.configs, self.default)


def limits_here(kernel: Kernel) -> DeviceLimits:
    """Return the limits that the kernel's tiles are planned for here; without a GPU those of an H100."""
    return present_limits() if kernel.device == "cuda" and cuda_missing() is None else H100


def listing(kernel: Kernel, problem: Problem, seed: int) -> Listing:
    """Return the tiles of a kernel on a problem. Raises UsageError where there is none, or nothing to choose."""
    device = limits_here(kernel)
    plain = kernel.with_tile({})
    if reason := plain.refuses(problem, device):
        raise UsageError(f"{problem.id}: {reason}; take another problem")
    space, default = Space(kernel, problem, device), plain.tile_for(problem, device)
    counted = space.count()
    found = space.valid() if counted.exact else space.sample(SAMPLE, seed)
    assert default is not None
    names = tuple(space.values)
    tiles = Listing(names, [_config(tile, names) for tile in found], _config(default, names), counted)
    if not tiles.configs:
        why = next(iter(counted.refused), "none was found")
        raise UsageError(f"{kernel.id} on {problem.id}: none of {counted.size} tiles is valid: {why}")
    if tiles.configs == [tiles.default]:
        raise UsageError(f"{kernel.id} on {problem.id}: the default is its only valid tile; there is nothing to tune")
    return tiles


def _config(tile: Tile, names: Iterable[str]) -> Config:
    return tuple(getattr(tile, name) for name in names)
