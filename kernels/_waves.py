"""Choose tiles by how well the blocks of a grid fill a device."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kernelmark import DeviceLimits, Prefer, Tile, Tunable, tile_on
from kernelmark.kernels._cuda import ceil_div

#: The number of warps that saturates a multiprocessor's multiply-adds; with fewer, the rate falls proportionally.
BUSY_WARPS = 8


class Choice(NamedTuple):
    """A tile that may be the default.

    rate: the rate of a device full of such blocks, relative to other tiles. resident: blocks per multiprocessor.
    """

    values: Mapping[str, Tunable]
    rate: float
    resident: int


def filled(blocks: int, resident: int, warps: int, multiprocessors: int) -> float:
    """Return the share of a device's rate that a grid of blocks reaches if a multiprocessor runs `resident` at a time.

    The blocks of the last wave are spread evenly over multiprocessors; a multiprocessor with few warps is slower.
    """
    whole, rest = divmod(blocks, resident * multiprocessors)
    last = ceil_div(rest, multiprocessors)
    busy = min(1.0, last * warps / BUSY_WARPS)
    return blocks / multiprocessors / (whole * resident + (last / busy if last else 0))


def by_waves(
    choices: tuple[Choice, ...],
    blocks: Callable[[Any, Tile], int],
    useful: Callable[[Any, Tile], float],
    warps: Callable[[Tile], int],
    valid: Callable[[Any, Tile, DeviceLimits], str | None],
) -> Prefer:
    """Return a preference for the tile with the highest rate, given how its blocks fill the device.

    useful: the share of all tiles' elements that belong to the result. The first of equally good tiles is preferred.
    """

    def score(p: Any, tile: Tile, choice: Choice, device: DeviceLimits) -> float:
        if valid(p, tile, device):
            return 0.0
        full = filled(blocks(p, tile), choice.resident, warps(tile) // 32, device.multiprocessors)
        return round(choice.rate * full * useful(p, tile), 9)  # so that rounding errors do not break ties

    @lru_cache(maxsize=1)  # `unless` is called for each tile of a problem in turn
    def scored(p: Any, device: DeviceLimits) -> tuple[list[Tile], list[float]]:
        tiles = [tile_on(device, choice.values) for choice in choices]
        return tiles, [score(p, tile, choice, device) for tile, choice in zip(tiles, choices, strict=True)]

    def unless(p: Any, t: Tile, device: DeviceLimits) -> str | None:
        tiles, rates = scored(p, device)
        if t not in tiles:
            return None
        best, rate = max(rates), rates[tiles.index(t)]
        if tiles.index(t) == rates.index(best):
            return None
        return f"its blocks reach {rate:.2f} of the device's rate, those of another tile {best:.2f}"

    return Prefer(tuple(choice.values for choice in choices), unless)
