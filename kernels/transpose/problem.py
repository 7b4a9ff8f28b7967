"""Transposition of an m x n row-major matrix, out of place or in place."""

from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from kernelmark import DTYPES, Array, Arrays, Dim, Operand, Problem, Tile, Verdict, compare, operation


class TransposeOperands(Protocol):
    """Operands of a transposition's set-up: `a` (m x n) and, out of place, `b` (n x m); scratch is counted."""

    a: Any
    b: Any
    threads: int
    stream: Any
    tile: Tile

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...


@operation("transpose")
class TransposeProblem(Problem, frozen=True, kw_only=True):
    """`out`: B (n x m) = A^T. `in`: the buffer of A (m x n) holds A^T (n x m) afterwards."""

    sizes: ClassVar[tuple[str, ...]] = ("m", "n")

    m: Dim
    n: Dim
    dtype: Literal["f64", "f32", "f16", "bf16"]
    place: Literal["out", "in"] = "out"

    def words(self) -> list[str]:
        return [self.place]

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        if len(words) != 1:
            raise ValueError(f"ends in {'/'.join(words)!r}, expected /out or /in after the storage type")
        return {"place": words[0]}

    @property
    def ctype(self) -> str:
        """C++ name of the storage type."""
        return DTYPES[self.dtype].ctype

    def operands(self) -> tuple[Operand, ...]:
        if self.place == "in":
            return (Operand("a", (self.m, self.n), self.dtype, "inout"),)
        return (Operand("a", (self.m, self.n), self.dtype, "in"), Operand("b", (self.n, self.m), self.dtype, "out"))

    def reference(self, inputs: Arrays, rng: np.random.Generator) -> Array:
        return inputs["a"].T.copy()

    def check(self, outputs: Arrays, reference: Array, numerics: str) -> Verdict:
        name = "b" if self.place == "out" else "a"
        found = outputs[name].reshape(self.n, self.m)
        if np.array_equal(found, reference):
            return Verdict(0.0, 0.0)
        return compare(name, found, reference.astype(np.float64), self.tolerance(numerics), self.dtype)

    def tolerance(self, numerics: str) -> float:
        """Nothing is computed, so nothing may differ."""
        return 0.0

    @property
    def flop(self) -> int:
        return 0
