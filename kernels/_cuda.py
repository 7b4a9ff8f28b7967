"""Shared by plans of CUDA launches: limits of every device, tiles that belong together, what the TMA asks for."""

from collections.abc import Callable, Mapping
from typing import Any

from kernelmark import DTYPES, Problem, Tile

GRID_LIMIT = 65535  # blocks along y and z, on every compute capability
INT_LIMIT = 2**31 - 1  # sizes and leading dimensions are C ints


def ceil_div(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


def tiles(*wanted: Mapping[str, int], unfit: Callable[[Any, Tile], str | None] | None = None) -> dict[str, Any]:
    """Return the options `tunables` and `valid` for these tiles, the default first, and no others.

    unfit: returns why one of them does not suit a problem, or None.
    """
    expected = f"expected one of {wanted}"  # written once: a search over tiles is refused thousands of times

    def valid(p: Any, t: Tile) -> str | None:
        if vars(t) not in wanted:
            return f"there is no tile {vars(t)}, {expected}"
        return unfit(p, t) if unfit else None

    tunables = {name: tuple(dict.fromkeys(tile[name] for tile in wanted)) for name in wanted[0]}
    return {"tunables": tunables, "valid": valid}


def rows_of_16_bytes(p: Problem) -> str | None:
    """Why a tensor map cannot describe the operands, or None."""
    for operand in p.operands():
        pitch = operand.ld * DTYPES[operand.dtype].itemsize
        if pitch % 16:
            return f"rows of {operand.name} begin every {pitch} bytes, expected a multiple of 16, for the TMA"
    return None
