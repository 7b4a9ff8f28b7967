"""cuDNN's convolution, each algorithm a kernel of its own name.

FP32 operands are multiplied by FMA alone, those of `_tf32` by tensor cores, 16-bit ones by tensor cores with sums in
FP32. Which algorithms a GPU and a version still have, only a call tells: its refusal is an `unsupported` row. Winograd
and FFT are here for FP32 by FMA alone, since cuDNN does not tell in what precision it transforms for tensor cores.
"""

from ctypes import addressof, byref, c_size_t, c_void_p
from functools import lru_cache, partial
from typing import Any, NamedTuple

from kernelmark import Launch, kernel
from kernels.conv.problem import ConvOperands, ConvProblem
from kernels.conv.vendor import _cudnn
from kernels.conv.vendor._cudnn import ONE, ZERO, cudnn, handle

#: Of each pass: its functions, the operands in the order of their arguments, the output last.
_PASSES = {
    "fprop": ("Forward", ("x", "w", "y")),
    "dgrad": ("BackwardData", ("w", "y", "x")),
    "wgrad": ("BackwardFilter", ("x", "y", "w")),
}
# cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t and cudnnConvolutionBwdFilterAlgo_t by fprop, dgrad, wgrad.
_FFT, _FFT_TILING = {"fprop": 4, "dgrad": 2, "wgrad": 2}, {"fprop": 5, "dgrad": 3, "wgrad": 6}
_WINOGRAD, _WINOGRAD_NONFUSED = {"fprop": 6, "dgrad": 4, "wgrad": 4}, {"fprop": 7, "dgrad": 5, "wgrad": 5}
_TILE = 32  # of FFT_TILING, the larger of its sides at the most


class _Descriptors(NamedTuple):
    """What cuDNN knows of a problem: its three operands and the convolution."""

    x: c_void_p
    w: c_void_p
    y: c_void_p
    convolution: c_void_p


@lru_cache
def _descriptors(problem: ConvProblem, math: int) -> _Descriptors:
    """They live as long as the process, since launches hold them."""
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
    """Bytes that the algorithm asks for. Raises Refused where cuDNN has it not."""
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


def _symmetric(p: ConvProblem) -> str | None:
    if any(pad.before != pad.behind for pad in (p.pad_h, p.pad_w)):
        return f"pad is {p.pad}, expected the same before and behind: cuDNN's descriptor has one number an axis"
    return None


def three_by_three(p: ConvProblem) -> str | None:
    """Why the error of cuDNN's Winograd is not known for `p`, or None."""
    if (p.r, p.s) != (3, 3):
        return f"r x s is {p.r} x {p.s}, expected 3 x 3: no bound of the error is known for cuDNN's other transforms"
    return None


def _winograd_refuses(p: ConvProblem) -> str | None:
    return three_by_three(p) or _symmetric(p)


def _described(problem: ConvProblem) -> str:
    return f"cudnn {cudnn().version} by ctypes"


def products(m: int) -> Any:
    """Those of F(m x m, 3 x 3) alone, (m + 2)^2 where direct convolution has 9 m^2; cuDNN does not tell the rest."""
    return lambda p: p.flop * (m + 2) ** 2 // (9 * m * m)


