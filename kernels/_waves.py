"""How well the blocks of a grid fill a device, by which kernels choose their tiles."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kernelmark import DeviceLimits, Prefer, Tile, Tunable, tile_on
from kernelmark.kernels._cuda import ceil_div

#: Warps that keep the multiply-adds of a multiprocessor busy; with fewer, its rate falls in proportion.
BUSY_WARPS = 8


class Choice(NamedTuple):
    """A tile that may be the default. rate: a device's, full of such blocks, relative to other tiles.

    resident: blocks on a multiprocessor.
    """

    values: Mapping[str, Tunable]
    rate: float
    resident: int


def filled(blocks: int, resident: int, warps: int, multiprocessors: int) -> float:
    """Return the share of a device's rate that equal blocks reach, `resident` of them on a multiprocessor at a time.

    The last wave is dealt out evenly; a multiprocessor with few warps is slower then.
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
    """Prefer the tile with the highest rate, given how its blocks fill the device; the first of equal ones.

    useful: the share of all tiles' elements that the result has.
    """

    def score(p: Any, tile: Tile, choice: Choice, device: DeviceLimits) -> float:
        if valid(p, tile, device):
            return 0.0
        full = filled(blocks(p, tile), choice.resident, warps(tile) // 32, device.multiprocessors)
        return round(choice.rate * full * useful(p, tile), 9)  # equal ones differ by rounding otherwise

    @lru_cache(maxsize=1)  # each tile is asked about in turn
    def scored(p: Any, device: DeviceLimits) -> tuple[list[Tile], list[float]]:
        tiles = [tile_on(device, choice.values) for choice in choices]
        return tiles, [score(p, tile, choice, device) for tile, choice in zip(tiles, choices, strict=True)]

    def unless(p: Any, t: Tile, device: DeviceLimits) -> str | None:
        tiles, found = scored(p, device)
        if t not in tiles:
            return None
        best, own = max(found), found[tiles.index(t)]
        if tiles.index(t) == found.index(best):
            return None
        return f"its blocks reach {own:.2f} of the device's rate, those of another tile {best:.2f}"

    return Prefer(tuple(choice.values for choice in choices), unless)
