"""Write, read and enumerate tiles: a tile is a value for each tunable. kernel.py chooses the default tile."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.limits import DeviceLimits

Tile = SimpleNamespace
#: Matches a tunable and its value, which has at most 18 digits.
_VALUE = r"\w+=(?:0|[1-9][0-9]{0,17})"
#: A value of a tunable, or a function that returns the value on a device.
Tunable = int | Callable[[DeviceLimits], int]
Values = Mapping[str, tuple[int, ...]]
#: Returns why a tile is invalid for a problem on a device, or None.
Rule = Callable[[Any, Any, DeviceLimits], str | None]


class Prefer(NamedTuple):
    """Default tiles, in order of preference. unless: a rule that returns why a tile is skipped, or None."""

    tiles: tuple[Mapping[str, Tunable], ...]
    unless: Rule | None = None


def values_on(device: DeviceLimits, values: tuple[Tunable, ...]) -> tuple[int, ...]:
    """Return the values that a tunable has on the device, without duplicates."""
    return tuple(dict.fromkeys(_on(device, value) for value in values))


def tile_on(device: DeviceLimits, values: Mapping[str, Tunable]) -> Tile:
    """Return the tile with these values on the device."""
    return Tile(**{name: _on(device, value) for name, value in values.items()})


def _on(device: DeviceLimits, value: Tunable) -> int:
    """Return a tunable's value, computed from the device if it is a function. Raises UsageError if it is no integer."""
    number = value(device) if callable(value) else value
    if not isinstance(number, int):
        raise UsageError(f"a tunable computed from the device is a {type(number).__name__}, expected an int")
    return number


def tile_text(values: Mapping[str, int]) -> str:
    """Return `BM=64,BN=32`, the text after the @ of a kernel's id; empty for a kernel without tunables."""
    return ",".join(f"{name}={value}" for name, value in values.items())


def nearest(wanted: Iterable[Tile], pinned: Mapping[str, int]) -> list[Tile]:
    """Return the wanted tiles with the pinned values set, without duplicates, fewest changed values first."""
    ranked = sorted(wanted, key=lambda tile: sum(vars(tile)[name] != value for name, value in pinned.items()))
    laid = [Tile(**{**vars(tile), **pinned}) for tile in ranked]
    return [tile for i, tile in enumerate(laid) if tile not in laid[:i]]


class _Undecided(Exception):
    """A rule has read a tunable that has no value yet."""


class _Part:
    """A tile of which only the first values are set; a rule may refuse it without reading the others."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> int:
        try:
            return self._values[name]
        except KeyError:
            raise _Undecided(name) from None

    def __eq__(self, other: object) -> bool:
        raise _Undecided

    __hash__ = None  # type: ignore[assignment]


class Refused(NamedTuple):
    """The number of tiles that are refused for one reason, and the reason."""

    tiles: int
    reason: str


def walk(values: Values, rule: Callable[[Any], str | None]) -> Iterator[Tile | Refused]:
    """Yield the valid tiles in order, and one `Refused` for each group of tiles whose first values the rule refuses.

    The rule first gets a tile that has only its first value, then one with the first two, and so on. If it refuses such
    a partial tile, no tile with these values is tried. If it raises an exception, for instance because it reads a value
    that is not set yet, the next value is set. The rule may use nothing but the attributes of the tile.
    """
    names = tuple(values)
    below = [math.prod(len(values[name]) for name in names[i:]) for i in range(len(names) + 1)]

    def descend(taken: dict[str, int]) -> Iterator[Tile | Refused]:
        depth = len(taken)
        if depth == len(names):
            tile = Tile(**taken)
            reason = rule(tile)
            yield Refused(1, reason) if reason else tile
        elif reason := refused_by(rule, taken):
            yield Refused(below[depth], reason)
        else:
            for value in values[names[depth]]:
                yield from descend({**taken, names[depth]: value})

    return descend({})


def refused_by(rule: Callable[[Any], str | None], taken: Mapping[str, int]) -> str | None:
    """Return why every tile that begins with these values is refused, or None if the rule needs more values."""
    if not taken:
        return None
    try:
        return rule(_Part(taken))
    except Exception:  # a rule may raise anything for an incomplete tile; it is called again with more values
        return None


def parse_tile(text: str, subject: str) -> dict[str, int]:
    """Return the values in `BM=64,BN=32`. Raises UsageError."""
    if not re.fullmatch(f"{_VALUE}(,{_VALUE})*", text):
        raise UsageError(f"{subject}: expected NAME=VALUE pairs separated by commas, such as T=32")
    pairs = [pair.split("=") for pair in text.split(",")]
    if len(names := [name for name, _ in pairs]) > len(set(names)):
        raise UsageError(f"{subject}: expected each name once")
    return {name: int(value) for name, value in pairs}
