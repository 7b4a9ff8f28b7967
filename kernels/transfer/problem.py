"""Transfer of n elements over a link: between host and device, between devices, or within the host's memory.

The direction names the ends of the link; the kernel chooses the kind of host memory.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np

from kernelmark import (
    DTYPES,
    SPECIALS,
    WHOLE,
    Array,
    Arrays,
    Checksums,
    Dim,
    EmulatedSizes,
    Launch,
    Operand,
    Problem,
    Tile,
    Verdict,
    compare,
    moved,
    operation,
)

Direction = Literal["h2d", "d2h", "bidir", "d2d", "p2p", "h2h"]
#: The multiply-add of `work`: y <- SCALE y + SHIFT, whose fixed point is 1/2; values stay in [-1, 1].
SCALE, SHIFT = 1 - 2.0**-10, 2.0**-11
#: The most steps: after more, all elements are so close to the fixed point that few errors would show.
MOST_WORK = 4096
_BASELINES = {
    "d2d": "transfer/cuda.device",
    "p2p": "transfer/cuda.peer",
    "h2h": "transfer/numpy.copyto",
} | dict.fromkeys(("h2d", "d2h", "bidir"), "transfer/cuda.pageable")


class TransferOperands(Protocol):
    """The operands: `a` (n, in), `b` (n, out); for `bidir` also `c` (n, in) and `d` (n, out) in the other direction."""

    a: Any
    b: Any
    c: Any
    d: Any
    threads: int
    stream: Any
    tile: Tile

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def launch(self, kernel: str, problem: str, **arrays: Any) -> Launch: ...
    def chose(self, **settings: Any) -> None: ...


@operation("transfer")
class TransferProblem(Problem, frozen=True, kw_only=True):
    """B = A across a link; `work` multiply-adds follow for each element on arrival.

    direction: h2d, d2h, bidir (both at once, n elements each way), d2d (within a device), p2p (to another device), h2h.
    node: the NUMA node that host memory at the source is bound to, None for the system's choice.
    """

    sizes: ClassVar[tuple[str, ...]] = ("n",)
    is_ceiling: ClassVar[bool] = True
    uses_host: ClassVar[bool] = True

    n: Dim
    dtype: Literal["f64", "f32", "f16", "bf16"]
    direction: Direction
    node: Annotated[int, msgspec.Meta(ge=0, le=1023)] | None = None
    work: Annotated[int, msgspec.Meta(ge=0, le=MOST_WORK)] = 0

    def words(self) -> list[str]:
        node = [] if self.node is None else [f"node{self.node}"]
        return [self.direction, *node, *([f"work{self.work}"] if self.work else [])]

    @classmethod
    def parse_words(cls, words: list[str]) -> dict[str, Any]:
        match = re.fullmatch(rf"([a-z0-9]+)(?:/node({WHOLE}))?(?:/work({WHOLE}))?", "/".join(words))
        if not match or match[3] == "0":
            expected = "a direction (h2d, d2h, bidir, d2d, p2p, h2h), then /node<int> and /work<int> if any"
            raise ValueError(f"ends in {'/'.join(words)!r}, expected {expected}")
        numbers = {name: int(text) for name, text in (("node", match[2]), ("work", match[3])) if text is not None}
        return {"direction": match[1], **numbers}

    @classmethod
    def typical(cls) -> Iterator[dict[str, Any]]:
        for values in super().typical():
            yield {**values, "direction": "h2d"}
            yield {**values, "direction": "d2d", "work": 64}

    @classmethod
    def emulated_sizes(cls) -> EmulatedSizes:
        """Return sizes of one element, of less than a vector or a block, and of more, with and without a remainder."""
        return EmulatedSizes([{"n": n} for n in (1, 3, 31, 264, 1031, 4096, 4099, 9001)], long_from=4096)

    def dims(self) -> dict[str, int | float | str]:
        return {**super().dims(), "node": "" if self.node is None else self.node}

    @property
    def baselines(self) -> tuple[str, ...]:
        serial = ("transfer/numba.serial", "transfer/cuda.serial") if self.work else ()
        return (*serial, _BASELINES[self.direction], "transfer/numpy.copyto")

    def operands(self) -> tuple[Operand, ...]:
        at_source, at_target = self.direction in ("h2d", "bidir", "h2h"), self.direction in ("d2h", "h2h")
        specials = 1.0 if self.work else SPECIALS
        there = (
            Operand("a", (self.n,), self.dtype, "in", in_host=at_source, specials=specials),
            Operand("b", (self.n,), self.dtype, "out", in_host=at_target, gpus=(int(self.direction == "p2p"),)),
        )
        if self.direction != "bidir":
            return there
        back = (
            Operand("c", (self.n,), self.dtype, "in", specials=specials),
            Operand("d", (self.n,), self.dtype, "out", in_host=True),
        )
        return (*there, *back)

    def reference(self, inputs: Arrays, rng: "np.random.Generator") -> Arrays:
        pairs = {"b": inputs["a"], **({"d": inputs["c"]} if "c" in inputs else {})}
        if not self.work:
            return pairs
        scale = SCALE**self.work
        return {name: 0.5 + scale * (source.astype(np.float64) - 0.5) for name, source in pairs.items()}

    def check(self, outputs: Arrays, reference: Arrays, numerics: str) -> Verdict:
        verdicts = [self._checked(name, outputs[name], want, numerics) for name, want in reference.items()]
        return next((verdict for verdict in verdicts if verdict.reason), verdicts[0])

    def _checked(self, name: str, got: Array, want: Array, numerics: str) -> Verdict:
        if not self.work:
            return moved(name, got, want, self.dtype)
        limit, kind = self.tolerance(numerics), DTYPES[self.dtype]
        if kind.itemsize > 2:
            return compare(name, got, want, limit, self.dtype)
        return compare(name, got, want, limit + kind.roundoff * (np.abs(want) + limit) + kind.underflow, self.dtype)

    def checksums(self, inputs: Arrays, rng: "np.random.Generator") -> Checksums:
        """Return the full check, which takes hardly longer than reading both arrays."""
        return lambda outputs, now, changes, numerics: self.check(outputs, self.reference(now, rng), numerics).reason

    def tolerance(self, numerics: str) -> float:
        """Return the bound on errors before storing. Each step of work rounds a product and a sum, by at most u each.

        Each later step multiplies these errors by SCALE. The error of SCALE^work in the reference is far smaller. FP16
        and BF16 have too few bits for such steps (BF16 cannot hold SCALE), so 16-bit values take their steps in FP32.
        """
        return 2 * min(DTYPES[self.dtype].roundoff, DTYPES["f32"].roundoff) * (1 - SCALE**self.work) / (1 - SCALE)

    @property
    def flop(self) -> int:
        return 2 * self.n * self.work * (2 if self.direction == "bidir" else 1)

    @property
    def traffic_bytes(self) -> int:
        """Return the bytes across the link, counted once; `bidir` has n elements in each direction."""
        return self.n * DTYPES[self.dtype].itemsize * (2 if self.direction == "bidir" else 1)

    def link(self, footprint_bytes: int) -> str:
        """Return the id of the transfer that measures the ceiling: `footprint_bytes` in all, in the same direction."""
        operands = 4 if self.direction == "bidir" else 2
        return f"transfer/n{max(1, footprint_bytes // (4 * operands))}/f32/{self.direction}"
