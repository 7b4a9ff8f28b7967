"""Wrong aggregations: what a strategy does that saves traffic or time, and loses or invents gradients.

A result is the sum, then the residuals of the workers and of the owners, one row each.
"""

from collections.abc import Callable

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.selftest.wrong.library import Family, Inputs, Spoil, Wrong, flip_bit, put

PLAIN, FED_BACK = "aggregate/w4n5000/f32", "aggregate/w4n5000/f32/ef"
#: Elements of a block of each format.
BLOCKS = {"onebit": 512, "int8": 256}
F32 = np.float32


def quantised(name: str, x: Array, bias: float = 0.0) -> Array:
    """What a format makes of x; bias: where it rounds, in units of what it rounds to."""
    found = np.empty_like(x)
    for start in range(0, len(x), BLOCKS[name]):
        block = x[start : start + BLOCKS[name]]
        if name == "int8":
            scale = np.abs(block).max() / F32(127)
            found[start : start + len(block)] = np.clip(np.rint(block / scale - F32(bias)), -127, 127) * scale
        else:
            high = block >= bias
            means = [block[where].mean() if where.any() else F32(0) for where in (high, ~high)]
            found[start : start + len(block)] = np.where(high, *means)
    return found


class Run:
    """One aggregation, step by step: a cheat replaces one of the steps."""

    def __init__(self, name: str) -> None:
        self.name = name

    def send(self, x: Array) -> Array:
        """What a worker sends."""
        return quantised(self.name, x)

    def keep(self, x: Array, sent: Array) -> Array:
        """What it keeps."""
        return x - sent

    def add(self, sent: list[Array], kept: Array) -> Array:
        """The owners' sum."""
        total = kept.copy()
        for one in sent:
            total += one
        return total

    def keep_owners(self, total: Array, message: Array, before: Array) -> Array:
        """What the owners keep."""
        return total - message

    def deliver(self, message: Array) -> Array:
        """What every worker gets."""
        return message

    def __call__(self, inputs: Inputs) -> Array:
        """The sum and the residuals."""
        gradients, before = inputs["g"], inputs["e"]
        offered = [g + e for g, e in zip(gradients, before[:-1], strict=True)]
        sent = [self.send(x) for x in offered]
        total = self.add(sent, before[-1])
        message = self.send(total)
        kept = [self.keep(x, q) for x, q in zip(offered, sent, strict=True)]
        return np.stack([self.deliver(message), *kept, self.keep_owners(total, message, before[-1])])


class SendsZeros(Run):
    """Conserves everything by sending nothing."""

    def send(self, x: Array) -> Array:
        return np.zeros_like(x)


class DropsResidual(Run):
    """Forgets what it has not sent."""

    def keep(self, x: Array, sent: Array) -> Array:
        return np.zeros_like(x)


class OneBlockLate(Run):
    """Delivers each block in the place of the next."""

    def deliver(self, message: Array) -> Array:
        return np.roll(message, BLOCKS[self.name])


class BiasedRounding(Run):
    """Rounds down, or takes small positive numbers for negative ones; the residual makes up for it."""

    def send(self, x: Array) -> Array:
        return quantised(self.name, x, 0.25)


class ForgetsWorker(Run):
    """Leaves the last worker out."""

    def add(self, sent: list[Array], kept: Array) -> Array:
        return super().add(sent[:-1], kept)


class CountsTwice(Run):
    """Adds the first worker twice."""

    def add(self, sent: list[Array], kept: Array) -> Array:
        return super().add([sent[0], *sent], kept)


class MixesStripes(Run):
    """Delivers two owners' stripes in each other's place."""

    def deliver(self, message: Array) -> Array:
        found = message.copy()
        found[:1024], found[1024:2048] = message[1024:2048], message[:1024]
        return found


class LeavesOwners(Run):
    """Leaves the owners' residual as it was."""

    def keep_owners(self, total: Array, message: Array, before: Array) -> Array:
        return before


class QuantisesTwice(Run):
    """Quantises once more, in other blocks, what it delivers."""

    def deliver(self, message: Array) -> Array:
        return np.roll(quantised(self.name, np.roll(message, 100)), -100)


class SumsInHalf(Run):
    """Adds in FP16."""

    def add(self, sent: list[Array], kept: Array) -> Array:
        return super().add([one.astype(np.float16) for one in sent], kept.astype(np.float16)).astype(F32)


class SendsAll(Run):
    """Sends gradients in full, under the name of the format."""

    def send(self, x: Array) -> Array:
        return x


CHEATS: dict[str, type[Run]] = {
    "sends zeros": SendsZeros,
    "drops the residual": DropsResidual,
    "one block late": OneBlockLate,
    "biased rounding": BiasedRounding,
    "forgets one worker": ForgetsWorker,
    "counts one worker twice": CountsTwice,
    "mixes stripes": MixesStripes,
    "leaves the owners' residual": LeavesOwners,
    "quantises twice": QuantisesTwice,
    "sums in FP16": SumsInHalf,
    "sends all": SendsAll,
}


def _exact(_problem: Problem, inputs: Inputs) -> Array:
    found: Array = inputs["g"].astype(np.float64).sum(0)
    return found


def _sum(change: Callable[[Array], Array]) -> Spoil:
    return lambda _s, inputs, _rng: change(inputs["g"].astype(np.float64)).sum(0)


def _cheating(run: Run) -> Spoil:
    return lambda _result, inputs, _rng: run(inputs)


SUMS = Family(
    _exact,
    (
        Wrong("forgets one worker", PLAIN, _sum(lambda g: g[:-1])),
        Wrong("counts one worker twice", PLAIN, _sum(lambda g: np.concatenate([g, g[:1]]))),
        Wrong("mixes stripes", PLAIN, _sum(lambda g: np.roll(g, 1250, 1))),
        Wrong("one block late", PLAIN, _sum(lambda g: np.roll(g, 16, 1))),
        Wrong("gradients in FP16", PLAIN, _sum(lambda g: g.astype(np.float16).astype(np.float64))),
        Wrong("sums in FP16", PLAIN, lambda _s, inputs, _rng: inputs["g"].astype(np.float16).sum(0, np.float16)),
        Wrong("divided by the workers", PLAIN, lambda s, _i, _rng: s / 4),
        Wrong("an element not written", PLAIN, put(np.nan, None)),
        Wrong("gradients in 4 bits", PLAIN, _sum(lambda g: np.rint(g * 8) / 8), "bf16"),
        Wrong("a bit flipped", PLAIN, flip_bit("f32"), "fp32", None),
    ),
)
COMPRESSED = tuple(
    Family(
        lambda _problem, inputs, name=name: Run(name)(inputs),  # type: ignore[misc]
        tuple(Wrong(idea, FED_BACK, _cheating(cheat(name)), name) for idea, cheat in CHEATS.items()),
        name,
    )
    for name in BLOCKS
)
