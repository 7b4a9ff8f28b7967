"""cuDNN's convolution, with a kernel for each algorithm.

FP32 operands are multiplied by FMA alone, but by tensor cores in `_tf32` kernels. 16-bit operands are multiplied by
tensor cores, with sums in FP32. Only a call shows whether a GPU and a version still have an algorithm: if cuDNN refuses
it, the row is `unsupported`. Winograd and FFT are here only for FP32 by FMA, since cuDNN does not report the precision
of its transforms for tensor cores.
"""

from ctypes import addressof, byref, c_size_t, c_void_p
from functools import lru_cache, partial
from typing import Any, NamedTuple

from kernelmark import Launch, kernel
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem
from kernelmark.kernels.conv.vendor import _cudnn
from kernelmark.kernels.conv.vendor._cudnn import ONE, ZERO, cudnn, handle

#: The functions of each pass, and the operands in the order of their arguments, the output last.
_PASSES = {
    "fprop": ("Forward", ("x", "w", "y")),
    "dgrad": ("BackwardData", ("w", "y", "x")),
    "wgrad": ("BackwardFilter", ("x", "y", "w")),
}
_TILE = 32  # the largest side of FFT_TILING's tiles


class _Descriptors(NamedTuple):
    """cuDNN's descriptors of a problem: of its three operands and of the convolution."""

    x: c_void_p
    w: c_void_p
    y: c_void_p
    convolution: c_void_p


