"""A plug-in that makes two layouts of a product one problem, since contenders are compared on one problem only.

The operation `selftest_pair` has square A and B; kernel `nn` computes C = A B, kernel `nt` C = A B^T. Both call the
same library on the same arrays; only the order in which B is read differs.
"""

import math
from typing import Any, ClassVar, Literal

import numpy as np

from kernelmark import (
    Array,
    Arrays,
    Bound,
    Dim,
    Launch,
    Operand,
    Problem,
    Verdict,
    compare,
    kernel,
    operation,
    sum_bound,
)


@operation("selftest_pair")
class PairProblem(Problem, frozen=True, kw_only=True):
    """C = A B or A B^T, all n x n."""

    sizes: ClassVar[tuple[str, ...]] = ("n",)

    n: Dim
    dtype: Literal["f32"]

    def operands(self) -> tuple[Operand, ...]:
        shape = (self.n, self.n)
        return tuple(Operand(name, shape, self.dtype, "out" if name == "c" else "in") for name in "abc")

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> tuple[Array, Array]:
        a, b = inputs["a"].astype(np.float64), inputs["b"].astype(np.float64)
        return a @ b, a @ b.T

    def check(self, outputs: Arrays, reference: tuple[Array, Array], numerics: str) -> Verdict:
        found = [compare("c", outputs["c"], want, self.tolerance(numerics), self.dtype) for want in reference]
        return min(found, key=lambda verdict: math.inf if verdict.max_error is None else verdict.max_error)

    def tolerance(self, numerics: str) -> Bound:
        """Return the bound of a GEMM with k = n."""
        return sum_bound(numerics, self.dtype, self.n, self.dtype, roundings=self.n**2)

    @property
    def flop(self) -> int:
        return 2 * self.n**3


@kernel("selftest_pair", provider="selftest", device="cpu", modules=("numpy",), threaded=True)
def nn(problem: PairProblem, x: Any) -> Launch:
    """NumPy matmul, with B read as stored."""
    return lambda: np.matmul(x.a, x.b, out=x.c)


@kernel("selftest_pair", provider="selftest", device="cpu", modules=("numpy",), threaded=True)
def nt(problem: PairProblem, x: Any) -> Launch:
    """NumPy matmul, with B read transposed."""
    transposed = x.b.T
    return lambda: np.matmul(x.a, transposed, out=x.c)
