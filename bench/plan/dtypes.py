"""Storage types, and the arithmetic ("numerics") that a kernel declares."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class DType(NamedTuple):
    """A storage type: size in bytes, unit roundoff, the NaN that marks unwritten elements, and the name in CUDA.

    underflow: the largest rounding error of a subnormal number. largest: the bits of the largest number.
    """

    itemsize: int
    roundoff: float
    poison: int
    ctype: str
    underflow: float
    largest: int


# f64, f32 and bf16 may flush subnormals to zero. FP8 is used for operands, never for results.
DTYPES = {
    "f64": DType(8, 2.0**-53, 0x7FF8DEADDEADDEAD, "double", 2.0**-1022, 0x7FEFFFFFFFFFFFFF),
    "f32": DType(4, 2.0**-24, 0x7FC0DEAD, "float", 2.0**-126, 0x7F7FFFFF),
    "f16": DType(2, 2.0**-11, 0x7EAD, "__half", 2.0**-25, 0x7BFF),
    "bf16": DType(2, 2.0**-8, 0x7FDE, "__nv_bfloat16", 2.0**-126, 0x7F7F),
    "e4m3": DType(1, 2.0**-4, 0x7F, "__nv_fp8_e4m3", 2.0**-10, 0x7E),
    "e5m2": DType(1, 2.0**-3, 0x7E, "__nv_fp8_e5m2", 2.0**-17, 0x7B),
    "s8": DType(1, 0.0, 0x80, "signed char", 0.0, 0x7F),
    "s32": DType(4, 0.0, 0x80000000, "int", 0.0, 0x7FFFFFFF),
}
#: Signed integers, named as in PTX. They have no NaN, so the lowest value marks unwritten elements.
INTEGERS = ("s8", "s32")

#: The types that NumPy lacks, by their names in ml_dtypes.
ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


class Numerics(NamedTuple):
    """The unit roundoffs of operands, which are rounded before they are multiplied, and of the accumulator.

    truncating: the number of products that are added before the sum is truncated to the accumulator, or 0 if sums are
    rounded to nearest. Truncation is biased, so its errors add up. promoted: the number of products that are summed
    with 14 bits before this sum is added to the accumulator, or 0 if each product is added to the accumulator.
    """

    operand: float
    accumulate: float
    truncating: int = 0
    promoted: int = 0


#: The fewest products that a tensor core adds before it truncates the sum (Fasi, Higham, Mikaitis, Pranesh, "Numerical
#: behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021).
_TENSOR_CORE = 4
#: Hopper adds products of FP8 with 14 bits, which NVIDIA does not document: DeepSeek-AI, "DeepSeek-V3 Technical
#: Report", arXiv:2412.19437, 3.5.2, and Zhang et al., "SageAttention2", arXiv:2411.10958, who found 13 bits after the
#: point. Sums are promoted after as many products as in DeepSeek-V3.
_PROMOTED = 128
# Tensor cores truncate TF32 operands to 10 bits of mantissa, so their roundoff is 2^-10, not 2^-11.
NUMERICS = {
    "exact": Numerics(0.0, 0.0),
    "fp64": Numerics(0.0, 2.0**-53),
    "fp32": Numerics(0.0, 2.0**-24),
    # Three TF32 products of depth 8 are summed from zero, the small ones first; these sums are added up in FP32.
    "3xtf32": Numerics(2.0**-20, 2.0**-24),
    "tf32": Numerics(2.0**-10, 2.0**-24, _TENSOR_CORE),
    "f16": Numerics(2.0**-11, 2.0**-24, _TENSOR_CORE),
    "bf16": Numerics(2.0**-8, 2.0**-24, _TENSOR_CORE),
    "e4m3": Numerics(2.0**-4, 2.0**-24, promoted=_PROMOTED),
    "e5m2": Numerics(2.0**-3, 2.0**-24, promoted=_PROMOTED),
    "f16acc": Numerics(0.0, 2.0**-11),
    # FP32 after a transform: Winograd's F(2x2,3x3) and F(4x4,3x3), and Fourier's.
    "winograd": Numerics(0.0, 2.0**-24),
    "winograd4": Numerics(0.0, 2.0**-24),
    "fft": Numerics(0.0, 2.0**-24),
    # FP32 and FP64, by Strassen's algorithm or Winograd's variant of it, which multiply blocks of half the size.
    "strassen": Numerics(0.0, 2.0**-24),
    "strassen64": Numerics(0.0, 2.0**-53),
    # FP32 and FP64, by the definition of the discrete Fourier transform, whose sums have one term per point.
    "dft": Numerics(0.0, 2.0**-24),
    "dft64": Numerics(0.0, 2.0**-53),
    # FP32; only a bit or a byte per element is sent, and the rest is kept and added to the next gradient.
    "onebit": Numerics(0.0, 2.0**-24),
    "int8": Numerics(0.0, 2.0**-24),
}

#: By numerics, the lowest compute capability that supports it, times ten. Of these, CPUs support only `ON_CPU`.
CAPABILITY = {"f16": 70, "tf32": 80, "3xtf32": 80, "bf16": 80, "e4m3": 89, "e5m2": 89}
ON_CPU = ("f16", "bf16")

#: The numerics of a kernel that declares none: full products, accumulated in at least FP32 or as integers.
NATIVE = {"f64": "fp64", "s8": "exact"} | dict.fromkeys(("f32", "f16", "bf16", "e4m3", "e5m2"), "fp32")


def operand_roundoff(numerics: str, storage: str) -> float:
    """Return the unit roundoff with which `numerics` rounds operands stored as `storage`; 0 if they are not rounded."""
    roundoff = NUMERICS[numerics].operand
    return roundoff if DTYPES[storage].roundoff < roundoff else 0.0


def numerics_missing(numerics: str, device: str, capability: int) -> str | None:
    """Return why a device cannot compute in `numerics`, or None; capability: a GPU's compute capability times ten."""
    least = CAPABILITY.get(numerics, 0)
    if device == "cpu":
        return f"declares {numerics}, which no CPU has" if least and numerics not in ON_CPU else None
    if device == "cuda" and capability < least:
        return f"declares {numerics}, which needs a compute capability of {least / 10}; this GPU has {capability / 10}"
    return None