def spectral(p: ConvProblem) -> int:
    """The least that multiplies the spectra, 6 a complex multiply-add; cuDNN does not tell what sizes it transforms."""
    height, width = (min(_TILE, size) for size in (p.h + sum(p.pad_h), p.w + sum(p.pad_w)))
    tiles = max(1, (p.p * p.q) // (_TILE * _TILE))
    return 6 * p.n * p.k * (p.c // p.groups) * tiles * height * (width // 2 + 1)


_CUDNN: dict[str, Any] = {"provider": "cudnn", "device": "cuda", "modules": ("cupy",), "library_version": _described}
_GEMM: dict[str, Any] = {
    **_CUDNN,
    "numerics": {"f32": "fp32", "f16": "f16", "bf16": "bf16"},
    "supports": _symmetric,
}
_TF32: dict[str, Any] = {**_CUDNN, "dtypes": ("f32",), "numerics": "tf32", "supports": _symmetric}
_FP32: dict[str, Any] = {**_CUDNN, "dtypes": ("f32",)}
_FORWARD = ("fprop",)
_GRADIENTS = ("dgrad", "wgrad")


def _by_fma(problem: ConvProblem, x: ConvOperands, algorithm: int) -> Launch:
    """Tensor cores for 16-bit operands only."""
    math = _cudnn.FMA_MATH if problem.dtype == "f32" else _cudnn.TENSOR_OP_MATH
    return _launch(problem, x, algorithm, math)


def _by_tensor_cores(problem: ConvProblem, x: ConvOperands, algorithm: int) -> Launch:
    """The default lets cuDNN round FP32 to TF32; TENSOR_OP_MATH allows no conversion."""
    return _launch(problem, x, algorithm, _cudnn.DEFAULT_MATH)


@kernel("conv", directions=_FORWARD, **_GEMM)
def implicit_gemm(problem: ConvProblem, x: ConvOperands) -> Launch:
    """IMPLICIT_GEMM of cuDNN."""
    return _by_fma(problem, x, 0)


@kernel("conv", directions=_FORWARD, **_GEMM)
def implicit_precomp_gemm(problem: ConvProblem, x: ConvOperands) -> Launch:
    """IMPLICIT_PRECOMP_GEMM of cuDNN, with indices computed beforehand."""
    return _by_fma(problem, x, 1)


@kernel("conv", directions=_FORWARD, **_GEMM)
def gemm(problem: ConvProblem, x: ConvOperands) -> Launch:
    """GEMM of cuDNN, on a matrix of patches."""
    return _by_fma(problem, x, 2)


@kernel("conv", directions=_FORWARD, **_GEMM)
def direct(problem: ConvProblem, x: ConvOperands) -> Launch:
    """DIRECT of cuDNN."""
    return _by_fma(problem, x, 3)


@kernel("conv", directions=_GRADIENTS, **_GEMM)
def algo_0(problem: ConvProblem, x: ConvOperands) -> Launch:
    """ALGO_0 of cuDNN for dgrad and wgrad, a sum by atomic additions."""
    return _by_fma(problem, x, 0)


@kernel("conv", directions=_GRADIENTS, **_GEMM)
def algo_1(problem: ConvProblem, x: ConvOperands) -> Launch:
    """ALGO_1 of cuDNN for dgrad and wgrad, an implicit GEMM."""
    return _by_fma(problem, x, 1)


@kernel("conv", directions=("wgrad",), **_GEMM)
def algo_3(problem: ConvProblem, x: ConvOperands) -> Launch:
    """ALGO_3 of cuDNN for wgrad, ALGO_0 with indices computed beforehand."""
    return _by_fma(problem, x, 3)


@kernel("conv", directions=_FORWARD, **_TF32)
def implicit_gemm_tf32(problem: ConvProblem, x: ConvOperands) -> Launch:
    """IMPLICIT_GEMM of cuDNN, allowed TF32."""
    return _by_tensor_cores(problem, x, 0)


@kernel("conv", directions=_FORWARD, **_TF32)
def implicit_precomp_gemm_tf32(problem: ConvProblem, x: ConvOperands) -> Launch:
    """IMPLICIT_PRECOMP_GEMM of cuDNN, allowed TF32."""
    return _by_tensor_cores(problem, x, 1)


@kernel("conv", directions=_FORWARD, **_TF32)
def gemm_tf32(problem: ConvProblem, x: ConvOperands) -> Launch:
    """GEMM of cuDNN, allowed TF32."""
    return _by_tensor_cores(problem, x, 2)


@kernel("conv", directions=_GRADIENTS, **_TF32)
def algo_0_tf32(problem: ConvProblem, x: ConvOperands) -> Launch:
    """ALGO_0 of cuDNN for dgrad and wgrad, allowed TF32."""
    return _by_tensor_cores(problem, x, 0)


@kernel("conv", directions=_GRADIENTS, **_TF32)
def algo_1_tf32(problem: ConvProblem, x: ConvOperands) -> Launch:
    """ALGO_1 of cuDNN for dgrad and wgrad, allowed TF32."""
    return _by_tensor_cores(problem, x, 1)


@kernel("conv", directions=("wgrad",), **_TF32)
def algo_3_tf32(problem: ConvProblem, x: ConvOperands) -> Launch:
    """ALGO_3 of cuDNN for wgrad, allowed TF32."""
    return _by_tensor_cores(problem, x, 3)


@kernel("conv", numerics="fft", supports=_symmetric, executed=spectral, **_FP32)
def fft(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFT of cuDNN, of whole images."""
    return _by_fma(problem, x, _FFT[problem.direction])


@kernel("conv", numerics="fft", supports=_symmetric, executed=spectral, **_FP32)
def fft_tiling(problem: ConvProblem, x: ConvOperands) -> Launch:
    """FFT_TILING of cuDNN, of tiles."""
    return _by_fma(problem, x, _FFT_TILING[problem.direction])


@kernel("conv", numerics="winograd", supports=_winograd_refuses, executed=products(2), **_FP32)
def winograd(problem: ConvProblem, x: ConvOperands) -> Launch:
    """WINOGRAD of cuDNN, fused."""
    return _by_fma(problem, x, _WINOGRAD[problem.direction])


@kernel("conv", numerics="winograd4", supports=_winograd_refuses, executed=products(4), **_FP32)
def winograd_nonfused(problem: ConvProblem, x: ConvOperands) -> Launch:
    """WINOGRAD_NONFUSED of cuDNN, its stages apart."""
    return _by_fma(problem, x, _WINOGRAD_NONFUSED[problem.direction])
