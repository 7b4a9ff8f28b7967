"""GEMM: C = alpha op(A) op(B) + beta C, row-major unless a kernel declares otherwise."""

import math
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from kernelmark import (
    DTYPES,
    Array,
    Arrays,
    Dim,
    Operand,
    Problem,
    Verdict,
    accumulation_error,
    compare,
    largest_sum,
    operation,
    split_dtype,
    storing_error,
)

#: Problems of at most this many multiply-adds are compared with the whole float64 product (about 20 ms of DGEMM).
WHOLE_REFERENCE_MACS = 2**29
SAMPLED = 64
Pad = Any


class GemmOperands(Protocol):
    """Operands of a GEMM kernel's set-up: views of A, B and C as stored, thread count, stream and scratch."""

    a: Any
    b: Any
    c: Any
    threads: int
    stream: Any

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def launch(self, kernel: str, problem: str, **arrays: Any) -> Any: ...


class Reference(NamedTuple):
    """Float64 truth: all of C, or a grid of `rows` x `cols` with Freivalds' checksum `product` = C x."""

    values: Array
    rows: Array | None = None
    cols: Array | None = None
    x: Array | None = None
    product: Array | None = None


@operation("gemm")
class GemmProblem(Problem, frozen=True, kw_only=True):
    """C (m x n) = alpha op_A(A) op_B(B) + beta C; `NT` means op_N(A) (m x k) times op_T(B), B stored n x k.

    lda_pad, ldb_pad, ldc_pad: elements by which the leading dimensions exceed the rows. batch: strided batch.
    """

    sizes: ClassVar[tuple[str, ...]] = ("m", "n", "k")

    m: Dim
    n: Dim
    k: Dim
    dtype: Literal["f64", "f32", "f16", "bf16", "f16.f32", "bf16.f32"]
    layout: Literal["NN", "NT", "TN", "TT"] = "NN"
    alpha: float = 1.0
    beta: float = 0.0
    batch: Dim = 1
    lda_pad: int = 0
    ldb_pad: int = 0
    ldc_pad: int = 0

    def __post_init__(self) -> None:
        for name in ("lda_pad", "ldb_pad", "ldc_pad"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected an integer >= 0")
        for name in ("alpha", "beta"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}, expected a finite number")

    @property
    def op_a(self) -> str:
        """`N` where A is stored m x k, `T` where it is stored k x m."""
        return self.layout[0]

    @property
    def op_b(self) -> str:
        """`N` where B is stored k x n, `T` where it is stored n x k."""
        return self.layout[1]

    @property
    def ctype(self) -> str:
        """C++ name of the storage type of the inputs."""
        return DTYPES[split_dtype(self.dtype)[0]].ctype

    def words(self) -> list[str]:
        words: list[str] = [self.layout]
        scalars = ((name, getattr(self, name), default) for name, default in _SCALARS)
        words += [f"{name}{_shortest(value)}" for name, value, default in scalars if value != default]
        words += [f"batch{self.batch}"] if self.batch > 1 else []
        pads = {"lda": self.lda_pad, "ldb": self.ldb_pad, "ldc": self.ldc_pad}
        return words + [f"{name}+{pad}" for name, pad in pads.items() if pad]

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        if not words:
            raise ValueError("has no layout; expected one of NN, NT, TN, TT after the storage type")
        values: dict[str, Any] = {"layout": words[0]}
        for word in words[1:]:
            if word[:3] in ("lda", "ldb", "ldc") and word[3:4] == "+":
                values[f"{word[:3]}_pad"] = _number(int, word, word[4:])
            elif word.startswith("batch"):
                values["batch"] = _number(int, word, word[5:])
            elif word.startswith("alpha"):
                values["alpha"] = _number(float, word, word[5:])
            elif word.startswith("beta"):
                values["beta"] = _number(float, word, word[4:])
            else:
                raise ValueError(
                    f"{word!r} is not a part of a gemm id; expected alphaX, betaX, batchN, lda+N, ldb+N, ldc+N"
                )
        return values

    def operands(self) -> tuple[Operand, ...]:
        stored, result = split_dtype(self.dtype)
        a = (self.m, self.k) if self.op_a == "N" else (self.k, self.m)
        b = (self.k, self.n) if self.op_b == "N" else (self.n, self.k)
        batch = (self.batch,) if self.batch > 1 else ()
        return (
            Operand("a", (*batch, *a), stored, "in", self.lda_pad),
            Operand("b", (*batch, *b), stored, "in", self.ldb_pad),
            Operand("c", (*batch, self.m, self.n), result, "inout" if self.beta else "out", self.ldc_pad),
        )

    def reference(self, inputs: Arrays, rng: np.random.Generator) -> Reference:
        a, b = self._as_batch(inputs["a"]), self._as_batch(inputs["b"])
        c = self._as_batch(inputs["c"]) if self.beta else np.empty(0)
        a = a.transpose(0, 2, 1) if self.op_a == "T" else a
        b = b.transpose(0, 2, 1) if self.op_b == "T" else b
        if self.batch * self.m * self.n * self.k <= WHOLE_REFERENCE_MACS:
            values = self.alpha * (a.astype(np.float64) @ b.astype(np.float64))
            return Reference(values + self.beta * c.astype(np.float64) if self.beta else values)
        rows = np.sort(rng.choice(self.m, min(SAMPLED, self.m), replace=False))
        cols = np.sort(rng.choice(self.n, min(SAMPLED, self.n), replace=False))
        x = rng.choice(np.array([-1.0, 1.0]), self.n)
        values = self.alpha * (a[:, rows].astype(np.float64) @ b[:, :, cols].astype(np.float64))
        product = np.stack([self.alpha * _matvec(a[i], _matvec(b[i], x)) for i in range(self.batch)])
        if self.beta:
            values += self.beta * c[:, rows][:, :, cols].astype(np.float64)
            product += np.stack([self.beta * _matvec(c[i], x) for i in range(self.batch)])
        return Reference(values, rows, cols, x, product)

    def check(self, outputs: Arrays, reference: Reference, numerics: str) -> Verdict:
        c, bound, stored = self._as_batch(outputs["c"]), self.tolerance(numerics), split_dtype(self.dtype)[1]
        if reference.rows is None or reference.cols is None:
            return _unbatched(compare("c", c, reference.values, bound, stored), self.batch)
        assert reference.x is not None
        assert reference.product is not None
        sampled = c[:, reference.rows][:, :, reference.cols]
        verdict = compare("sampled c", sampled, reference.values, bound, stored)
        if verdict.reason:
            return _unbatched(verdict, self.batch)
        # Freivalds: with signs x drawn afresh, a row's checksum is off by a sum of n errors of random sign. Their size
        # is what the sample shows of this kernel, so the bound is as tight as the kernel is exact; 16 standard
        # deviations leave room for kernels whose tiles differ in how they sum.
        spread = math.sqrt(float(np.mean((sampled.astype(np.float64) - reference.values) ** 2)))
        floor = bound / 256
        # The checksums themselves are chains of n and of k additions in float64, of sums as large as sqrt(n) elements.
        magnitude = abs(self.alpha) * math.sqrt(self.k) + abs(self.beta)
        own = 0.3 * DTYPES["f64"].roundoff * (self.n + self.k) * magnitude
        limit = 16.0 * (math.sqrt(self.n) * max(spread, floor) + own)
        found = np.stack([_matvec(c[i], reference.x) for i in range(self.batch)])
        checksum = compare("checksum of c", found, reference.product, limit, "f64")
        return msgspec.structs.replace(verdict, reason=_unbatched(checksum, self.batch).reason)

    def tolerance(self, numerics: str) -> float:
        """Bound of the absolute error: of the sum, of alpha and beta, and of rounding to the stored type."""
        stored, result = split_dtype(self.dtype)
        magnitude = abs(self.alpha) * largest_sum(self.k) + abs(self.beta)
        accumulated = abs(self.alpha) * accumulation_error(numerics, stored, self.k)
        return accumulated + storing_error(numerics, result, magnitude)

    @property
    def largest(self) -> int:
        """The largest of sizes, batch and leading dimensions."""
        return max(self.m, self.n, self.k, self.batch, *(operand.ld for operand in self.operands()))

    @property
    def flop(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    def _as_batch(self, array: Array) -> Array:
        return array if self.batch > 1 else array[None]


_SCALARS = (("alpha", 1.0), ("beta", 0.0))


def _shortest(value: float) -> str:
    """The fewest digits that read back as the same number."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e16 else repr(value)


def _number(kind: type[int] | type[float], word: str, text: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{word!r} holds no number") from None


def _matvec(matrix: Array, x: Array) -> Array:
    """Matrix @ x in float64, in blocks of rows so that no float64 copy of the matrix is made."""
    rows = max(1, 2**22 // matrix.shape[1])
    blocks = [matrix[i : i + rows].astype(np.float64) @ x for i in range(0, matrix.shape[0], rows)]
    return np.concatenate(blocks)


def _unbatched(verdict: Verdict, batch: int) -> Verdict:
    """Drop the leading index that `_as_batch` put before that of a single product."""
    if batch > 1 or verdict.reason is None:
        return verdict
    return msgspec.structs.replace(verdict, reason=verdict.reason.replace("c[0, ", "c[", 1))
