"""Wrong aggregations: strategies that save traffic or time by losing or inventing gradients.

A result has a row for the sum, a row for the residual of each worker, and a row for the residual of the sum.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.selftest.wrong.library import Family, Inputs, Spoil, Wrong, flip_bit, float64, nearest, put

PLAIN, FED_BACK = "aggregate/w4n5000/f32", "aggregate/w4n5000/f32/ef"
#: Large, so that only a sample of the values is judged.
LARGE = "aggregate/w2n1100000/f32/ef"
#: The number of elements of a block in each format.
BLOCKS = {"onebit": 512, "int8": 256}
F32 = np.float32


def quantised(name: str, x: Array, bias: float = 0.0) -> Array:
    """Return x rounded to a compressed format; bias: the shift of the rounding threshold, in steps of the format."""
    rounded = np.empty_like(x)
    for start in range(0, len(x), BLOCKS[name]):
        block = x[start : start + BLOCKS[name]]
        if name == "int8":
            scale = np.abs(block).max() / F32(127)
            rounded[start : start + len(block)] = np.clip(np.rint(block / scale - F32(bias)), -127, 127) * scale
        else:
            high = block >= bias
            means = [block[where].mean() if where.any() else F32(0) for where in (high, ~high)]
            rounded[start : start + len(block)] = np.where(high, *means)
    return rounded


def _add(sent: list[Array], residual: Array) -> Array:
    total = residual.copy()
    for message in sent:
        total += message
    return total


def aggregated(
    name: str,
    inputs: Inputs,
    *,
    send: Callable[[str, Array], Array] = quantised,
    keep: Callable[[Array, Array], Array] = np.subtract,
    add: Callable[[list[Array], Array], Array] = _add,
    keep_owners: Callable[[Array, Array, Array], Array] = lambda total, message, _before: total - message,
    deliver: Callable[[str, Array], Array] = lambda _, message: message,
) -> Array:
    """Return the sum and residuals of a compressed aggregation. A cheat may replace any of the steps.

    Each worker compresses and sends its gradient, and keeps the rounding error. The owners of parts of the sum add what
    they receive, compress and deliver their parts, and keep the rounding error of the sum.
    """
    gradients, before = inputs["g"], inputs["e"]
    offered = [g + e for g, e in zip(gradients, before[:-1], strict=True)]
    sent = [send(name, x) for x in offered]
    total = add(sent, before[-1])
    message = send(name, total)
    residuals = [keep(x, q) for x, q in zip(offered, sent, strict=True)]
    return np.stack([deliver(name, message), *residuals, keep_owners(total, message, before[-1])])


def _add_in_half(sent: list[Array], residual: Array) -> Array:
    return _add([message.astype(np.float16) for message in sent], residual.astype(np.float16)).astype(F32)


def _send_no_middle(name: str, x: Array) -> Array:
    rounded, first = quantised(name, x), len(x) // 2 // BLOCKS[name] * BLOCKS[name]
    rounded[first : first + BLOCKS[name]] = 0
    return rounded


def _mix_stripes(_: str, message: Array) -> Array:
    return np.concatenate([message[1024:2048], message[:1024], message[2048:]])


CHEATS: dict[str, dict[str, Any]] = {
    "sends zeros": {"send": lambda _, x: np.zeros_like(x)},
    "drops the residual": {"keep": lambda x, _sent: np.zeros_like(x)},
    "one block late": {"deliver": lambda name, message: np.roll(message, BLOCKS[name])},
    # Rounds down, or treats small positive numbers as negative; the residual compensates.
    "biased rounding": {"send": lambda name, x: quantised(name, x, 0.25)},
    "forgets one worker": {"add": lambda sent, residual: _add(sent[:-1], residual)},
    "counts one worker twice": {"add": lambda sent, residual: _add([sent[0], *sent], residual)},
    "mixes stripes": {"deliver": _mix_stripes},
    "leaves the owners' residual": {"keep_owners": lambda _total, _message, before: before},
    "quantises twice": {"deliver": lambda name, x: np.roll(quantised(name, np.roll(x, 100)), -100)},
    "sums in FP16": {"add": _add_in_half},
    "sends all": {"send": lambda _, x: x},
}


def _exact(_problem: Problem, inputs: Inputs) -> Array:
    total: Array = float64(inputs, "g")[0].sum(0)
    return total


def _sum(change: Callable[[Array], Array]) -> Spoil:
    return lambda _s, inputs, _rng: change(float64(inputs, "g")[0]).sum(0)


SUMS = Family(
    _exact,
    (
        Wrong("forgets one worker", PLAIN, _sum(lambda g: g[:-1])),
        Wrong("counts one worker twice", PLAIN, _sum(lambda g: np.concatenate([g, g[:1]]))),
        Wrong("mixes stripes", PLAIN, _sum(lambda g: np.roll(g, 1250, 1))),
        Wrong("one block late", PLAIN, _sum(lambda g: np.roll(g, 16, 1))),
        Wrong("gradients of 22 bits", PLAIN, _sum(nearest(22))),
        Wrong("gradients in FP16", PLAIN, _sum(lambda g: g.astype(np.float16).astype(np.float64))),
        Wrong("sums in FP16", PLAIN, lambda _s, inputs, _rng: inputs["g"].astype(np.float16).sum(0, np.float16)),
        Wrong("divided by the workers", PLAIN, lambda s, _i, _rng: s / 4),
        Wrong("an element not written", PLAIN, put(np.nan, None)),
        Wrong("gradients in 4 bits", PLAIN, _sum(lambda g: np.rint(g * 8) / 8), "bf16"),
        Wrong("a bit flipped", PLAIN, flip_bit("f32"), "fp32", None),
    ),
)


def _compressed(name: str) -> Family:
    def cheating(steps: dict[str, Any]) -> Spoil:
        return lambda _result, inputs, _rng: aggregated(name, inputs, **steps)

    wrongs = tuple(Wrong(idea, FED_BACK, cheating(steps), name) for idea, steps in CHEATS.items())
    unsent = Wrong("never sends a block", LARGE, cheating({"send": _send_no_middle}), name)
    return Family(lambda _problem, inputs: aggregated(name, inputs), (*wrongs, unsent), name)


COMPRESSED = tuple(_compressed(name) for name in BLOCKS)
