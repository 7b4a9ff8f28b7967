"""Multiply-adds on operands in registers, which measure a device's arithmetic when nothing else limits it.

A ceiling is a kernel like any other, verified and timed by the same clock. Its result is exact: operands are rounded to
multiples of 1/4 when they are read (`coarse`), so that every sum is a multiple of 1/16 that single precision represents
exactly, in any order. A step that is left out or done twice gives a wrong result.
"""

from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from kernelmark import Array, Arrays, Dim, Operand, Problem, Verdict, compare, operation

#: Each product is at most 25/16 in size and a multiple of 1/16, and 24 bits hold multiples of 1/16 below 2^20.
LONGEST = 2**19


class Tile(NamedTuple):
    """The rows x cols accumulators that one step updates. After `depth` steps, the same operands are used again."""

    rows: int
    cols: int
    depth: int


#: A scalar unit's tile is one accumulator; a matrix unit's is the tile of mma.m16n8k16. Larger instructions repeat it.
TILES = {"fma": Tile(1, 1, 1), "fed": Tile(1, 1, 1), "mma": Tile(16, 8, 16)}


class FmaOperands(Protocol):
    """The operands of a set-up: `x` (n, in), `a` (rows x depth, in), `b` (depth x cols, in), `d` (n, out)."""

    x: Any
    a: Any
    b: Any
    d: Any
    threads: int
    stream: Any


@operation("fma")
class FmaProblem(Problem, frozen=True, kw_only=True):
    """The addition of k products to each of n accumulators, d = x + A B, with operands in registers.

    With unit `fma` every accumulator has the same a and b, in registers. With unit `fed` a and b are read from shared
    memory; a multiply-add needs as many reads as in the largest tile of a matrix product. With unit `mma` accumulator i
    lies in row i / 8 % 16 and column i % 8 of a tile, and step s adds a[row, s % 16] b[s % 16, column]. dtype is the
    type of a and b. x and d have the accumulators' type, which is f32 if dtype has 16 bits.
    """

    sizes: ClassVar[tuple[str, ...]] = ("n", "k")
    is_ceiling: ClassVar[bool] = True

    n: Dim
    k: Dim
    dtype: Literal["f64", "f32", "f16", "bf16"]
    unit: Literal["fma", "fed", "mma"] = "fma"

    def __post_init__(self) -> None:
        if self.k > LONGEST:
            raise ValueError(f"k is {self.k}, expected at most {LONGEST}: longer sums are not exact in FP32")

    def words(self) -> list[str]:
        return [] if self.unit == "fma" else [self.unit]

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        if words not in ([], ["fed"], ["mma"]):
            raise ValueError(f"ends in {'/'.join(words)!r}, expected /fed, /mma or nothing after the storage type")
        return {"unit": words[0]} if words else {}

    @property
    def accumulator(self) -> str:
        """Return the storage type of x and d."""
        return "f64" if self.dtype == "f64" else "f32"

    def operands(self) -> tuple[Operand, ...]:
        tile = TILES[self.unit]
        return (
            Operand("x", (self.n,), self.accumulator, "in", specials=1.0),
            Operand("a", (tile.rows, tile.depth), self.dtype, "in", specials=1.0),
            Operand("b", (tile.depth, tile.cols), self.dtype, "in", specials=1.0),
            Operand("d", (self.n,), self.accumulator, "out"),
        )

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> Array:
        a, b = coarse(inputs["a"]), coarse(inputs["b"])
        periods, rest = divmod(self.k, TILES[self.unit].depth)
        sums = periods * (a @ b) + a[:, :rest] @ b[:rest]
        added: Array = coarse(inputs["x"]) + np.resize(sums, self.n)
        return added

    def check(self, outputs: Arrays, reference: Array, numerics: str) -> Verdict:
        return compare("d", outputs["d"], reference, self.tolerance(numerics), self.accumulator)

    def tolerance(self, numerics: str) -> float:
        """Return 0, since every sum is exact."""
        return 0.0

    @property
    def flop(self) -> int:
        return 2 * self.n * self.k


def coarse(values: Array) -> Array:
    """Round values in [-1, 1] to -3/4, -1/4, 1/4 or 3/4 (1 itself to 5/4), as kernels do; no value becomes 0."""
    halves: Array = np.floor(2 * values.astype(np.float64))
    return halves / 2 + 0.25
