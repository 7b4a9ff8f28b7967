"""Wrong epilogues of products: in another order, along another axis, of another sign, or of numbers that are stale."""

from typing import Any

import numpy as np

from kernelmark.bench.plan.dtypes import Array
from kernelmark.bench.selftest.wrong.library import Family, Inputs, Spoil, Wrong, put

#: Square, so that a bias fits either axis.
BIAS, SIGMOID, UPDATE = (f"gemm/m300n300k500/f32/NN/epi-{name}" for name in ("bias-relu", "sigmoid", "update"))
#: Large enough to be sampled.
SAMPLED = "gemm/m801n901k800/f32/NN/epi-update"


def exact(problem: Any, inputs: Inputs) -> Array:
    """C in float64, and V after it."""
    x = product(inputs)
    if problem.epilogue == "update":
        gradient = x + problem.decay * inputs["c"].astype(np.float64)
        v = problem.momentum * inputs["v"].astype(np.float64) - problem.rate * gradient
        return np.stack([inputs["c"] + v, v])
    found: Array = np.maximum(x + inputs["bias"], 0) if problem.epilogue == "bias-relu" else 1 / (1 + np.exp(-x))
    return found


def product(inputs: Inputs) -> Array:
    """A B in float64."""
    found: Array = inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)
    return found


def of_product(spoiled: Any) -> Spoil:
    """Return what puts a function of A B and of the inputs in the place of the result."""
    return lambda _values, inputs, _rng: spoiled(product(inputs), inputs)


def late_by_a_step(values: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    """C takes the step that V had before."""
    values[0] = inputs["c"].astype(np.float64) + inputs["v"]


def unmoved(values: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    """V stays as it was."""
    values[1] = inputs["v"]


def without_decay(values: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    """No weight decays: C takes the share of the step that it would have lost."""
    values += 2.0**-17 * inputs["c"].astype(np.float64)


def uphill(values: Array, inputs: Inputs, _rng: "np.random.Generator") -> None:
    """The step is along the gradient."""
    values += 2.0**-5 * product(inputs)


EPILOGUES = Family(
    exact,
    (
        Wrong("the bias along the rows", BIAS, of_product(lambda x, y: np.maximum(x + y["bias"][:, None], 0))),
        Wrong("no bias", BIAS, of_product(lambda x, _: np.maximum(x, 0))),
        Wrong("ReLU before the bias", BIAS, of_product(lambda x, y: np.maximum(x, 0) + y["bias"])),
        Wrong("no ReLU", BIAS, of_product(lambda x, y: x + y["bias"])),
        Wrong("an element NaN", BIAS, put(np.nan, None, None)),
        Wrong("an element too large", BIAS, put(1e4, 170, 130)),
        Wrong("the sigmoid of -x", SIGMOID, of_product(lambda x, _: 1 / (1 + np.exp(x)))),
        Wrong("tanh for the sigmoid", SIGMOID, of_product(lambda x, _: np.tanh(x))),
        Wrong("an element NaN", SIGMOID, put(np.nan, None, None)),
        Wrong("C takes the step before", UPDATE, late_by_a_step),
        Wrong("V not stored", UPDATE, unmoved),
        Wrong("no weight decay", UPDATE, without_decay),
        Wrong("a step uphill", UPDATE, uphill),
        Wrong("an element of V NaN", UPDATE, put(np.nan, 1, None, None)),
        Wrong("C takes the step before", SAMPLED, late_by_a_step),
        Wrong("an inner element of V NaN", SAMPLED, put(np.nan, 1, 700, 301)),
        Wrong("a row of V zero", SAMPLED, put(0.0, 1, None)),
    ),
)
