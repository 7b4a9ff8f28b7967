"""Transposition of m x n row-major matrices, out of place or in place."""

import re
from functools import cache
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from kernelmark import (
    SPECIALS,
    WHOLE,
    Array,
    Arrays,
    Changes,
    Checksums,
    Dim,
    Distribution,
    EmulatedSizes,
    Features,
    Operand,
    Problem,
    Tile,
    Verdict,
    moved,
    operation,
)


class TransposeOperands(Protocol):
    """Operands of a transposition's set-up: `a` (m x n) and, out of place, `b` (n x m).

    In a batch, both have the index of the matrix first.
    """

    a: Any
    b: Any
    threads: int
    stream: Any
    tile: Tile

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...


@operation("transpose")
class TransposeProblem(Problem, frozen=True, kw_only=True):
    """`out`: B (n x m) = A^T. `in`: the buffer of A (m x n) holds A^T (n x m) afterwards.

    batch: the number of matrices; `b8m64n3136` turns 8 images of 64 channels of 56 x 56 from NCHW to NHWC.
    """

    sizes: ClassVar[tuple[str, ...]] = ("m", "n")
    features: ClassVar[Features] = Features(expressions=("m", "n", "m / n", "m * n"))

    m: Dim
    n: Dim
    dtype: Literal["f64", "f32", "f16", "bf16"]
    place: Literal["out", "in"] = "out"
    batch: Dim = 1
    distribution: Distribution = "uniform"

    @property
    def id(self) -> str:
        head, slash, rest = super().id.partition("/")
        return f"{head}{slash}b{self.batch}{rest}" if self.batch > 1 else f"{head}{slash}{rest}"

    @classmethod
    @cache
    def _sizes(cls) -> re.Pattern[str]:
        return re.compile(rf"(?:b(?P<batch>{WHOLE}))?{super()._sizes().pattern}")

    def words(self) -> list[str]:
        return [self.place]

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        if len(words) != 1:
            raise ValueError(f"ends in {'/'.join(words)!r}, expected /out or /in after the storage type")
        return {"place": words[0]}

    @property
    def baselines(self) -> tuple[str, ...]:
        in_place = ("transpose/openblas.imatcopy",) if self.place == "in" else ()
        return (*in_place, "transpose/numpy.out")

    @classmethod
    def emulated_sizes(cls) -> EmulatedSizes:
        """Return in-place sizes for the emulator: vectors, and matrices whose sides have a common divisor or none.

        Some sizes of either kind make a warp move a run of columns in two parts (transpose/c2r_runs.cuh).
        """
        sizes = (
            *((1, 37), (37, 1), (12, 20), (63, 24), (31, 64), (25, 165), (6, 194), (194, 6)),
            *((2, 510), (510, 2)),
        )
        return EmulatedSizes(last=[{"m": m, "n": n, "place": "in"} for m, n in sizes])

    def operands(self) -> tuple[Operand, ...]:
        batch = (self.batch,) if self.batch > 1 else ()
        a, b = (*batch, self.m, self.n), (*batch, self.n, self.m)
        if self.place == "in":
            return (Operand("a", a, self.dtype, "inout", specials=SPECIALS),)
        return (Operand("a", a, self.dtype, "in", specials=SPECIALS), Operand("b", b, self.dtype, "out"))

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> Array:
        return inputs["a"].swapaxes(-1, -2).copy()

    def check(self, outputs: Arrays, reference: Array, numerics: str) -> Verdict:
        name = "b" if self.place == "out" else "a"
        return moved(name, outputs[name].reshape(reference.shape), reference, self.dtype)

    def checksums(self, inputs: Arrays, rng: "np.random.Generator") -> Checksums:
        """Return the full check. Each call transposes only changed elements, into a reference that all calls share."""
        reference = self.reference(inputs, rng)
        turned = reference.swapaxes(-1, -2)

        def wrong(outputs: Arrays, now: Arrays, changes: Changes, numerics: str) -> str | None:
            index, before = changes["a"]
            turned[index] = now["a"][index]
            reason = self.check(outputs, reference, numerics).reason
            turned[index] = before
            return reason

        return wrong

    @property
    def flop(self) -> int:
        return 0
