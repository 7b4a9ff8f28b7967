"""Count, draw and enumerate the tiles that a kernel can have for a problem, without storing all of them."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations, islice
from typing import NamedTuple

from kernelmark.bench.plan.kernel import Kernel
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.tiles import Refused, Tile, Values, refused_by, walk

#: `count` examines at most LOOKS tiles and refused groups; in a larger space it estimates from DRAWN random tiles.
LOOKS, DRAWN = 20_000, 2_000
#: After this many consecutive draws without a new tile, the space is assumed to have no other valid tile.
TRIES = 1_000


class Count(NamedTuple):
    """The numbers of valid tiles and, by reason, of refused tiles; reasons that differ only in digits are merged.

    exact: whether all tiles were examined; otherwise the numbers are estimated from drawn tiles.
    """

    size: int
    valid: int
    refused: Mapping[str, int]
    exact: bool


class Space:
    """The tiles of a kernel for a problem on a device: the valid combinations of the values of its tunables."""

    def __init__(self, kernel: Kernel, problem: Problem, device: DeviceLimits = H100) -> None:
        self._kernel, self._problem, self._device = kernel, problem, device
        self.values: Values = kernel.values(device)

    @property
    def size(self) -> int:
        """Return the number of all combinations."""
        return math.prod(map(len, self.values.values()))

    def why_not(self, tile: Tile) -> str | None:
        """Return why the tile is invalid, or None."""
        return self._kernel.unfit(self._problem, tile, self._device)

    def walk(self) -> Iterator[Tile | Refused]:
        """Yield valid tiles in the order of the combinations, and groups of refused ones."""
        return walk(self.values, self.why_not)

    def valid(self) -> Iterator[Tile]:
        """Yield the valid tiles in the order of the combinations."""
        return (tile for tile in self.walk() if isinstance(tile, Tile))

    def count(self) -> Count:
        """Count the tiles: exactly in a small space, and from a sample in a larger one."""
        looked = list(islice(self.walk(), LOOKS + 1))
        if len(looked) > LOOKS:
            return self._estimated()
        reasons: Counter[str] = Counter()
        for outcome in looked:
            if isinstance(outcome, Refused):
                reasons[outcome.reason] += outcome.tiles
        return Count(self.size, sum(isinstance(outcome, Tile) for outcome in looked), _grouped(reasons), True)

    def _estimated(self) -> Count:
        draw = random.Random(0)
        drawn = [{name: draw.choice(values) for name, values in self.values.items()} for _ in range(DRAWN)]
        reasons = Counter(filter(None, (self.why_not(Tile(**values)) for values in drawn)))
        scaled = {reason: round(count / DRAWN * self.size) for reason, count in _grouped(reasons).items()}
        return Count(self.size, round((DRAWN - reasons.total()) / DRAWN * self.size), scaled, False)

    def sample(self, count: int, seed: int) -> list[Tile]:
        """Return `count` different valid tiles, or all if there are fewer; the same seed gives the same tiles.

        In a small space the draw is uniform. In a larger one each tile is built value by value, avoiding refused
        values.
        """
        draw = random.Random(seed)
        if self.size <= LOOKS:
            every = list(self.valid())
            return draw.sample(every, min(count, len(every)))
        tiles: list[Tile] = []
        missed = 0
        while len(tiles) < count and missed < TRIES:
            tile = self._drawn(draw)
            missed = missed + 1 if tile is None or tile in tiles else 0
            tiles += [tile] if tile and not missed else []
        return tiles

    def _drawn(self, draw: random.Random) -> Tile | None:
        """Return a random valid tile, or None if the values drawn for the first tunables leave none for the rest."""
        taken: dict[str, int] = {}
        for name, values in self.values.items():
            left = [value for value in values if not refused_by(self.why_not, {**taken, name: value})]
            if not left:
                return None
            taken[name] = draw.choice(left)
        tile = Tile(**taken)
        return None if self.why_not(tile) else tile

    def neighbours(self, tile: Tile) -> Iterator[Tile]:
        """Yield the valid tiles that differ in one tunable, or in two if neither can change alone."""
        others = ((name, value) for name, values in self.values.items() for value in values)
        changes = ((name, value) for name, value in others if value != getattr(tile, name))
        alone = {(name, value): self._changed(tile, {name: value}) for name, value in changes}
        yield from (neighbour for neighbour in alone.values() if neighbour)
        for first, second in combinations((change for change, neighbour in alone.items() if not neighbour), 2):
            if first[0] != second[0] and (neighbour := self._changed(tile, dict((first, second)))):
                yield neighbour

    def _changed(self, tile: Tile, values: Mapping[str, int]) -> Tile | None:
        changed = Tile(**{**vars(tile), **values})
        return None if self.why_not(changed) else changed


def _grouped(reasons: Mapping[str, int]) -> dict[str, int]:
    """Return the number of refused tiles by reason, largest first; reasons that differ only in digits are merged."""
    examples: dict[str, str] = {}
    total: Counter[str] = Counter()
    for reason, count in reasons.items():
        total[examples.setdefault(re.sub(r"\d+", "0", reason), reason)] += count
    return dict(total.most_common())
