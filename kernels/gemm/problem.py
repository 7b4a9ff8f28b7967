"""GEMM: C = alpha op(A) op(B) + beta C, optionally with an epilogue; row-major unless a kernel declares otherwise."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np

from kernelmark import (
    DECIMAL,
    DTYPES,
    SPECIALS,
    WHOLE,
    Array,
    Arrays,
    Bound,
    Changes,
    Checksums,
    Dim,
    Distribution,
    Features,
    Operand,
    Problem,
    Verdict,
    operation,
    split_dtype,
)
from kernelmark.kernels.gemm import _epilogue, _groups, _reference, _scales
from kernelmark.kernels.gemm._reference import Product, Reference, reference
from kernelmark.kernels.gemm._sums import Changed, RowSums

#: The largest special values of operands: in FP16, so that it can hold sums of their products; in FP8, because sums of
#: FP8 products lose products that are too small.
F16_SPECIALS, FP8_SPECIALS = 16.0, 2.0
#: The most products of two 8-bit integers, each at most 2^14, whose sum is always less than 2^31.
MOST_S8 = 2**17 - 1
#: Strassen's algorithm halves sizes down to _LEAF. Each halving multiplies errors by up to 1.4, in Winograd's variant
#: by up to _GROWTH, and the rms error of the least exact quarter of C, relative to all of C, by up to _UNEVEN.
_LEAF, _GROWTH, _UNEVEN = 32, 2.0, 1.25
STRASSEN = ("strassen", "strassen64")


class GemmOperands(Protocol):
    """The operands of a GEMM kernel's set-up: views of A, B and C as stored, thread count, stream and scratch.

    bias, v: for epilogues that take them. scale_a, scale_b: for products with scales.
    """

    a: Any
    b: Any
    c: Any
    bias: Any
    v: Any
    scale_a: Any
    scale_b: Any
    threads: int
    stream: Any

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def chose(self, **settings: Any) -> None: ...
    def launch(self, kernel: str, problem: str, **arrays: Any) -> Any: ...


@operation("gemm")
class GemmProblem(Problem, frozen=True, kw_only=True):
    """C (m x n) = alpha op_A(A) op_B(B) + beta C; `NT` means op_N(A) (m x k) times op_T(B), B stored n x k.

    lda_pad, ldb_pad, ldc_pad: elements by which leading dimensions exceed the lengths of rows. batch: strided products.
    epilogue: the operation on x = alpha op_A(A) op_B(B) + beta C before it is stored:
    bias-relu: C = max(0, x + bias), with a bias per column (n). sigmoid: C = 1 / (1 + exp(-x)).
    update: a step of the weights C, given their gradient x, with momentum and weight decay; beta is 0. A velocity V
    (m x n, inout, with C's leading dimension) becomes momentum V - rate (x + decay C), then C (inout) becomes C + V, as
    in Caffe, with the numbers `momentum`, `rate` and `decay`.
    s8.s32: exact sums of integers, without rounding or overflow; alpha is 1, beta 0, and no epilogue follows.
    grouping: how the rows of op(A) and C are divided into `groups`, each of which is multiplied by its own op(B):
    `equal`, or `skewed` in proportion to 1, 1/2, 1/3 ... B then has a matrix for each group, one after another.
    scale: `blocks` multiplies each 128 elements of a row of op_A(A) by an element of scale_a (k / 128 x m), and each
    128 x 128 block of op_B(B) by an element of scale_b (n / 128 x k / 128). Both are FP32, the last blocks may be
    smaller, and rows of scales are padded to 16 bytes.
    """

    sizes: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    assumed: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "epilogue": ("plain",),
        "scale": ("none",),
        "grouping": ("none",),
    }
    features: ClassVar[Features] = Features(
        inputs=("m", "n", "k", "batch"),
        expressions=(
            "m", "n", "k", "batch", "m / n", "m / k", "n / k", "m * n", "m * k", "n * k",
            "m * n * k", "batch * m * n * k", "batch * (m * k + k * n + m * n)",
        ),
        libraries=("gemm/cublas.sgemm", "gemm/numpy.matmul"),
    )  # fmt: skip
    rate: ClassVar[float] = _epilogue.RATE
    momentum: ClassVar[float] = _epilogue.MOMENTUM
    decay: ClassVar[float] = _epilogue.DECAY

    m: Dim
    n: Dim
    k: Dim
    dtype: Literal["f64", "f32", "f16", "bf16", "f16.f32", "bf16.f32", "e4m3.f32", "e4m3.bf16", "e5m2.f32", "s8.s32"]
    layout: Literal["NN", "NT", "TN", "TT"] = "NN"
    alpha: float = 1.0
    beta: float = 0.0
    batch: Dim = 1
    lda_pad: int = 0
    ldb_pad: int = 0
    ldc_pad: int = 0
    epilogue: _epilogue.Epilogue = "plain"
    scale: _scales.Scale = "none"
    groups: Dim = 1
    grouping: _groups.Grouping = "none"
    distribution: Distribution = "uniform"

    def __post_init__(self) -> None:
        for name in ("lda_pad", "ldb_pad", "ldc_pad"):
            if not 0 <= getattr(self, name) < 2**63:
                raise ValueError(f"{name} is {getattr(self, name)}, expected an integer from 0 to {2**63 - 1}")
        for name in ("alpha", "beta"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}, expected a finite number")
            self._require_scale(name, getattr(self, name))
        if self.epilogue == "update" and self.beta:
            raise ValueError(f"beta is {self.beta:g}, expected 0 with epi-update, which reads C itself")
        if self.epilogue == "update" and (stored := split_dtype(self.dtype)[1]) not in ("f64", "f32"):
            raise ValueError(f"C is stored as {stored}, expected f64 or f32 for the weights of epi-update")
        if self.dtype == "s8.s32":
            self._check_integers()
        if split_dtype(self.dtype)[0] in ("e4m3", "e5m2", "s8"):  # FP8 sums have too few bits for normal distributions
            self._expect(self.dtype, ("distribution", self.distribution, ("uniform", "zeros", "ints")))
        if self.grouping != "none":
            self._expect(
                f"groups{self.groups}-{self.grouping}",
                ("the storage type", self.dtype, ("f64", "f32", "f16", "bf16", "f16.f32", "bf16.f32")),
                ("the layout", self.layout, ("NN", "NT")),
                ("the epilogue", self.epilogue, ("plain",)),
                ("batch", str(self.batch), ("1",)),
            )
        elif self.groups > 1:
            raise ValueError(f"groups is {self.groups}, expected 1 unless the grouping is equal or skewed")
        if self.scale == "blocks":
            self._expect(
                "scale-blocks",
                ("the storage type", self.dtype, ("e4m3.f32", "e4m3.bf16")),
                ("the layout", self.layout, ("NT",)),
                ("the epilogue", self.epilogue, ("plain",)),
            )

    def _require_scale(self, name: str, value: float) -> None:
        """Raise ValueError for a factor with which a correct kernel might overflow or underflow."""
        limit, rest = (1e100, "") if self.dtype == "f64" else (1e30, ", or storage f64")
        most = limit
        if self.dtype == "f16":  # half of FP16's range is for each summand
            sums = 2 * F16_SPECIALS**2 + math.sqrt(self.k) * (40 if self.distribution == "ints" else 8)
            most = max(1.0, 2.0**15 // (sums if name == "alpha" else F16_SPECIALS))
            rest = ", or storage f16.f32" if abs(value) > most else rest
        if value and not 1 / limit <= abs(value) <= most:
            raise ValueError(f"{name} is {value:g}, expected 0 or a magnitude from {1 / limit:g} to {most:g}{rest}")

    @staticmethod
    def _expect(word: str, *parts: tuple[str, str, tuple[str, ...]]) -> None:
        """Raise ValueError if a part (name, value, expected) has a value that is not expected together with `word`."""
        for name, value, expected in parts:
            if value not in expected:
                raise ValueError(f"{name} is {value}, expected {' or '.join(expected)} with {word}")

    def _check_integers(self) -> None:
        """Raise ValueError unless each result is a plain sum that fits in 32 bits, whatever the operands' values."""
        for name, expected in (("alpha", 1), ("beta", 0), ("epilogue", "plain")):
            if (value := getattr(self, name)) != expected:
                raise ValueError(f"{name} is {value}, expected {expected} with s8.s32")
        if self.k > MOST_S8:
            raise ValueError(f"k is {self.k}, expected at most {MOST_S8} with s8.s32: longer sums may exceed 2^31 - 1")

    @classmethod
    def typical(cls) -> Iterator[dict[str, Any]]:
        """Yield shapes whose m, n and k are equal or nearly so, and a decoder layer of 16 tokens; largest m first."""
        decoder = {"m": 16, "n": 4096, "k": 4096}
        yield from sorted([*super().typical(), decoder], key=lambda sizes: -sizes["m"])

    @property
    def op_a(self) -> str:
        """Return `N` if A is stored m x k, `T` if it is stored k x m."""
        return self.layout[0]

    @property
    def op_b(self) -> str:
        """Return `N` if B is stored k x n, `T` if it is stored n x k."""
        return self.layout[1]

    def words(self) -> list[str]:
        words: list[str] = [self.layout]
        scalars = ((name, getattr(self, name), default) for name, default in _SCALARS)
        words += [f"{name}{_shortest(value)}" for name, value, default in scalars if value != default]
        words += [f"batch{self.batch}"] if self.batch > 1 else []
        pads = {"lda": self.lda_pad, "ldb": self.ldb_pad, "ldc": self.ldc_pad}
        words += [f"{name}+{pad}" for name, pad in pads.items() if pad]
        words += [f"epi-{self.epilogue}"] if self.epilogue != "plain" else []
        words += [f"groups{self.groups}-{self.grouping}"] if self.grouping != "none" else []
        return words + ([f"scale-{self.scale}"] if self.scale != "none" else [])

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        if not words:
            raise ValueError("has no layout; expected one of NN, NT, TN, TT after the storage type")
        values: dict[str, Any] = {"layout": words[0]}
        for word in words[1:]:
            before = len(values)
            if word[:3] in ("lda", "ldb", "ldc") and word[3:4] == "+":
                values[f"{word[:3]}_pad"] = _whole(word, word[4:])
            elif word.startswith("batch"):
                values["batch"] = _whole(word, word[5:])
            elif word.startswith("alpha"):
                values["alpha"] = _decimal(word, word[5:])
            elif word.startswith("beta"):
                values["beta"] = _decimal(word, word[4:])
            elif word.startswith("epi-"):
                values["epilogue"] = word[4:]
            elif word.startswith("scale-"):
                values["scale"] = word[6:]
            elif word.startswith("groups"):
                number, _, values["grouping"] = word[6:].partition("-")
                values["groups"] = _whole(word, number)
            else:
                expected = "alphaX, betaX, batchN, lda+N, ldb+N, ldc+N, epi-NAME, groupsN-equal, scale-blocks"
                raise ValueError(f"{word!r} is not a part of a gemm id; expected {expected}")
            if len(values) == before:
                raise ValueError(f"{word!r} contradicts or repeats an earlier part, expected each only once")
        return values

    @property
    def baselines(self) -> tuple[str, ...]:
        return ("gemm/numpy.matmul", "gemm/numpy.widened")

    def operands(self) -> tuple[Operand, ...]:
        stored, result = split_dtype(self.dtype)
        a = (self.m, self.k) if self.op_a == "N" else (self.k, self.m)
        b = (self.k, self.n) if self.op_b == "N" else (self.n, self.k)
        batch = (self.batch,) if self.batch > 1 else ()
        groups = (self.groups,) if self.grouping != "none" else batch
        role: Literal["inout", "out"] = "inout" if self.beta or self.epilogue == "update" else "out"
        most = F16_SPECIALS if "f16" in (stored, result) else SPECIALS
        factors = FP8_SPECIALS if stored in ("e4m3", "e5m2") else most
        c = Operand("c", (*batch, self.m, self.n), result, role, self.ldc_pad, specials=most, others=1.0)
        return (
            Operand("a", (*batch, *a), stored, "in", self.lda_pad, specials=factors, others=1.0),
            Operand("b", (*groups, *b), stored, "in", self.ldb_pad, specials=factors, others=1.0),
            c,
            *_epilogue.beside(self.epilogue, c),
            *(_scales.beside(self.m, self.n, self.k, batch) if self.scale == "blocks" else ()),
        )

    @property
    def group_rows(self) -> tuple[int, ...]:
        """Return the first row of each group, and the end of the last group."""
        return _groups.edges(self.m, self.groups, self.grouping)

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> Reference | _groups.GroupedReference:
        product = self._product(inputs)
        if self.scale == "blocks":
            of_a, of_b = (self._as_batch(inputs[name]) for name in ("scale_a", "scale_b"))
            a, b = _scales.scaled(product.a, product.b, of_a, of_b)
            return reference(product._replace(a=a, b=b), rng)
        if self.grouping != "none":
            return _groups.grouped(product, self.group_rows, rng)
        if self.epilogue == "plain":
            return reference(product, rng)
        if self.epilogue == "update":
            return _epilogue.updated(product, self._as_batch(inputs["c"]), self._as_batch(inputs["v"]), rng)
        return self._activation(inputs).reference(rng)

    def check(self, outputs: Arrays, reference: Reference | _groups.GroupedReference, numerics: str) -> Verdict:
        verdicts, every = [], (reference, *reference.beside)
        bound = self.tolerance(numerics)._replace(comparisons=len(every))
        for expected in every:
            output = self._as_batch(outputs[expected.name])
            verdict = expected.check(output, bound, numerics in STRASSEN)
            verdicts.append(_unbatched(expected.name, verdict, self.batch))
        return next((verdict for verdict in verdicts if verdict.reason), verdicts[0])

    def checksums(self, inputs: Arrays, rng: "np.random.Generator") -> Checksums | None:
        """Return a check of weighted row sums, or of all elements after an activation; None with scales or groups."""
        if (self.scale, self.grouping) != ("none", "none"):
            return None
        if self.epilogue in ("bias-relu", "sigmoid"):
            return self._all_elements(inputs, rng)
        sums = {name: RowSums(product, rng) for name, product in self._products(inputs).items()}

        def wrong(outputs: Arrays, now: Arrays, changes: Changes, numerics: str) -> str | None:
            changed = {name: self._in_product(name, now[name], *change) for name, change in changes.items()}
            a, bound = self._product(now).a, self.tolerance(numerics)
            for name, of in sums.items():
                operand_changes = _epilogue.step_changes(name, changed) if self.epilogue == "update" else changed
                output = self._as_batch(outputs[name])
                if reason := of.wrong(name, output, a, operand_changes, bound, numerics in STRASSEN):
                    return reason
            return None

        return wrong

    def _all_elements(self, inputs: Arrays, rng: "np.random.Generator") -> Checksums | None:
        """Return a check of all elements (None for large sizes); it recomputes rows and columns of changed operands."""
        if self.flop // 2 > _reference.WHOLE_REFERENCE_MACS:
            return None
        known = self._activation(inputs).reference(rng)

        def wrong(outputs: Arrays, now: Arrays, changes: Changes, numerics: str) -> str | None:
            at = {name: self._in_product(name, now[name], *changes[name]) for name in now if name != "bias"}
            rows, columns = [at[name][0:2] for name in ("a", "c") if name in at], [at["b"][0:3:2]]
            if self.epilogue == "bias-relu":
                *batch, column = changes["bias"][0]
                columns.append((batch[0] if batch else np.zeros_like(column), column))
            at_rows, at_columns = (np.concatenate(places, axis=1) for places in (rows, columns))
            c, bound = self._as_batch(outputs["c"]), self.tolerance(numerics)
            if self._activation(now).all_right(c, known, at_rows, at_columns, bound):
                return None
            return self.check(outputs, self.reference(now, rng), numerics).reason

        return wrong

    def _activation(self, inputs: Arrays) -> _epilogue.Activation:
        bias = self._as_batch(inputs["bias"]) if "bias" in inputs else None
        return _epilogue.Activation(self.epilogue, self._product(inputs), bias)

    def _products(self, inputs: Arrays) -> dict[str, Product]:
        """Return each output, by its name, as a product plus an added term."""
        product = self._product(inputs)
        if self.epilogue != "update":
            return {"c": product}
        return _epilogue.steps(product, self._as_batch(inputs["c"]), self._as_batch(inputs["v"]))

    def _product(self, inputs: Arrays) -> Product:
        """Return op_A(A) op_B(B), with the batch as the leading axis; with groups, B's leading axis is the group."""
        stored_b = inputs["b"] if self.grouping != "none" else self._as_batch(inputs["b"])
        a, b = (
            matrix.transpose(0, 2, 1) if op == "T" else matrix
            for matrix, op in zip((self._as_batch(inputs["a"]), stored_b), self.layout, strict=True)
        )
        return Product(a, b, self._as_batch(inputs["c"]) if self.beta else None, self.alpha, self.beta)

    def _in_product(self, name: str, now: Array, index: tuple[Array, ...], before: Array) -> Changed:
        """Convert a change of a stored operand to a change of the product's matrix, which may be its transpose."""
        *batch, row, column = index
        which = batch[0] if batch else np.zeros_like(row)
        if {"a": self.op_a, "b": self.op_b}.get(name) == "T":
            row, column = column, row
        return which, row, column, now[index].astype(np.float64), before.astype(np.float64)

    def tolerance(self, numerics: str) -> Bound:
        """Return the bound on C's errors, from the sum, alpha and beta, the epilogue, and rounding to the stored type.

        The bound is a multiple of the reference's `unit`. For integers it is 0, whatever numerics a kernel declares.
        """
        storage, stored = split_dtype(self.dtype)
        numerics = "exact" if stored == "s32" else numerics
        is_plain = (self.alpha, self.beta) == (1.0, 0.0) and self.epilogue in ("plain", "sigmoid")
        bound = _epilogue.bound(self.epilogue, numerics, storage, self.k, stored, is_plain)
        if abs(self.alpha) * math.sqrt(self.k) / 3 < 2 * DTYPES[stored].roundoff * abs(self.beta):
            # The products are smaller than an ulp of beta C, which may have only a few bits more than its storage type:
            # rounding errors need not be spread evenly over an ulp, and none is larger than half an ulp.
            bound = bound._replace(rounding=1 / 4)
        if numerics not in STRASSEN:
            return bound
        grown = _GROWTH**self.halvings
        return bound._replace(largest=grown * bound.largest, rms=grown * bound.rms, uneven=_UNEVEN**self.halvings)

    @property
    def halvings(self) -> int:
        """Return the largest number of halvings in Strassen's algorithm."""
        return max(1, (min(self.m, self.n, self.k) // _LEAF).bit_length() - 1)

    @property
    def largest(self) -> int:
        """Return the largest of the sizes, the batch and the leading dimensions."""
        return max(self.m, self.n, self.k, self.batch, self.groups, *(operand.ld for operand in self.operands()))

    @property
    def flop(self) -> int:
        """Count two operations per multiply-add, or none if alpha is 0, since BLAS then need not read A and B."""
        return 2 * self.batch * self.m * self.n * self.k if self.alpha else 0

    def least_flop(self, numerics: str) -> int:
        """Return the fewest operations; each halving of Strassen's algorithm has seven products instead of eight."""
        return self.flop * 7**self.halvings // 8**self.halvings if numerics in STRASSEN else self.flop

    @property
    def touched(self) -> tuple[Operand, ...]:
        a, b, *others = self.operands()
        if not self.alpha:
            return tuple(others)
        if self.grouping != "none":  # no product reads the B of a group without rows
            b = msgspec.structs.replace(b, shape=(len({*self.group_rows}) - 1, *b.shape[1:]))
        return (a, b, *others)

    def _as_batch(self, array: Array) -> Array:
        return array if self.batch > 1 else array[None]


_SCALARS = (("alpha", 1.0), ("beta", 0.0))


def _shortest(value: float) -> str:
    """Return the fewest digits that read back as the same number."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e16 else repr(value)


def _whole(word: str, text: str) -> int:
    if not re.fullmatch(WHOLE, text):
        raise ValueError(f"{word!r} needs a whole number without leading zeros")
    return int(text)


def _decimal(word: str, text: str) -> float:
    if not re.fullmatch(DECIMAL, text):
        raise ValueError(f"{word!r} needs a finite number")
    return float(text)


def _unbatched(name: str, verdict: Verdict, batch: int) -> Verdict:
    """Drop the leading index, which `_as_batch` added for a single product, from the verdict's reason."""
    if batch > 1 or verdict.reason is None:
        return verdict
    return msgspec.structs.replace(verdict, reason=verdict.reason.replace(f"{name}[0, ", f"{name}[", 1))
