"""Epilogues: operations on x = alpha op(A) op(B) + beta C before it is stored, with their references and error bounds.

A gradient step with a plain learning rate needs no epilogue: it is one product with alpha = -lr and beta = 1.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from kernelmark import NUMERICS, Array, Bound, Operand, sum_bound, within
from kernelmark.kernels.gemm._reference import Product, Reference, reference
from kernelmark.kernels.gemm._sums import Changed

Epilogue = Literal["plain", "bias-relu", "sigmoid", "update"]
EPILOGUES: tuple[Epilogue, ...] = ("bias-relu", "sigmoid", "update")
#: The numbers of `update`, exact in every storage type: learning rate, momentum and weight decay (5e-4 in AlexNet).
RATE, MOMENTUM, DECAY = 2.0**-6, 0.875, 2.0**-11
#: The rms error of computing 1 / (1 + exp(-x)), a quarter of the largest error, in units of the result's roundoff: exp
#: is within 2.5 ulp, as in NumPy; an addition and a division follow. In FP64, the reference has errors, too.
_SIGMOID = 2.0
ALL = slice(None)


def beside(epilogue: Epilogue, c: Operand) -> tuple[Operand, ...]:
    """Return the operands that an epilogue needs besides A, B and C: the bias, or the velocity (stored like C)."""
    *batch, _, n = c.shape
    operands = {
        "bias-relu": (Operand("bias", (*batch, n), c.dtype, "in", specials=c.specials, others=c.others),),
        "update": (Operand("v", c.shape, c.dtype, "inout", c.pad, specials=c.specials, others=c.others),),
    }
    return operands.get(epilogue, ())


class Activation(NamedTuple):
    """A product followed by an activation. bias: (batch, n), or None."""

    epilogue: Epilogue
    product: Product
    bias: Array | None

    def reference(self, rng: "np.random.Generator") -> Reference:
        """Return the reference of all elements of C, since sums of activations do not follow from sums of operands."""
        linear = reference(self.product, rng, whole=True)
        if self.bias is not None:
            added = self.bias[:, None].astype(np.float64)
            unit = np.hypot(linear.unit, added * (3 / math.sqrt(self.product.a.shape[2])))
            return linear._replace(values=np.maximum(linear.values + added, 0.0), unit=unit)
        with np.errstate(over="ignore"):  # if exp is infinite, its inverse is 0
            return linear._replace(values=1 / (1 + np.exp(-linear.values)), before=linear.values)

    def all_right(self, c: Array, known: Reference, rows: Array, columns: Array, bound: Bound) -> bool:
        """Return whether all of C, (batch, m, n), is within its bound.

        known: the reference before a few elements of the operands changed. rows: the batch numbers and indices of the
        rows of C that this affects; columns: likewise for its columns.
        """
        right, rng = within(c, known.values, known.scaled(bound)), np.random.default_rng(0)
        for i in np.unique(np.concatenate([rows[0], columns[0]])).tolist():
            for at in ((np.unique(rows[1][rows[0] == i]), ALL), (ALL, np.unique(columns[1][columns[0] == i]))):
                bias = None if self.bias is None else self.bias[i : i + 1, at[1]]
                now = Activation(self.epilogue, self.product.part(i, *at), bias).reference(rng)
                right[i][at] = within(c[i][at][None], now.values, now.scaled(bound))[0]
        return bool(right.all())


def steps(product: Product, weights: Array, velocity: Array) -> dict[str, Product]:
    """Return C and V after an update: each is the scaled product plus a term of the old weights and velocity."""
    moved = MOMENTUM * velocity.astype(np.float64) - RATE * DECAY * weights.astype(np.float64)
    step = product._replace(alpha=-RATE * product.alpha, beta=1.0)
    c = step._replace(c=moved + weights, added=np.hypot(moved, weights))
    return {"c": c, "v": step._replace(c=moved)}


def step_changes(output: str, changed: Mapping[str, Changed]) -> dict[str, Changed]:
    """Return `changed` with "c" for the changes of the term that `steps` adds to the product to obtain `output`."""
    factors = {"c": float(output == "c") - RATE * DECAY, "v": MOMENTUM}
    added = [(*changed[name][:3], *(factor * x for x in changed[name][3:])) for name, factor in factors.items()]
    which, row, column, new, old = map(np.concatenate, zip(*added, strict=True))
    return {**changed, "c": (which, row, column, new, old)}


def updated(product: Product, weights: Array, velocity: Array, rng: "np.random.Generator") -> Reference:
    """Return the reference of C, with that of V in its field `beside`. Both outputs are linear in the product."""
    products = steps(product, weights, velocity)
    v = reference(products["v"], rng)._replace(name="v")
    return reference(products["c"], rng)._replace(beside=(v,))


def bound(epilogue: Epilogue, numerics: str, storage: str, k: int, stored: str, is_plain: bool) -> Bound:
    """Return the bound of C or V: the errors of the product and of the epilogue itself, without a sigmoid's slope.

    The bound is a multiple of the reference's `unit`; `Reference.scaled` multiplies it by the slope. is_plain: alpha is
    1, and nothing is added to the product.
    """
    sum_error = sum_bound(numerics, storage, k, stored, added=float(not is_plain))
    return sum_error._replace(own=_SIGMOID * NUMERICS[numerics].accumulate) if epilogue == "sigmoid" else sum_error
