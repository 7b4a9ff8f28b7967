"""Aggregation: s = the sum of w gradients of n elements, or an update of the weights by this sum."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np

from kernelmark import (
    DTYPES,
    NUMERICS,
    SPECIALS,
    Array,
    Arrays,
    Bound,
    Changes,
    Checksums,
    Dim,
    EmulatedSizes,
    Launch,
    Operand,
    Problem,
    Tile,
    Verdict,
    compare,
    operation,
    within,
)
from kernelmark.kernels.aggregate._compressed import Compressed, drawn_parts, rounded
from kernelmark.kernels.aggregate._formats import FORMATS

#: The learning rate of `/update`, which every storage type holds exactly.
LR = 2.0**-6
_STEPS, _FEEDBACK = ("sum", "update"), ("plain", "ef")


class AggregateOperands(Protocol):
    """The operands of a set-up: `g`; `s`, or `weights` and `replicas` with /update; and `e` with /ef."""

    g: Any
    s: Any
    weights: Any
    replicas: Any
    e: Any
    threads: int
    stream: Any
    tile: Tile

    def scratch(self, shape: tuple[int, ...], dtype: str, gpu: int = 0) -> Any: ...
    def host_scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def launch(self, kernel: str, problem: str, stream: Any = None, **arrays: Any) -> Launch: ...
    def chose(self, **settings: Any) -> None: ...


@operation("aggregate")
class AggregateProblem(Problem, frozen=True, kw_only=True):
    """The sum of `g` (w, n), stored where every worker can read it.

    By default `s` (n) is the sum. With /update, `weights` (n, inout) become weights - lr x sum, and each row of
    `replicas` (w, n, out) is then a copy. With /ef there are residuals `e` (w + 1, n, inout): a row for each worker,
    and a last row for the stripes' owners. A compressed strategy sends g + e and stores the unsent part in e; an exact
    strategy sends everything and does not change e.
    """

    sizes: ClassVar[tuple[str, ...]] = ("w", "n")
    lr: ClassVar[float] = LR
    uses_host: ClassVar[bool] = True

    w: Annotated[int, msgspec.Meta(ge=2, le=1024)]
    n: Dim
    dtype: Literal["f64", "f32"]
    step: Literal["sum", "update"] = "sum"
    feedback: Literal["plain", "ef"] = "plain"

    def words(self) -> list[str]:
        return [word for word, default in ((self.step, "sum"), (self.feedback, "plain")) if word != default]

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        if words != [word for word in ("update", "ef") if word in words]:
            raise ValueError(f"ends in {'/'.join(words)!r}, expected nothing, update, ef or update/ef after the dtype")
        return {"step" if word == "update" else "feedback": word for word in words}

    @classmethod
    def typical(cls) -> Iterator[dict[str, Any]]:
        """Yield a large gradient, a small one, and one that ends within a block."""
        for w, n in ((4, 51_200_000), (4, 1_000_000), (3, 65_537), (2, 4096), (2, 700)):
            yield {"w": w, "n": n}

    @classmethod
    def emulated_sizes(cls) -> EmulatedSizes:
        """Return sizes below one compression block, of exactly one block, and of several with a partial last block.

        Some are odd, some divisible by two, and some by four.
        """
        sizes = (
            *((2, 1), (5, 3), (8, 31), (8, 264), (32, 512), (2, 513), (3, 613), (2, 1030), (5, 1028), (3, 514)),
            *((3, 1539), (8, 2056)),
        )
        return EmulatedSizes([{"w": w, "n": n} for w, n in sizes], long_from=4096)

    @property
    def baselines(self) -> tuple[str, ...]:
        return ("aggregate/cpu.host_serial",)

    def operands(self) -> tuple[Operand, ...]:
        gpus = tuple(range(self.w))
        # A block's compression loss depends on the range of its values.
        specials = 1.0 if self.feedback == "ef" else SPECIALS
        operands = [Operand("g", (self.w, self.n), self.dtype, "in", gpus=gpus, specials=specials)]
        if self.step == "sum":
            operands.append(Operand("s", (self.n,), self.dtype, "out"))
        else:
            operands.append(Operand("weights", (self.n,), self.dtype, "inout", specials=specials))
            operands.append(Operand("replicas", (self.w, self.n), self.dtype, "out", gpus=gpus))
        if self.feedback == "ef":
            operands.append(Operand("e", (self.w + 1, self.n), self.dtype, "inout", specials=specials))
        return tuple(operands)

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> Arrays:
        """Return the drawn values, and `want` (the float64 result), `size` and `parts` (from `drawn_parts`).

        size: for each element, the root of the sum of its squares over the gradients, in FP32 to save memory.
        """
        want, size = self._result(inputs)
        return {**inputs, "want": want, "size": size, "parts": drawn_parts(self.n, rng)}

    def _result(self, inputs: Arrays) -> tuple[Array, Array]:
        """Return the exact result and `size` (as in `reference`) for the elements in `inputs`: all or some of them."""
        want = np.add.reduce(inputs["g"], axis=0, dtype=np.float64)
        size = np.zeros(want.shape, np.float32)
        for row in inputs["g"]:
            np.hypot(size, row, out=size, dtype=np.float32, casting="same_kind")
        if self.step == "update":
            want *= -LR
            want += inputs["weights"]
            size *= LR
            if self.dtype == "f64":  # the reference rounds new weights, too
                np.hypot(size, inputs["weights"], out=size, dtype=np.float32, casting="same_kind")
        return want, size

    def checksums(self, inputs: Arrays, rng: "np.random.Generator") -> Checksums:
        """Return a check of each element of the result, of the replicas and of the residuals.

        If the strategy compresses, the result is checked only together with the changes of the residuals, as a sum. If
        an output seems wrong, `check` decides.
        """
        want, size = self._result(inputs)

        def wrong(outputs: Arrays, now: Arrays, changes: Changes, numerics: str) -> str | None:
            columns = np.unique(np.concatenate([index[-1] for index, _ in changes.values()]))
            before = want[columns], size[columns]
            want[columns], size[columns] = self._result({name: array[..., columns] for name, array in now.items()})
            try:
                with np.errstate(invalid="ignore", over="ignore"):
                    seems_right = self._seems_right(outputs, now, want, size, numerics)
            finally:
                want[columns], size[columns] = before
            return None if seems_right else self.check(outputs, self.reference(now, rng), numerics).reason

        return wrong

    def _seems_right(self, outputs: Arrays, now: Arrays, want: Array, size: Array, numerics: str) -> bool:
        got, bound = outputs[self.target], self.tolerance(numerics)._replace(unit=size)
        if self.feedback == "ef" and numerics in FORMATS:
            residual = sum(row.astype(np.float64) - before for row, before in zip(outputs["e"], now["e"], strict=True))
            scale = 1.0 if self.step == "sum" else -LR
            got = got + scale * residual
            # No drawn value exceeds 1, and residuals hardly do.
            bound = Bound(4 * abs(scale) * (self.w + 1) * rounded(self.w, self.dtype), 0.0, self.dtype)
        elif self.feedback == "ef" and not np.array_equal(outputs["e"], now["e"]):
            return False
        return bool(within(got, want, bound).all()) and self._copied(outputs)

    def _copied(self, outputs: Arrays) -> bool:
        """Return whether each replica is equal to the new weights; True without replicas."""
        return self.step == "sum" or bool((outputs["replicas"] == outputs["weights"]).all())

    @property
    def target(self) -> str:
        """Return the name of the operand with the result."""
        return "s" if self.step == "sum" else "weights"

    def check(self, outputs: Arrays, reference: Arrays, numerics: str) -> Verdict:
        """Compare the result with the reference, or check the rules of `Compressed` if the strategy compresses."""
        target = self.target
        if self.feedback == "ef" and numerics in FORMATS:
            verdict = Compressed(numerics, self.dtype, LR, reference, outputs).verdict()
        else:
            bound = self.tolerance(numerics)._replace(unit=reference["size"])
            verdict = compare(target, outputs[target], reference["want"], bound, self.dtype)
            if self.feedback == "ef" and not np.array_equal(outputs["e"], reference["e"]):
                reason = "e has changed, expected no change: an exact sum leaves nothing to be sent later"
                verdict = msgspec.structs.replace(verdict, reason=verdict.reason or reason)
        if not self._copied(outputs):
            late = "replicas differ from weights, expected a copy of the weights in each row"
            verdict = msgspec.structs.replace(verdict, reason=verdict.reason or late)
        return verdict

    def tolerance(self, numerics: str) -> Bound:
        """Return the bound on sums of w numbers added in any order, in units of the root of the sum of their squares.

        In this unit, each of the w - 1 partial sums is at most sqrt(w), and the square of a sum of j numbers is about
        j / w. A sum is rounded by at most u times itself; the variance of a rounding is u^2 / 6 of the number's square,
        and u^2 / 5 is allowed. Numbers that are rounded before they are sent are rounded again when their sum is sent
        back, and again if an update multiplies the sum.
        """
        arithmetic, stored = NUMERICS[numerics], DTYPES[self.dtype]
        u = max(arithmetic.accumulate, stored.roundoff) * (2 if self.dtype == "f64" else 1)  # the reference errs too
        sent = arithmetic.operand if arithmetic.operand > stored.roundoff else 0.0
        roundings = self.w - 1 + (self.step == "update")
        largest = (u * roundings + 2 * sent) * math.sqrt(self.w)
        partial = sum(j / self.w for j in range(2, self.w + 1)) + (self.step == "update")
        return Bound(largest, math.hypot(u * math.sqrt(partial / 5), sent * math.sqrt(2 / 3)), self.dtype)

    @property
    def flop(self) -> int:
        """Return the operation count: the sum's additions, and with /update a multiply-add per element."""
        return (self.w - 1) * self.n + (2 * self.n if self.step == "update" else 0)

    @property
    def touched(self) -> tuple[Operand, ...]:
        """Return all operands except the residuals, which exact strategies leave alone."""
        return tuple(operand for operand in self.operands() if operand.name != "e")

    @property
    def traffic_bytes(self) -> int:
        """Return the bytes that every strategy has to move; residuals, which only some strategies use, are left out."""
        moved = self.w + 1 if self.step == "sum" else 2 * self.w + 2
        return moved * self.n * DTYPES[self.dtype].itemsize

    @property
    def bus_bytes(self) -> float:
        """Return the bytes that a ring moves across the bus: 2 (w - 1) / w of a gradient, as in nccl-tests."""
        return 2 * (self.w - 1) / self.w * self.n * DTYPES[self.dtype].itemsize

    def least_wire_bytes(self, numerics: str) -> int:
        """Return the bytes of w - 1 gradients and w - 1 sums in the format of these numerics."""
        if numerics in FORMATS:
            return 2 * (self.w - 1) * FORMATS[numerics].nbytes(self.n)
        stored = "bf16" if numerics == "bf16" else self.dtype
        return 2 * (self.w - 1) * self.n * DTYPES[stored].itemsize