@lru_cache
def _descriptors(problem: ConvProblem, math: int) -> _Descriptors:
    """Return cuDNN's descriptors of a problem; they are never destroyed, since launches hold them."""
    p, api = problem, cudnn()
    x, w, y = api.new("TensorDescriptor"), api.new("FilterDescriptor"), api.new("TensorDescriptor")
    convolution = api.new("ConvolutionDescriptor")
    stored, order = _cudnn.DATA_TYPE[p.dtype], _cudnn.FORMAT[p.layout]
    api.cudnnSetTensor4dDescriptor(x, order, stored, p.n, p.c, p.h, p.w)
    api.cudnnSetFilter4dDescriptor(w, stored, order, p.k, p.c // p.groups, p.r, p.s)
    api.cudnnSetTensor4dDescriptor(y, order, stored, p.n, p.k, p.p, p.q)
    steps = (p.stride_h, p.stride_w, p.dilation_h, p.dilation_w)
    mode = (_cudnn.CROSS_CORRELATION, _cudnn.DATA_TYPE["f32"])
    api.cudnnSetConvolution2dDescriptor(convolution, p.pad_h.before, p.pad_w.before, *steps, *mode)
    api.cudnnSetConvolutionGroupCount(convolution, p.groups)
    api.cudnnSetConvolutionMathType(convolution, math)
    return _Descriptors(x, w, y, convolution)


def _workspace(problem: ConvProblem, described: _Descriptors, algorithm: int) -> int:
    """Return the bytes of workspace that an algorithm requests. Raises Refused if cuDNN lacks the algorithm."""
    function, (first, second, output) = _PASSES[problem.direction]
    needed = c_size_t()
    getattr(cudnn(), f"cudnnGetConvolution{function}WorkspaceSize")(
        handle(),
        getattr(described, first),
        getattr(described, second),
        described.convolution,
        getattr(described, output),
        algorithm,
        byref(needed),
    )
    return needed.value


def _launch(problem: ConvProblem, x: ConvOperands, algorithm: int, math: int) -> Launch:
    described = _descriptors(problem, math)
    cudnn().cudnnSetStream(handle(), x.stream.ptr)
    needed = _workspace(problem, described, algorithm)
    space = x.scratch((-(-needed // 2),), "f16").data.ptr if needed else None
    function, operands = _PASSES[problem.direction]
    first, second, output = ((getattr(described, name), getattr(x, name).data.ptr) for name in operands)
    inputs = (addressof(ONE), *first, *second, described.convolution)
    run = getattr(cudnn(), f"cudnnConvolution{function}")
    return partial(run, handle(), *inputs, algorithm, space, needed, addressof(ZERO), *output)


def unequal_padding(p: ConvProblem, why: str) -> str | None:
    """Return why a problem with different padding before and after an axis cannot be taken, or None."""
    if any(pad.before != pad.after for pad in (p.pad_h, p.pad_w)):
        return f"pad is {p.pad}, expected the same before and after: {why}"
    return None


def _symmetric(p: ConvProblem) -> str | None:
    return unequal_padding(p, "cuDNN's descriptor has one number per axis")


def three_by_three(p: ConvProblem) -> str | None:
    """Return why no error bound is known for cuDNN's Winograd algorithm on `p`, or None."""
    if (p.r, p.s) != (3, 3):
        return f"r x s is {p.r} x {p.s}, expected 3 x 3: no error bound is known for cuDNN's other transforms"
    return None


def _winograd_refuses(p: ConvProblem) -> str | None:
    return three_by_three(p) or _symmetric(p)


def _described(problem: ConvProblem) -> str:
    return f"cudnn {cudnn().version} by ctypes"


def products(m: int) -> Any:
    """Return a function that counts F(m x m, 3 x 3)'s (m + 2)^2 products per tile, not its undocumented transforms."""
    return lambda p: p.flop * (m + 2) ** 2 // (9 * m * m)


def spectral(p: ConvProblem) -> int:
    """Return a lower bound on the products' operations, 6 per complex multiply-add, as tile sizes are undocumented."""
    height, width = (min(_TILE, size) for size in (p.h + sum(p.pad_h), p.w + sum(p.pad_w)))
    tiles = max(1, (p.p * p.q) // (_TILE * _TILE))
    return p.n * p.k * (p.c // p.groups) * max(3 * p.p * p.q, 6 * tiles * height * (width // 2 + 1))


_CUDNN: dict[str, Any] = {"provider": "cudnn", "device": "cuda", "modules": ("cupy",), "library_version": _described}
_PLAIN: dict[str, Any] = {"numerics": {"f32": "fp32", "f16": "f16", "bf16": "bf16"}, "supports": _symmetric}
_TF32: dict[str, Any] = {"dtypes": ("f32",), "numerics": "tf32", "supports": _symmetric}
_FFT: dict[str, Any] = {"dtypes": ("f32",), "numerics": "fft", "supports": _symmetric, "executed": spectral}


def _winograd(numerics: str, m: int) -> dict[str, Any]:
    return {"dtypes": ("f32",), "numerics": numerics, "supports": _winograd_refuses, "executed": products(m)}


#: In 16 bits atomic additions round every partial sum: on an H200, elements of cuDNN 9.19's results were off by 15 %.
_ATOMIC: dict[str, Any] = {"dtypes": ("f32",), "numerics": "fp32", "supports": _symmetric}

#: Each algorithm: kernelmark's name for it, its values in cudnnConvolutionFwdAlgo_t, ...BwdDataAlgo_t and
#: ...BwdFilterAlgo_t, its declaration, and the addition to its label.
_ALGORITHMS: tuple[tuple[str, dict[str, int], dict[str, Any], str], ...] = (
    ("implicit_gemm", {"fprop": 0}, _PLAIN, ""),
    ("implicit_precomp_gemm", {"fprop": 1}, _PLAIN, ", with indices computed beforehand"),
    ("gemm", {"fprop": 2}, _PLAIN, ", on a matrix of patches"),
    ("direct", {"fprop": 3}, _PLAIN, ""),
    ("algo_0", {"dgrad": 0, "wgrad": 0}, _ATOMIC, " for dgrad and wgrad, a sum by atomic additions"),
    ("algo_1", {"dgrad": 1, "wgrad": 1}, _PLAIN, " for dgrad and wgrad, an implicit GEMM"),
    ("algo_3", {"wgrad": 3}, _PLAIN, " for wgrad, ALGO_0 with indices computed beforehand"),
    ("implicit_gemm_tf32", {"fprop": 0}, _TF32, ", with TF32 allowed"),
    ("implicit_precomp_gemm_tf32", {"fprop": 1}, _TF32, ", with TF32 allowed"),
    ("gemm_tf32", {"fprop": 2}, _TF32, ", with TF32 allowed"),
    ("algo_0_tf32", {"dgrad": 0, "wgrad": 0}, _TF32, " for dgrad and wgrad, with TF32 allowed"),
    ("algo_1_tf32", {"dgrad": 1, "wgrad": 1}, _TF32, " for dgrad and wgrad, with TF32 allowed"),
    ("algo_3_tf32", {"wgrad": 3}, _TF32, " for wgrad, with TF32 allowed"),
    ("fft", {"fprop": 4, "dgrad": 2, "wgrad": 2}, _FFT, ", of whole images"),
    ("fft_tiling", {"fprop": 5, "dgrad": 3, "wgrad": 6}, _FFT, ", of tiles"),
    ("winograd", {"fprop": 6, "dgrad": 4, "wgrad": 4}, _winograd("winograd", 2), ", fused"),
    ("winograd_nonfused", {"fprop": 7, "dgrad": 5, "wgrad": 5}, _winograd("winograd4", 4), ", in separate stages"),
)


def _math(dtype: str, numerics: Any) -> int:
    """Return DEFAULT_MATH (which allows TF32) for `tf32`, else FMA_MATH for FP32 or TENSOR_OP_MATH for 16 bits."""
    if numerics == "tf32":
        return _cudnn.DEFAULT_MATH
    return _cudnn.FMA_MATH if dtype == "f32" else _cudnn.TENSOR_OP_MATH


def _declare(name: str, numbers: dict[str, int], declared: dict[str, Any], added: str) -> None:
    directions: dict[str, Any] = {} if len(numbers) == len(_PASSES) else {"directions": tuple(numbers)}
    label = f"{name.removesuffix('_tf32').upper()} of cuDNN{added}."

    @kernel("conv", name=name, label=label, **directions, **_CUDNN, **declared)
    def set_up(problem: ConvProblem, x: ConvOperands) -> Launch:
        return _launch(problem, x, numbers[problem.direction], _math(problem.dtype, declared["numerics"]))


for _algorithm in _ALGORITHMS:
    _declare(*_algorithm)
