"""Shared by plans of CUDA launches: limits, tiles that belong together, what the TMA asks for."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kernelmark import DTYPES, DeviceLimits, Problem, Tile

GRID_LIMIT = 65535  # blocks along y and z, on every compute capability
INT_LIMIT = 2**31 - 1  # sizes and leading dimensions are C ints

#: What a tunable is, or a function that returns what it is on a device.
Value = int | Callable[[DeviceLimits], int]


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


def multiprocessors(device: DeviceLimits) -> int:
    """The value of the tunable SMS: the multiprocessors to fill with blocks are those of the device."""
    return device.multiprocessors


def tile_on(device: DeviceLimits, values: Mapping[str, Value]) -> Tile:
    """The tile that these values are on the device."""
    return Tile(**{name: value(device) if callable(value) else value for name, value in values.items()})


def tiles(
    *wanted: Mapping[str, Value], unfit: Callable[[Any, Tile, DeviceLimits], str | None] | None = None
) -> dict[str, Any]:
    """Return the options `tunables` and `valid` for these tiles, the default first, and no others.

    unfit: returns why one of them does not suit a problem on a device, or None.
    """

    @cache
    def known(device: DeviceLimits) -> list[dict[str, int]]:
        return [vars(tile_on(device, values)) for values in wanted]

    @cache  # a search over tiles is refused thousands of times
    def absent(asked: tuple[tuple[str, int], ...], device: DeviceLimits) -> str | None:
        if dict(asked) in known(device):
            return None
        return f"there is no tile {dict(asked)}, expected one of {', '.join(map(str, known(device)))}"

    def valid(p: Any, t: Tile, device: DeviceLimits) -> str | None:
        return absent(tuple(vars(t).items()), device) or (unfit(p, t, device) if unfit else None)

    tunables = {name: tuple(dict.fromkeys(values[name] for values in wanted)) for name in wanted[0]}
    return {"tunables": tunables, "valid": valid}


def rows_of_16_bytes(p: Problem) -> str | None:
    """Why a tensor map cannot describe the operands, or None."""
    for operand in p.operands():
        pitch = operand.ld * DTYPES[operand.dtype].itemsize
        if pitch % 16:
            return f"rows of {operand.name} begin every {pitch} bytes, expected a multiple of 16, for the TMA"
    return None
