"""Scales of FP8 operands: one for each 128 elements of a row of op(A), one for each 128 x 128 block of op(B).

DeepSeek-V3 uses these scales (DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, 3.3.2). They have
cuBLASLt's layouts CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F and CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F.
"""

from typing import Literal

import numpy as np

from kernelmark import SPECIALS, Array, Operand

Scale = Literal["none", "blocks"]
#: Elements along k, and columns of op(B), that share a scale.
BLOCK = 128


def beside(m: int, n: int, k: int, batch: tuple[int, ...]) -> tuple[Operand, Operand]:
    """Return the operands scale_a (ceil(k / 128) x m) and scale_b (ceil(n / 128) x ceil(k / 128)).

    Rows are padded to 16 bytes.
    """
    deep, wide = (-(-size // BLOCK) for size in (k, n))
    return (
        Operand("scale_a", (*batch, deep, m), "f32", "in", -m % 4, specials=SPECIALS, others=1.0),
        Operand("scale_b", (*batch, wide, deep), "f32", "in", -deep % 4, specials=SPECIALS, others=1.0),
    )


def scaled(a: Array, b: Array, scale_a: Array, scale_b: Array) -> tuple[Array, Array]:
    """Return op(A) (batch, m, k) and op(B) (batch, k, n) times their scales (as stored), in float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    for block in range(scale_a.shape[1]):
        along_k = slice(block * BLOCK, (block + 1) * BLOCK)
        a[:, :, along_k] *= scale_a[:, block, :, None]
        b[:, along_k] *= np.repeat(scale_b[:, :, block], BLOCK, axis=1)[:, None, : b.shape[2]]
    return a, b
