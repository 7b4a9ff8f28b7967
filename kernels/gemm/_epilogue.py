"""Epilogues: what becomes of x = alpha op(A) op(B) + beta C before it is stored; their truth in float64, their errors.

A gradient and its update by a plain learning rate need none: they are one product with alpha = -lr and beta = 1.
"""

import math
from typing import Literal

import numpy as np

from kernelmark import NUMERICS, Array, Bound, Operand, sum_bound
from kernelmark.kernels.gemm._reference import Product, Reference, reference

Epilogue = Literal["plain", "bias-relu", "sigmoid", "update"]
EPILOGUES: tuple[Epilogue, ...] = ("bias-relu", "sigmoid", "update")
#: The step of `update`: learning rate, momentum and weight decay (5e-4 in AlexNet), which every storage type holds.
RATE, MOMENTUM, DECAY = 2.0**-6, 0.875, 2.0**-11
#: The error of 1 / (1 + exp(-x)) itself in units of its result's roundoff: exp within 2.5 units in the last place, as
#: NumPy has it, an addition and a division; the largest, and the rms. In float64 the reference errs as much.
_SIGMOID, _SIGMOID_RMS = 8.0, 2.0
#: How steep the sigmoid is at the most.
_SLOPE = 0.25


def beside(epilogue: Epilogue, c: Operand) -> tuple[Operand, ...]:
    """Return the operands of an epilogue beside A, B and C: the bias, or the velocity, which is stored like C."""
    *batch, _, n = c.shape
    found = {
        "bias-relu": (Operand("bias", (*batch, n), c.dtype, "in", specials=c.specials, others=c.others),),
        "update": (Operand("v", c.shape, c.dtype, "inout", c.pad, specials=c.specials, others=c.others),),
    }
    return found.get(epilogue, ())


def activated(epilogue: Epilogue, product: Product, bias: Array | None, rng: "np.random.Generator") -> Reference:
    """Return the reference of all elements of C: no sum of activations follows from sums of operands."""
    found = reference(product, rng, whole=True)
    if bias is not None:
        added = bias[:, None].astype(np.float64)
        unit = np.hypot(found.unit, added * (3 / math.sqrt(product.a.shape[2])))
        return found._replace(values=np.maximum(found.values + added, 0.0), unit=unit)
    with np.errstate(over="ignore"):  # where exp is infinite, its inverse is 0
        # The sigmoid itself errs by as much however small x is.
        return found._replace(values=1 / (1 + np.exp(-found.values)), unit=np.maximum(found.unit, 1.0))


def updated(product: Product, weights: Array, velocity: Array, rng: "np.random.Generator") -> Reference:
    """Return the reference of C and, beside it, of V, which are both linear in the product."""
    moved = MOMENTUM * velocity.astype(np.float64) - RATE * DECAY * weights.astype(np.float64)
    step = product._replace(alpha=-RATE * product.alpha, beta=1.0)
    v = reference(step._replace(c=moved), rng)._replace(name="v")
    added = np.hypot(moved, weights)
    return reference(step._replace(c=moved + weights, added=added), rng)._replace(beside=(v,))


def bound(epilogue: Epilogue, numerics: str, storage: str, k: int, stored: str, is_plain: bool) -> Bound:
    """Bound the errors of C or V: those of x, times how steep the epilogue is at most, and those of its own steps.

    In units of the reference's, whose products include the added operand. is_plain: nothing is added, and alpha is 1.
    """
    found = sum_bound(numerics, storage, k, stored, added=float(not is_plain))
    if epilogue != "sigmoid":
        return found
    u = NUMERICS[numerics].accumulate
    rms = math.hypot(_SLOPE * found.rms, _SIGMOID_RMS * u)
    return found._replace(largest=_SLOPE * found.largest + _SIGMOID * u, rms=rms)
