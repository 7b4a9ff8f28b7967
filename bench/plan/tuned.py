"""Tuned tiles, which replace default tiles in plans and jobs, and the tiles that a tuning run searches or races."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from kernelmark.bench.plan.kernel import K
from kernelmark.bench.plan.tiles import Prefer, parse_tile


class TunedTile(msgspec.Struct, frozen=True):
    """The tile that a kernel uses on a problem instead of its default, and the run that found the tile.

    threads: the thread count of the tile; a kernel that is not threaded uses it with any count. tile: `BM=64,BN=32`.
    """

    kernel: str
    problem: str
    threads: int
    tile: str
    run: str


class SearchSpace(msgspec.Struct, frozen=True):
    """The tiles that a kernel may have for a problem, counted before any tile is measured.

    size: the number of all combinations. valid: the number of valid combinations, an estimate unless `exact`. listed:
    the number of tiles that the search could choose from. default: the tile that a run uses, `BM=64,BN=32`.
    """

    problem: str
    size: int
    valid: int
    exact: bool
    listed: int
    default: str


class Tunes(msgspec.Struct, frozen=True):
    """The task of a tuning run: to search for tiles, or to race tiles that an earlier run has found.

    how: the strategies with their budgets. source: a digest of the kernel's source. where: the value of `--tuned`. The
    rest is for a race. search: the run that searched. raced: the tiles. overall: the tile that was best over a suite.
    """

    kernel: str
    how: str
    source: str
    where: str
    spaces: tuple[SearchSpace, ...]
    search: str = ""
    raced: tuple[str, ...] = ()
    overall: str = ""


def preferring(kernel: K, problem: str, tiles: Iterable[TunedTile]) -> tuple[K, str]:
    """Return the kernel with its tuned tile as default, and the run that found the tile; unchanged if there is none."""
    tuned = next((tile for tile in tiles if (tile.kernel, tile.problem) == (kernel.id, problem)), None)
    if tuned is None:
        return kernel, ""
    return replace(kernel, prefer=Prefer((parse_tile(tuned.tile, kernel.id),))), tuned.run
