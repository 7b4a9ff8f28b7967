"""Copy of an m x n matrix: the ceiling of every operation that only moves data."""

from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from kernelmark import (
    SPECIALS,
    Array,
    Arrays,
    Checksums,
    Dim,
    Distribution,
    Operand,
    Problem,
    Tile,
    Verdict,
    moved,
    operation,
)


class CopyOperands(Protocol):
    """Operands of a copy kernel's set-up: `a` (m x n, in) and `b` (m x n, out)."""

    a: Any
    b: Any
    threads: int
    stream: Any
    tile: Tile


@operation("copy")
class CopyProblem(Problem, frozen=True, kw_only=True):
    """B = A, both m x n row-major."""

    sizes: ClassVar[tuple[str, ...]] = ("m", "n")
    is_ceiling: ClassVar[bool] = True

    m: Dim
    n: Dim
    dtype: Literal["f64", "f32", "f16", "bf16"]
    distribution: Distribution = "uniform"

    @property
    def baselines(self) -> tuple[str, ...]:
        return ("copy/numpy.copyto",)

    def operands(self) -> tuple[Operand, ...]:
        shape = (self.m, self.n)
        return (Operand("a", shape, self.dtype, "in", specials=SPECIALS), Operand("b", shape, self.dtype, "out"))

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> Array:
        return inputs["a"]

    def check(self, outputs: Arrays, reference: Array, numerics: str) -> Verdict:
        return moved("b", outputs["b"], reference, self.dtype)

    def checksums(self, inputs: Arrays, rng: "np.random.Generator") -> Checksums:
        """Return a comparison of all elements, which takes hardly longer than reading both arrays."""
        return lambda outputs, now, changes, numerics: self.check(outputs, self.reference(now, rng), numerics).reason

    @property
    def flop(self) -> int:
        return 0