def precision(dtype: str, numerics: str) -> str:
    """Return the class of precision; only kernels of one class are compared.

    The classes are `fp64`, `fp32` (strict), `tf32`, `half`, `fp8`, `int8`, and `exact` for data that is only moved.
    """
    storage = split_dtype(dtype)[0]
    by_storage = {"f16": "half", "bf16": "half", "e4m3": "fp8", "e5m2": "fp8", "s8": "int8"}
    by_numerics = {"tf32": "tf32", "3xtf32": "tf32", "exact": "exact"}
    return by_storage.get(storage) or by_numerics.get(numerics) or ("fp64" if storage == "f64" else "fp32")


def split_dtype(dtype: str) -> tuple[str, str]:
    """Return the storage types of inputs and of outputs: `f32` is (f32, f32), `f16.f32` is (f16, f32)."""
    first, _, second = dtype.partition(".")
    return first, second or first


@lru_cache
def numpy_dtype(name: str) -> "np.dtype[Any]":
    """Return the NumPy dtype of a storage type (bf16 and FP8 from ml_dtypes, imported on first use)."""
    if name in ML_DTYPES:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, ML_DTYPES[name]))
        return dtype
    return np.dtype(f"{'i' if name in INTEGERS else 'f'}{DTYPES[name].itemsize}")


def bits_dtype(name: str) -> "np.dtype[Any]":
    """Return the unsigned integer type as wide as the storage type, for comparing bits."""
    return np.dtype(f"u{DTYPES[name].itemsize}")
