"""The transforms of Winograd's minimal filtering F(m x m, 3 x 3): Y = A^T ((G w G^T) * (B^T x B)) A.

Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4.
"""

from typing import NamedTuple

import numpy as np

from kernelmark import Array


class Transforms(NamedTuple):
    """Matrices for m outputs from m + 2 inputs along one axis: A^T (m x m+2), G (m+2 x 3), B^T (m+2 x m+2)."""

    at: Array
    g: Array
    bt: Array


F2 = Transforms(
    at=np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64),
    g=np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]) / 2,
    bt=np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64),
)
F4 = Transforms(
    at=np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float64),
    g=np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24,
    bt=np.array(
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        np.float64,
    ),
)

#: The transforms of F(m x m, 3 x 3), by m.
BY_TILE = {2: F2, 4: F4}


def growth(f: Transforms) -> float:
    """Return the rms error of a tile's least exact output over the rms error of a plain sum of as many products."""
    return float(_variances(f).max())


def unevenness(f: Transforms) -> float:
    """Return the rms error of a tile's least exact outputs divided by the rms error of all its outputs."""
    variances = _variances(f)
    return float(variances.max() / variances.mean())


def _variances(f: Transforms) -> Array:
    """Return the variances of errors along one axis; a variance along both axes is the product of two of these."""
    variances: Array = f.at**2 @ ((f.bt**2).sum(axis=1) * (f.g**2).sum(axis=1))
    return variances
